"""Packing: one closed file of the log becomes a segment, and a segment becomes the file again, bit for bit.

Records with a place in a queue go into the runs of their queues. Everything else keeps its place as a
stretch: prepared and rolled back messages, damaged bytes, the blank record at the end of the file.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from mmap import mmap
from typing import Final, Protocol
from zlib import crc32

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.record import (
    BLANK_SIZE,
    MIN_RECORD_SIZE,
    ReadBuffer,
    RecordOutline,
    SysFlag,
    peek_log_offset,
    peek_size,
    peek_store_timestamp,
    scan_record,
)
from pyromq.store.log.record_checks import sound_in
from pyromq.tier.segment_format import (
    BLOCK_BYTES,
    HEAD,
    BadObject,
    Footer,
    PackedBlock,
    Piece,
    Run,
    Stretch,
    pack_block,
    pack_footer,
    records_of,
)

_native = twin("protocol.records")

_SHARED_BYTES: Final = 64 * 1024
"""A run begins its own block if it is at least this large."""
_CHUNK_BYTES: Final = 1024 * 1024
_MAGIC_START: Final = b"\xda\xa3\x20"
"""The first bytes of both magic numbers."""
_OUTSIDE_QUEUES: Final = frozenset({SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK})


class ByteSink(Protocol):
    def write(self, content: bytes, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Packed:
    """A report of what was written."""

    footer: Footer
    footer_at: int
    size_bytes: int
    sha256: str
    """Of the whole object."""


@dataclass(slots=True)
class _Found:
    """The records of a run, by their places in the file."""

    topic: str
    queue_id: int
    first_offset: int
    first_ms: int
    last_ms: int = 0
    size_bytes: int = 0
    places: "array[int]" = field(default_factory=lambda: array("q"))


class _Writer:
    """Writes blocks, and hashes all that is written."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink
        self._pending = bytearray()
        self.hash = hashlib.sha256()
        self.position = 0
        self.blocks: list[PackedBlock] = []
        self.write(HEAD)

    @property
    def pending_bytes(self) -> int:
        return len(self._pending)

    def write(self, content: bytes) -> None:
        self._sink.write(content)
        self.hash.update(content)
        self.position += len(content)

    def add(self, content: bytes | memoryview) -> tuple[int, int]:
        """The number of the block that gets the bytes, and where in it they begin."""
        if self._pending and len(self._pending) + len(content) > BLOCK_BYTES:
            self.end_block()
        place = len(self.blocks), len(self._pending)
        self._pending += content
        return place

    def end_block(self) -> None:
        if self._pending:
            stored = pack_block(self._pending)
            block = PackedBlock(self.position, len(stored), len(self._pending), crc32(self._pending))
            self.blocks.append(block)
            self.write(stored)
            self._pending = bytearray()


def pack(source: bytes | mmap, log_start: int, sink: ByteSink) -> Packed:
    """Write the segment of a log file that begins at the log offset `log_start`."""
    file_bytes = len(source)
    view = memoryview(source)
    found, stretches = _walk(source, view, log_start)
    writer = _Writer(sink)
    runs = [_pack_run(writer, view, log_start, each) for each in found]
    writer.end_block()
    stretch_pieces = _pack_stretches(writer, view, log_start, stretches)
    writer.end_block()
    whole = hashlib.sha256()
    for start in range(0, file_bytes, _CHUNK_BYTES):
        whole.update(view[start : start + _CHUNK_BYTES])
    times = [each for run in runs for each in (run.first_ms, run.last_ms)]
    footer = Footer(
        log_start,
        log_start + file_bytes,
        whole.digest(),
        min(times, default=0),
        max(times, default=0),
        tuple(writer.blocks),
        tuple(runs),
        tuple(stretches),
        tuple(stretch_pieces),
    )
    footer_at = writer.position
    writer.write(pack_footer(footer, footer_at))
    view.release()
    return Packed(footer, footer_at, writer.position, writer.hash.hexdigest())


def _walk(source: bytes | mmap, view: memoryview, log_start: int) -> tuple[list[_Found], list[Stretch]]:
    """The runs, those of a queue together, and the stretches."""
    latest: dict[tuple[str, int], list[_Found]] = {}
    stretches: list[Stretch] = []
    outside = 0
    end = len(source)
    for outline in records_in(source, log_start):
        position = outline.start
        if outline.sys_flag & SysFlag.TRANSACTION_MASK not in _OUTSIDE_QUEUES:
            if outside < position:
                stretches.append(_stretch(view, log_start, outside, position))
            outside = position + outline.size
            runs = latest.setdefault((outline.topic, outline.queue_id), [])
            run = runs[-1] if runs else None
            if run is None or outline.queue_offset != run.first_offset + len(run.places):
                stored_ms = outline.store_timestamp
                run = _Found(outline.topic, outline.queue_id, outline.queue_offset, stored_ms)
                runs.append(run)
            run.places.append(position)
            run.size_bytes += outline.size
            run.last_ms = outline.store_timestamp
    if outside < end:
        stretches.append(_stretch(view, log_start, outside, end))
    return [run for _, runs in sorted(latest.items()) for run in runs], stretches


def first_damage(source: bytes | mmap, log_start: int) -> str:
    """A description of the first record of a log file that is not sound; empty if all are. Fillers are."""
    position, file_bytes = 0, len(source)
    while position <= file_bytes - BLANK_SIZE:
        if _native is not None:
            end = min(position + _CHUNK_BYTES, file_bytes)
            position, _, _ = _native.whole_records(source, position, end, end, log_start + position)
        place = log_start + position
        try:
            outline = sound_in(source, position, place, log_start + file_bytes)
        except RemoteProtocolError as problem:
            return f"log offset {place}: {problem}"
        if outline is None:
            return ""
        position += outline.size
    return f"log offset {log_start + position}: no blank record ends the file"


def records_in(source: bytes | mmap, log_start: int) -> Iterator[RecordOutline]:
    """The records of a log file. Each may be overwritten by one of the same size before the next is read."""
    position = 0
    while position < len(source):
        outline = _record_at(source, position, log_start)
        if outline is None:
            position = _next_record(source, position + 1, log_start)
            continue
        yield outline
        position += outline.size


def _next_record(source: bytes | mmap, position: int, log_start: int) -> int:
    """Where the next record behind a blank or damaged bytes is; the end of the file without one."""
    while (magic := source.find(_MAGIC_START, position + 4)) >= 0:
        position = magic - 4
        if _record_at(source, position, log_start) is not None:
            return position
        position += 1
    return len(source)


def _record_at(source: ReadBuffer, position: int, log_start: int) -> RecordOutline | None:
    """The record at a place of the file; None for a blank, or for bytes that cannot be one."""
    try:
        outline = scan_record(source, position, len(source))
    except RemoteProtocolError:
        return None
    if outline is None or outline.log_offset != log_start + position:
        return None
    return outline if outline.queue_offset >= 0 and outline.queue_id >= 0 else None


def _stretch(view: memoryview, log_start: int, start: int, end: int) -> Stretch:
    kept = end
    while kept > start:
        chunk = max(start, kept - _CHUNK_BYTES)
        filled = len(bytes(view[chunk:kept]).rstrip(b"\0"))
        if filled:
            kept = chunk + filled
            break
        kept = chunk
    return Stretch(log_start + start, end - start, kept - start)


def _pack_run(writer: _Writer, view: memoryview, log_start: int, run: _Found) -> Run:
    if run.size_bytes >= _SHARED_BYTES or writer.pending_bytes + run.size_bytes > BLOCK_BYTES:
        writer.end_block()
    pieces: list[Piece] = []
    at: list[int] = []
    """Block, start, size, number and place of the piece under way."""
    for number, place in enumerate(run.places):
        size = peek_size(view, place)
        block, start = writer.add(view[place : place + size])
        if not at or at[0] != block:
            if at:
                pieces.append(_piece(view, log_start, run, at))
            at = [block, start, 0, number, place]
        at[2] += size
    pieces.append(_piece(view, log_start, run, at))
    if run.size_bytes >= _SHARED_BYTES:
        writer.end_block()
    return Run(
        run.topic,
        run.queue_id,
        run.first_offset,
        len(run.places),
        log_start + run.places[0],
        log_start + run.places[-1],
        run.first_ms,
        run.last_ms,
        tuple(pieces),
    )


def _piece(view: memoryview, log_start: int, run: _Found, at: list[int]) -> Piece:
    block, start, size_bytes, number, place = at
    stored_ms = peek_store_timestamp(view[place : place + MIN_RECORD_SIZE])
    return Piece(block, start, size_bytes, run.first_offset + number, log_start + place, stored_ms)


def _pack_stretches(
    writer: _Writer, view: memoryview, log_start: int, stretches: list[Stretch]
) -> list[Piece]:
    pieces = []
    for stretch in stretches:
        first = stretch.log_offset - log_start
        for start in range(first, first + stretch.kept_bytes, BLOCK_BYTES):
            content = view[start : min(start + BLOCK_BYTES, first + stretch.kept_bytes)]
            block, place = writer.add(content)
            pieces.append(Piece(block, place, len(content), 0, log_start + start, 0))
    return pieces


def rebuild(footer: Footer, block_of: Callable[[int], bytes], log_bytes: int) -> bytearray:
    """The log file, which has `log_bytes`. `block_of` gives the content of a block by its number."""
    if footer.log_end - footer.log_start != log_bytes:
        raise BadObject(f"a segment from {footer.log_start} to {footer.log_end} is not a file of {log_bytes}")
    log = bytearray(log_bytes)
    rebuild_into(log, footer, block_of)
    return log


def rebuild_into(log: bytearray | mmap, footer: Footer, block_of: Callable[[int], bytes]) -> None:
    """`log`: zeros, as many as the file has bytes."""
    for run in footer.runs:
        for piece in run.pieces:
            content = memoryview(block_of(piece.block))[piece.start : piece.start + piece.size_bytes]
            for place, size in records_of(content):
                start = peek_log_offset(content, place) - footer.log_start
                if not 0 <= start <= len(log) - size:
                    raise BadObject(f"a record of block {piece.block} is not of this log file")
                log[start : start + size] = content[place : place + size]
    kept = bytearray()
    for piece in footer.stretch_pieces:
        kept += block_of(piece.block)[piece.start : piece.start + piece.size_bytes]
    position = 0
    for stretch in footer.stretches:
        start = stretch.log_offset - footer.log_start
        log[start : start + stretch.kept_bytes] = kept[position : position + stretch.kept_bytes]
        position += stretch.kept_bytes
    if hashlib.sha256(log).digest() != footer.log_sha256:
        raise BadObject("the log file that was rebuilt does not match its checksum")
