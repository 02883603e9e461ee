"""Upkeep: what is too old leaves the tier, deleted messages are removed from segments, leftovers are swept.

Only whoever has claimed the tier does this. A segment is replaced in this order: the new object, the
manifest, and, when readers have had time to learn of it, the removal of the old object. Killed in between,
the next round finds either an object that no manifest names or a removal that is due.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from pyromq.filesystem import UNFINISHED_SUFFIX
from pyromq.tier.index import TierIndex
from pyromq.tier.manifest import Manifest, Removal, SegmentEntry, gone_before
from pyromq.tier.manifests import Manifests
from pyromq.tier.names import (
    HINT,
    MANIFESTS,
    SEGMENTS,
    TABLES,
    parse_manifest_name,
    parse_segment_name,
    parse_tables_name,
)
from pyromq.tier.objects import ObjectInfo
from pyromq.tier.rewriting import Gone
from pyromq.tier.uploading import Uploader, UploadTask

GRACE_MS: Final = 10 * 60_000
"""Readers look for a new manifest every 30 s."""
KEPT_MANIFESTS: Final = 100
_KEPT_MANIFESTS_MS: Final = 24 * 3_600_000
"""A delayed request of an old master must not find its number free."""
_WORTH: Final = 4
"""A segment is rewritten for its old messages if at least one byte in this many belongs to them."""

_KEPT_ERASURES: Final = 10_000
_FOR_EVER: Final = 1 << 62

OldestMs = Callable[[str], int]
"""Messages of a topic that were stored before this time go; 0 keeps all."""


class Due(NamedTuple):
    """The work to be done on a segment."""

    entry: SegmentEntry
    gone: Gone | None
    """The part to remove from it; None if it goes as a whole."""


def due(index: TierIndex, oldest_ms: OldestMs, default_oldest_ms: int) -> list[Due]:
    """The segments that have to change, oldest first."""
    manifest = index.manifest
    found = []
    for entry in manifest.segments if manifest is not None else ():
        spans = index.parts.get(entry.name)
        if spans is None:
            continue  # its content is unknown
        deleted = old = kept = 0
        older: dict[str, int] = {}
        for (topic, queue_id), span in spans:
            limit_ms = oldest_ms(topic)
            if span.first_log < gone_before(index.hidden, topic, queue_id):
                deleted += span.size_bytes
                kept += span.last_log >= gone_before(index.hidden, topic, queue_id)
            elif span.last_ms < limit_ms:
                older[topic] = limit_ms
                old += span.size_bytes
            else:
                kept += 1
        # The last one stays: it says up to where the log is in the tier.
        is_last = entry == manifest.segments[-1] if manifest is not None else False
        if not kept and not is_last and (spans or entry.last_ms < default_oldest_ms):
            found.append(Due(entry, None))
        elif deleted or old * _WORTH >= entry.log_end - entry.log_start:
            found.append(Due(entry, Gone(dict(index.hidden), older)))
    return found


class TierUpkeep:
    """Everything here blocks. Raises Fenced, TransportError and what reading a manifest raises."""

    def __init__(
        self, manifests: Manifests, uploader: Uploader, task: UploadTask, now_ms: Callable[[], int]
    ) -> None:
        """`task`: what all tasks have in common."""
        self._manifests = manifests
        self._objects = manifests.objects
        self._uploader = uploader
        self._task = task
        self._now_ms = now_ms

    def carry_out(self, work: Due, epoch: int) -> Manifest:
        """Replace or drop a segment."""
        if work.gone is None:
            return self._replace({work.entry: None}, epoch)
        entry = self.rewritten(work.entry, work.gone, epoch)
        return self._replace({work.entry: entry} if entry is not None else {}, epoch)

    def rewritten(self, entry: SegmentEntry, gone: Gone, epoch: int) -> SegmentEntry | None:
        """Upload a segment without what is gone; None if it can stay as it is."""
        task = msgspec.structs.replace(
            self._task,
            path=f"{self._task.temporary}.log",
            log_start=entry.log_start,
            epoch=epoch,
            rewritten=entry,
            gone=gone,
        )
        return self._uploader.rewrite(task)

    def erase(self, entry: SegmentEntry, gone: Gone, epoch: int) -> SegmentEntry | None:
        """Remove messages from a segment, and the old object at once; the segment that replaces it, None if
        it has no such messages."""
        mended = self.rewritten(entry, gone, epoch)
        if mended is not None:
            self._replace({entry: mended}, epoch, grace_ms=0)
            self.remove_due(epoch)
        return mended

    def next_to_erase(self, before: int, clean: AbstractSet[str], epoch: int) -> SegmentEntry | None:
        """The first segment that begins before a log offset and is not known to be `clean`."""
        for entry in self._manifests.owned(epoch).segments:
            if entry.log_start < before and entry.name not in clean:
                return entry
        return None

    def erased(self, digests: Sequence[str], epoch: int) -> Manifest:
        """No segment has what was to go: remove those that were replaced lately, and say so."""
        self.remove_due(epoch, _FOR_EVER)

        def change(newest: Manifest) -> Manifest | None:
            new = [each for each in digests if each not in newest.erased]
            return msgspec.structs.replace(newest, erased=(*newest.erased, *new)[-_KEPT_ERASURES:])

        return self._manifests.add(epoch, change)

    def _replace(
        self, changes: dict[SegmentEntry, SegmentEntry | None], epoch: int, grace_ms: int | None = None
    ) -> Manifest:
        not_before_ms = self._now_ms() + (GRACE_MS if grace_ms is None else grace_ms)

        def change(newest: Manifest) -> Manifest | None:
            there = {old: new for old, new in changes.items() if old in newest.segments}
            if not there:
                return None
            segments: list[SegmentEntry | None] = [there.get(each, each) for each in newest.segments]
            names = {each.name for each in segments if each is not None}
            removals = [Removal(old.name, not_before_ms) for old in there if old.name not in names]
            return msgspec.structs.replace(
                newest,
                segments=tuple(each for each in segments if each is not None),
                removals=(*newest.removals, *removals),
            )

        return self._manifests.add(epoch, change)

    def remove_due(self, epoch: int, now_ms: int | None = None) -> list[str]:
        """Remove the objects whose time has come; their names. `now_ms`: another time than the clock's."""
        newest = self._manifests.owned(epoch)
        named = {each.name for each in newest.segments}
        now_ms = self._now_ms() if now_ms is None else now_ms
        gone = {each.name for each in newest.removals if each.not_before_ms <= now_ms}
        for name in gone - named:
            self._objects.remove(name)
        if gone:
            self._manifests.add(
                epoch,
                lambda found: msgspec.structs.replace(
                    found, removals=tuple(each for each in found.removals if each.name not in gone)
                ),
            )
        return sorted(gone - named)

    # Leftovers

    def orphans(self, min_age_ms: int) -> list[ObjectInfo]:
        """The objects that no manifest names, at least so old by the store's clock: of uploads that were cut
        short, and of masters that were replaced."""
        listed = [each for prefix in (SEGMENTS, MANIFESTS, TABLES) for each in self._objects.list(prefix)]
        # Read after the listing: what it does not name and what is that old can no longer be named.
        newest = self._manifests.read_newest()
        now_ms = self._store_ms(newest)
        if newest is None or now_ms is None:
            return []
        named = (
            {newest.tables}
            | {each.name for each in newest.segments}
            | {each.name for each in newest.removals}
        )
        return [
            each
            for each in listed
            if each.modified_ms <= now_ms - min_age_ms and each.name not in named and _is_leftover(each.name)
        ]

    def sweep(self, min_age_ms: int, epoch: int) -> list[str]:
        """Remove orphans, and manifests that are old; their names."""
        names = [each.name for each in self.orphans(min_age_ms)]
        names += self._old_manifests()
        self._manifests.owned(epoch)  # the next master may be about to name one of them
        for name in names:
            self._objects.remove(name)
        return names

    def _old_manifests(self) -> list[str]:
        newest = self._manifests.known
        now_ms = self._store_ms(newest)
        if newest is None or now_ms is None:
            return []
        return [
            each.name
            for each in self._objects.list(MANIFESTS)
            if (number := parse_manifest_name(each.name)) is not None
            and number < newest.number - KEPT_MANIFESTS
            and each.modified_ms <= now_ms - _KEPT_MANIFESTS_MS
        ]

    def _store_ms(self, newest: Manifest | None) -> int | None:
        """The time by the store's clock, which may be another one than ours."""
        if newest is None:
            return None
        self._objects.replace(HINT, b"%020d" % newest.number)
        info = self._objects.info(HINT)
        return info.modified_ms if info is not None else None


def _is_leftover(name: str) -> bool:
    """Whether we made an object of this name, other than a manifest."""
    is_ours = parse_segment_name(name) is not None or parse_tables_name(name) is not None
    return is_ours or (name.endswith(UNFINISHED_SUFFIX) and name.startswith((SEGMENTS, MANIFESTS, TABLES)))
