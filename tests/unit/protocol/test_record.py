"""The stored record, byte by byte, and what happens when the bytes are wrong."""

import mmap
import struct
from collections.abc import Callable

import msgspec
import pytest

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.record import (
    BLANK_MAGIC,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    Host,
    ReadBuffer,
    StoredMessage,
    SysFlag,
    decode_record,
    decode_records,
    encode_record,
    pack_blank_into,
    pack_record_into,
    peek_log_offset,
    peek_size,
    peek_size_and_magic,
    peek_store_timestamp,
    peek_sys_flag,
    record_size,
    scan_record,
    verify_body_crc,
)

IPV4 = Host.of("192.168.1.10", 10911)
IPV6 = Host.of("2001:db8::1", 10911)


def a_message(**changes: object) -> StoredMessage:
    message = StoredMessage(
        topic="TopicTest",
        body=b"hello",
        properties=b"TAGS\x01TagA\x02",
        queue_id=3,
        flag=7,
        queue_offset=11,
        log_offset=1234567,
        born_timestamp=1_700_000_000_000,
        born_host=Host.of("10.0.0.2", 50000),
        store_timestamp=1_700_000_000_123,
        store_host=IPV4,
        reconsume_times=2,
        prepared_transaction_offset=99,
        body_crc=907060870,
    )
    return msgspec.structs.replace(message, **changes)


GOLDEN_V1 = bytes.fromhex(
    "00000073 daa320a7 3610a686 00000003 00000007 000000000000000b 000000000012d687 00000000"
    "0000018bcfe56800 0a000002 0000c350 0000018bcfe5687b c0a8010a 00002a9f 00000002 0000000000000063"
    "00000005 68656c6c6f 09 546f70696354657374 000a 54414753 01 54616741 02"
)


def test_a_version_1_record_has_exactly_these_bytes() -> None:
    assert encode_record(a_message()) == GOLDEN_V1
    assert decode_record(GOLDEN_V1) == a_message()


def test_a_long_topic_makes_a_version_2_record() -> None:
    record = encode_record(a_message(topic="t" * 128))
    assert peek_size_and_magic(record)[1] == MAGIC_V2
    assert record[93:95] == b"\x00\x80"
    assert decode_record(record).topic == "t" * 128
    assert decode_record(record).version == 2
    assert peek_size_and_magic(encode_record(a_message(topic="t" * 127)))[1] == MAGIC_V1


def test_the_topic_is_measured_in_bytes_not_characters() -> None:
    record = encode_record(a_message(topic="中" * 43))
    assert peek_size_and_magic(record)[1] == MAGIC_V2
    assert decode_record(record).topic == "中" * 43


@pytest.mark.parametrize("magic", [MAGIC_V1, MAGIC_V2])
@pytest.mark.parametrize("born", [IPV4, IPV6])
@pytest.mark.parametrize("store", [IPV4, IPV6])
def test_every_pair_of_host_families_keeps_every_field(magic: int, born: Host, store: Host) -> None:
    message = a_message(magic=magic, born_host=born, store_host=store)
    record = encode_record(message)
    decoded = decode_record(record)
    flag = (SysFlag.BORN_HOST_V6 if born.is_ipv6 else 0) | (SysFlag.STORE_HOST_V6 if store.is_ipv6 else 0)
    assert decoded == msgspec.structs.replace(message, sys_flag=flag)
    assert len(record) == decoded.size_bytes == record_size(5, 9, 10, flag, magic)
    assert len(record) == MIN_RECORD_SIZE + 24 + 12 * (born.is_ipv6 + store.is_ipv6) + (magic == MAGIC_V2)
    assert peek_size(record) == len(record)
    assert peek_store_timestamp(record) == message.store_timestamp
    outline = scan_record(record)
    assert outline is not None
    assert outline.store_timestamp == message.store_timestamp
    assert outline.prepared_transaction_offset == message.prepared_transaction_offset
    assert record[outline.body_start : outline.body_end] == b"hello"
    assert record[outline.properties_start : outline.properties_end] == message.properties


def test_host_bits_follow_the_hosts_and_not_the_sender() -> None:
    record = encode_record(a_message(sys_flag=SysFlag.BORN_HOST_V6 | SysFlag.COMPRESSED))
    assert peek_sys_flag(record) == SysFlag.COMPRESSED
    assert decode_record(record).born_host == Host.of("10.0.0.2", 50000)


def test_scanning_finds_what_decoding_finds() -> None:
    data = b"\0" * 10 + GOLDEN_V1
    outline = scan_record(data, 10)
    assert outline is not None
    message = a_message()
    assert (outline.start, outline.size, outline.end) == (10, len(GOLDEN_V1), len(data))
    assert (outline.magic, outline.body_crc, outline.topic) == (MAGIC_V1, 907060870, "TopicTest")
    assert (outline.queue_id, outline.queue_offset, outline.log_offset) == (3, 11, 1234567)
    assert outline.sys_flag == 0
    assert data[outline.body_start : outline.body_end] == message.body
    assert data[outline.properties_start : outline.properties_end] == message.properties


def test_peeking_reads_fixed_positions() -> None:
    data = b"\0" * 3 + GOLDEN_V1
    assert peek_size_and_magic(data, 3) == (len(GOLDEN_V1), MAGIC_V1)
    assert peek_log_offset(data, 3) == 1234567
    assert peek_sys_flag(data, 3) == 0
    assert peek_store_timestamp(data, 3) == 1_700_000_000_123


@pytest.mark.parametrize(
    "peek",
    [
        peek_size,
        peek_size_and_magic,
        peek_log_offset,
        peek_sys_flag,
        peek_store_timestamp,
    ],
)
def test_peeking_past_the_end_is_a_protocol_error(peek: Callable[[bytes, int], object]) -> None:
    with pytest.raises(RemoteProtocolError, match="too few"):
        peek(GOLDEN_V1, len(GOLDEN_V1) - 3)


def test_the_same_record_is_read_from_any_kind_of_buffer() -> None:
    with mmap.mmap(-1, 4096) as mapped:
        mapped[: len(GOLDEN_V1)] = GOLDEN_V1
        view = memoryview(GOLDEN_V1)
        buffers: list[ReadBuffer] = [GOLDEN_V1, bytearray(GOLDEN_V1), view, mapped]
        for buffer in buffers:
            decoded = decode_record(buffer)
            assert decoded == a_message()
            assert type(decoded.body) is bytes
            assert type(decoded.properties) is bytes
            outline = scan_record(buffer)
            assert outline is not None
            verify_body_crc(buffer, outline)


def test_a_record_is_packed_straight_into_a_mapping() -> None:
    message = a_message()
    with mmap.mmap(-1, 4096) as mapped:
        size = pack_record_into(
            mapped,
            100,
            body=message.body,
            topic=b"TopicTest",
            properties=message.properties,
            queue_id=message.queue_id,
            flag=message.flag,
            queue_offset=message.queue_offset,
            log_offset=message.log_offset,
            sys_flag=0,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host.pack(),
            store_timestamp=message.store_timestamp,
            store_host=message.store_host.pack(),
            reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
        assert size == len(GOLDEN_V1)
        assert mapped[:100] == bytes(100)
        assert mapped[100 : 100 + size] == GOLDEN_V1
        assert mapped[100 + size :] == bytes(4096 - 100 - size)


def test_records_follow_each_other_in_a_pull_answer() -> None:
    messages = [a_message(queue_offset=offset, body=b"x" * offset) for offset in range(5)]
    decoded = decode_records(b"".join(map(encode_record, messages)))
    assert [message.queue_offset for message in decoded] == [0, 1, 2, 3, 4]
    assert [message.body for message in decoded] == [b"x" * offset for offset in range(5)]
    assert decode_records(b"") == []


def test_pull_answers_are_read_without_checking_crcs_unless_asked() -> None:
    record = bytearray(GOLDEN_V1)
    record[8] ^= 1
    assert decode_records(record)[0].body == b"hello"
    with pytest.raises(RemoteProtocolError, match="CRC of the body"):
        decode_records(record, check_crc=True)


def test_a_changed_body_is_noticed() -> None:
    record = bytearray(GOLDEN_V1)
    record[88] ^= 1
    with pytest.raises(RemoteProtocolError, match=r"record at 0: CRC of the body is 0x.*, stored 0x3610a686"):
        decode_record(record)
    outline = scan_record(record)
    assert outline is not None
    with pytest.raises(RemoteProtocolError, match="CRC of the body"):
        verify_body_crc(record, outline)
    assert decode_record(record, check_crc=False).body == b"iello"


def test_the_crc_of_an_empty_body_is_not_looked_at() -> None:
    record = bytearray(encode_record(a_message(body=b"")))
    record[8:12] = b"\x01\x02\x03\x04"
    assert decode_record(record).body == b""
    outline = scan_record(record)
    assert outline is not None
    verify_body_crc(record, outline)


@pytest.mark.parametrize(("body", "crc"), [(b"hello", 907060870), (b"a", 3904355907 & 0x7FFFFFFF), (b"", 0)])
def test_the_checksum_of_a_body_has_its_top_bit_cleared(body: bytes, crc: int) -> None:
    assert decode_record(encode_record(a_message(body=body))).body_crc == crc


def broken(position: int, replacement: bytes, record: bytes = GOLDEN_V1) -> bytes:
    return record[:position] + replacement + record[position + len(replacement) :]


V2 = encode_record(a_message(magic=MAGIC_V2))


@pytest.mark.parametrize(
    ("record", "what"),
    [
        pytest.param(b"", "too few", id="nothing"),
        pytest.param(GOLDEN_V1[:87], "too few", id="head cut off"),
        pytest.param(GOLDEN_V1[:-1], "size 115 does not fit in 114", id="tail cut off"),
        pytest.param(broken(0, b"\0\0\0\0"), "size 0 does not fit", id="zero size"),
        pytest.param(broken(0, b"\xff\xff\xff\xff"), "size -1 does not fit", id="negative size"),
        pytest.param(broken(0, b"\x7f\xff\xff\xff"), "does not fit", id="huge size"),
        pytest.param(broken(3, b"\x72"), "contradicts", id="size one too small"),
        pytest.param(GOLDEN_V1[:3] + b"\x74" + GOLDEN_V1[4:] + b"\0", "contradicts", id="size one too big"),
        pytest.param(broken(4, b"\0\0\0\0"), "unknown magic 0x00000000", id="zero magic"),
        pytest.param(broken(7, b"\xa8"), "unknown magic 0xdaa320a8", id="bad magic"),
        pytest.param(broken(84, b"\xff\xff\xff\xff"), "body length -1", id="negative body"),
        pytest.param(broken(84, b"\x7f\xff\xff\xff"), "body length 2147483647", id="huge body"),
        pytest.param(broken(84, b"\0\0\0\x1a"), "body length 26", id="body over the end"),
        pytest.param(broken(93, b"\x80"), "topic length 128", id="signed topic length"),
        pytest.param(broken(93, b"\x7f"), "topic length 127", id="topic over the end"),
        pytest.param(broken(93, b"\xff\xff", V2), "topic length -1", id="negative topic of version 2"),
        pytest.param(broken(93, b"\x7f\xff", V2), "topic length 32767", id="huge topic of version 2"),
        pytest.param(broken(94, b"\xff"), "topic is not UTF-8", id="topic not UTF-8"),
        pytest.param(broken(103, b"\xff\xff"), "properties length -1", id="negative properties"),
        pytest.param(broken(103, b"\x7f\xff"), "properties length 32767", id="huge properties"),
        pytest.param(broken(103, b"\0\x09"), "properties length 9", id="properties too short"),
    ],
)
def test_impossible_records_are_refused(record: bytes, what: str) -> None:
    with pytest.raises(RemoteProtocolError, match=what):
        decode_record(record)
    if record:
        with pytest.raises(RemoteProtocolError, match=what):
            scan_record(record)
        with pytest.raises(RemoteProtocolError, match=what):
            decode_records(record)


def test_an_ipv6_record_may_be_cut_where_an_ipv4_one_would_end() -> None:
    record = encode_record(a_message(body=b"", topic="", properties=b"", born_host=IPV6, store_host=IPV6))
    assert len(record) == 115
    for length in range(8, 115):
        with pytest.raises(RemoteProtocolError):
            decode_record(record[:length])
        with pytest.raises(RemoteProtocolError):
            scan_record(record[:length])


def test_a_record_beyond_the_written_end_is_not_seen() -> None:
    assert scan_record(GOLDEN_V1, 0, len(GOLDEN_V1)) is not None
    with pytest.raises(RemoteProtocolError, match="does not fit in 114"):
        scan_record(GOLDEN_V1, 0, len(GOLDEN_V1) - 1)


@pytest.mark.parametrize("size", [8, 9, 88, 1000])
def test_a_blank_ends_a_file(size: int) -> None:
    file = bytearray(b"\xee" * (16 + size))
    pack_blank_into(file, 16, size)
    assert file[16:24] == struct.pack(">ii", size, BLANK_MAGIC)
    assert file[24:] == b"\xee" * (size - 8)
    assert scan_record(file, 16) is None
    with pytest.raises(RemoteProtocolError):
        decode_record(file, 16)


@pytest.mark.parametrize("size", [0, 7, -1, 101, 0x7FFFFFFF])
def test_a_blank_of_impossible_size_is_refused(size: int) -> None:
    file = struct.pack(">ii", size, BLANK_MAGIC) + bytes(92)
    with pytest.raises(RemoteProtocolError, match="blank"):
        scan_record(file)


def test_a_blank_smaller_than_its_own_header_is_not_written() -> None:
    with pytest.raises(LocalProtocolError, match="at least 8"):
        pack_blank_into(bytearray(100), 0, 7)


@pytest.mark.parametrize(
    "changes",
    [
        {"queue_id": 1 << 31},
        {"queue_offset": 1 << 63},
        {"properties": b"x" * 32768},
        {"topic": "t" * 32768},
        {"topic": "\ud800"},
        {"born_host": Host(b"123", 1)},
        {"store_host": Host(b"1234", 1 << 31)},
    ],
)
def test_what_a_record_cannot_hold_is_our_own_error(changes: dict[str, object]) -> None:
    with pytest.raises(LocalProtocolError):
        encode_record(a_message(**changes))


def test_a_buffer_without_room_or_a_host_of_odd_size_is_our_own_error() -> None:
    rest = (0, 0, 0, 0, 0, 0)
    with pytest.raises(LocalProtocolError):
        pack_record_into(bytearray(90), 0, b"", b"", b"", *rest, bytes(8), 0, bytes(8))
    with pytest.raises(LocalProtocolError, match="8 or 20"):
        pack_record_into(bytearray(900), 0, b"", b"", b"", *rest, bytes(7), 0, bytes(8))


def test_properties_of_a_stored_message() -> None:
    message = a_message(properties=b"KEYS\x01a b\x02TAGS\x01TagA\x02")
    assert message.get("TAGS") == "TagA"
    assert message.get("WAIT") is None
    assert message.property_map() == {"KEYS": "a b", "TAGS": "TagA"}


def test_hosts_show_themselves() -> None:
    assert str(IPV4) == "192.168.1.10:10911"
    assert str(IPV6) == "[2001:db8::1]:10911"
    assert IPV4.pack() == bytes.fromhex("c0a8010a00002a9f")
    assert len(IPV6.pack()) == 20
    with pytest.raises(LocalProtocolError, match=r"broker\.example"):
        Host.of("broker.example", 1)
