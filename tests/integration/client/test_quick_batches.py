"""Messages that share a request, while something is in the way of it: each still gets its own result.

The first message of a producer finds the route and opens the connection; the batches after it are quick.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.scripted_broker import ScriptedBroker, sends

from pyromq import aio
from pyromq.client.values import Message, SendStatus
from pyromq.errors import Refused, SendFailed, StateError
from pyromq.protocol.batch import decode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.sending import SendMessageAnswer, SendMessageBatch


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders", "TBW102") as broker:
        yield broker


@pytest.fixture
async def producer(scripted: ScriptedBroker) -> AsyncIterator[aio.Producer]:
    async with aio.Producer("orders", scripted.address, linger_ms=0, send_timeout_s=60) as running:
        await running.send(Message("Orders", b"first"))
        scripted.sent.clear()
        yield running


def bodies(broker: ScriptedBroker) -> list[list[bytes]]:
    """Of every request, those of its messages."""
    return [
        [entry.body for entry in decode_batch(sent.body)] if type(sent) is SendMessageBatch else [sent.body]
        for sent in broker.sent
    ]


def stored(**fields: object) -> SendMessageAnswer:
    answer: dict[str, object] = {"msg_id": "A,B,C", "queue_id": 0, "queue_offset": 7, "code": 0}
    return SendMessageAnswer(**(answer | fields))  # type: ignore[arg-type]


async def test_messages_of_one_turn_share_a_request_and_each_has_its_place(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.queues = 1
    scripted.answers.append(stored(msg_region="moon", transaction_id="t", trace_on=True))
    results = await asyncio.gather(*sends(producer))
    assert bodies(scripted) == [[b"0", b"1", b"2"]]
    assert [(each.offset_message_id, each.queue_offset) for each in results] == [("A", 7), ("B", 8), ("C", 9)]
    assert {(each.region, each.transaction_id, each.status) for each in results} == {
        ("moon", "t", SendStatus.SEND_OK)
    }
    entries = decode_batch(scripted.sent[0].body)
    assert [f"UNIQ_KEY\x01{each.message_id}\x02".encode() for each in results] == [
        entry.properties for entry in entries
    ]
    assert producer.statistics().in_flight == 0


async def test_a_message_alone_is_sent_as_a_message(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    result = await producer.send(Message("Orders", b"alone", tags="A", keys="k", flag=3))
    [sent] = scripted.sent
    assert type(sent) is not SendMessageBatch
    assert (sent.body, sent.flag) == (b"alone", 3)
    assert result.message_id in (sent.properties or "")
    statistics = producer.statistics()
    assert (statistics.batches, statistics.batched_messages, statistics.in_flight_bytes) == (2, 2, 0)


async def test_one_id_for_a_whole_batch_is_everyones(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.answers.append(stored(msg_id="whole", queue_id=1))
    results = await asyncio.gather(*sends(producer))
    assert [each.offset_message_id for each in results] == ["whole"] * 3
    assert {each.queue.queue_id for each in results} == {1}, "as the broker says"


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("code", [10, 11, 12])
async def test_a_batch_stored_less_safely_is_a_result(
    scripted: ScriptedBroker, producer: aio.Producer, code: int, count: int
) -> None:
    scripted.answers.append(code)
    results = await asyncio.gather(*sends(producer, count))
    assert [each.status for each in results] == [SendStatus(code)] * count


@pytest.mark.parametrize("count", [1, 3])
async def test_a_refusal_that_may_be_the_brokers_own_fault_is_tried_again(
    scripted: ScriptedBroker, producer: aio.Producer, count: int
) -> None:
    scripted.answers.append(ResponseCode.SYSTEM_BUSY)
    results = await asyncio.gather(*sends(producer, count))
    first, second = scripted.sent
    assert (first.body, first.born_timestamp) == (second.body, second.born_timestamp)
    assert len({each.message_id for each in results}) == count
    assert producer.statistics().sender.retries == 1


@pytest.mark.parametrize("count", [1, 3])
async def test_a_refusal_of_the_messages_is_final_and_everyones(
    scripted: ScriptedBroker, producer: aio.Producer, count: int
) -> None:
    scripted.answers.append(ResponseCode.MESSAGE_ILLEGAL)
    outcomes = await asyncio.gather(*sends(producer, count), return_exceptions=True)
    assert [type(each) for each in outcomes] == [Refused] * count
    assert len(scripted.sent) == 1
    assert producer.statistics().in_flight == 0


async def test_a_server_that_goes_away_has_got_nothing(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.answers.append(ResponseCode.GO_AWAY)
    results = await asyncio.gather(*sends(producer))
    assert [each.is_ok for each in results] == [True] * 3
    assert bodies(scripted) == [[b"0", b"1", b"2"]] * 2
    assert producer.statistics().sender.retries == 0


async def test_a_connection_that_breaks_costs_no_send(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.hold = asyncio.Event()
    sending = sends(producer)
    while (await scripted.arrived.get()).body == b"first":
        pass
    for connection in scripted.connections:
        connection.abort()
    scripted.hold.set()
    assert [each.is_ok for each in await asyncio.gather(*sending)] == [True] * 3
    assert bodies(scripted) == [[b"0", b"1", b"2"]] * 2


async def test_time_that_is_up_is_everyones(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address, linger_ms=0, send_timeout_s=0.3) as producer:
        await producer.send(Message("Orders", b"first"))
        scripted.hold = asyncio.Event()
        outcomes = await asyncio.gather(*sends(producer), return_exceptions=True)
        scripted.hold.set()
    assert [type(each) for each in outcomes] == [SendFailed] * 3
    assert "no answer to SendMessageBatch in 0.3 s" in str(outcomes[0])


async def test_who_gave_up_is_not_sent_and_leaves_room(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    sending = sends(producer)
    everyone = sends(producer, 1)
    await asyncio.sleep(0)
    for each in (sending[1], *everyone):
        each.cancel()
    outcomes = await asyncio.gather(*sending, *everyone, return_exceptions=True)
    assert [type(each) for each in outcomes][1::2] == [asyncio.CancelledError] * 2
    assert bodies(scripted) == [[b"0", b"2"]]
    assert producer.statistics().in_flight == 0


async def test_a_send_begins_when_it_is_awaited(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address, linger_ms=0) as producer:
        too_late = producer.send(Message("Orders", b"x"))
    with pytest.raises(StateError, match="is closed"):
        await too_late
    assert scripted.sent == []


async def test_a_lost_connection_ends_the_only_try(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address, linger_ms=0, retries=0) as producer:
        await producer.send(Message("Orders", b"first"))
        scripted.hold = asyncio.Event()
        await scripted.arrived.get()
        sending = sends(producer)
        await scripted.arrived.get()
        for connection in scripted.connections:
            connection.abort()
        outcomes = await asyncio.gather(*sending, return_exceptions=True)
        scripted.hold.set()
    assert [type(each) for each in outcomes] == [SendFailed] * 3
    assert "in 1 attempts: scripted:" in str(outcomes[0])


async def test_a_send_of_the_applications_own_stays_in_front(scripted: ScriptedBroker) -> None:
    class Counting(aio.Producer):
        count = 0

        async def send(self, message: object, **options: object) -> Any:
            self.count += 1
            return await super().send(message, **options)  # type: ignore[call-overload]

    async with Counting("orders", scripted.address, linger_ms=0) as producer:
        await asyncio.gather(*sends(producer))
        assert producer.count == 3
    assert bodies(scripted) == [[b"0", b"1", b"2"]]
