"""A broker that comes to a controller with a log of its own begins the first epoch with it."""

from pathlib import Path

from tests.support.broker_cluster import BrokerClient, running_broker
from tests.support.controlled_group import controlled_group
from tests.support.replicas import log_of, until


async def test_a_log_from_before_the_controller_is_copied_and_survives_its_master(tmp_path: Path) -> None:
    async with running_broker(tmp_path / "a") as broker, BrokerClient(broker.address) as client:
        await client.create_topic(queues=1)
        for number in range(50):
            await client.send(b"%d" % number)
    async with controlled_group(tmp_path) as group:
        first, second = await group.start("a"), await group.start("b")
        assert await group.settled(2) is first
        await until(lambda: second.store.log.end == first.store.log.end)
        assert log_of(second.store) == log_of(first.store)
        await group.crash(first)
        assert await group.settled(1) is second
        async with BrokerClient(second.address) as client:
            assert (await client.pull(0)).bodies[0] == b"0"
            assert (await client.send(b"more")).queue_offset == 50
