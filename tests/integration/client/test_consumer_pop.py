"""The push consumer that pops, and a real cluster: what is acknowledged, comes again, or stays hidden."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster

import pyromq
from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.producer import Producer
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import ConfigError, StateError
from pyromq.protocol import names
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.popping import (
    MessageRequestMode,
    SetMessageRequestMode,
    SetMessageRequestModeRequestBody,
)
from pyromq.protocol.requests.topics import CreateOrUpdateTopic


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        await running.create_topic("Orders")
        yield running


class Handled:
    """A handler that remembers its messages, and fails as often as it is told."""

    def __init__(self, *failures: Exception) -> None:
        self.messages: list[ReceivedMessage] = []
        self._failures = list(failures)
        self._more = asyncio.Event()

    async def __call__(self, message: ReceivedMessage) -> None:
        self.messages.append(message)
        self._more.set()
        if self._failures:
            raise self._failures.pop(0)

    async def wait_for(self, count: int) -> list[str]:
        async with asyncio.timeout(TIMEOUT_S):
            while len(self.messages) < count:
                self._more.clear()
                await self._more.wait()
        return sorted(message.body.decode() for message in self.messages)


def popping(cluster: ConsumerCluster, handler: Any, **options: Any) -> PushConsumer:
    consumer = PushConsumer("billing", cluster.namesrv, mode="pop", start_from="first", **options)
    consumer.subscribe("Orders", "*", handler)
    return consumer


async def left_over(cluster: ConsumerCluster, group: str = "billing") -> list[bytes]:
    consumer = SimpleConsumer(group, cluster.namesrv, start_from="first")
    consumer.subscribe("Orders")
    async with consumer:
        return [message.body for message in await consumer.receive(wait_s=0.05)]


async def test_members_share_all_messages_of_all_queues(cluster: ConsumerCluster) -> None:
    handled = Handled()
    async with popping(cluster, handled) as one, popping(cluster, handled) as other:
        sent = await cluster.send("Orders", 60)
        assert await handled.wait_for(60) == sorted(sent)
        assert {queue.queue_id for queue in one.assigned} == {-1}
        await one.drain()
        await other.drain()
    assert await left_over(cluster) == []


async def test_a_failed_message_comes_again_after_its_delay(cluster: ConsumerCluster) -> None:
    handled = Handled(RetryLater("not yet", delay_level=1))
    async with popping(cluster, handled) as consumer:
        (sent,) = await cluster.send("Orders", 1)
        assert await handled.wait_for(2) == [sent, sent]
        await consumer.drain()
    assert [message.reconsume_times for message in handled.messages] == [0, 1]
    assert handled.messages[1].topic == "Orders"
    assert await left_over(cluster) == []


@pytest.mark.parametrize(
    ("options", "failures"),
    [({}, [GiveUp("hopeless")]), ({"max_retries": 0}, [ValueError("broken")])],
    ids=["given up", "no retries left"],
)
async def test_a_message_without_retries_becomes_a_dead_letter(
    cluster: ConsumerCluster, options: dict[str, Any], failures: list[Exception]
) -> None:
    handled, dead = Handled(*failures), Handled()
    async with popping(cluster, handled, **options) as consumer:
        (sent,) = await cluster.send("Orders", 1)
        await handled.wait_for(1)
        await consumer.drain()
    reader = PushConsumer("inspectors", cluster.namesrv, start_from="first")
    reader.subscribe("%DLQ%billing", "*", dead)
    async with reader:
        assert await dead.wait_for(1) == [sent]
    assert await left_over(cluster) == []


async def test_a_message_stays_hidden_while_its_handler_runs(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, renewed = asyncio.Event(), asyncio.Semaphore(0)
    change = PopReading.change_invisible_time

    async def changed(self: PopReading, message: PoppedMessage, seconds: float) -> None:
        await change(self, message, seconds)
        renewed.release()

    async def handler(message: ReceivedMessage) -> None:
        await goes_on.wait()

    monkeypatch.setattr(PopReading, "change_invisible_time", changed)
    await cluster.send("Orders", 1)
    async with popping(cluster, handler, invisible_s=1.0) as consumer:
        for _ in range(5):  # three times in the invisible time
            await renewed.acquire()
        assert await left_over(cluster) == []
        goes_on.set()
        await consumer.drain()
    assert await left_over(cluster) == []


async def test_messages_that_were_not_begun_are_visible_at_once_after_the_close(
    cluster: ConsumerCluster,
) -> None:
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        begun.set()
        await goes_on.wait()

    await cluster.send("Orders", 8)
    consumer = popping(cluster, handler, concurrency=1)
    async with consumer:
        await begun.wait()
        asyncio.get_running_loop().call_soon(goes_on.set)
    others = Handled()
    async with popping(cluster, others):
        await others.wait_for(7)
    assert all(message.reconsume_times == 1 for message in others.messages)


async def test_brokers_may_assign_single_queues(cluster: ConsumerCluster) -> None:
    mode = SetMessageRequestModeRequestBody(
        topic="Orders", consumer_group="billing", mode=MessageRequestMode.POP, pop_share_queue_num=1
    )
    await cluster.call(SetMessageRequestMode(body=mode))
    handled = Handled()
    members = [popping(cluster, handled, instance_name=f"m{number}") for number in range(4)]
    try:
        changed = asyncio.Event()
        for member in members:
            member.on_rebalance(lambda *_: changed.set())
            await member.start()
        async with asyncio.timeout(TIMEOUT_S):
            while any(len(member.assigned) != 2 for member in members):
                changed.clear()
                await changed.wait()
        assert {queue for member in members for queue in member.assigned} == {
            MessageQueue(topic="Orders", broker_name="broker-a", queue_id=number) for number in range(4)
        }
        sent = await cluster.send("Orders", 12)
        assert await handled.wait_for(12) == sorted(sent)
    finally:
        for member in members:
            await member.close()


async def test_programs_without_a_loop_have_it_too(cluster: ConsumerCluster) -> None:
    sent = await cluster.send("Orders", 5)

    def consume() -> list[str]:
        bodies = []
        with pyromq.PushConsumer("billing", cluster.namesrv, mode="pop", start_from="first") as consumer:
            for message in consumer.subscribe("Orders"):
                bodies.append(message.body.decode())
                if len(bodies) == 5:
                    break
        return sorted(bodies)

    assert await asyncio.to_thread(consume) == sorted(sent)
    assert await left_over(cluster) == []


@pytest.mark.parametrize("options", [{"broadcast": True}])
def test_options_that_need_queues_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="pop"):
        PushConsumer("billing", "127.0.0.1:9876", mode="pop", **options)


async def test_there_is_no_offset_to_seek(cluster: ConsumerCluster) -> None:
    async with popping(cluster, Handled()) as consumer:
        with pytest.raises(StateError, match="no offsets"):
            await consumer.seek(MessageQueue(topic="Orders", broker_name="broker-a", queue_id=0), 0)


async def test_messages_of_higher_priority_come_first(cluster: ConsumerCluster) -> None:
    request = CreateOrUpdateTopic(
        topic="Alarms",
        default_topic=names.AUTO_CREATE_TOPIC,
        read_queue_nums=4,
        write_queue_nums=4,
        perm=names.READ_WRITE,
        topic_filter_type="SINGLE_TAG",
        attributes="+message.type=PRIORITY",
    )
    await cluster.call(request)
    async with Producer("sensors", cluster.namesrv) as producer:
        for priority in (0, 3, 1, 9, 2):
            await producer.send(Message("Alarms", b"%d" % priority, priority=priority))
    consumer = SimpleConsumer("guards", cluster.namesrv, start_from="first")
    consumer.subscribe("Alarms")
    async with consumer:
        received = [message for _ in range(5) for message in await consumer.receive(1)]
    assert [message.priority for message in received] == [3, 9, 2, 1, 0]  # the last queue is 3
