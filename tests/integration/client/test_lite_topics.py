"""Our own producers and consumers of lite topics."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.conftest import ErrorLogs

from pyromq import aio
from pyromq.client.blocking import Producer as BlockingProducer
from pyromq.client.consumer.blocking import LiteConsumer as BlockingLiteConsumer
from pyromq.client.values import Message
from pyromq.errors import BadMessage, ConfigError, Refused, StateError
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.remoting.dialer import Dialer
from pyromq.testing import aio_cluster
from pyromq.testing.aio_clusters import AioCluster

TOPIC = "Sessions"


@pytest.fixture
async def lite_cluster() -> AsyncIterator[AioCluster]:
    async with (
        aio_cluster(light_queues=True, multi_dispatch=True) as running,
        aio.Producer("declaring", running.namesrv) as producer,
    ):
        await producer.declare_topic(TOPIC, queues=8, message_type="LITE")
        yield running


async def test_messages_of_a_lite_topic_are_in_one_queue_with_its_name(lite_cluster: AioCluster) -> None:
    async with aio.Producer("chat", lite_cluster.namesrv) as producer:
        sent = [
            await producer.send(Message(TOPIC, b"%d" % number, lite_topic=f"s-{number % 2}"))
            for number in range(6)
        ]
        await producer.send_oneway(Message(TOPIC, b"6", lite_topic="s-0"))
        for number in (0, 1):
            assert len({each.queue for each in sent[number::2]}) == 1
        with pytest.raises(BadMessage, match="cannot be in a batch"):
            await producer.send([Message(TOPIC, b"x", lite_topic="a"), Message(TOPIC, b"y", lite_topic="a")])
        with pytest.raises(BadMessage, match="sharding"):
            await producer.send(Message(TOPIC, b"x", lite_topic="a"), sharding_key="k")
    async with aio.PullConsumer("reader", lite_cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe(TOPIC)
        found: dict[str, list[bytes]] = {}
        while sum(map(len, found.values())) < 7:
            for message in await consumer.poll(timeout_s=30):
                found.setdefault(message.lite_topic or "", []).append(message.body)
    assert found == {"s-0": [b"0", b"2", b"4", b"6"], "s-1": [b"1", b"3", b"5"]}


async def test_a_producer_that_gathers_batches_sends_them_alone(lite_cluster: AioCluster) -> None:
    async with aio.Producer("gathering", lite_cluster.namesrv, linger_ms=1) as producer:
        results = [await producer.send(Message(TOPIC, b"x", lite_topic="one")) for _ in range(3)]
    assert [each.queue_offset for each in results] == [0, 1, 2]


async def test_a_blocking_producer_sends_to_lite_topics(lite_cluster: AioCluster) -> None:
    def send() -> list[int]:
        with BlockingProducer("blocking", lite_cluster.namesrv) as producer:
            return [producer.send(Message(TOPIC, b"x", lite_topic="one")).queue.queue_id for _ in range(4)]

    assert len(set(await asyncio.to_thread(send))) == 1


# Consumers


async def _group(cluster: AioCluster, name: str = "agents", **attributes: str) -> None:
    named = {"+lite.bind.topic": TOPIC} | {f"+lite.{key}": value for key, value in attributes.items()}
    config = SubscriptionGroupConfig(group_name=name, attributes=named)
    dialer = Dialer()
    try:
        await dialer.call(cluster.broker.advertised_address, CreateOrUpdateGroup(body=config), 30)
    finally:
        await dialer.close()


async def _put(cluster: AioCluster, *messages: tuple[str, bytes]) -> None:
    async with aio.Producer("chat", cluster.namesrv) as producer:
        for lite_topic, body in messages:
            await producer.send(Message(TOPIC, body, lite_topic=lite_topic))


async def test_a_lite_consumer_receives_what_it_subscribes_to_while_it_runs(
    lite_cluster: AioCluster,
) -> None:
    await _group(lite_cluster)
    await _put(lite_cluster, ("a", b"a1"), ("b", b"b1"), ("a", b"a2"))
    async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, wait_s=30) as consumer:
        await consumer.subscribe_lite("a", "later")
        first = await consumer.receive()
        assert [(each.lite_topic, each.body, each.queue_offset) for each in first] == [
            ("a", b"a1", 0),
            ("a", b"a2", 1),
        ]
        await consumer.ack_many(first)
        waiting = asyncio.create_task(consumer.receive())
        await _put(lite_cluster, ("later", b"now"))
        (now,) = await waiting
        assert await consumer.ack(now)
        await consumer.subscribe_lite("b", start="end")
        await consumer.unsubscribe_lite("a")
        assert set(consumer.lite_topics) == {"b", "later"}
        await _put(lite_cluster, ("a", b"a3"), ("b", b"b2"))
        assert [each.body for each in await consumer.receive()] == [b"b2"]


async def test_a_message_comes_again_and_may_become_a_dead_letter(lite_cluster: AioCluster) -> None:
    await _group(lite_cluster)
    await _put(lite_cluster, ("a", b"1"), ("a", b"2"))
    async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, wait_s=30) as consumer:
        await consumer.subscribe_lite("a")
        bad, good = await consumer.receive()
        await consumer.change_invisible_time(bad, 0.05, suspend=True)
        bad, good = await consumer.receive()
        assert bad.reconsume_times == 0
        await consumer.ack(good)
        await consumer.change_invisible_time(bad, 0.05)
        (bad,) = await consumer.receive()
        assert (bad.body, bad.reconsume_times) == (b"1", 1)
        await consumer.reject(bad, "poison")
    async with aio.DeadLetters("agents", lite_cluster.namesrv) as letters:
        (letter,) = await letters.list()
        assert letter.message.body == b"1"


async def test_a_handler_gets_the_messages_of_each_lite_topic_in_order(
    lite_cluster: AioCluster, error_logs: ErrorLogs
) -> None:
    await _group(lite_cluster)
    numbers = [(name, b"%d" % number) for number in range(20) for name in ("a", "b", "c")]
    await _put(lite_cluster, *numbers)
    seen: dict[str | None, list[bytes]] = {}
    failed, done = [b"7"], asyncio.Event()

    async def handle(message: aio.PoppedMessage) -> None:
        if message.lite_topic == "b" and message.body in failed:
            failed.remove(message.body)
            raise ValueError("not now")
        seen.setdefault(message.lite_topic, []).append(message.body)
        if sum(map(len, seen.values())) == len(numbers):
            done.set()

    async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, wait_s=1) as consumer:
        await consumer.subscribe_lite("a", "b", "c")
        running = asyncio.create_task(consumer.run(handle, retry_s=0.05))
        async with asyncio.timeout(60):
            await done.wait()
        running.cancel()
        await asyncio.wait([running])
    assert seen == {name: [b"%d" % number for number in range(20)] for name in ("a", "b", "c")}
    assert not failed
    error_logs.expect("handler failed")


async def test_an_exclusive_owner_learns_that_it_lost_a_lite_topic(lite_cluster: AioCluster) -> None:
    await _group(lite_cluster, **{"sub.model": "Exclusive"})
    async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, instance_name="one") as first:
        await first.subscribe_lite("a", "b")
        async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, instance_name="two") as second:
            await second.subscribe_lite("a")
            async with asyncio.timeout(60):
                while True:
                    if first.lite_topics == ("b",):
                        break
                    await asyncio.sleep(0.01)
            assert second.lite_topics == ("a",)


async def test_a_blocking_lite_consumer_receives_and_acknowledges(lite_cluster: AioCluster) -> None:
    await _group(lite_cluster)
    await _put(lite_cluster, ("a", b"1"))

    def consume() -> list[bytes]:
        with BlockingLiteConsumer("agents", TOPIC, lite_cluster.namesrv, wait_s=30) as consumer:
            consumer.subscribe_lite("a")
            messages = consumer.receive()
            consumer.ack_many(messages)
            return [each.body for each in messages]

    assert await asyncio.to_thread(consume) == [b"1"]


async def test_what_a_lite_consumer_cannot_do_is_said_at_once(lite_cluster: AioCluster) -> None:
    await _group(lite_cluster)
    with pytest.raises(ConfigError, match="start_from"):
        aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv, start_from="first")
    with pytest.raises(Refused, match="is bound to no topic"):
        async with aio.LiteConsumer("unbound", TOPIC, lite_cluster.namesrv):
            pass
    async with aio.LiteConsumer("agents", TOPIC, lite_cluster.namesrv) as consumer:
        with pytest.raises(ConfigError, match="lite_topic"):
            await consumer.subscribe_lite("a b")
        with pytest.raises(ConfigError, match="start"):
            await consumer.subscribe_lite("a", start=-1)
        with pytest.raises(StateError, match="subscribe_lite"):
            consumer.subscribe("Other")
        with pytest.raises(StateError, match="unsubscribe_lite"):
            consumer.unsubscribe(TOPIC)
