"""Plain sends, one by one: each is a coroutine like any other, whatever is in the way of its answer.

The first message of a producer finds the route and opens the connection; those after it are quick.
"""

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator
from contextvars import ContextVar
from typing import Any

import pytest
from tests.support.scripted_broker import ScriptedBroker, sends

from pyromq import aio
from pyromq.client.consumer.reading.quick_pulls import quick_pulls
from pyromq.client.session import Session
from pyromq.client.values import Message, SendResult
from pyromq.compiled import IS_COMPILED, WHY
from pyromq.errors import Refused, SendFailed, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.remoting.connection import Connection

FIRST = Message("Orders", b"first")


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders", "TBW102") as broker:
        yield broker


@pytest.fixture
async def producer(scripted: ScriptedBroker) -> AsyncIterator[aio.Producer]:
    async with aio.Producer("orders", scripted.address, send_timeout_s=60) as running:
        await ready(running, scripted)
        yield running


async def ready(producer: aio.Producer, scripted: ScriptedBroker) -> None:
    await producer.send(FIRST)
    await scripted.arrived.get()
    scripted.sent.clear()


async def held_sends(
    scripted: ScriptedBroker, producer: aio.Producer
) -> "tuple[list[asyncio.Task[SendResult]], asyncio.Event]":
    """Sends that have arrived, and what lets the broker answer."""
    scripted.hold = hold = asyncio.Event()
    sending = sends(producer)
    for _ in sending:
        await scripted.arrived.get()
    return sending, hold


def bodies(broker: ScriptedBroker) -> list[bytes]:
    return [sent.body for sent in broker.sent]


async def test_every_message_has_its_own_result(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    results = await asyncio.gather(*sends(producer, 100))
    assert bodies(scripted) == [b"%d" % each for each in range(100)], "in the order of the calls"
    assert [each.queue.queue_id for each in results] == [sent.queue_id for sent in scripted.sent]
    assert [f"UNIQ_KEY\x01{each.message_id}\x02" for each in results] == [
        sent.properties for sent in scripted.sent
    ]
    assert Counter(each.queue.queue_id for each in results) == {0: 50, 1: 50}
    statistics = producer.statistics()
    assert (statistics.in_flight, statistics.in_flight_bytes, statistics.sender.attempts) == (0, 0, 101)


@pytest.mark.parametrize("more", [{"properties": {"a": "b"}}, {"wait_stored": False}])
async def test_unusual_messages_take_every_queue_too(
    scripted: ScriptedBroker, producer: aio.Producer, more: Any
) -> None:
    for _ in range(4):
        await producer.send(Message("Orders", b"x", **more))
    assert Counter(sent.queue_id for sent in scripted.sent) == {0: 2, 1: 2}


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
async def test_a_refusal_that_may_be_the_brokers_own_fault_is_tried_again(
    scripted: ScriptedBroker, producer: aio.Producer, code: int
) -> None:
    scripted.answers.append(code)
    result = await producer.send(Message("Orders", b"x"))
    first, second = scripted.sent
    assert (first.properties, first.born_timestamp) == (second.properties, second.born_timestamp)
    assert result.message_id in (second.properties or "")
    assert producer.statistics().sender.retries == 1


async def test_a_refusal_of_the_message_is_final(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    scripted.answers.append(ResponseCode.MESSAGE_ILLEGAL)
    with pytest.raises(Refused):
        await producer.send(Message("Orders", b"x"))
    assert len(scripted.sent) == 1
    assert producer.statistics().in_flight == 0


async def test_a_server_that_goes_away_has_got_nothing(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.answers.append(ResponseCode.GO_AWAY)
    results = await asyncio.gather(*sends(producer))
    assert [each.is_ok for each in results] == [True] * 3
    assert sorted(bodies(scripted)) == [b"0", b"0", b"1", b"2"]
    assert producer.statistics().sender.retries == 0


async def test_a_connection_that_breaks_costs_no_send(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    sending, hold = await held_sends(scripted, producer)
    for connection in scripted.connections:
        connection.abort()
    hold.set()
    assert [each.is_ok for each in await asyncio.gather(*sending)] == [True] * 3
    assert sorted(bodies(scripted)) == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_time_that_is_up_ends_every_send(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address, send_timeout_s=0.3) as producer:
        await ready(producer, scripted)
        scripted.hold = asyncio.Event()
        outcomes = await asyncio.gather(*sends(producer), return_exceptions=True)
        scripted.hold.set()
        assert [type(each) for each in outcomes] == [SendFailed] * 3
        assert "no answer to SendMessageV2 in 0.3 s" in str(outcomes[0])
        assert producer.statistics().in_flight == 0


async def test_who_gives_up_leaves_room_at_once(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address, max_in_flight=2) as producer:
        await ready(producer, scripted)
        scripted.hold = asyncio.Event()
        sending = sends(producer, 3)
        await scripted.arrived.get()
        await scripted.arrived.get()
        assert producer.statistics().waiting_for_room == 1
        sending[0].cancel("no longer needed")
        with pytest.raises(asyncio.CancelledError, match="no longer needed"):
            await sending[0]
        await scripted.arrived.get()
        scripted.hold.set()
        assert [each.is_ok for each in await asyncio.gather(*sending[1:])] == [True] * 2
        assert producer.statistics().in_flight == 0
    assert bodies(scripted) == [b"0", b"1", b"2"]


async def test_who_is_cancelled_after_the_answer_came_leaves_no_trace(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    for turns in range(12):  # from before the request is written until after the task was woken
        (sending,) = sends(producer, 1)
        for _ in range(turns):
            await asyncio.sleep(0)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert producer.statistics().in_flight == 0
    assert (await producer.send(FIRST)).is_ok


async def test_a_send_is_a_coroutine_to_asyncio(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    message = Message("Orders", b"x")
    waited = producer.send(message)
    assert inspect.isawaitable(waited)
    assert asyncio.iscoroutine(waited)
    assert (await asyncio.wait_for(waited, 30)).is_ok
    assert all(each.is_ok for each in await asyncio.gather(producer.send(message), producer.send(message)))
    assert (await asyncio.shield(producer.send(message))).is_ok
    async with asyncio.TaskGroup() as group:
        task = group.create_task(producer.send(message))
    assert task.result().is_ok
    assert len(scripted.sent) == 5
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await waited


async def test_a_time_limit_of_the_caller_ends_the_wait(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    scripted.hold = asyncio.Event()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await producer.send(Message("Orders", b"x"))
    assert producer.statistics().in_flight == 0
    scripted.hold.set()
    assert (await producer.send(FIRST)).is_ok


async def test_tasks_go_on_in_their_own_contexts(producer: aio.Producer) -> None:
    name: ContextVar[int] = ContextVar("name")

    async def send(number: int) -> int:
        name.set(number)
        await producer.send(Message("Orders", b"x"))
        assert asyncio.current_task() in tasks
        return name.get()

    tasks = [asyncio.create_task(send(number)) for number in range(50)]
    assert await asyncio.gather(*tasks) == list(range(50))


async def test_a_send_begins_when_it_is_awaited(scripted: ScriptedBroker) -> None:
    async with aio.Producer("orders", scripted.address) as producer:
        await ready(producer, scripted)
        too_late = producer.send(Message("Orders", b"x"))
        await asyncio.sleep(0)
    with pytest.raises(StateError, match="is closed"):
        await too_late
    assert scripted.sent == []


async def test_a_send_that_nobody_awaits_is_complained_about(producer: aio.Producer) -> None:
    forgotten = [producer.send(FIRST)]
    with pytest.warns(RuntimeWarning, match=r"send' was never awaited"):
        forgotten.clear()
    producer.send(FIRST).close()


def connection_of(producer: aio.Producer) -> tuple[Session, str, Connection]:
    """The broker's."""
    assert producer._parts is not None
    session = producer._parts.session
    ((address,),) = [list(each.values()) for each in session.routes.brokers.values()]
    connection = session.writable(address)
    assert connection is not None
    return session, address, connection


@pytest.mark.skipif(not IS_COMPILED, reason=f"nothing is quick: {WHY}")
async def test_sends_of_one_turn_are_written_at_once(
    producer: aio.Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, connection = connection_of(producer)
    flushed: list[int] = []
    flush = Connection.flush

    def counted(self: Connection) -> None:
        if self is connection:
            flushed.append(1)
        flush(self)

    monkeypatch.setattr(Connection, "flush", counted)
    await asyncio.gather(*sends(producer, 20))
    assert len(flushed) == 1


@pytest.mark.skipif(not IS_COMPILED, reason=f"nothing is quick: {WHY}")
async def test_a_consumer_may_share_the_connection(scripted: ScriptedBroker, producer: aio.Producer) -> None:
    session, address, connection = connection_of(producer)
    pulls = quick_pulls(session, "readers")
    assert pulls is not None
    await asyncio.gather(*sends(producer))
    assert pulls.connection(address) is connection, "it reads the answers from now on"
    results = await asyncio.gather(*sends(producer))
    assert [each.queue.queue_id for each in results] == [sent.queue_id for sent in scripted.sent[3:]]


async def test_a_retired_connection_closes_after_its_last_answer(
    scripted: ScriptedBroker, producer: aio.Producer
) -> None:
    sending, hold = await held_sends(scripted, producer)
    session, address, connection = connection_of(producer)
    closed = asyncio.Event()
    connection.on_close(lambda _: closed.set())
    session.retire(address, connection)
    later = asyncio.create_task(producer.send(Message("Orders", b"later")))
    await scripted.arrived.get()
    hold.set()
    assert [each.is_ok for each in await asyncio.gather(*sending, later)] == [True] * 4
    await closed.wait()


@pytest.mark.parametrize("linger_ms", [None, 0])
async def test_the_send_that_one_reads_is_the_send_that_runs(
    scripted: ScriptedBroker, linger_ms: int | None
) -> None:
    async with aio.Producer("orders", scripted.address, linger_ms=linger_ms) as producer:
        assert "send" not in vars(producer)
        assert producer.send.__func__ is aio.Producer.send  # type: ignore[attr-defined]


async def test_a_send_of_the_applications_own_stays_in_front(scripted: ScriptedBroker) -> None:
    class Counting(aio.Producer):
        count = 0

        async def send(self, message: object, **options: object) -> Any:
            self.count += 1
            return await super().send(message, **options)  # type: ignore[call-overload]

    async with Counting("orders", scripted.address) as producer:
        await ready(producer, scripted)
        assert [each.is_ok for each in await asyncio.gather(*sends(producer))] == [True] * 3
        assert producer.count == 4
    assert bodies(scripted) == [b"0", b"1", b"2"]


async def test_another_thread_is_told_so(producer: aio.Producer) -> None:
    with pytest.raises(StateError, match="another event loop"):
        await asyncio.to_thread(asyncio.run, producer.send(FIRST))
