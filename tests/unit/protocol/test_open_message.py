"""What readers make of a stored message: decompressed, unwrapped and named."""

import msgspec
import pytest

from pyromq.errors import RemoteProtocolError
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.compression import Compression, compress
from pyromq.protocol.message import decompress_body, open_message, shown_message_id
from pyromq.protocol.record import Host, StoredMessage, SysFlag

PLAIN = StoredMessage(
    "TopicTest",
    b"hello",
    b"UNIQ_KEY\x01C0A8010A10E118B4AAC205265C000001\x02",
    queue_offset=40,
    log_offset=1234567,
    store_host=Host.of("192.168.1.10", 10911),
)


def test_a_plain_message_is_itself() -> None:
    assert open_message(PLAIN) == [PLAIN]
    assert decompress_body(PLAIN) is PLAIN


@pytest.mark.parametrize("kind", list(Compression))
def test_a_packed_body_is_unpacked_and_the_flag_cleared(kind: Compression) -> None:
    packed = msgspec.structs.replace(
        PLAIN, body=compress(b"hello" * 1000, kind), sys_flag=kind.sys_flag | SysFlag.TRANSACTION_COMMIT
    )
    [opened] = open_message(packed)
    assert opened.body == b"hello" * 1000
    assert not opened.sys_flag & SysFlag.COMPRESSED
    assert opened.sys_flag & SysFlag.TRANSACTION_COMMIT
    assert open_message(opened) == [opened]
    [unopened] = open_message(packed, max_bytes=4999)
    assert unopened.body == packed.body


def test_an_empty_body_is_not_decompressed() -> None:
    [opened] = open_message(msgspec.structs.replace(PLAIN, body=b"", sys_flag=SysFlag.COMPRESSED))
    assert opened.body == b""
    assert opened.sys_flag == 0


@pytest.mark.parametrize("packed", [False, True])
def test_an_inner_batch_becomes_its_messages(packed: bool) -> None:
    body = encode_batch([BatchEntry(b"a", b"TAGS\x01x\x02", 7), BatchEntry(b"b"), BatchEntry(b"")])
    flag = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    if packed:
        body = compress(body, Compression.ZLIB)
        flag |= Compression.ZLIB.sys_flag
    opened = open_message(msgspec.structs.replace(PLAIN, body=body, sys_flag=flag, reconsume_times=3))
    assert [message.body for message in opened] == [b"a", b"b", b""]
    assert [message.queue_offset for message in opened] == [40, 41, 42]
    assert [message.flag for message in opened] == [7, 0, 0]
    assert opened[0].get("TAGS") == "x"
    assert {message.topic for message in opened} == {"TopicTest"}
    assert {message.reconsume_times for message in opened} == {0}
    assert [reopened for message in opened for reopened in open_message(message)] == opened


@pytest.mark.parametrize("flag", [SysFlag.INNER_BATCH, SysFlag.NEED_UNWRAP])
def test_one_of_the_two_flags_alone_does_not_make_an_inner_batch(flag: int) -> None:
    message = msgspec.structs.replace(PLAIN, sys_flag=flag)
    assert open_message(message) == [message]


@pytest.mark.parametrize(
    "flag",
    [
        SysFlag.COMPRESSED,
        SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
        SysFlag.COMPRESSION_MASK | SysFlag.COMPRESSED,
    ],
)
def test_a_body_that_is_not_what_its_flags_say_stays_as_it_is_stored(flag: int) -> None:
    problems: list[RemoteProtocolError] = []
    message = msgspec.structs.replace(PLAIN, sys_flag=flag | SysFlag.TRANSACTION_COMMIT)
    [opened] = open_message(message, on_problem=problems.append)
    assert opened.body == PLAIN.body
    assert opened.sys_flag & SysFlag.TRANSACTION_COMMIT
    assert not opened.sys_flag & (SysFlag.COMPRESSED | SysFlag.INNER_BATCH)
    assert len(problems) == 1
    assert open_message(opened, on_problem=problems.append) == [opened]
    assert len(problems) == 1


def test_people_see_the_producers_id_and_else_the_place_of_storage() -> None:
    assert shown_message_id(PLAIN) == "C0A8010A10E118B4AAC205265C000001"
    anonymous = msgspec.structs.replace(PLAIN, properties=b"")
    assert shown_message_id(anonymous) == "C0A8010A00002A9F000000000012D687"
