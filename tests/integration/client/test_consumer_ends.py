"""Consumers that end: by their own handlers, by exits, by signals; and those used where they cannot be."""

import asyncio
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster
from tests.support.loop import turn_until

from pyromq.client.consumer import blocking
from pyromq.client.consumer.group.assigned_queues import AssignedQueues
from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.offsets import OffsetStore, StartPositions
from pyromq.client.consumer.reading.quick_pulls import Pulled
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.producer import Producer
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.errors import StateError
from pyromq.protocol.requests.offsets import QueryConsumerOffset
from pyromq.protocol.requests.ordering import LockBatchRequestBody, LockQueues
from pyromq.testing.held_ports import held_port

NEVER_ENDING_HANDLER = """
import sys, time
from pyromq import PushConsumer{face}
consumer = {prefix}PushConsumer("billing", sys.argv[1], start_from="first")
@consumer.on("Orders")
def handle(message):
    print("handling", flush=True)
    time.sleep(3600)
consumer.run()
"""

WAITING_START = """
import logging, sys
from pyromq import PushConsumer{face}
logging.basicConfig(stream=sys.stdout)
consumer = {prefix}PushConsumer("billing", sys.argv[1])
consumer.subscribe("Orders", "*", print)
consumer.run()
print("stopped")
"""

CUT_OFF_HANDLER = """
import asyncio, logging, sys, threading
from pyromq import PushConsumer{face}
logging.basicConfig(format="%(levelname)s %(message)s")
consumer = {prefix}PushConsumer(
    "billing", sys.argv[1], start_from="first", stop_grace_s=0.01, ordered={is_ordered}, concurrency=1
)
{handler}
{how}
"""
STUCK_HANDLERS = {
    "plain": """
@consumer.on("Orders")
def handle(message):
    print(message.message_id, flush=True)
    if message.body == b"1":
        threading.Event().wait()
""",
    "async": """
@consumer.on("Orders")
async def handle(message):
    print(message.message_id, flush=True)
    if message.body == b"1":
        await asyncio.Event().wait()
""",
    "async, and not to be cancelled": """
@consumer.on("Orders")
async def handle(message):
    print(message.message_id, flush=True)
    while message.body == b"1":
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass
""",
    "stream": """
stream = consumer.subscribe("Orders")
def read():
    for message in stream:
        print(message.message_id, flush=True)
        if message.body == b"1":
            threading.Event().wait()
threading.Thread(target=read, daemon=True).start()
""",
}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def committed(cluster: ConsumerCluster) -> int:
    query = QueryConsumerOffset(consumer_group="billing", topic="Orders", queue_id=0)
    return (await cluster.call(query)).offset


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_handler_may_close_its_consumer(cluster: ConsumerCluster, is_ordered: bool) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", concurrency=1, ordered=is_ordered)
    bodies: list[bytes] = []

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        bodies.append(message.body)
        await consumer.close()

    async with asyncio.timeout(TIMEOUT_S):
        await consumer.run_until_closed()
    assert bodies == [b"a"]
    assert await committed(cluster) == 1


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_handler_may_close_its_consumer_before_all_topics_are_divided(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch, is_ordered: bool
) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.create_topic("Payments", queues=1)
    await cluster.send_to(queue, ["a"])
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=is_ordered)
    consumer.subscribe("Payments", "*", print)
    is_closing, hold = asyncio.Event(), AssignedQueues.hold

    async def hold_late(assigned: AssignedQueues, topic: str, wanted: set[MessageQueue]) -> bool:
        if topic == "Payments":
            await is_closing.wait()
            for _ in range(1000):  # so much may happen before
                await asyncio.sleep(0)
        return await hold(assigned, topic, wanted)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        await consumer.close()
        is_closing.set()

    monkeypatch.setattr(AssignedQueues, "hold", hold_late)
    async with asyncio.timeout(TIMEOUT_S):
        await consumer.start()
        await consumer.close()
    assert consumer.assigned == set()
    assert await committed(cluster) == 1


async def test_an_ordered_consumer_whose_start_is_given_up_keeps_no_queue_locked(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    is_locked, find = asyncio.Event(), StartPositions.find

    async def find_never(positions: StartPositions, wanted: MessageQueue, offsets: OffsetStore) -> int:
        if wanted == queue:
            is_locked.set()
            await asyncio.get_running_loop().create_future()
        return await find(positions, wanted, offsets)

    monkeypatch.setattr(StartPositions, "find", find_never)
    consumer = PushConsumer("billing", cluster.namesrv, ordered=True)
    consumer.subscribe("Orders", "*", print)
    async with asyncio.timeout(TIMEOUT_S):
        starting = asyncio.create_task(consumer.start())
        await is_locked.wait()
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
    wish = LockBatchRequestBody(
        client_id="another", consumer_group="billing", mq_set={queue}, only_this_broker=False
    )
    assert (await cluster.call(LockQueues(body=wish))).body.lock_ok_mq_set == {queue}


async def test_a_pull_consumer_closed_while_it_starts_leaves_nothing_running(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("Orders", queues=1)
    consumer = PullConsumer("reports", cluster.namesrv)
    consumer.subscribe("Orders")
    is_dividing, may_divide, hold = asyncio.Event(), asyncio.Event(), AssignedQueues.hold

    async def hold_late(assigned: AssignedQueues, topic: str, wanted: set[MessageQueue]) -> bool:
        is_dividing.set()
        await may_divide.wait()
        return await hold(assigned, topic, wanted)

    monkeypatch.setattr(AssignedQueues, "hold", hold_late)
    async with asyncio.timeout(TIMEOUT_S):
        starting = asyncio.create_task(consumer.start())
        await is_dividing.wait()
        closing = asyncio.create_task(consumer.close())
        for _ in range(1000):  # so much may happen before
            await asyncio.sleep(0)
        may_divide.set()
        await asyncio.gather(starting, closing)
    assert consumer.assigned == set()


async def test_a_handler_on_a_thread_may_close_its_consumer(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a"])

    def script() -> list[bytes]:
        consumer = blocking.PushConsumer("billing", cluster.namesrv, start_from="first")
        bodies: list[bytes] = []

        @consumer.on("Orders")
        def take(message: ReceivedMessage) -> None:
            bodies.append(message.body)
            consumer.close()

        consumer.run()
        return bodies

    async with asyncio.timeout(TIMEOUT_S):
        assert await asyncio.to_thread(script) == [b"a"]
    assert await committed(cluster) == 1


async def test_a_second_close_waits_for_the_first(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    started, may_go_on = asyncio.Event(), asyncio.Event()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        started.set()
        await may_go_on.wait()

    async with asyncio.timeout(TIMEOUT_S):
        await consumer.start()
        await started.wait()
        closings = [asyncio.create_task(consumer.close()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(closing.done() for closing in closings)
        may_go_on.set()
        await asyncio.gather(*closings)
        assert consumer.assigned == set()
        await consumer.close()


async def test_a_handler_may_drain_its_consumer(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    sent = ["a", "b", "c"]
    await cluster.send_to(queue, sent)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", concurrency=1)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        await consumer.drain()
        await received.take(message)

    async with asyncio.timeout(TIMEOUT_S), consumer:
        await received.wait_for_all(sent)
    assert await committed(cluster) == 3


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_queue_that_moved_under_its_messages_holds_up_no_drain(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch, is_ordered: bool
) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])
    handling, may_go_on = asyncio.Event(), asyncio.Event()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", concurrency=1, ordered=is_ordered)
    pull = Fetching.pull

    async def pull_from_a_moving_queue(self: Fetching, pulled_from: MessageQueue, *rest: Any) -> Pulled:
        if pulled_from == queue and handling.is_set():
            return Pulled([], 7, 7, 7, is_moved=True)
        return await pull(self, pulled_from, *rest)

    monkeypatch.setattr(Fetching, "pull", pull_from_a_moving_queue)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        handling.set()
        await may_go_on.wait()

    async with asyncio.timeout(TIMEOUT_S), consumer:
        await handling.wait()
        (reader,) = (each for each in consumer._running().membership.assigned if each.queue == queue)
        await cluster.send_to(queue, ["d"])  # ends the pull that waits
        await reader.held.wait_until_closing()
        draining = asyncio.create_task(consumer.drain())
        await turn_until(lambda: reader._task is None)  # stopped in the middle of moving
        may_go_on.set()
        await draining
    assert await committed(cluster) == 7


async def test_a_loop_over_a_stream_may_drain_its_consumer(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])
    bodies: list[bytes] = []
    async with (
        asyncio.timeout(TIMEOUT_S),
        PushConsumer("billing", cluster.namesrv, start_from="first") as consumer,
    ):
        async for message in consumer.subscribe("Orders"):
            bodies.append(message.body)
            await consumer.drain()
    assert bodies == [b"a", b"b", b"c"]
    assert await committed(cluster) == 3


async def test_a_for_loop_may_drain_its_consumer(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])

    def script() -> list[bytes]:
        bodies: list[bytes] = []
        with blocking.PushConsumer("billing", cluster.namesrv, start_from="first") as consumer:
            for message in consumer.subscribe("Orders"):
                bodies.append(message.body)
                consumer.drain()
        return bodies

    async with asyncio.timeout(TIMEOUT_S):
        assert await asyncio.to_thread(script) == [b"a", b"b", b"c"]
    assert await committed(cluster) == 3


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_an_exit_in_a_handler_on_a_thread_is_a_failure_like_others(
    cluster: ConsumerCluster, is_ordered: bool
) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    received = Received()
    consumer = PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered=is_ordered, suspend_s=0.01, concurrency=1
    )

    @consumer.on("Orders")
    def take(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            sys.exit("no more of this")
        received.take_on_thread(message)

    async with consumer:
        await received.wait_for_all(["0"])


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_an_exit_in_an_async_handler_leaves_the_clients_thread_alone(
    cluster: ConsumerCluster, error_logs: ErrorLogs, is_ordered: bool
) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)

    def script() -> None:
        handled = threading.Event()
        with blocking.PushConsumer(
            "billing", cluster.namesrv, start_from="first", ordered=is_ordered, suspend_s=0.01
        ) as consumer:

            @consumer.on("Orders")
            async def take(message: ReceivedMessage) -> None:
                if message.reconsume_times == 0:
                    sys.exit("no more of this")
                handled.set()

            assert handled.wait(TIMEOUT_S)

    await asyncio.to_thread(script)
    error_logs.expect("sys.exit() on the client's own thread is ignored")


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_a_handler_whose_own_work_was_cancelled_has_failed(
    cluster: ConsumerCluster, is_ordered: bool
) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    received = Received()
    consumer = PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered=is_ordered, suspend_s=0.01
    )

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0:
            raise asyncio.CancelledError
        await received.take(message)

    async with consumer:
        await received.wait_for_all(["0"])


@pytest.mark.parametrize(("face", "prefix"), [("", ""), (", aio", "aio.")])
async def test_a_signal_ends_a_consumer_that_waits_for_its_cluster(face: str, prefix: str) -> None:
    script = WAITING_START.format(face=face, prefix=prefix)
    with held_port() as port:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", script, f"127.0.0.1:{port}", stdout=PIPE, stderr=PIPE
        )
        assert process.stdout is not None
        try:
            async with asyncio.timeout(TIMEOUT_S):
                assert b"waiting up to 60 s for a name server" in await process.stdout.readline()
                process.send_signal(signal.SIGTERM)
                assert await process.communicate() == (b"stopped\n", b"")
            assert process.returncode == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


@pytest.mark.parametrize(("face", "prefix"), [("", ""), (", aio", "aio.")])
async def test_a_second_interrupt_ends_a_process_whose_handlers_never_end(
    cluster: ConsumerCluster, face: str, prefix: str
) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    script = NEVER_ENDING_HANDLER.format(face=face, prefix=prefix)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cluster.namesrv, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await process.stdout.readline() == b"handling\n"
            while process.returncode is None:
                process.send_signal(signal.SIGINT)
                try:
                    async with asyncio.timeout(0.2):
                        await process.wait()
                except TimeoutError:
                    continue
        assert process.returncode == -signal.SIGINT
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    ("handler", "is_ordered", "face", "prefix", "how"),
    [
        ("plain", False, "", "", "consumer.run()"),
        ("plain", True, "", "", "consumer.run()"),
        ("plain", False, ", aio", "aio.", "consumer.run()"),
        ("plain", True, ", aio", "aio.", "consumer.run()"),
        ("async", False, ", aio", "aio.", "consumer.run()"),
        ("async", True, ", aio", "aio.", "consumer.run()"),
        ("async, and not to be cancelled", False, "", "", "consumer.run()"),
        ("async, and not to be cancelled", True, "", "", "consumer.run()"),
        ("stream", False, "", "", "consumer.run()"),
        ("stream", True, "", "", "consumer.run()"),
        ("plain", False, "", "", "consumer.start(); sys.stdin.read()"),
    ],
)
async def test_a_process_ends_though_a_handler_does_not_and_its_message_comes_again(
    cluster: ConsumerCluster, is_ordered: bool, handler: str, face: str, prefix: str, how: str
) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["0", "1", "2"])
    script = CUT_OFF_HANDLER.format(
        face=face, prefix=prefix, is_ordered=is_ordered, handler=STUCK_HANDLERS[handler], how=how
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, cluster.namesrv, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await process.stdout.readline()
            stuck = (await process.stdout.readline()).decode().strip()
            is_run = "run" in how
            if is_run:
                process.send_signal(signal.SIGTERM)
            else:
                process.stdin.close()
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        _, logged = await process.communicate()
    assert process.returncode == 0
    (line,) = [line for line in logged.decode().splitlines() if "cut off" in line]
    assert line.startswith("WARNING handler cut off by the stop, its message comes again topic=Orders ")
    assert f"id={stuck} queue={queue} offset=1" in line

    received = Received()
    again = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=is_ordered)
    again.subscribe("Orders", "*", received.take)
    async with again:
        await received.wait_for_all(["1", "2"])
    # A process that left its group has committed what was handled.
    assert "0" not in received.bodies or not is_run


POLLING = {
    "blocking": """
import sys
from pyromq import PullConsumer
with PullConsumer("billing", sys.argv[1], start_from="first") as consumer:
    consumer.subscribe("Orders")
    while not consumer.poll(): pass
    sys.exit(3)
""",
    "blocking, not closed": """
import sys
from pyromq import PullConsumer
consumer = PullConsumer("billing", sys.argv[1], start_from="first")
consumer.start()
consumer.subscribe("Orders")
while not consumer.poll(): pass
sys.exit(3)
""",
    "asyncio": """
import asyncio, sys
from pyromq.aio import PullConsumer
async def main():
    async with PullConsumer("billing", sys.argv[1], start_from="first") as consumer:
        consumer.subscribe("Orders")
        while not await consumer.poll(): pass
        sys.exit(3)
asyncio.run(main())
""",
}


@pytest.mark.parametrize("face", POLLING)
async def test_a_process_ends_in_the_midst_of_polled_messages_which_come_again(
    cluster: ConsumerCluster, face: str
) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", POLLING[face], cluster.namesrv)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            assert await process.wait() == 3
    finally:
        if process.returncode is None:
            process.kill()
    received = Received()
    again = PushConsumer("billing", cluster.namesrv, start_from="first")
    again.subscribe("Orders", "*", received.take)
    async with again:
        await received.wait_for_all(["0"])


async def test_a_second_consumer_of_a_chosen_name_leaves_the_first_alone(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    first, second = (
        PushConsumer("billing", cluster.namesrv, instance_name="one", start_from="first") for _ in range(2)
    )
    for consumer in (first, second):
        consumer.subscribe("Orders", "*", received.take)
    async with first:
        with pytest.raises(StateError, match="another instance_name"):
            await second.start()
        sent = await cluster.send("Orders", 1)
        await received.wait_for_all(sent)
        third = PushConsumer("billing", cluster.namesrv, start_from="first")
        third.subscribe("Orders", "*", received.take)
        async with third:
            # Who is no member of its group any more would let the third have everything.
            assert 0 < len([queue for queue in third.assigned if queue.topic == "Orders"]) < 4


async def test_who_waits_for_queues_hears_that_the_consumer_was_closed(cluster: ConsumerCluster) -> None:
    consumer = PushConsumer("billing", cluster.namesrv)
    consumer.subscribe("Nowhere", "*", print)
    async with asyncio.timeout(TIMEOUT_S):
        await consumer.start()
        waiting = asyncio.create_task(consumer.wait_assigned())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(StateError, match="was closed"):
            await waiting


async def test_a_push_consumer_belongs_to_the_loop_it_was_started_on(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    async with PushConsumer("billing", cluster.namesrv) as consumer:
        stream = consumer.subscribe("Orders")
        await consumer.wait_assigned()
        for call in (consumer.close(), consumer.drain(), consumer.commit(), consumer.unsubscribe("Orders")):
            with pytest.raises(StateError, match="on another event loop"):
                await asyncio.to_thread(asyncio.run, call)
        with pytest.raises(StateError, match="on another event loop"):
            await asyncio.to_thread(asyncio.run, stream.next_for("a reader"))
        with pytest.raises(StateError, match="on another thread"):
            await asyncio.to_thread(consumer.pause)


async def test_a_pull_consumer_belongs_to_the_loop_it_was_started_on(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders")
    async with PullConsumer("reports", cluster.namesrv) as consumer:
        for call in (consumer.poll(), consumer.close(), consumer.assign(queues), consumer.commit()):
            with pytest.raises(StateError, match="on another event loop"):
                await asyncio.to_thread(asyncio.run, call)
        with pytest.raises(StateError, match="on another thread"):
            await asyncio.to_thread(consumer.subscribe, "Orders")
        assert await consumer.poll(timeout_s=0) == []


async def test_a_close_on_another_loop_closes_nothing(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    async with (
        Producer("orders", cluster.namesrv) as producer,
        SimpleConsumer("b", cluster.namesrv) as consumer,
    ):
        for client in (producer, consumer):
            with pytest.raises(StateError, match="on another event loop"):
                await asyncio.to_thread(asyncio.run, client.close())
        assert (await producer.send(Message("Orders", b"x"))).is_ok
        consumer.subscribe("Orders")
