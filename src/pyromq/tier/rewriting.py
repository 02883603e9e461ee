"""Rewriting: a segment becomes another one in which fillers, which are never read, replace some messages.

The log file is rebuilt, messages that are gone get fillers of the same size, and the result is packed again:
so the log offsets of all others stay, and a log file can still be rebuilt from it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from mmap import ACCESS_WRITE, mmap
from pathlib import Path

import msgspec

from pyromq.protocol.record import RecordOutline
from pyromq.store.erasing import names_of
from pyromq.store.log.damage import filler_for_removed, is_filler
from pyromq.tier.footers import read_footer
from pyromq.tier.manifest import SegmentEntry, gone_before
from pyromq.tier.objects import Objects
from pyromq.tier.packing import rebuild_into, records_in
from pyromq.tier.segment_format import BadObject, unpack_block


class Gone(msgspec.Struct, frozen=True):
    """Which messages of a tier are gone, or are to go."""

    before: dict[str, int] = {}
    """Topics, or `queue@topic`, and the log offset before which their messages are gone."""
    older_than_ms: dict[str, int] = {}
    """Topics, and the store time before which their messages go."""
    keys: tuple[tuple[str, str, int], ...] = ()
    """Topics and keys whose messages go that are before a log offset."""

    def has(self, outline: RecordOutline, record: memoryview) -> bool:
        """`record`: the bytes that the outline is of."""
        topic = outline.topic
        if outline.log_offset < gone_before(self.before, topic, outline.queue_id):
            return True
        if outline.store_timestamp < self.older_than_ms.get(topic, 0):
            return True
        if not self.keys:
            return False
        named = names_of(topic, bytes(record[outline.properties_start : outline.properties_end]))
        return any((topic, key) in named and outline.log_offset < before for topic, key, before in self.keys)


@contextmanager
def log_file(objects: Objects, entry: SegmentEntry, target: Path) -> Iterator[mmap]:
    """The log file of a segment, written to `target` and not yet synced. Raises BadObject."""
    footer = read_footer(objects, entry)
    log_bytes = footer.log_end - footer.log_start
    if (footer.log_start, log_bytes) != (entry.log_start, entry.log_end - entry.log_start):
        raise BadObject(f"{entry.name} has the log from {footer.log_start} to {footer.log_end}")
    with target.open("wb") as file:
        file.truncate(log_bytes)

    @lru_cache(maxsize=2)
    def block_of(number: int) -> bytes:
        block = footer.blocks[number]
        return unpack_block(block, objects.read(entry.name, block.position, block.size_bytes))

    with target.open("r+b") as rebuilt, mmap(rebuilt.fileno(), 0, access=ACCESS_WRITE) as log:
        rebuild_into(log, footer, block_of)
        yield log


def remove_from(log: mmap, log_start: int, gone: Gone) -> int:
    """Put fillers in the place of messages that go; how many these were."""
    removed = 0
    with memoryview(log) as view:
        for outline in records_in(log, log_start):
            end = outline.start + outline.size
            if is_filler(outline) or not gone.has(outline, view):
                continue
            log[outline.start : end] = filler_for_removed(
                outline.log_offset, outline.size, outline.store_timestamp
            )
            removed += 1
    return removed
