"""Erasing without a broker: what its service does step by step, in one go."""

from pyromq.store.erasing import Named, named_in
from pyromq.store.message_store import MessageStore
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.rewriting import Gone
from pyromq.tier.upkeep import TierUpkeep

EVERYWHERE = 1 << 62


def erase(store: MessageStore, *names: Named) -> None:
    store.erasing.ask(list(names), store.log.end, 0)
    finish_erasing(store)


def finish_erasing(store: MessageStore) -> int:
    """Do what was asked for; how many messages there were."""
    count = 0
    for wanted in store.erasing.unfinished():
        offset = store.log.start
        while offset < wanted.log_offset:
            offset, found = store.erasing.find(
                {named_in(wanted.topic): wanted.log_offset}, offset, wanted.log_offset
            )
            for message in found:
                store.erasing.hide(message)
                store.erasing.overwrite(message)
            count += len(found)
        store.erasing.finish(wanted)
    return count


def erase_from_tier(upkeep: TierUpkeep, names: list[Named], epoch: int = 0) -> list[SegmentEntry]:
    """The segments that had some of the messages."""
    gone = Gone(keys=tuple((topic, key, EVERYWHERE) for topic, key in names))
    clean: set[str] = set()
    changed = []
    while (entry := upkeep.next_to_erase(EVERYWHERE, clean, epoch)) is not None:
        mended = upkeep.erase(entry, gone, epoch)
        clean.add((mended or entry).name)
        if mended is not None:
            changed.append(entry)
    upkeep.erased(["done"], epoch)
    return changed
