"""The body of a batch: several messages of one topic in one request.

Each entry says its own size, and everything inside must add up to it.

    size  field
       4  total size, these four bytes included
       4  magic, 0 and ignored
       4  CRC, 0 and ignored
       4  flag of the application
     4+n  body length, body (never compressed)
     2+n  properties length (signed), properties
"""

import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError

MIN_ENTRY_SIZE: Final = 22
MAX_ENTRIES: Final = 16_384
"""RocketMQ sets no limit; more messages than this in one request would delay other requests too long."""

_HEAD = struct.Struct(">i8xii")
_PROPERTIES_LENGTH = struct.Struct(">h")


class BatchEntry(msgspec.Struct, frozen=True, gc=False):
    """One message of a batch."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def encode_batch(entries: Iterable[BatchEntry]) -> bytes:
    parts: list[bytes] = []
    for entry in entries:
        add_entry(parts, entry.body, entry.properties, entry.flag)
    return b"".join(parts)


def add_entry(parts: list[bytes], body: bytes, properties: bytes, flag: int) -> None:
    """Append one entry to the pieces of a batch."""
    body_bytes, properties_bytes = len(body), len(properties)
    size = MIN_ENTRY_SIZE + body_bytes + properties_bytes
    try:
        parts += (
            _HEAD.pack(size, flag, body_bytes),
            body,
            _PROPERTIES_LENGTH.pack(properties_bytes),
            properties,
        )
    except struct.error as error:
        raise LocalProtocolError(f"batch entry of {size} bytes: {error}") from None


def check_entries(body: bytes) -> None:
    """Raise RemoteProtocolError for a batch of more messages than one request may have."""
    if len(body) < MAX_ENTRIES * MIN_ENTRY_SIZE:
        return
    entries = start = 0
    limit = len(body) - MIN_ENTRY_SIZE
    while start <= limit:
        entries += 1
        if entries > MAX_ENTRIES:
            raise RemoteProtocolError(f"a batch of more than {MAX_ENTRIES} messages: send several batches")
        start += max(int.from_bytes(body[start : start + 4], "big"), MIN_ENTRY_SIZE)


def decode_batch(body: bytes) -> list[BatchEntry]:
    """The entries of a batch, which must fill `body` exactly."""
    check_entries(body)
    entries = []
    start, limit = 0, len(body)
    while start < limit:
        if limit - start < MIN_ENTRY_SIZE:
            raise _broken(start, f"{limit - start} bytes are too few for an entry")
        size, flag, body_length = _HEAD.unpack_from(body, start)
        end = start + size
        if size < MIN_ENTRY_SIZE or end > limit:
            raise _broken(start, f"size {size} does not fit in {limit - start} bytes")
        body_start = start + _HEAD.size
        body_end = body_start + body_length
        if body_length < 0 or body_end + 2 > end:
            raise _broken(start, f"body length {body_length} does not fit in an entry of {size} bytes")
        properties_length: int = _PROPERTIES_LENGTH.unpack_from(body, body_end)[0]
        if properties_length < 0 or body_end + 2 + properties_length != end:
            raise _broken(
                start, f"properties length {properties_length} contradicts the entry's {size} bytes"
            )
        entries.append(BatchEntry(body[body_start:body_end], body[body_end + 2 : end], flag))
        start = end
    return entries


def _broken(start: int, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"batch entry at {start}: {what}")
