"""Pull answers decoded by the compiled core are what the general path makes of them, or it declines."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.fake_network import FakeNetwork

from pyromq.client.consumer.reading import fetching
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.quick_pulls import Pulled
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.compiled import WHY, twin
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.properties import encode_properties
from pyromq.protocol.record import MAGIC_V1, MAGIC_V2, Host, StoredMessage, encode_record
from pyromq.protocol.requests.pulling import PullMessageAnswer

_native = twin("client.twin_pulled_message")
pytestmark = pytest.mark.skipif(_native is None, reason=f"nothing to compare: {WHY}")

QUEUE = MessageQueue("Orders", "broker-a", 2)
FIELDS = (
    "topic", "body", "body_bytes", "queue", "queue_offset", "properties", "tags", "keys", "message_id",
    "offset_message_id", "born_ms", "stored_ms", "born_host", "store_host", "reconsume_times", "flag",
    "stored",
)  # fmt: skip

hosts = st.sampled_from([Host.of("10.0.0.1", 5), Host.of("2001:db8::1", 10911)])
records = st.builds(
    StoredMessage,
    st.sampled_from(["Orders"] * 8 + ["Bills", "ns%Orders"]),
    st.binary(max_size=40),
    st.sampled_from(
        [
            b"",
            encode_properties({"TAGS": "a", "UNIQ_KEY": "K1", "KEYS": "k1 k2"}).encode(),
            encode_properties({"TAGS": "b", "grün": "ja"}).encode(),
            b"open\x01end",
        ]
    ),
    queue_id=st.sampled_from([2] * 8 + [3]),
    flag=st.integers(-(2**31), 2**31 - 1),
    log_offset=st.integers(0, 2**60),
    sys_flag=st.sampled_from([0] * 8 + [1, 0x80, 0x180]),
    born_timestamp=st.integers(0, 2**50),
    born_host=hosts,
    store_timestamp=st.integers(0, 2**50),
    store_host=hosts,
    reconsume_times=st.integers(0, 20),
    magic=st.sampled_from([MAGIC_V1, MAGIC_V2]),
)


@st.composite
def answers(draw: st.DrawFn) -> PullMessageAnswer:
    offset, encoded = draw(st.sampled_from([5, 5, 5, 4, 7])), []
    for record in draw(st.lists(records, max_size=5)):
        record.queue_offset = offset
        encoded.append(encode_record(record))
        offset += draw(st.sampled_from([1, 1, 1, 1, 3, 0]))
    data = bytearray(b"".join(encoded))
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 2]))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return PullMessageAnswer(
        suggest_which_broker_id=0,
        next_begin_offset=draw(st.sampled_from([offset, offset, offset, offset - 1, 5, -3])),
        min_offset=0,
        max_offset=100,
        offset_delta=draw(st.sampled_from([None] * 8 + [0, 2])),
        body=bytes(data[: draw(st.sampled_from([len(data), len(data), max(0, len(data) - 1)]))]),
    )


def understood(answer: PullMessageAnswer, expression: str) -> Any:
    reading = Fetching(FakeNetwork(), "g")
    subscription = Subscription.of("Orders", expression, 0)
    try:
        pulled = reading._understood(QUEUE, subscription, 5, answer)
    except RemoteProtocolError as problem:
        return str(problem)
    return pulled


def shown(pulled: Any) -> Any:
    if not isinstance(pulled, Pulled):
        return pulled
    messages = [[getattr(message, name) for name in FIELDS] for message in pulled.messages]
    return messages, pulled.next_offset, pulled.is_moved


@settings(max_examples=examples(100))
@given(answers(), st.sampled_from(["*", "*", "a", "a || c"]))
def test_the_compiled_core_reads_what_the_general_path_reads(
    answer: PullMessageAnswer, expression: str
) -> None:
    compiled = shown(understood(answer, expression))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "pulled_messages", None)
        assert compiled == shown(understood(answer, expression))


def plain_answer(count: int) -> PullMessageAnswer:
    body = b"".join(
        encode_record(StoredMessage("Orders", b"x%d" % each, b"TAGS\x01a\x02", 2, queue_offset=5 + each))
        for each in range(count)
    )
    return PullMessageAnswer(
        suggest_which_broker_id=0, next_begin_offset=5 + count, min_offset=0, max_offset=100, body=body
    )


def test_a_plain_answer_is_not_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "_records", None)  # the general path would fail
    pulled = understood(plain_answer(3), "*")
    assert [message.body for message in pulled.messages] == [b"x0", b"x1", b"x2"]
    assert {type(message) for message in pulled.messages} == {ReceivedMessage}


def test_a_message_is_the_same_before_and_after_it_is_decoded() -> None:
    (message,) = understood(plain_answer(1), "*").messages
    before = message.body, message.raw_properties, message.tags
    assert message.stored.queue_offset == message.queue_offset
    assert before == (message.body, message.raw_properties, message.tags)


@pytest.mark.parametrize("name", ["body", "raw_properties", "tags", "reconsume_times"])
def test_every_part_can_be_read_first_or_after_the_others(name: str) -> None:
    first, after = (understood(plain_answer(1), "*").messages[0] for _ in range(2))
    assert after.stored.topic == "Orders"
    assert getattr(first, name) == getattr(after, name)
