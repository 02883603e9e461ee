"""Repair of a store directory without a broker: damage in its log is replaced by what another broker has.

Nothing else is changed, but a queue that has no unit for such a message is removed: the next start builds it
again. A broker that runs repairs its log itself.
"""

from collections.abc import Callable, Iterator

from pyromq.protocol.record import RecordOutline, SysFlag
from pyromq.store.log.damage import Damage
from pyromq.store.offline import OfflineStore
from pyromq.store.queues.consume_queue import UNIT
from pyromq.store.queues.queue_files import UNIT_BYTES
from pyromq.store.scrubbing import NotThere, Scrubbing

View = Callable[[int], bytes | None]
"""Another broker's record at a log offset; None if none begins there."""


def repair(
    store: OfflineStore, view: View, tell: Callable[[int], None] = lambda _: None
) -> Iterator[tuple[Damage, str]]:
    """Each damaged range, and why it was not replaced; empty if it was. `tell` gets the number of bytes read.

    Raises StoreError if a broker has the store open.
    """
    lock = store.files.lock(store.paths.lock)
    try:
        scrubbing, offset = Scrubbing(store.files, store.log), store.log_start
        while offset < store.log_end:
            before = offset
            offset, damage = scrubbing.check(offset, store.log_end)
            tell(offset - before)
            if damage is not None:
                yield damage, _replace(store, scrubbing, damage, view)
        store.files.sync_all_directories()
    finally:
        lock.release()


def _replace(store: OfflineStore, scrubbing: Scrubbing, damage: Damage, view: View) -> str:
    steps, record = scrubbing.replacing(damage), None
    try:
        while True:
            wanted = steps.send(record)
            if isinstance(wanted, int):
                record = view(wanted)
            else:
                wanted()
                record = None
    except NotThere as reason:
        return str(reason)
    except StopIteration:
        for _, outline in store.log.outlines(damage.start, damage.end):
            _remove_queue_without(store, outline)
        return ""


def _remove_queue_without(store: OfflineStore, outline: RecordOutline) -> None:
    topic, queue_id, position = outline.topic, outline.queue_id, outline.queue_offset * UNIT_BYTES
    starts = [start for start in store.queue_starts(topic, queue_id) if start <= position]
    if not starts or outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
        return
    path = store.queue_path(topic, queue_id, starts[-1])
    raw = store.files.read(path, position - starts[-1], UNIT_BYTES)
    if len(raw) == UNIT_BYTES and UNIT.unpack(raw)[:2] != (outline.log_offset, outline.size):
        store.files.remove_tree(path.parent)
        store.remarks.append(
            f"queue {topic}/{queue_id} had no unit for a message: the next start rebuilds it"
        )
