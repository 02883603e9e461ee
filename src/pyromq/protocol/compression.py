"""Compressed bodies: zlib, LZ4 frames and zstd frames, marked in the system flag.

Decompressing never returns more than the caller's limit, and accepts exactly one complete stream.
"""

import zlib
from enum import IntEnum
from typing import Final

import lz4.frame
import zstandard

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.record import SysFlag

DEFAULT_MAX_BYTES: Final = 64 * 1024 * 1024
DEFAULT_LEVEL: Final = 5

_FIRST_STEP_BYTES: Final = 64 * 1024
_ZSTD_BLOCK_BYTES: Final = 128 * 1024
_ZSTD_BLOCK_HEADER: Final = 3
_ZSTD_CHECKSUM: Final = 4
_ZSTD_SIZE_UNKNOWN: Final = 0xFFFFFFFFFFFFFFFF


class Compression(IntEnum):
    """How a body is compressed; the value is in bits 8 to 10 of the system flag."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def sys_flag(self) -> int:
        """The bits of the system flag that mark this compression."""
        return SysFlag.COMPRESSED | self << 8


def compression_of(sys_flag: int) -> Compression:
    """The compression in `sys_flag`."""
    kind = (sys_flag & SysFlag.COMPRESSION_MASK) >> 8
    if kind == 0:
        return Compression.ZLIB  # java: clients before 4.9.4 knew one kind only and named none
    try:
        return Compression(kind)
    except ValueError:
        raise RemoteProtocolError(f"unknown compression {kind} in system flag {sys_flag:#x}") from None


def compress(data: bytes, kind: Compression, level: int = DEFAULT_LEVEL) -> bytes:
    try:
        if kind is Compression.ZLIB:
            return zlib.compress(data, level)
        if kind is Compression.ZSTD:
            return zstandard.ZstdCompressor(level=level).compress(data)
    except (zlib.error, ValueError) as error:
        raise LocalProtocolError(f"{kind.name} has no level {level}: {error}") from None
    # java: its LZ4 reader refuses blocks that depend on earlier ones, and its writer knows no levels
    compressed: bytes = lz4.frame.compress(data, block_linked=False, store_size=False)
    return compressed


def decompress(data: bytes, kind: Compression, max_bytes: int = DEFAULT_MAX_BYTES) -> bytes:
    """The decompressed bytes, at most `max_bytes`."""
    try:
        if kind is Compression.ZLIB:
            return _inflate(data, max_bytes)
        if kind is Compression.ZSTD:
            return _decompress_zstd(data, max_bytes)
        return _decompress_lz4(data, max_bytes)
    except (zlib.error, zstandard.ZstdError, RuntimeError) as error:
        raise RemoteProtocolError(f"broken {kind.name} data of {len(data)} bytes: {error}") from None


def _inflate(data: bytes, max_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    plain = stream.decompress(data, max_bytes + 1)
    if len(plain) > max_bytes:
        raise _oversize(Compression.ZLIB, max_bytes)
    if not stream.eof:
        raise _truncated(Compression.ZLIB)
    if stream.unused_data:
        raise _trailing(Compression.ZLIB)
    return plain


def _decompress_lz4(data: bytes, max_bytes: int) -> bytes:
    stream = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    total = 0
    step = _FIRST_STEP_BYTES  # the library allocates as much as it may return
    while not stream.eof:
        part = stream.decompress(data, max_length=min(step, max_bytes + 1 - total))
        data = b""
        parts.append(part)
        total += len(part)
        if total > max_bytes:
            raise _oversize(Compression.LZ4, max_bytes)
        if stream.needs_input and not stream.eof:
            raise _truncated(Compression.LZ4)
        step *= 4
    if stream.unused_data:
        raise _trailing(Compression.LZ4)
    return b"".join(parts)


def _decompress_zstd(data: bytes, max_bytes: int) -> bytes:
    frame = zstandard.get_frame_parameters(data)
    bound = _max_zstd_bytes(data, frame.has_checksum)
    # the library trusts the size in the frame and allocates that much
    if frame.content_size != _ZSTD_SIZE_UNKNOWN and frame.content_size > min(bound, max_bytes):
        raise RemoteProtocolError(
            f"ZSTD data claims {frame.content_size} bytes; {min(bound, max_bytes)} are possible"
        )
    room = max(1, min(bound, max_bytes + 1))
    plain = zstandard.ZstdDecompressor().decompress(data, max_output_size=room)
    if len(plain) > max_bytes:
        raise _oversize(Compression.ZSTD, max_bytes)
    return plain


def _max_zstd_bytes(data: bytes, has_checksum: bool) -> int:
    """An upper bound for the decompressed size of the frame in `data`, from the headers of its blocks."""
    position = zstandard.frame_header_size(data)
    bound = 0
    last = 0
    while not last:
        if position + _ZSTD_BLOCK_HEADER > len(data):
            raise _truncated(Compression.ZSTD)
        header = int.from_bytes(data[position : position + _ZSTD_BLOCK_HEADER], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        position += _ZSTD_BLOCK_HEADER + (1 if kind == 1 else size)  # kind 1: one byte, repeated
        bound += _ZSTD_BLOCK_BYTES if kind == 2 else size  # kind 2: really compressed
    position += _ZSTD_CHECKSUM if has_checksum else 0
    if position > len(data):
        raise _truncated(Compression.ZSTD)
    if position < len(data):
        raise _trailing(Compression.ZSTD)
    return bound


def _oversize(kind: Compression, max_bytes: int) -> RemoteProtocolError:
    return RemoteProtocolError(f"{kind.name} data decompresses to more than {max_bytes} bytes")


def _truncated(kind: Compression) -> RemoteProtocolError:
    return RemoteProtocolError(f"{kind.name} data ends too early")


def _trailing(kind: Compression) -> RemoteProtocolError:
    return RemoteProtocolError(f"{kind.name} data has extra bytes after its end")
