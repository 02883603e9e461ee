"""HPACK (RFC 7541): header blocks decoded with the peer's dynamic table, encoded without one.

The decoder holds at most its table and one header list, both limited. The encoder keeps no state, so equal
header lists give equal bytes, and the caller can encode them once for all.
"""

from collections import deque
from collections.abc import Iterable
from typing import TypeAlias

from pyromq.errors import RemoteProtocolError
from pyromq.http2 import huffman

Header: TypeAlias = tuple[bytes, bytes]

TABLE_BYTES = 4096
"""The size of the dynamic table that every peer may use without asking."""

_ENTRY_OVERHEAD = 32
_MAX_INTEGER_BYTES = 5

STATIC_TABLE: tuple[Header, ...] = (
    (b"", b""),
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", status) for status in (b"200", b"204", b"206", b"304", b"400", b"404", b"500")),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization"
            b" cache-control content-disposition content-encoding content-language content-length"
            b" content-location content-range content-type cookie date etag expect expires from host if-match"
            b" if-modified-since if-none-match if-range if-unmodified-since last-modified link location"
            b" max-forwards proxy-authenticate proxy-authorization range referer refresh retry-after server"
            b" set-cookie strict-transport-security transfer-encoding user-agent vary via www-authenticate"
        ).split()
    ),
)
_STATIC_SIZE = len(STATIC_TABLE)
_STATIC_INDEX = {header: index for index, header in reversed(list(enumerate(STATIC_TABLE))) if index}
_STATIC_NAMES = {name: index for index, (name, _) in reversed(list(enumerate(STATIC_TABLE))) if index}


class HeadersTooLarge(RemoteProtocolError):
    """The header list is longer than this side accepts."""


class Decoder:
    def __init__(self, max_list_bytes: int) -> None:
        self._max_list_bytes = max_list_bytes
        self._entries: deque[Header] = deque()
        self._size = 0
        self._max_size = TABLE_BYTES

    def __repr__(self) -> str:
        return f"<Decoder entries={len(self._entries)} bytes={self._size}>"

    def decode(self, block: bytes) -> list[Header]:
        """Raises HeadersTooLarge, or RemoteProtocolError; the connection cannot be used any more then."""
        try:
            return self._decode(block)
        except IndexError:
            raise RemoteProtocolError("a header block ends within a header") from None

    def _decode(self, block: bytes) -> list[Header]:
        headers: list[Header] = []
        room = self._max_list_bytes
        position, length = 0, len(block)
        while position < length:
            first = block[position]
            if first & 0x80:
                if first < 0xFF:
                    index = first & 0x7F
                    position += 1
                else:
                    index, position = _integer(block, position, 0x7F)
                header = STATIC_TABLE[index] if 0 < index < _STATIC_SIZE else self._dynamic(index)
            elif first & 0x60 == 0x20:
                size, position = _integer(block, position, 0x1F)
                self._resize(size, may=not headers)
                continue
            else:
                is_kept = first & 0x40
                index, position = _integer(block, position, 0x3F if is_kept else 0x0F)
                if index:
                    name = (STATIC_TABLE[index] if index < _STATIC_SIZE else self._dynamic(index))[0]
                else:
                    name, position = _string(block, position)
                value, position = _string(block, position)
                header = (name, value)
                if is_kept:
                    self._add(header)
            room -= len(header[0]) + len(header[1]) + _ENTRY_OVERHEAD
            if room < 0:
                raise HeadersTooLarge(f"a header list is longer than {self._max_list_bytes} bytes")
            headers.append(header)
        return headers

    def _dynamic(self, index: int) -> Header:
        position = index - _STATIC_SIZE
        if not 0 <= position < len(self._entries):
            raise RemoteProtocolError(
                f"a header block refers to entry {index}, which its table does not have"
            )
        return self._entries[position]

    def _add(self, header: Header) -> None:
        size = len(header[0]) + len(header[1]) + _ENTRY_OVERHEAD
        self._evict(self._max_size - size)
        if size <= self._max_size:
            self._entries.appendleft(header)
            self._size += size

    def _resize(self, size: int, may: bool) -> None:
        if not may or size > TABLE_BYTES:
            raise RemoteProtocolError(
                f"a header block changes the table size to {size}, at most {TABLE_BYTES}"
            )
        self._max_size = size
        self._evict(size)

    def _evict(self, allowed: int) -> None:
        while self._size > allowed and self._entries:
            name, value = self._entries.pop()
            self._size -= len(name) + len(value) + _ENTRY_OVERHEAD


def _integer(block: bytes, position: int, mask: int) -> tuple[int, int]:
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    for shift in range(0, 7 * _MAX_INTEGER_BYTES, 7):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise RemoteProtocolError("a header block has a number of more than 32 bits")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    is_coded = block[position] & 0x80
    length, position = _integer(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise RemoteProtocolError("a header block ends within a string")
    text = block[position:end]
    return (huffman.decode(text) if is_coded else text), end


def encode(headers: Iterable[Header]) -> bytes:
    """A header block that leaves the peer's table alone."""
    block = bytearray()
    for header in headers:
        name, value = header
        if index := _STATIC_INDEX.get(header, 0):
            block.append(0x80 | index)
            continue
        name_index = _STATIC_NAMES.get(name, 0)
        block += _encoded_integer(name_index, 0x0F)
        if not name_index:
            block += _encoded_integer(len(name), 0x7F) + name
        block += _encoded_integer(len(value), 0x7F) + value
    return bytes(block)


def _encoded_integer(value: int, mask: int) -> bytes:
    if value < mask:
        return bytes((value,))
    encoded = bytearray((mask,))
    value -= mask
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
