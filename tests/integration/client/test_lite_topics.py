"""Our own producers and lite topics."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from pyromq import aio
from pyromq.client.blocking import Producer as BlockingProducer
from pyromq.client.values import Message
from pyromq.errors import BadMessage
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
