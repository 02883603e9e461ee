"""Timed messages and their recall against a broker that plays its part by script."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.support.scripted_broker import ScriptedBroker

from pyromq import Message, Producer, aio
from pyromq.client.values import SendResult
from pyromq.errors import BadMessage, ConnectFailed, Refused
from pyromq.protocol.message_id import RecallHandle, encode_offset_message_id, encode_recall_handle
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import Host
from pyromq.protocol.requests.sending import SendMessageAnswer

CHRISTMAS = datetime(2026, 12, 24, 18, tzinfo=UTC)
CHRISTMAS_MS = 1798135200000


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders") as running:
        yield running


def handle(broker_name: str = "scripted", deliver_ms: int = 99_999_999_999_999) -> str:
    return encode_recall_handle(RecallHandle("Orders", broker_name, deliver_ms, "AAAA"))


def stored(recall_handle: str | None) -> SendMessageAnswer:
    message_id = encode_offset_message_id(Host.of("127.0.0.1", 1), 7)
    return SendMessageAnswer(msg_id=message_id, queue_id=0, queue_offset=1, recall_handle=recall_handle)


def times(broker: ScriptedBroker) -> list[tuple[str | None, str | None]]:
    names = ("TIMER_DELAY_MS", "TIMER_DELIVER_MS")
    found = [[get_property(sent.properties or "", name) for name in names] for sent in broker.sent]
    return [(delay, moment) for delay, moment in found]


async def test_the_broker_is_told_when_to_deliver(broker: ScriptedBroker) -> None:
    message = Message("Orders", b"later")
    async with aio.Producer("orders", broker.address, linger_ms=0) as producer:
        await producer.send(message, delay=timedelta(minutes=10))
        await producer.send(message, deliver_at=CHRISTMAS, sharding_key="k")
        await producer.send_oneway(message, delay=timedelta(seconds=1))
        for _ in range(3):
            await broker.arrived.get()
    assert times(broker) == [("600000", None), (None, str(CHRISTMAS_MS)), ("1000", None)]


async def test_a_time_that_is_unclear_never_leaves(broker: ScriptedBroker) -> None:
    async with aio.Producer("orders", broker.address) as producer:
        with pytest.raises(BadMessage, match="must have a time zone"):
            await producer.send(Message("Orders", b"x"), deliver_at=CHRISTMAS.replace(tzinfo=None))
        with pytest.raises(BadMessage, match="a delayed message cannot be in a batch"):
            await producer.send([Message("Orders", b"x", delay_ms=5)])
    assert broker.sent == []


@pytest.mark.parametrize("by", ["result", "handle"])
async def test_a_timed_message_is_taken_back(broker: ScriptedBroker, by: str) -> None:
    broker.answers.append(stored(handle()))
    async with aio.Producer("orders", broker.address) as producer:
        result = await producer.send(Message("Orders", b"later"), delay=timedelta(minutes=10))
        assert result.recall_handle == handle()
        assert await producer.recall(result if by == "result" else handle()) == "recalled"
    [request] = broker.recalled
    assert (request.topic, request.producer_group) == ("Orders", "orders")
    assert (request.recall_handle, request.target_broker_name) == (handle(), "scripted")


async def test_another_producer_takes_back_what_it_did_not_send(broker: ScriptedBroker) -> None:
    async with aio.Producer("others", broker.address) as producer:
        assert await producer.recall(handle()) == "recalled"


@pytest.mark.parametrize(
    ("code", "due_ms", "hint"),
    [
        (3, CHRISTMAS_MS, "the broker scripted cannot take messages back; Apache's brokers can since 5.3"),
        (16, CHRISTMAS_MS, "does the broker scripted have recallMessageEnable=true?"),
        (604, 1000, r"the message AAAA was due at 1970-01-01T00:00:01.000\+00:00"),
        (604, 10**17, "the message AAAA is due at 100000000000000000 ms"),
    ],
)
async def test_a_refused_recall_says_what_to_do(
    broker: ScriptedBroker, code: int, due_ms: int, hint: str
) -> None:
    broker.answers.append(code)
    async with aio.Producer("orders", broker.address) as producer:
        with pytest.raises(Refused, match=f"code {code}: as the script says; {hint}"):
            await producer.recall(handle(deliver_ms=due_ms))


async def test_what_cannot_be_taken_back_is_told_without_asking(broker: ScriptedBroker) -> None:
    async with aio.Producer("orders", broker.address) as producer:
        result = await producer.send(Message("Orders", b"at once"))
        with pytest.raises(BadMessage, match=r"\(SEND_OK.* has no recall handle: only timed messages"):
            await producer.recall(result)
        with pytest.raises(BadMessage, match=r"recall handle 'garbage'.*expected the recall_handle"):
            await producer.recall("garbage")
        with pytest.raises(BadMessage, match="takes a SendResult or its recall_handle, not NoneType None"):
            await producer.recall(None)  # type: ignore[arg-type]
        with pytest.raises(ConnectFailed, match="the broker gone, which keeps the message AAAA, has no"):
            await producer.recall(handle("gone"))
    assert broker.recalled == []


async def test_threads_do_the_same(broker: ScriptedBroker) -> None:
    def script() -> SendResult:
        message = Message("Orders", b"later")
        with Producer("orders", broker.address) as producer:
            producer.send_oneway(message, delay=timedelta(seconds=1))
            producer.submit(message, delay=timedelta(seconds=2)).result()
            result = producer.send(message, deliver_at=CHRISTMAS)
            assert producer.recall(handle()) == "recalled"
            return result

    assert (await asyncio.to_thread(script)).is_ok
    assert sorted(times(broker), key=str) == [("1000", None), ("2000", None), (None, str(CHRISTMAS_MS))]
