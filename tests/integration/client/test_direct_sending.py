"""Plain sends of a blocking producer on the caller's thread: what brokers and applications see of it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
from tests.support.scripted_broker import ScriptedBroker

from pyromq import Message, Producer
from pyromq.client.direct_sending import DirectSending
from pyromq.client.values import SendStatus
from pyromq.errors import BadMessage, Refused, SendFailed, StateError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame

T = TypeVar("T")

ORDER = Message("Orders", b"x", tags="Created", keys=["o-1"], properties={"colour": "red"})
VARYING = {"e", "g", "i"}
"""The wire names of the queue id, the time and the properties, which contain the unique key."""


@pytest.fixture
async def broker() -> AsyncIterator[ScriptedBroker]:
    async with ScriptedBroker("Orders", queues=1) as scripted:
        yield scripted


async def with_producer(
    broker: ScriptedBroker, script: Callable[[Producer], T], *, sends_first: bool = True, **options: Any
) -> T:
    """Run a script on another thread; the producer has sent one message, so it knows the route."""

    def run() -> T:
        with Producer("orders", namesrv=broker.address, **options) as producer:
            if sends_first:
                producer.send(ORDER)
            return script(producer)

    return await asyncio.to_thread(run)


def direct(producer: Producer) -> DirectSending:
    assert producer._direct is not None
    return producer._direct


@pytest.mark.parametrize(
    "message",
    [
        Message("Orders", b"x"),
        Message("Orders", b"x", properties={"colour": "red"}),
        Message("Orders", b"x" * 10_000),
        Message("Orders", b"x", wait_stored=False),
    ],
)
async def test_every_queue_has_its_turn_whatever_a_message_is_like(message: Message) -> None:
    async with ScriptedBroker("Orders", queues=4) as broker:

        def script(producer: Producer) -> list[int]:
            return [producer.send(message).queue.queue_id for _ in range(8)]

        queues = await with_producer(broker, script)
    assert queues == [(queues[0] + turn) % 4 for turn in range(8)]


async def test_a_topic_that_lost_the_queue_has_others() -> None:
    async with ScriptedBroker("Orders", queues=2) as broker:

        def script(producer: Producer) -> int:
            while producer.send(ORDER).queue.queue_id != 0:
                pass  # the next one is for queue 1
            broker.queues = 1
            broker.answers.append(ResponseCode.INVALID_PARAMETER)
            return producer.send(ORDER).queue.queue_id

        assert await with_producer(broker, script) == 0
        assert [request.queue_id for request in broker.sent[-2:]] == [1, 0]


async def test_the_broker_sees_the_same_request_on_a_connection_of_its_own(broker: ScriptedBroker) -> None:
    async def connections() -> int:
        return len(broker.connections)

    loop = asyncio.get_running_loop()

    def script(producer: Producer) -> list[int]:
        def count() -> int:
            return asyncio.run_coroutine_threadsafe(connections(), loop).result()

        before = count()
        producer.send(ORDER)
        producer.send(ORDER)
        return [before, count()]

    before, after = await with_producer(broker, script)
    assert after == before + 1
    by_loop, *by_thread = [frame for frame in broker.frames if frame.body]
    for frame in by_thread:
        assert constant_part(frame) == constant_part(by_loop)
    properties = [frame.ext["i"] for frame in (by_loop, *by_thread)]
    assert len(set(properties)) == 3
    assert len({text[: text.index("UNIQ_KEY")] for text in properties}) == 1


def constant_part(frame: Frame) -> tuple[object, ...]:
    ext = {name: value for name, value in frame.ext.items() if name not in VARYING}
    return frame.code, frame.flag, frame.language, frame.version, ext, frame.body


async def test_results_are_those_of_any_send(broker: ScriptedBroker) -> None:
    first, second = await with_producer(broker, lambda producer: [producer.send(ORDER), producer.send(ORDER)])
    assert first.is_ok
    assert first.message_id != second.message_id
    assert (first.queue_offset, second.queue_offset) == (2, 3)
    assert first.queue.topic == "Orders"


async def test_an_unsafe_store_is_a_result(broker: ScriptedBroker) -> None:
    broker.answers.extend([ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT])
    result = await with_producer(broker, lambda producer: producer.send(ORDER))
    assert result.status is SendStatus.FLUSH_DISK_TIMEOUT


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.GO_AWAY])
async def test_a_refused_first_try_continues_on_the_loop(broker: ScriptedBroker, code: int) -> None:
    broker.answers.extend([ResponseCode.SUCCESS, code])
    result = await with_producer(broker, lambda producer: producer.send(ORDER))
    assert result.is_ok
    assert len(broker.sent) == 3


async def test_a_final_refusal_is_raised(broker: ScriptedBroker) -> None:
    broker.answers.extend([ResponseCode.SUCCESS, ResponseCode.MESSAGE_ILLEGAL])
    with pytest.raises(Refused, match="as the script says"):
        await with_producer(broker, lambda producer: producer.send(ORDER))
    assert len(broker.sent) == 2


async def test_the_first_try_counts(broker: ScriptedBroker) -> None:
    broker.answers.extend([ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_BUSY])
    with pytest.raises(SendFailed):
        await with_producer(broker, lambda producer: producer.send(ORDER), retries=1)
    assert len(broker.sent) == 3


async def test_a_connection_that_was_closed_while_idle_is_replaced(broker: ScriptedBroker) -> None:
    loop = asyncio.get_running_loop()

    async def hang_up() -> None:
        known = set(map(id, broker.clients.values()))
        for connection in broker.connections:
            if id(connection) not in known:
                connection.close()

    def script(producer: Producer) -> bool:
        producer.send(ORDER)
        asyncio.run_coroutine_threadsafe(hang_up(), loop).result()
        return producer.send(ORDER).is_ok

    assert await with_producer(broker, script)


async def test_a_silent_broker_costs_the_timeout_and_no_more(broker: ScriptedBroker) -> None:
    def script(producer: Producer) -> None:
        broker.hold = asyncio.Event()
        with pytest.raises(SendFailed, match="no answer"):
            producer.send(ORDER)

    await with_producer(broker, script, send_timeout_s=0.2, retries=0)
    assert broker.hold is not None
    broker.hold.set()


async def test_bad_messages_are_refused(broker: ScriptedBroker) -> None:
    def script(producer: Producer) -> None:
        for message in (Message("Orders", b""), Message("no such topic", b"x")):
            with pytest.raises(BadMessage):
                producer.send(message)

    await with_producer(broker, script)
    assert len(broker.sent) == 1


async def test_many_threads_send_at_once_and_no_id_is_given_twice(broker: ScriptedBroker) -> None:
    def script(producer: Producer) -> set[str]:
        with ThreadPoolExecutor(8) as threads:
            return {result.message_id for result in threads.map(lambda _: producer.send(ORDER), range(200))}

    assert len(await with_producer(broker, script)) == 200


async def test_closing_waits_for_sends_of_other_threads(broker: ScriptedBroker) -> None:
    loop = asyncio.get_running_loop()
    outcome: list[object] = []

    def script() -> None:
        producer = Producer("orders", namesrv=broker.address)
        producer.start()
        producer.send(ORDER)
        broker.hold = asyncio.Event()
        sending = threading.Thread(target=lambda: outcome.append(producer.send(ORDER)))
        sending.start()
        asyncio.run_coroutine_threadsafe(arrived(), loop).result()
        loop.call_soon_threadsafe(broker.hold.set)
        producer.close()
        outcome.append("closed")
        sending.join()
        with pytest.raises(StateError, match="is closed"):
            producer.send(ORDER)

    async def arrived() -> None:
        while len(broker.sent) < 2:
            await broker.arrived.get()

    await asyncio.to_thread(script)
    assert len(outcome) == 2
    assert outcome[0] != "closed" or outcome[1] != "closed"
    assert len(broker.sent) == 2


@pytest.mark.parametrize(
    "options", [{"linger_ms": 1.0}, {"trace": True}, {"retry_unsafe_stores": True}], ids=str
)
async def test_producers_with_more_to_do_send_by_the_loop(
    broker: ScriptedBroker, options: dict[str, Any]
) -> None:
    broker.topics.append("RMQ_SYS_TRACE_TOPIC")

    def script(producer: Producer) -> bool:
        producer.send(ORDER)
        return producer._direct is None

    assert await with_producer(broker, script, **options)


async def test_a_send_to_a_chosen_queue_goes_by_the_loop(broker: ScriptedBroker) -> None:
    def script(producer: Producer) -> object:
        (queue,) = producer.queues("Orders")
        producer.send(ORDER, queue=queue)
        producer.send(ORDER, sharding_key="a")
        return producer._direct and producer._direct._idle

    assert not await with_producer(broker, script)
