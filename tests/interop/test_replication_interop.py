"""Apache's brokers and ours are each other's masters and replicas: the same bytes, the same tables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import ALL_RELEASES, APACHE_4, Release
from tests.support.broker_cluster import BROKER_NAME, GROUP, TOPIC, BrokerClient, running_broker
from tests.support.own_nameserver import OwnNameServer
from tests.support.replicas import until

from pyromq.broker.broker import Broker
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.topics import DeleteTopicFromBroker

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CLUSTER = "TestCluster"
FILE_BYTES = 1 << 20


@asynccontextmanager
async def apaches(
    release: Release, names: str, store: Path, broker_id: int, **settings: str
) -> AsyncIterator[ApacheBroker]:
    broker = ApacheBroker(
        release,
        names,
        store,
        BROKER_NAME,
        CLUSTER,
        broker_id,
        settings={"slaveReadEnable": "true", **settings},
    )
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.__exit__)


def address_of(broker: ApacheBroker) -> tuple[str, int]:
    return "127.0.0.1", broker.port


async def fill(client: BrokerClient, count: int = 2500) -> None:
    await client.create_topic()
    for start in range(0, count, 100):
        numbers = range(start, min(start + 100, count))
        answers = await asyncio.gather(*(client.send(b"%d " % n + b"x" * 1000) for n in numbers))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}


async def end_of(client: BrokerClient) -> int:
    """Where the log of the client's broker ends."""
    async with asyncio.timeout(30):
        while True:
            # Apache's broker has no statistics in its first second, and fails.
            with suppress(Refused):
                return int((await client.call(GetBrokerRuntimeInfo())).body.table["commitLogMaxOffset"])
            await asyncio.sleep(0.1)


def log_in(directory: Path, end: int) -> dict[str, bytes]:
    """The log files below a directory, up to a log offset."""
    files = {}
    for path in sorted((directory / "commitlog").iterdir()):
        if path.name.isdigit() and int(path.name) < end:
            files[path.name] = path.read_bytes()[: end - int(path.name)]
    return files


@asynccontextmanager
async def our_replica(root: Path, names: str, broker_id: int = 1) -> AsyncIterator[Broker]:
    async with running_broker(
        root, namesrv_addr=names, broker_role="SLAVE", broker_id=broker_id, slave_read=True
    ) as broker:
        yield broker


@pytest.mark.parametrize("release", ALL_RELEASES, ids=str)
async def test_our_replica_of_apaches_master(release: Release, tmp_path: Path) -> None:
    with OwnNameServer() as name_server:
        names = name_server.address
        async with apaches(release, names, tmp_path / "master", 0) as master:
            async with (
                BrokerClient(address_of(master)) as client,
                our_replica(tmp_path / "r", names) as replica,
            ):
                # Apache sends a replica that comes late the last file alone.
                await fill(client, 1)
                first_end = await end_of(client)
                await until(lambda: replica.store.log.end == first_end)
                await fill(client)
                end = await end_of(client)
                assert end > 2 * FILE_BYTES
                await until(lambda: replica.store.log.end == end)
                assert log_in(tmp_path / "r", end) == log_in(tmp_path / "master", end)
                await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
                await client.call(
                    UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=7)
                )
                await client.create_topic("Doomed")
                await client.send(b"doomed", topic="Doomed")
                tables, sync = replica._started.tables, replica.replication.table_sync
                await copied(replica)
                await until(lambda: tables.offsets.query(GROUP, TOPIC, 0) == 7)  # they wait for the log
                assert "Doomed" in tables.topics
                async with BrokerClient(replica.address) as reader:
                    pulled = (await reader.pull(2499)).bodies
                    assert pulled == (await client.pull(2499)).bodies != []
                await client.call(DeleteTopicFromBroker(topic="Doomed"))
                await copied(replica)
                assert "Doomed" not in tables.topics
                assert sync.copies
            async with (
                BrokerClient(address_of(master)) as client,
                our_replica(tmp_path / "r", names) as replica,
            ):
                await fill(client, 100)  # it continues where it was
                end = await end_of(client)
                await until(lambda: replica.store.log.end == end)
                assert log_in(tmp_path / "r", end) == log_in(tmp_path / "master", end)
                async with our_replica(tmp_path / "empty", names, broker_id=2) as empty:
                    await until(lambda: empty.store.log.end == end)
                    assert (
                        empty.store.log.start == end // FILE_BYTES * FILE_BYTES
                    )  # Apache sends the last file


async def copied(replica: Broker) -> None:
    """Have the tables copied now instead of in ten seconds."""
    sync = replica.replication.table_sync
    for _ in range(2):
        copies = sync.copies
        sync._woken.set()
        await until(lambda copies=copies: sync.copies > copies)  # type: ignore[misc]


@pytest.mark.parametrize("release", ALL_RELEASES, ids=str)
async def test_a_replica_longer_than_apaches_master_does_not_diverge(
    release: Release, tmp_path: Path, error_logs: Any
) -> None:
    """Apache's master sends it heartbeats, and later bytes from the middle of other records."""
    with OwnNameServer() as name_server:
        names = name_server.address
        async with running_broker(tmp_path / "r") as broker, BrokerClient(broker.address) as client:
            await client.create_topic()
            for number in range(20):
                await client.send(b"only here %d" % number)
        async with (
            apaches(release, names, tmp_path / "master", 0) as master,
            our_replica(tmp_path / "r", names) as replica,
            BrokerClient(address_of(master)) as client,
        ):
            end = replica.store.log.end
            await until(lambda: replica.replication.replica.disagreement)
            assert "the master has lost" in replica.replication.replica.disagreement
            await fill(client, 100)
            await until(
                lambda: "different messages at log offset" in replica.replication.replica.disagreement
            )
            assert replica.store.log.end == end
        error_logs.expect_repeatedly("the master's log is not copied")


@pytest.mark.parametrize("release", ALL_RELEASES, ids=str)
async def test_apaches_replica_of_our_master(release: Release, tmp_path: Path) -> None:
    with OwnNameServer() as name_server:
        names = name_server.address
        async with (
            running_broker(
                tmp_path / "m",
                namesrv_addr=names,
                broker_role="SYNC_MASTER",
                in_sync_replicas=2,
                replica_timeout_ms=30_000,
            ) as master,
            BrokerClient(master.address) as client,
            apaches(release, names, tmp_path / "slave", 1) as slave,
            BrokerClient(address_of(slave)) as reader,
        ):
            links = master.replication.master
            await until(lambda: len(links.links) == 1)
            await fill(client)  # each answer says that the replica has it
            end = master.store.log.end
            assert links.links[0].acknowledged == end == await end_of(reader)
            assert log_in(tmp_path / "slave", end) == log_in(tmp_path / "m", end)
            await asyncio.to_thread(slave.kill)
            await until(lambda: not links.links)
            assert (await client.send(b"alone")).code == ResponseCode.SLAVE_NOT_AVAILABLE
            await asyncio.to_thread(slave.start)
            await until(lambda: links.links and links.links[0].acknowledged == master.store.log.end)
            assert (await client.send(b"together")).code == ResponseCode.SUCCESS
            end = master.store.log.end
            assert log_in(tmp_path / "slave", end) == log_in(tmp_path / "m", end)
            if release is APACHE_4:  # 5.x copies nothing in its first minute
                await knows_topic(reader)


async def knows_topic(reader: BrokerClient) -> None:
    """Until the replica has taken the topics from its master."""
    async with asyncio.timeout(60):
        while True:
            try:
                assert (await reader.pull(2499)).bodies
            except Refused:
                await asyncio.sleep(0.2)
            else:
                return
