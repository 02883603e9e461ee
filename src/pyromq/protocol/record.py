"""One stored message, byte for byte: the same record in the log, in pull answers and in callbacks.

Decoding any bytes returns a value or raises RemoteProtocolError; sizes are compared with each other before
they are used.

    position   size  field
           0      4  total size, these four bytes included
           4      4  magic: version 1 0xDAA320A7, version 2 0xDAA320AB
           8      4  CRC-32 of the body as stored, top bit cleared
          12      4  queue id
          16      4  flag of the application
          20      8  queue offset
          28      8  log offset of this record
          36      4  system flag, see `SysFlag`
          40      8  born timestamp, ms
          48   8|20  born host: 4 (16) address bytes and a 4-byte port
          56      8  store timestamp, ms               ┐
          64   8|20  store host                        │ 12 further for each IPv6 host before them
          72      4  reconsume times                   │
          76      8  prepared transaction offset       │
          84    4+n  body length, body                 ┘
            1|2 + n  topic length (version 1: one signed byte, version 2: two), topic
              2 + n  properties length (signed), properties

A blank record fills the end of a log file: total size, magic 0xCBD43194, then anything.
"""

import struct
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from mmap import mmap
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.properties import decode_properties, get_property

ReadBuffer: TypeAlias = bytes | bytearray | memoryview | mmap
WriteBuffer: TypeAlias = bytearray | memoryview | mmap

MAGIC_V1: Final = -626843481  # 0xDAA320A7
MAGIC_V2: Final = -626843477  # 0xDAA320AB
BLANK_MAGIC: Final = -875286124  # 0xCBD43194

BLANK_SIZE: Final = 8
"""The smallest blank record: every message leaves this much room behind it in its file."""
MIN_RECORD_SIZE: Final = 91
MAX_V1_TOPIC_BYTES: Final = 127

CRC_MASK: Final = 0x7FFFFFFF


class SysFlag:
    """The bits of a record's system flag."""

    COMPRESSED: Final = 0x1
    MULTI_TAGS: Final = 0x2
    TRANSACTION_PREPARED: Final = 0x4
    TRANSACTION_COMMIT: Final = 0x8
    TRANSACTION_ROLLBACK: Final = 0xC
    TRANSACTION_MASK: Final = 0xC
    BORN_HOST_V6: Final = 0x10
    STORE_HOST_V6: Final = 0x20
    HOSTS_MASK: Final = 0x30
    NEED_UNWRAP: Final = 0x40
    INNER_BATCH: Final = 0x80
    COMPRESSION_ZLIB: Final = 0x300
    COMPRESSION_MASK: Final = 0x700


class Host(msgspec.Struct, frozen=True, gc=False):
    """An address of either family; `ip` is its 4 or 16 packed bytes."""

    ip: bytes
    port: int

    @classmethod
    def of(cls, ip: str, port: int) -> "Host":
        try:
            return cls(ip_address(ip).packed, port)
        except ValueError as error:
            raise LocalProtocolError(f"not an IP address: {ip!r}") from error

    @property
    def is_ipv6(self) -> bool:
        return len(self.ip) == 16

    @property
    def ip_text(self) -> str:
        if len(self.ip) == 4:
            return "%d.%d.%d.%d" % tuple(self.ip)  # noqa: UP031 - three times faster than ipaddress
        return str(IPv6Address(self.ip))

    def pack(self) -> bytes:
        """Its 8 or 20 bytes in a record."""
        if len(self.ip) not in (4, 16):
            raise LocalProtocolError(f"a host address has 4 or 16 bytes, not {len(self.ip)}")
        try:
            return self.ip + _INT32.pack(self.port)
        except struct.error as error:
            raise LocalProtocolError(f"port {self.port}: {error}") from None

    def __str__(self) -> str:
        return f"[{self.ip_text}]:{self.port}" if self.is_ipv6 else f"{self.ip_text}:{self.port}"


NOWHERE: Final = Host(b"\0\0\0\0", 0)


class StoredMessage(msgspec.Struct, gc=False):
    """A message as it is in the log: body and properties exactly as stored."""

    topic: str
    body: bytes
    properties: bytes = b""
    queue_id: int = 0
    flag: int = 0
    queue_offset: int = 0
    log_offset: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = NOWHERE
    store_timestamp: int = 0
    store_host: Host = NOWHERE
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    body_crc: int = 0
    magic: int = MAGIC_V1

    def get(self, name: str) -> str | None:
        """One property, found without reading the others."""
        return get_property(self.properties, name)

    def property_map(self) -> dict[str, str]:
        return decode_properties(self.properties)

    @property
    def version(self) -> int:
        return 2 if self.magic == MAGIC_V2 else 1

    @property
    def size_bytes(self) -> int:
        return record_size(
            len(self.body), len(self.topic.encode()), len(self.properties), self.sys_flag, self.magic
        )


class RecordOutline(msgspec.Struct, gc=False):
    """The positions of a record's fields, counted from the start of the buffer."""

    start: int
    size: int
    magic: int
    body_crc: int
    queue_id: int
    queue_offset: int
    log_offset: int
    sys_flag: int
    store_timestamp: int
    prepared_transaction_offset: int
    body_start: int
    body_end: int
    topic: str
    properties_start: int
    properties_end: int

    @property
    def end(self) -> int:
        return self.start + self.size


_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_SIZE_AND_MAGIC = struct.Struct(">ii")

# The fixed part up to and including the body length, one shape for each pair of host families:
# index 0 both IPv4, 1 born IPv6, 2 store IPv6, 3 both IPv6, which is the system flag's two bits.
_HOST_SIZES = ((8, 8), (20, 8), (8, 20), (20, 20))
_OUTLINES = tuple(struct.Struct(f">iiii4xqqi8x{born}xq{store}x4xqi") for born, store in _HOST_SIZES)
_HEADS = tuple(struct.Struct(f">iiiiiqqiq{born - 4}siq{store - 4}siiqi") for born, store in _HOST_SIZES)
_OUTLINE_V4 = _OUTLINES[0]
_HEAD_V4 = _HEADS[0]


def record_size(
    body_length: int, topic_length: int, properties_length: int, sys_flag: int = 0, magic: int = MAGIC_V1
) -> int:
    """The size of a record; lengths are in bytes, and a topic too long for version 1 makes it version 2."""
    size = MIN_RECORD_SIZE + body_length + topic_length + properties_length
    if magic == MAGIC_V2 or topic_length > MAX_V1_TOPIC_BYTES:
        size += 1
    if sys_flag & SysFlag.HOSTS_MASK:
        size += 12 * (sys_flag & SysFlag.HOSTS_MASK).bit_count()
    return size


# --- writing -------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _layout(body_length: int, topic_length: int, properties_length: int) -> struct.Struct:
    return struct.Struct(f">iiiiiqqiq8sq8siqi{body_length}sB{topic_length}sh{properties_length}s")


@lru_cache(maxsize=1024)
def _wide_layout(
    body_length: int, topic_length: int, properties_length: int, born: int, store: int, topic_size: str
) -> struct.Struct:
    return struct.Struct(
        f">iiiiiqqiq{born}sq{store}siqi{body_length}s{topic_size}{topic_length}sh{properties_length}s"
    )


def pack_record_into(
    buffer: WriteBuffer,
    position: int,
    body: bytes,
    topic: bytes,
    properties: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    log_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    magic: int = MAGIC_V1,
) -> int:
    """Write a record into `buffer` with no copy in between; returns its size.

    Hosts come packed (`Host.pack`). The host bits of `sys_flag` follow the hosts, whatever the caller says,
    and a topic too long for version 1 makes the record version 2.
    """
    body_length = len(body)
    topic_length = len(topic)
    properties_length = len(properties)
    if len(born_host) == 8 == len(store_host) and topic_length <= MAX_V1_TOPIC_BYTES and magic == MAGIC_V1:
        layout = _layout(body_length, topic_length, properties_length)
        sys_flag &= ~SysFlag.HOSTS_MASK
    else:
        if topic_length > MAX_V1_TOPIC_BYTES:
            magic = MAGIC_V2
        sys_flag = _with_host_bits(sys_flag, born_host, store_host)
        layout = _wide_layout(
            body_length,
            topic_length,
            properties_length,
            len(born_host),
            len(store_host),
            "h" if magic == MAGIC_V2 else "b",
        )
    size = layout.size
    try:
        layout.pack_into(
            buffer,
            position,
            size,
            magic,
            crc32(body) & CRC_MASK,
            queue_id,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
            body,
            topic_length,
            topic,
            properties_length,
            properties,
        )
    except struct.error as error:
        raise LocalProtocolError(f"record for topic {topic!r}: {error}") from None
    return size


def _with_host_bits(sys_flag: int, born_host: bytes, store_host: bytes) -> int:
    sys_flag &= ~SysFlag.HOSTS_MASK
    for host, bit in ((born_host, SysFlag.BORN_HOST_V6), (store_host, SysFlag.STORE_HOST_V6)):
        if len(host) == 20:
            sys_flag |= bit
        elif len(host) != 8:
            raise LocalProtocolError(f"a packed host has 8 or 20 bytes, not {len(host)}")
    return sys_flag


def encode_record(message: StoredMessage) -> bytes:
    """The record of `message`, its body CRC computed anew."""
    try:
        topic = message.topic.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"topic cannot be written as UTF-8: {error}") from None
    properties = message.properties
    born_host, store_host = message.born_host.pack(), message.store_host.pack()
    sys_flag = _with_host_bits(message.sys_flag, born_host, store_host)
    record = bytearray(record_size(len(message.body), len(topic), len(properties), sys_flag, message.magic))
    pack_record_into(
        record,
        0,
        message.body,
        topic,
        properties,
        message.queue_id,
        message.flag,
        message.queue_offset,
        message.log_offset,
        sys_flag,
        message.born_timestamp,
        born_host,
        message.store_timestamp,
        store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.magic,
    )
    return bytes(record)


def pack_blank_into(buffer: WriteBuffer, position: int, size: int) -> None:
    """Mark the last `size` bytes of a log file as blank."""
    if size < BLANK_SIZE:
        raise LocalProtocolError(f"a blank record has at least {BLANK_SIZE} bytes, not {size}")
    _SIZE_AND_MAGIC.pack_into(buffer, position, size, BLANK_MAGIC)


# --- reading -------------------------------------------------------------------------------------------


def decode_record(buffer: ReadBuffer, offset: int = 0, *, check_crc: bool = True) -> StoredMessage:
    """The message whose record starts at `offset`."""
    return _decode(buffer, offset, check_crc)[0]


def decode_records(buffer: ReadBuffer, *, check_crc: bool = False) -> list[StoredMessage]:
    """The messages of a pull answer, one record after the other up to the end of `buffer`."""
    # java: readers of answers do not check CRCs, and a proxy that decompresses a body keeps its old CRC
    messages = []
    position, end = 0, len(buffer)
    while position < end:
        message, position = _decode(buffer, position, check_crc)
        messages.append(message)
    return messages


def _decode(buffer: ReadBuffer, offset: int, check_crc: bool) -> tuple[StoredMessage, int]:
    """A message and the position behind its record."""
    try:
        (
            size,
            magic,
            stored_crc,
            queue_id,
            flag,
            queue_offset,
            log_offset,
            sys_flag,
            born_timestamp,
            born_ip,
            born_port,
            store_timestamp,
            store_ip,
            store_port,
            reconsume_times,
            prepared_transaction_offset,
            body_length,
        ) = _HEAD_V4.unpack_from(buffer, offset)
        body_start = offset + 88
        if sys_flag & 0x30:
            head = _HEADS[(sys_flag & 0x30) >> 4]
            (
                born_ip,
                born_port,
                store_timestamp,
                store_ip,
                store_port,
                reconsume_times,
                prepared_transaction_offset,
                body_length,
            ) = head.unpack_from(buffer, offset)[9:]
            body_start = offset + head.size
    except struct.error:
        raise _broken(offset, f"{len(buffer) - offset} bytes are too few for a record") from None
    body_end, topic_start, topic_end, properties_end = _measure(
        buffer, offset, len(buffer), size, magic, body_start, body_length
    )
    body = bytes(buffer[body_start:body_end])
    # java: the CRC of an empty body is not looked at
    if check_crc and body and crc32(body) & CRC_MASK != stored_crc:
        raise _wrong_body_crc(offset, stored_crc, crc32(body) & CRC_MASK)
    try:
        topic = str(buffer[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise _broken(offset, f"topic is not UTF-8: {error.reason}") from None
    message = StoredMessage(
        topic,
        body,
        bytes(buffer[topic_end + 2 : properties_end]),
        queue_id,
        flag,
        queue_offset,
        log_offset,
        sys_flag,
        born_timestamp,
        Host(born_ip, born_port),
        store_timestamp,
        Host(store_ip, store_port),
        reconsume_times,
        prepared_transaction_offset,
        stored_crc,
        magic,
    )
    return message, properties_end


def scan_record(buffer: ReadBuffer, offset: int = 0, end: int | None = None) -> RecordOutline | None:
    """Outline the record at `offset`, which must lie before `end`; None for the blank that fills a file."""
    if end is None:
        end = len(buffer)
    try:
        (
            size,
            magic,
            stored_crc,
            queue_id,
            queue_offset,
            log_offset,
            sys_flag,
            store_timestamp,
            prepared_transaction_offset,
            body_length,
        ) = _OUTLINE_V4.unpack_from(buffer, offset)
        body_start = offset + 88
        if magic == BLANK_MAGIC:
            _check_blank(buffer, offset, end)
            return None
        if sys_flag & 0x30:
            outline = _OUTLINES[(sys_flag & 0x30) >> 4]
            store_timestamp, prepared_transaction_offset, body_length = outline.unpack_from(buffer, offset)[
                7:
            ]
            body_start = offset + outline.size
    except struct.error:
        _check_blank(buffer, offset, end)
        return None
    body_end, topic_start, topic_end, properties_end = _measure(
        buffer, offset, end, size, magic, body_start, body_length
    )
    try:
        topic = str(buffer[topic_start:topic_end], "utf-8")
    except UnicodeDecodeError as error:
        raise _broken(offset, f"topic is not UTF-8: {error.reason}") from None
    return RecordOutline(
        offset,
        size,
        magic,
        stored_crc,
        queue_id,
        queue_offset,
        log_offset,
        sys_flag,
        store_timestamp,
        prepared_transaction_offset,
        body_start,
        body_end,
        topic,
        topic_end + 2,
        properties_end,
    )


def _measure(
    buffer: ReadBuffer, start: int, limit: int, size: int, magic: int, body_start: int, body_length: int
) -> tuple[int, int, int, int]:
    """Check a record's lengths against each other and against `limit`; returns the positions of its parts."""
    end = start + size
    body_end = body_start + body_length
    if magic == MAGIC_V1:
        topic_start = body_end + 1
    elif magic == MAGIC_V2:
        topic_start = body_end + 2
    else:
        raise _broken(start, f"unknown magic {magic & 0xFFFFFFFF:#010x}")
    if end > limit or size < MIN_RECORD_SIZE:
        raise _broken(start, f"size {size} does not fit in {limit - start} bytes")
    if body_length < 0 or topic_start + 2 > end:
        raise _broken(start, f"body length {body_length} does not fit in a record of {size} bytes")
    topic_length: int = buffer[body_end] if magic == MAGIC_V1 else _INT16.unpack_from(buffer, body_end)[0]
    topic_end = topic_start + topic_length
    # java: the length byte of version 1 is signed
    if topic_length < 0 or topic_end + 2 > end or (magic == MAGIC_V1 and topic_length > MAX_V1_TOPIC_BYTES):
        raise _broken(start, f"topic length {topic_length} does not fit in a record of {size} bytes")
    properties_length: int = _INT16.unpack_from(buffer, topic_end)[0]
    if properties_length < 0 or topic_end + 2 + properties_length != end:
        raise _broken(start, f"properties length {properties_length} contradicts the record's {size} bytes")
    return body_end, topic_start, topic_end, end


def _check_blank(buffer: ReadBuffer, offset: int, end: int) -> None:
    size, magic = peek_size_and_magic(buffer, offset)
    if magic != BLANK_MAGIC:
        raise _broken(offset, f"{end - offset} bytes are too few for a record")
    if not BLANK_SIZE <= size <= end - offset:
        raise _broken(offset, f"blank of {size} bytes does not fit in {end - offset} bytes")


# --- peeking at fixed positions ------------------------------------------------------------------------


def _peek(shape: struct.Struct, buffer: ReadBuffer, offset: int, position: int) -> int:
    try:
        value: int = shape.unpack_from(buffer, offset + position)[0]
    except struct.error:
        raise _broken(offset, f"{len(buffer) - offset} bytes are too few for a record") from None
    return value


def peek_size_and_magic(buffer: ReadBuffer, offset: int = 0) -> tuple[int, int]:
    try:
        size, magic = _SIZE_AND_MAGIC.unpack_from(buffer, offset)
    except struct.error:
        raise _broken(offset, f"{len(buffer) - offset} bytes are too few for a record") from None
    return size, magic


def peek_size(buffer: ReadBuffer, offset: int = 0) -> int:
    return _peek(_INT32, buffer, offset, 0)


def peek_queue_offset(buffer: ReadBuffer, offset: int = 0) -> int:
    return _peek(_INT64, buffer, offset, 20)


def peek_log_offset(buffer: ReadBuffer, offset: int = 0) -> int:
    return _peek(_INT64, buffer, offset, 28)


def peek_sys_flag(buffer: ReadBuffer, offset: int = 0) -> int:
    return _peek(_INT32, buffer, offset, 36)


def peek_store_timestamp(buffer: ReadBuffer, offset: int = 0) -> int:
    ipv6 = peek_sys_flag(buffer, offset) & SysFlag.BORN_HOST_V6
    return _peek(_INT64, buffer, offset, 68 if ipv6 else 56)


def verify_body_crc(buffer: ReadBuffer, outline: RecordOutline) -> None:
    """Raise RemoteProtocolError unless the body matches its CRC."""
    if outline.body_start == outline.body_end:
        return
    actual = crc32(buffer[outline.body_start : outline.body_end]) & CRC_MASK
    if actual != outline.body_crc:
        raise _wrong_body_crc(outline.start, outline.body_crc, actual)


def _broken(offset: int, what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"record at {offset}: {what}")


def _wrong_body_crc(offset: int, stored: int, actual: int) -> RemoteProtocolError:
    return _broken(offset, f"CRC of the body is {actual:#010x}, stored {stored & 0xFFFFFFFF:#010x}")
