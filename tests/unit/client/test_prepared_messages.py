"""Messages as they leave: checked, named, compressed."""

from typing import Any

import pytest

from pyromq.client.prepared_messages import MessagePreparer, check_topic
from pyromq.client.values import Message
from pyromq.errors import BadMessage
from pyromq.protocol.compression import Compression, decompress
from pyromq.protocol.properties import decode_properties, encode_properties
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.sending import SendReplyV2

PREPARER = MessagePreparer()


def properties(message: Message, preparer: MessagePreparer = PREPARER, **options: Any) -> dict[str, str]:
    return decode_properties(preparer.prepare(message, "KEY", 5, **options).properties)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message("t", b"x"), {}),
        (Message("t", b"x", tags="A"), {"TAGS": "A"}),
        (Message("t", b"x", keys=["a", "b"]), {"KEYS": "a b"}),
        (Message("t", b"x", keys="a b"), {"KEYS": "a b"}),
        (Message("t", b"x", wait_stored=False), {"WAIT": "false"}),
        (Message("t", b"x", delay_level=3), {"DELAY": "3"}),
        (Message("t", b"x", priority=0), {"_SYS_MSG_PRIORITY_": "0"}),
        (Message("t", b"x", lite_topic="a-1"), {"__LITE_TOPIC": "a-1"}),
        (Message("t", b"x", delay_ms=0), {"TIMER_DELAY_MS": "0"}),
        (Message("t", b"x", deliver_at_ms=99), {"TIMER_DELIVER_MS": "99"}),
        (Message("t", b"x", properties={"colour": "grün", "a": "b\x01c"}), {"colour": "grün", "a": "b\x01c"}),
    ],
)
def test_what_is_said_about_a_message_becomes_properties(message: Message, expected: dict[str, str]) -> None:
    assert properties(message) == expected | {"UNIQ_KEY": "KEY"}


def test_the_property_string_reads_as_the_encoder_writes_it() -> None:
    message = Message("t", b"x", tags="A", keys=["k"], properties={"p": "q"})
    prepared = PREPARER.prepare(message, "KEY", 5)
    assert prepared.properties == encode_properties({"p": "q", "KEYS": "k", "TAGS": "A", "UNIQ_KEY": "KEY"})


def test_the_system_adds_what_applications_may_not() -> None:
    assert properties(Message("t", b"x"), system={"TRAN_MSG": "true"})["TRAN_MSG"] == "true"
    assert properties(Message("t", b"x"), MessagePreparer(namespace="blue"))["INSTANCE_ID"] == "blue"


def test_a_prepared_message_knows_what_it_carries() -> None:
    message = Message("t", b"body", tags="A", keys=["k"], flag=3, wait_stored=False, delay_level=1)
    prepared = MessagePreparer(wrap="blue%{}".format).prepare(message, "KEY", 5, kind=SendReplyV2)
    assert (prepared.topic, prepared.body, prepared.unique_key, prepared.born_ms) == (
        "blue%t",
        b"body",
        "KEY",
        5,
    )
    assert (prepared.flag, prepared.tags, prepared.keys, prepared.kind) == (3, "A", "k", SendReplyV2)
    assert (prepared.wait_stored, prepared.is_delayed) == (False, True)
    assert prepared.size_bytes == 4 + len(prepared.properties)


@pytest.mark.parametrize("body", [bytearray(b"abc"), memoryview(b"abc")])
def test_anything_like_bytes_is_a_body(body: Any) -> None:
    assert PREPARER.prepare(Message("t", body), "KEY", 5).body == b"abc"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Message("", b"x"), "the topic is blank"),
        (Message("a b", b"x"), "illegal characters"),
        (Message("x" * 128, b"x"), "longer than 127"),
        (Message("SCHEDULE_TOPIC_XXXX", b"x"), "only brokers may send to the topic"),
        (Message("t", b""), "the body is empty"),
        (Message("t", b"x" * 101), "101 bytes, more than max_message_bytes=100"),
        (Message("t", "text"), "body must be bytes, not str"),  # type: ignore[arg-type]
        (Message("t", b"x", keys=["a b"]), "must not be empty or contain a blank"),
        (Message("t", b"x", keys=[""]), "must not be empty or contain a blank"),
        (Message("t", b"x", tags="a\x02b"), "contains the separator"),
        (Message("t", b"x", properties={"a": "b\x02"}), "contains the separator"),
        (Message("t", b"x", properties={"a\x01": "b"}), "not contain U\\+0001"),
        (Message("t", b"x", properties={"": "b"}), "must not be empty"),
        (Message("t", b"x", properties={"a": ""}), "must not be empty"),
        (Message("t", b"x", properties={"UNIQ_KEY": "mine"}), "UNIQ_KEY is reserved"),
        (Message("t", b"x", properties={"a": "\ud800"}), "cannot be encoded as UTF-8"),
        (Message("t", b"x", properties={"a": "x" * 32767}), "the properties take 32783 bytes"),
        (Message("t", b"x", properties={"a": "ü" * 16384}), "the properties take 32784 bytes"),
        (Message("t", b"x", delay_level=1, delay_ms=5), "only one of .*, not delay_level=1, delay_ms=5"),
        (Message("t", b"x", delay_level=-1), "delay_level must be an int of 0 or more, not -1"),
        (Message("t", b"x", delay_ms=-1), "delay_ms must be an int of 0 or more, not -1"),
        (Message("t", b"x", deliver_at_ms=1.5), "deliver_at_ms must be an int .* not 1.5"),  # type: ignore[arg-type]
        (Message(None, b"x"), "topic must be str, not NoneType"),  # type: ignore[arg-type]
        (Message("t", b"x", keys=[1]), "every key must be str"),  # type: ignore[list-item]
        (Message("t", b"x", tags=3), "tags must be str or None, not int"),  # type: ignore[arg-type]
        (Message("t", b"x", properties={"a": 1}), "name and value must be str"),  # type: ignore[dict-item]
        (Message("t", b"x", keys=1), "keys must be str or a sequence of str, not int"),  # type: ignore[arg-type]
        (Message("t", b"x", properties=["a"]), "properties must be a mapping, not list"),  # type: ignore[arg-type]
        (Message("t", b"x", flag=1 << 31), "flag must be an int of 32 bits, not 2147483648"),
        (Message("t", b"x", flag="a"), "flag must be an int of 32 bits, not 'a'"),  # type: ignore[arg-type]
        (Message("t", b"x", priority=-1), "priority must be"),
        (Message("t", b"x", priority=1, delay_ms=5), "has no priority"),
        (Message("t", b"x", lite_topic="a b"), "letters, digits"),
        (Message("t", b"x", lite_topic=""), "letters, digits"),
        (Message("t", b"x", lite_topic="a", delay_ms=5), "a message of a lite topic cannot"),
        (Message("t", b"x", lite_topic="a", priority=5), "a message of a lite topic cannot"),
    ],
)
def test_what_breaks_a_rule_never_leaves(message: Message, problem: str) -> None:
    with pytest.raises(BadMessage, match=problem):
        MessagePreparer(max_bytes=100).prepare(message, "KEY", 5)


@pytest.mark.parametrize("kind", list(Compression))
def test_bodies_are_compressed_from_a_size_on(kind: Compression) -> None:
    preparer = MessagePreparer(compression=kind, compress_from_bytes=1000)
    small = preparer.prepare(Message("t", b"a" * 999), "KEY", 5)
    assert (small.body, small.sys_flag) == (b"a" * 999, 0)
    large = preparer.prepare(Message("t", b"a" * 1000), "KEY", 5)
    assert large.sys_flag == kind.sys_flag & 0x701
    assert large.sys_flag & SysFlag.COMPRESSED
    assert decompress(large.body, kind) == b"a" * 1000
    assert preparer.prepare(Message("t", b"a" * 1000), "KEY", 5, compress=False).sys_flag == 0


def test_what_compression_makes_no_smaller_is_left_as_it_is() -> None:
    body = bytes(range(256))
    prepared = MessagePreparer(compress_from_bytes=10).prepare(Message("t", body), "KEY", 5)
    assert (prepared.body, prepared.sys_flag) == (body, 0)


def test_a_level_that_does_not_exist() -> None:
    with pytest.raises(BadMessage, match="ZLIB has no level 77"):
        MessagePreparer(compress_from_bytes=1, level=77).prepare(Message("t", b"xxx"), "KEY", 5)


def test_known_topics_are_checked_once() -> None:
    wrapped: list[str] = []

    def wrap(topic: str) -> str:
        wrapped.append(topic)
        return topic

    preparer = MessagePreparer(wrap=wrap)
    for number in range(5000):
        preparer.prepare(Message(f"t{number}", b"x"), "KEY", 5)
        preparer.prepare(Message(f"t{number}", b"x"), "KEY", 5)
    assert len(wrapped) == 5000


def test_retry_topics_may_be_longer() -> None:
    check_topic("%RETRY%" + "x" * 200)


def test_a_delay_level_that_brokers_do_not_have_is_refused() -> None:
    message = Message("t", b"x", delay_level=19)
    with pytest.raises(BadMessage, match=r"delay_level must be at most 18, not 19: .* raise max_delay_level"):
        PREPARER.prepare(message, "KEY", 5)
    assert properties(Message("t", b"x", delay_level=18))["DELAY"] == "18"
    assert properties(message, MessagePreparer(max_delay_level=20))["DELAY"] == "19"
