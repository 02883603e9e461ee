"""A segment: the object that holds one closed file of the log, its records ordered by queue.

    position      size  field
           0        16  "pyromq segment 1"
          16         n  blocks: zstd frames, one behind the other
           .         n  footer: a zstd frame of MessagePack, see `Footer`
    end - 32         8  position of the footer                 ┐
         -24         4  size of the footer                     │
         -20         4  size of the footer without compression │ the tail
         -16         4  CRC-32 of the footer as it is stored   │
         -12        12  "pyromq tail1"                         ┘

A segment may come from anywhere: sizes are compared with each other and with limits before they are used, and
every block is compared with its checksum. Reading any bytes returns a value or raises BadObject.
"""

import struct
from itertools import pairwise
from typing import Final
from zlib import crc32

import msgspec
import zstandard

from pyromq.errors import PyroError, RemoteProtocolError
from pyromq.protocol.compression import Compression, decompress
from pyromq.protocol.record import MIN_RECORD_SIZE, peek_size

HEAD: Final = b"pyromq segment 1"
TAIL_BYTES: Final = 32
BLOCK_BYTES: Final = 256 * 1024
"""Records share a block up to this size; a larger record has one for itself."""
MAX_LOG_BYTES: Final = 1 << 32
"""A log file is smaller."""
MAX_FOOTER_BYTES: Final = 256 * 1024 * 1024
_END_MARK: Final = b"pyromq tail1"
_TAIL: Final = struct.Struct(">QIII12s")
_LEVEL: Final = 1


class BadObject(PyroError):
    """An object of the tier has bytes that cannot be right."""


class PackedBlock(msgspec.Struct, array_like=True, frozen=True, gc=False):
    position: int
    size_bytes: int
    plain_bytes: int
    crc: int
    """Of the bytes without compression."""


class Piece(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A block's part of a run."""

    block: int
    start: int
    """Where in the block, without compression."""
    size_bytes: int
    first_offset: int
    """Queue offset of the first record."""
    first_log: int
    """Log offset of the first record."""
    first_ms: int
    """Store time of the first record."""


class Run(msgspec.Struct, array_like=True, frozen=True):
    """Records of one queue whose queue offsets follow each other."""

    topic: str
    queue_id: int
    first_offset: int
    count: int
    first_log: int
    last_log: int
    first_ms: int
    last_ms: int
    pieces: tuple[Piece, ...]

    @property
    def end_offset(self) -> int:
        return self.first_offset + self.count


class Stretch(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Bytes of the log file that are in no queue. Those behind the first `kept_bytes` are zeros."""

    log_offset: int
    size_bytes: int
    kept_bytes: int


class Footer(msgspec.Struct, array_like=True, frozen=True):
    log_start: int
    log_end: int
    log_sha256: bytes
    """Of the log file."""
    first_ms: int
    last_ms: int
    blocks: tuple[PackedBlock, ...]
    runs: tuple[Run, ...]
    stretches: tuple[Stretch, ...]
    stretch_pieces: tuple[Piece, ...]
    """Where the kept bytes of all stretches are, in their order."""


class Tail(msgspec.Struct, frozen=True, gc=False):
    footer_at: int
    footer_bytes: int
    plain_bytes: int
    crc: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Footer)


def pack_block(content: bytes | bytearray) -> bytes:
    return zstandard.ZstdCompressor(level=_LEVEL).compress(content)


def unpack_block(block: PackedBlock, stored: bytes) -> bytes:
    """The records of a block, as they are in the log."""
    if len(stored) != block.size_bytes:
        raise BadObject(f"the block at {block.position} has {len(stored)} of {block.size_bytes} bytes")
    try:
        plain = decompress(stored, Compression.ZSTD, block.plain_bytes)
    except RemoteProtocolError as problem:
        raise BadObject(f"the block at {block.position}: {problem}") from None
    if len(plain) != block.plain_bytes or crc32(plain) != block.crc:
        raise BadObject(f"the block at {block.position} does not match its checksum")
    return plain


def records_of(content: memoryview) -> list[tuple[int, int]]:
    """Place and size of each record of a piece."""
    found = []
    position, end = 0, len(content)
    while position < end:
        size = peek_size(content, position) if end - position >= MIN_RECORD_SIZE else 0
        if not MIN_RECORD_SIZE <= size <= end - position:
            raise BadObject(f"{end - position} bytes of a piece are not a record")
        found.append((position, size))
        position += size
    return found


def pack_footer(footer: Footer, position: int) -> bytes:
    """The footer and the tail, for a footer that begins at `position`."""
    plain = _encoder.encode(footer)
    stored = zstandard.ZstdCompressor(level=_LEVEL).compress(plain)
    return stored + _TAIL.pack(position, len(stored), len(plain), crc32(stored), _END_MARK)


def parse_tail(raw: bytes, object_bytes: int) -> Tail:
    """`raw`: the last bytes of an object of this size."""
    if len(raw) < TAIL_BYTES:
        raise BadObject(f"a segment has a tail of {TAIL_BYTES} bytes, not {len(raw)}")
    *numbers, mark = _TAIL.unpack(raw[-TAIL_BYTES:])
    tail = Tail(*numbers)
    if mark != _END_MARK:
        raise BadObject("it does not end as a segment does")
    if tail.footer_at < len(HEAD) or tail.footer_at + tail.footer_bytes + TAIL_BYTES != object_bytes:
        raise BadObject(f"a footer of {tail.footer_bytes} bytes at {tail.footer_at} does not end the object")
    if tail.plain_bytes > MAX_FOOTER_BYTES:
        raise BadObject(f"a footer of {tail.plain_bytes} bytes: at most {MAX_FOOTER_BYTES} are possible")
    return tail


def parse_footer(tail: Tail, stored: bytes) -> Footer:
    if len(stored) != tail.footer_bytes or crc32(stored) != tail.crc:
        raise BadObject("the footer does not match its checksum")
    try:
        footer = _decoder.decode(decompress(stored, Compression.ZSTD, tail.plain_bytes))
    except (RemoteProtocolError, msgspec.DecodeError) as problem:
        raise BadObject(f"the footer: {problem}") from None
    _verify(footer, tail.footer_at)
    return footer


def _verify(footer: Footer, footer_at: int) -> None:
    log_bytes = footer.log_end - footer.log_start
    if footer.log_start < 0 or not 0 < log_bytes <= MAX_LOG_BYTES or len(footer.log_sha256) != 32:
        raise BadObject(f"the footer names a log file from {footer.log_start} to {footer.log_end}")
    position = len(HEAD)
    for block in footer.blocks:
        if block.position != position or block.size_bytes <= 0 or block.plain_bytes <= 0:
            raise BadObject(
                f"a block of {block.size_bytes} bytes at {block.position}: expected at {position}"
            )
        position += block.size_bytes
    if position != footer_at or sum(block.plain_bytes for block in footer.blocks) > log_bytes:
        raise BadObject(f"the blocks end at {position}, the footer begins at {footer_at}")
    for run in footer.runs:
        _verify_run(footer, run)
    _verify_pieces(footer, footer.stretch_pieces)
    kept = sum(piece.size_bytes for piece in footer.stretch_pieces)
    end = footer.log_start
    for stretch in footer.stretches:
        if not (end <= stretch.log_offset and 0 <= stretch.kept_bytes <= stretch.size_bytes):
            raise BadObject(f"a stretch of {stretch.size_bytes} bytes at {stretch.log_offset}")
        end = stretch.log_offset + stretch.size_bytes
        kept -= stretch.kept_bytes
    in_runs = sum(piece.size_bytes for run in footer.runs for piece in run.pieces)
    outside = sum(stretch.size_bytes for stretch in footer.stretches)
    if end > footer.log_end or kept or in_runs + outside != log_bytes:
        raise BadObject("the runs and stretches are not the whole log file")


def _verify_run(footer: Footer, run: Run) -> None:
    is_placed = footer.log_start <= run.first_log <= run.last_log < footer.log_end
    if not (is_placed and run.count > 0 and run.first_offset >= 0 and run.queue_id >= 0 and run.pieces):
        raise BadObject(f"a run of {run.count} messages of queue {run.queue_id} at {run.first_log}")
    _verify_pieces(footer, run.pieces)
    first = run.pieces[0]
    if (first.first_offset, first.first_log) != (run.first_offset, run.first_log):
        raise BadObject(f"the run at {run.first_log} begins elsewhere")
    for one, other in pairwise(run.pieces):
        if one.first_offset >= other.first_offset or one.first_log >= other.first_log:
            raise BadObject(f"the pieces of the run at {run.first_log} are not in order")
    if run.pieces[-1].first_offset >= run.end_offset or run.pieces[-1].first_log > run.last_log:
        raise BadObject(f"the run at {run.first_log} ends before its last piece")


def _verify_pieces(footer: Footer, pieces: tuple[Piece, ...]) -> None:
    for piece in pieces:
        if not 0 <= piece.block < len(footer.blocks) or piece.start < 0 or piece.size_bytes <= 0:
            raise BadObject(f"a piece of {piece.size_bytes} bytes in block {piece.block}")
        if piece.start + piece.size_bytes > footer.blocks[piece.block].plain_bytes:
            raise BadObject(f"a piece of {piece.size_bytes} bytes does not fit in block {piece.block}")
