"""The push consumer that pops in order, and a real cluster: who gets which message, and when the next one."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster

from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.errors import CallTimeout


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


class Handled:
    """A handler that remembers the messages of each queue; `failing` has bodies that fail so often."""

    def __init__(self, **failing: int) -> None:
        self.bodies: dict[int, list[str]] = defaultdict(list)
        self.attempts: list[tuple[str, int]] = []
        self.running: set[int] = set()
        self._failing = failing
        self._more = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        queue_id, body = message.queue.queue_id, message.body.decode()
        assert queue_id not in self.running, "two handlers of one queue"
        self.running.add(queue_id)
        await asyncio.sleep(0)
        self.running.discard(queue_id)
        self.attempts.append((body, message.reconsume_times))
        if self._failing.get(body, 0) > 0:
            self._failing[body] -= 1
            raise ValueError(body)
        self.bodies[queue_id].append(body)
        self._more.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while sum(map(len, self.bodies.values())) < count:
                self._more.clear()
                await self._more.wait()


def in_order(cluster: ConsumerCluster, handler: Any, **options: Any) -> PushConsumer:
    chosen: dict[str, Any] = {"start_from": "first", "suspend_s": 0.01, "pull_batch_size": 4}
    consumer = PushConsumer("billing", cluster.namesrv, mode="pop", ordered=True, **chosen | options)
    consumer.subscribe("Orders", "*", handler)
    return consumer


async def nothing_is_left(cluster: ConsumerCluster, topic: str = "Orders") -> bool:
    consumer = SimpleConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe(topic)
    async with consumer:
        return not await consumer.receive(wait_s=0.05)


async def test_members_share_queues_whose_messages_stay_in_order(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders", 2)
    expected = {}
    for queue in queues:
        expected[queue.queue_id] = [f"{queue.queue_id}-{number}" for number in range(20)]
        await cluster.send_to(queue, expected[queue.queue_id])
    handled = Handled()
    async with in_order(cluster, handled) as one, in_order(cluster, handled) as other:
        await handled.wait_for(40)
        assert {queue.queue_id for queue in one.assigned} == {0, 1}
        await one.drain()
        await other.drain()
    assert handled.bodies == expected
    assert await nothing_is_left(cluster)


async def test_a_failed_message_holds_up_its_queue_only(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders", 2)
    for queue in queues:
        await cluster.send_to(queue, [f"{queue.queue_id}-{number}" for number in range(6)])
    handled = Handled(**{"0-1": 3})
    async with in_order(cluster, handled) as consumer:
        await handled.wait_for(12)
        await consumer.drain()
    assert handled.bodies == {each: [f"{each}-{number}" for number in range(6)] for each in (0, 1)}
    assert [times for body, times in handled.attempts if body == "0-1"] == [0, 1, 2, 3]
    assert await nothing_is_left(cluster)


async def test_a_message_that_failed_too_often_is_put_aside(cluster: ConsumerCluster) -> None:
    [queue] = await cluster.create_topic("Orders", 1)
    await cluster.send_to(queue, ["1", "2", "3"])
    handled = Handled(**{"2": 9})
    async with in_order(cluster, handled, max_retries=1) as consumer:
        await handled.wait_for(2)
        await consumer.drain()
    assert handled.bodies == {0: ["1", "3"]}
    assert [body for body, _ in handled.attempts] == ["1", "2", "2", "3"]
    assert await nothing_is_left(cluster)


async def test_messages_that_were_not_begun_go_to_another_member_in_order(cluster: ConsumerCluster) -> None:
    [queue] = await cluster.create_topic("Orders", 1)
    await cluster.send_to(queue, [str(number) for number in range(6)])
    begun, handled = asyncio.Event(), Handled()
    may_end = asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        begun.set()
        await may_end.wait()

    consumer = in_order(cluster, slow)
    await consumer.start()
    await begun.wait()
    closing = asyncio.create_task(consumer.close())
    may_end.set()
    await closing
    async with in_order(cluster, handled) as other:
        await handled.wait_for(5)
        await other.drain()
    assert handled.bodies == {0: ["1", "2", "3", "4", "5"]}


async def test_an_answer_that_was_lost_is_asked_for_again_under_the_same_attempt(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    [queue] = await cluster.create_topic("Orders", 1)
    await cluster.send_to(queue, ["1", "2"])
    attempts: list[tuple[str, int]] = []
    pop = PopReading.pop

    async def lossy(self: PopReading, *arguments: Any) -> list[PoppedMessage]:
        found = await pop(self, *arguments)
        attempts.append((arguments[-1], len(found)))
        if len(attempts) == 1:
            raise CallTimeout("the answer was lost")
        return found

    monkeypatch.setattr(PopReading, "pop", lossy)
    handled = Handled()
    async with in_order(cluster, handled, invisible_s=3600) as consumer:
        await handled.wait_for(2)
        await consumer.drain()
    (first, found), (second, again), *rest = attempts
    assert (first, found) == (second, again)
    assert found == 2
    assert all(each != first for each, _ in rest)
    assert queue == MessageQueue("Orders", queue.broker_name, 0)
    assert handled.bodies == {0: ["1", "2"]}
