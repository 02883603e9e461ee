"""A segment that is read in a thread: blocks are fetched when they are wanted, neighbouring ones together.

Every block is compared with its checksum.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.record import peek_log_offset, peek_queue_offset, peek_store_timestamp, scan_record
from pyromq.tier.manifest import SegmentEntry
from pyromq.tier.objects import Readable
from pyromq.tier.segment_format import BadObject, Footer, Piece, Run, records_of, unpack_block

_BLOCKS: Final = 2
"""Blocks that are kept: small runs share them."""
_RANGE_BYTES: Final = 2 * 1024 * 1024
"""Blocks that follow each other are fetched in ranges of about this size."""


class RunPart(NamedTuple):
    """Messages of a run that share a block."""

    start: int
    end: int
    records: memoryview
    """One after the other, as they are in the log."""
    problem: str = ""
    """Why they cannot be read; then there are no records."""


class OpenSegment:
    def __init__(self, objects: Readable, entry: SegmentEntry, footer: Footer) -> None:
        @lru_cache(maxsize=_BLOCKS)
        def block_of(number: int) -> memoryview:
            block = footer.blocks[number]
            stored = objects.read(entry.name, block.position, block.size_bytes)
            return memoryview(unpack_block(block, stored))

        self.entry = entry
        self.footer = footer
        self._objects = objects
        self._block_of = block_of

    def __repr__(self) -> str:
        return f"<OpenSegment {self.entry.name}>"

    def content(self, piece: Piece) -> memoryview:
        return self._block_of(piece.block)[piece.start : piece.start + piece.size_bytes]

    def records(self, piece: Piece) -> Iterator[memoryview]:
        content = self.content(piece)
        return (content[place : place + size] for place, size in records_of(content))

    def first_offset(self, run: Run, timestamp_ms: int, gone_before: int) -> int:
        """The first message of a run that was stored at or after a time and is not deleted; the end of the
        run if there is none."""
        pieces = run.pieces
        by_time = bisect_left(pieces, timestamp_ms, key=lambda each: each.first_ms) - 1
        by_place = bisect_right(pieces, gone_before, key=lambda each: each.first_log) - 1
        number = max(by_time, by_place, 0)
        for record in self.records(pieces[number]):
            if peek_store_timestamp(record) >= timestamp_ms and peek_log_offset(record) >= gone_before:
                return peek_queue_offset(record)
        return pieces[number + 1].first_offset if number + 1 < len(pieces) else run.end_offset

    def parts(self, run: Run, start: int, end: int) -> Iterator[RunPart]:
        """The messages of a run from one offset to another. A block that does not match its checksum is
        fetched once more. Raises ObjectMissing or TransportError."""
        ends = [*(each.first_offset for each in run.pieces[1:]), run.end_offset]
        wanted = [
            (piece, piece_end)
            for piece, piece_end in zip(run.pieces, ends, strict=True)
            if piece.first_offset < end and start < piece_end
        ]
        blocks = self.footer.blocks
        for group in self._ranges([piece for piece, _ in wanted]):
            fetched = memoryview(b"")
            first = blocks[group[0].block]
            if len(group) > 1:
                last = blocks[group[-1].block]
                range_bytes = last.position + last.size_bytes - first.position
                fetched = memoryview(self._objects.read(self.entry.name, first.position, range_bytes))
            for piece, piece_end in wanted[: len(group)]:
                low, high = max(start, piece.first_offset), min(end, piece_end)
                place = blocks[piece.block].position - first.position
                try:
                    content = self._content_from(fetched[place:], piece)
                    yield RunPart(low, high, _cut(run, piece, piece_end, content, low, high))
                except BadObject as problem:
                    yield RunPart(low, high, memoryview(b""), str(problem))
            del wanted[: len(group)]

    def _ranges(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        blocks = self.footer.blocks
        group: list[Piece] = []
        for piece in pieces:
            if group:
                begin, end = blocks[group[0].block].position, blocks[piece.block]
                if piece.block != group[-1].block + 1 or end.position + end.size_bytes - begin > _RANGE_BYTES:
                    yield group
                    group = []
            group.append(piece)
        if group:
            yield group

    def _content_from(self, fetched: memoryview, piece: Piece) -> memoryview:
        """`fetched`: begins with the stored bytes of the block, if they are there already."""
        block = self.footer.blocks[piece.block]
        try:
            if not fetched:
                return self.content(piece)
            plain = unpack_block(block, bytes(fetched[: block.size_bytes]))
            return memoryview(plain)[piece.start : piece.start + piece.size_bytes]
        except BadObject:
            return self.content(piece)


def _cut(run: Run, piece: Piece, end: int, content: memoryview, low: int, high: int) -> memoryview:
    """The records of a piece from one offset to another. Raises BadObject."""
    places = records_of(content)
    try:
        first = scan_record(content)
    except RemoteProtocolError as problem:
        raise BadObject(f"block {piece.block}: {problem}") from None
    expected = run.topic, run.queue_id, piece.first_offset, end - piece.first_offset
    if first is None or (first.topic, first.queue_id, first.queue_offset, len(places)) != expected:
        raise BadObject(f"block {piece.block} has not the messages that it should have")
    last, size = places[high - 1 - piece.first_offset]
    return content[places[low - piece.first_offset][0] : last + size]
