"""How long topics keep messages, and purges, on whole brokers: limits, replicas, restarts."""

from pathlib import Path

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, consumer, running_broker, topic_creation
from tests.support.replicas import broker_group, caught_up, until

from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.requests.offsets import GetMinOffset
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, DeleteTopicFromBroker, PurgeQueue

UNIQUE = {"UNIQ_KEY": "A1"}


def limited(attributes: str) -> CreateOrUpdateTopic:
    wanted = topic_creation()
    wanted.attributes = attributes
    return wanted


async def min_offset(client: BrokerClient) -> int:
    return (await client.call(GetMinOffset(topic=TOPIC, queue_id=0))).offset


@pytest.mark.parametrize("attribute", ["message.ttl=60", "reserve.time=1"])
async def test_messages_that_are_too_old_are_not_delivered_on_any_path(
    tmp_path: Path, attribute: str
) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock) as broker, BrokerClient(broker.address) as client:
        await client.call(limited(f"+{attribute}"))
        await client.heartbeat(consumer())
        for _ in range(3):
            await client.send(properties=UNIQUE)
        for _ in range(2):  # the second one takes the compiled path
            assert len((await client.pull(0)).messages) == 3
        clock.advance(3601 if attribute.startswith("reserve") else 61)
        await client.send(properties=UNIQUE)
        assert await min_offset(client) == 3
        moved = await client.pull(0)
        assert (len(moved.messages), moved.answer.next_begin_offset) == (0, 3)
        assert len((await client.pull(3)).messages) == 1
        await client.call(limited(f"-{attribute.partition('=')[0]}"))
        assert len((await client.pull(0)).messages) == 4


async def test_a_limit_of_bytes_keeps_the_newest(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        await client.call(limited("+reserve.bytes=5000"))
        for _ in range(9):
            await client.send(b"x" * 1000, properties=UNIQUE)
        assert await min_offset(client) == 5
        with pytest.raises(Refused, match=r"reserve.bytes=5k: expected a whole number of bytes"):
            await client.call(limited("+reserve.bytes=5k"))


async def test_a_purge_reaches_replicas_and_survives_restarts_of_both(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with group.master() as master, group.replica() as replica:
            async with BrokerClient(master.address) as client:
                await client.call(topic_creation())
                for _ in range(5):
                    await client.send(properties=UNIQUE)
                await caught_up(replica, master)
                assert (await client.call(PurgeQueue(topic=TOPIC, queue_id=0, offset=3))).offset == 3
                assert await min_offset(client) == 3
                with pytest.raises(Refused, match="has messages 3 to 5, and not 9"):
                    await client.call(PurgeQueue(topic=TOPIC, queue_id=0, offset=9))
                with pytest.raises(Refused, match="is a system topic"):
                    await client.call(PurgeQueue(topic="SCHEDULE_TOPIC_XXXX", queue_id=0))
            await until(lambda: replica.store.queues.min_offset(TOPIC, 0) == 3)
            async with BrokerClient(replica.address) as client:
                with pytest.raises(Refused):
                    await client.call(PurgeQueue(topic=TOPIC, queue_id=0))
        async with group.master() as master, group.replica() as replica:
            assert replica.store.queues.min_offset(TOPIC, 0) == master.store.queues.min_offset(TOPIC, 0) == 3
            async with BrokerClient(master.address) as client:
                assert (await client.call(PurgeQueue(topic=TOPIC, queue_id=0))).offset == 5
                await until(lambda: replica.store.queues.min_offset(TOPIC, 0) == 5)
                await client.call(DeleteTopicFromBroker(topic=TOPIC))
                await client.call(topic_creation())
                await client.send(properties=UNIQUE)
                assert len((await client.pull(0, group=GROUP)).messages) == 1
