"""OpenTelemetry: which spans clients make, and how the trace of a message goes on where it is handled."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster
from tests.support.recorded_spans import (
    attributes,
    linked_ids,
    one,
    parent_id,
    record_anew,
    span_id,
    spans,
    traceparent,
)

from pyromq import aio
from pyromq.client import blocking
from pyromq.client.consumer import blocking as blocking_consumers
from pyromq.client.transactions import TransactionState
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import BadMessage
from pyromq.otel import processing

OWN = "00-11111111111111111111111111111111-2222222222222222-01"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    record_anew()
    yield
    record_anew()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        await running.create_topic("Orders", queues=1)
        yield running


class Handled:
    """Handlers that remember the span in which they ran."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[object] = asyncio.Queue()

    def plain(self, message: ReceivedMessage) -> None:
        with trace.get_tracer("application").start_as_current_span("within"):
            pass
        self._loop.call_soon_threadsafe(self._queue.put_nowait, message)

    async def many(self, messages: list[ReceivedMessage]) -> None:
        self._queue.put_nowait(messages)

    async def failing_once(self, message: ReceivedMessage) -> None:
        self._queue.put_nowait(message)
        if not message.reconsume_times:
            raise ValueError("not today")

    async def wait(self, times: int = 1) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            for _ in range(times):
                await self._queue.get()


async def test_the_span_of_a_handler_continues_the_trace_of_the_send(cluster: ConsumerCluster) -> None:
    handled = Handled()
    consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", otel=True)
    consumer.subscribe("Orders", "*", handled.plain)
    async with aio.Producer("orders", cluster.namesrv, otel=True) as producer, consumer:
        with trace.get_tracer("application").start_as_current_span("order"):
            result = await producer.send(Message("Orders", b"x", tags="New", keys=["o-1", "c-7"]))
        await handled.wait()
    order, sent, processed, within = one("order"), one("send Orders"), one("process Orders"), one("within")
    assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_id(sent) == span_id(order)
    assert parent_id(processed) == span_id(sent)
    assert linked_ids(processed) == [span_id(sent)]
    assert parent_id(within) == span_id(processed)
    about = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "Orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": result.message_id,
        "messaging.rocketmq.message.tag": "New",
        "messaging.rocketmq.message.keys": ("o-1", "c-7"),
        "messaging.rocketmq.namespace": "",
        "server.address": "127.0.0.1",
        "server.port": attributes(processed)["server.port"],
    }
    assert attributes(sent) == about | {
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.client.id": attributes(sent)["messaging.client.id"],
        "messaging.rocketmq.message.type": "normal",
    }
    assert attributes(processed) == about | {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": "billing",
        "messaging.rocketmq.consumption_model": "clustering",
    }


async def test_the_context_travels_as_the_w3c_property_that_other_clients_read(
    cluster: ConsumerCluster,
) -> None:
    async with (
        aio.Producer("orders", cluster.namesrv, otel=True) as producer,
        aio.PullConsumer("reports", cluster.namesrv, start_from="first") as consumer,
    ):
        await producer.send(Message("Orders", b"ours"))
        await producer.send(Message("Orders", b"theirs", properties={"traceparent": OWN}))
        consumer.subscribe("Orders")
        received: dict[bytes, str] = {}
        async with asyncio.timeout(TIMEOUT_S):
            while len(received) < 2:
                for message in await consumer.poll():
                    received[message.body] = message.properties["traceparent"]
    own, theirs = spans("send Orders")
    assert received[b"ours"] == traceparent(own)
    assert received[b"theirs"] == OWN, "a context of the application's own is left alone"
    assert (theirs.kind, linked_ids(theirs)) == (SpanKind.CLIENT, [0x2222222222222222])


async def test_each_message_of_a_batch_has_a_context_of_its_own(cluster: ConsumerCluster) -> None:
    handled = Handled()
    consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", otel=True, batch_size=10)
    consumer.subscribe("Orders", "*", handled.many)
    async with aio.Producer("orders", cluster.namesrv, otel=True) as producer:
        await producer.send([Message("Orders", b"a"), Message("Orders", b"b")])
    async with consumer:
        await handled.wait()
    created, sent, processed = spans("create Orders"), one("send Orders"), one("process Orders")
    ids = [span_id(span) for span in created]
    assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
    assert (sent.kind, linked_ids(sent)) == (SpanKind.CLIENT, ids)
    assert linked_ids(processed) == ids
    assert processed.parent is None
    assert attributes(sent)["messaging.batch.message_count"] == 2
    assert attributes(processed)["messaging.batch.message_count"] == 2


async def test_blocking_clients_pass_the_context_of_the_calling_thread_on(cluster: ConsumerCluster) -> None:
    handled = Handled()

    def work() -> None:
        with (
            blocking.Producer("orders", cluster.namesrv, otel=True) as producer,
            trace.get_tracer("application").start_as_current_span("order"),
        ):
            producer.send(Message("Orders", b"x"), sharding_key="o-1")
            producer.submit(Message("Orders", b"y", delay_level=1)).result(TIMEOUT_S)
            producer.send_oneway(Message("Orders", b"z"))

    await asyncio.to_thread(work)
    sent = spans("send Orders")
    assert [parent_id(span) for span in sent] == [span_id(one("order"))] * 3
    kinds = [attributes(span)["messaging.rocketmq.message.type"] for span in sent]
    assert kinds == ["fifo", "delay", "normal"]
    assert attributes(sent[0])["messaging.rocketmq.message.group"] == "o-1"
    assert attributes(sent[1])["messaging.rocketmq.message.delay_time_level"] == 1

    consumer = blocking_consumers.PushConsumer("billing", cluster.namesrv, start_from="first", otel=True)
    consumer.subscribe("Orders", "*", handled.plain)
    await asyncio.to_thread(consumer.start)
    await handled.wait(2)
    await asyncio.to_thread(consumer.close)
    assert {parent_id(span) for span in spans("process Orders")} <= {span_id(span) for span in sent}


async def test_failures_are_errors_and_a_retry_stays_in_its_trace(cluster: ConsumerCluster) -> None:
    handled = Handled()
    consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", otel=True)
    consumer.subscribe("Orders", "*", handled.failing_once)
    async with aio.Producer("orders", cluster.namesrv, otel=True) as producer:
        await producer.send(Message("Orders", b"x"))
        with pytest.raises(BadMessage):
            await producer.send(Message("Payments", b""))
        with pytest.raises(BadMessage, match="send takes a Message"):
            await producer.send(5)  # type: ignore[call-overload]
    async with consumer:
        await handled.wait(2)
    refused, sent = one("send Payments"), one("send Orders")
    assert refused.status.status_code is StatusCode.ERROR
    assert attributes(refused)["error.type"] == "BadMessage"
    first, second = spans("process Orders")
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert attributes(first)["error.type"] == "ValueError"
    assert [parent_id(first), parent_id(second)] == [span_id(sent)] * 2
    assert attributes(second)["messaging.rocketmq.message.reconsume_times"] == 1


async def test_polled_messages_are_linked_and_a_loop_says_what_it_handles(cluster: ConsumerCluster) -> None:
    async with (
        aio.Producer("orders", cluster.namesrv, otel=True) as producer,
        aio.PullConsumer("reports", cluster.namesrv, start_from="first", otel=True) as consumer,
    ):
        await producer.send(Message("Orders", b"x"))
        consumer.subscribe("Orders")
        async with asyncio.timeout(TIMEOUT_S):
            while not (messages := await consumer.poll()):
                pass
        for message in messages:
            with processing(message):
                trace.get_tracer("application").start_span("within").end()
    sent, received, processed = one("send Orders"), one("receive Orders"), one("process Orders")
    assert (received.kind, linked_ids(received)) == (SpanKind.CLIENT, [span_id(sent)])
    assert attributes(received)["messaging.batch.message_count"] == 1
    assert attributes(received)["messaging.consumer.group.name"] == "reports"
    assert parent_id(processed) == span_id(sent)
    assert parent_id(one("within")) == span_id(processed)


async def test_a_message_of_a_stream_is_received_and_linked(cluster: ConsumerCluster) -> None:
    async with (
        aio.Producer("orders", cluster.namesrv, otel=True) as producer,
        aio.PushConsumer("billing", cluster.namesrv, start_from="first", otel=True) as consumer,
        asyncio.timeout(TIMEOUT_S),
    ):
        result = await producer.send(Message("Orders", b"x"))
        async for message in consumer.subscribe("Orders"):
            with processing(message):
                break
    sent, received, processed = one("send Orders"), one("receive Orders"), one("process Orders")
    assert (received.kind, linked_ids(received)) == (SpanKind.CLIENT, [span_id(sent)])
    assert attributes(received)["messaging.message.id"] == result.message_id
    assert "messaging.batch.message_count" not in attributes(received)
    assert parent_id(processed) == span_id(sent)


async def test_popped_messages_are_received_and_linked(cluster: ConsumerCluster) -> None:
    async with (
        aio.Producer("orders", cluster.namesrv, otel=True) as producer,
        aio.SimpleConsumer("popping", cluster.namesrv, start_from="first", otel=True) as consumer,
    ):
        consumer.subscribe("Orders")
        await producer.send(Message("Orders", b"x"))
        (message,) = await consumer.receive(wait_s=TIMEOUT_S)
        await consumer.ack(message)
    assert linked_ids(one("receive Orders")) == [span_id(one("send Orders"))]


async def test_the_half_message_of_a_transaction_is_a_send(cluster: ConsumerCluster) -> None:
    async with aio.TransactionProducer(
        "orders", cluster.namesrv, check=lambda message: TransactionState.UNKNOWN, otel=True
    ) as producer:
        result = await producer.send_in_transaction(
            Message("Orders", b"x"), lambda message: TransactionState.COMMIT
        )
    about = attributes(one("send Orders"))
    assert about["messaging.rocketmq.message.type"] == "transaction"
    assert about["messaging.message.id"] == result.send_result.message_id


# Without it


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout


def test_nothing_is_imported_unless_it_is_asked_for() -> None:
    script = """
import sys
from pyromq import Producer, PushConsumer, aio
aio.Producer("g", "a:1")
aio.PullConsumer("g", "a:1")
aio.PushConsumer("g", "a:1").subscribe("T", "*", print)
print([name for name in sys.modules if name.startswith("opentelemetry")])
aio.Producer("g", "a:1", otel=True)
print("opentelemetry.trace" in sys.modules)
"""
    assert run(script) == "[]\nTrue\n"


@pytest.mark.parametrize("client", ["Producer", "PushConsumer", "PullConsumer"])
def test_the_option_says_what_to_install(client: str) -> None:
    script = f"""
import sys
sys.modules["opentelemetry"] = None
from pyromq import aio
try:
    aio.{client}("g", "a:1", otel=True)
except aio.ConfigError as problem:
    print(problem)
"""
    assert "pip install 'pyromq[otel]'" in run(script)
