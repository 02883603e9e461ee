"""The optional CRC over a whole record: its last property, always twenty bytes long.

    "__CRC32#"  U+0001  ten decimal digits, least significant first  U+0002

It covers every byte of the record before those twenty.
"""

from typing import Final
from zlib import crc32

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.properties import RECORD_CRC, without_property
from pyromq.protocol.record import CRC_MASK, ReadBuffer, RecordOutline, WriteBuffer

RECORD_CRC_SIZE: Final = 20
_HEAD: Final = RECORD_CRC.encode() + b"\x01"


def reserve_record_crc(properties: bytes) -> bytes:
    """`properties` with space at the end for the CRC, which `seal_record_crc` writes."""
    properties = without_property(properties, RECORD_CRC)
    separator = b"\x02" if properties and not properties.endswith(b"\x02") else b""
    return properties + separator + _crc_property(0)


def seal_record_crc(buffer: WriteBuffer, start: int, size: int) -> None:
    """Write the CRC into the reserved space once everything else in the record is final."""
    tail = start + size - RECORD_CRC_SIZE
    buffer[tail : tail + RECORD_CRC_SIZE] = _crc_property(crc32(buffer[start:tail]) & CRC_MASK)


def verify_record_crc(buffer: ReadBuffer, outline: RecordOutline) -> None:
    """Raise RemoteProtocolError unless the record ends with its CRC and matches it."""
    tail = outline.end - RECORD_CRC_SIZE
    found = bytes(buffer[max(tail, outline.properties_start) : outline.end])
    if not found.startswith(_HEAD):
        raise RemoteProtocolError(f"record at {outline.start}: does not end with its CRC")
    expected = _crc_property(crc32(buffer[outline.start : tail]) & CRC_MASK)
    if found != expected:
        raise RemoteProtocolError(f"record at {outline.start}: its CRC is {expected!r}, stored {found!r}")


def _crc_property(crc: int) -> bytes:
    return _HEAD + str(crc)[::-1].ljust(10, "0").encode() + b"\x02"
