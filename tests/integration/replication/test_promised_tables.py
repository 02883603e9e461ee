"""A topic, a group or a user that was acknowledged is on every broker that may become master."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pytest
from tests.support.broker_cluster import CLUSTER, GROUP, BrokerClient, message
from tests.support.controlled_group import all_reported, controlled_group, members_of, side_of
from tests.support.replicas import broker_group, until

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.broker.replication.epoch_replica_link import EpochReplicaLink
from pyromq.broker.replication.table_sync import TableSync
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import Role
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.replication import WatchTables
from pyromq.protocol.requests.topics import DeleteTopicFromBroker
from pyromq.remoting.addresses import format_address


def tables(broker: Broker) -> Tables:
    return broker._started.tables


@asynccontextmanager
async def held_tables(replica: Broker) -> AsyncIterator[asyncio.Event]:
    """The replica hears of changes, and takes them when the event is set."""
    sync, may_take = replica.replication.table_sync, asyncio.Event()
    take = sync._take

    async def hold(*answer: Any) -> bool:
        await may_take.wait()
        return await take(*answer)

    with patch.object(sync, "_take", hold):
        try:
            yield may_take
        finally:
            may_take.set()


async def is_held(asked: "asyncio.Future[Any]", master: Broker) -> bool:
    """Whether a request is not answered although all is on the master's disk."""
    async with BrokerClient(master.address) as client:
        await client.call(GetBrokerRuntimeInfo())
        await tables(master).topics.written()
        await tables(master).groups.written()
        for _ in range(3):
            await client.call(GetBrokerRuntimeInfo())
    return not asked.done()


async def changes(client: BrokerClient) -> AsyncIterator[tuple[str, Awaitable[Any]]]:
    yield "topic", client.create_topic("Fresh")
    yield "first message", client.send(b"first", topic="Made")
    yield "group", client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP)))
    yield "deletion", client.call(DeleteTopicFromBroker(topic="Fresh"))


async def test_nobody_is_promised_a_change_that_a_replica_in_sync_lacks(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master, replica = await group.start("a"), await group.start("b")
        assert await group.settled(2) is master
        async with BrokerClient(master.address) as client:
            async for what, change in changes(client):
                async with held_tables(replica) as may_take:
                    asked = asyncio.ensure_future(change)
                    assert await is_held(asked, master), what
                    may_take.set()
                    await asked
                    ours, theirs = tables(master), tables(replica)
                    assert theirs.topics.all() == ours.topics.all(), what
                    assert theirs.groups.all() == ours.groups.all(), what
                    for table in (theirs.topics, theirs.groups):
                        assert table._file.written == table._file.changes, what
        await group.crash(master)
        await until(lambda: replica.role.now.is_master)
        assert "Made" in tables(replica).topics
        assert "Fresh" not in tables(replica).topics
        assert tables(replica).groups.get(GROUP) is not None
        assert replica.store.queues.max_offset("Made", 0) == 1


async def test_a_change_that_replicas_do_not_get_in_time_is_not_acknowledged(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a", replica_timeout_ms=100)
        replica = await group.start("b")
        assert await group.settled(2) is master
        async with BrokerClient(master.address) as client:
            async with held_tables(replica):
                end = master.store.log.end
                refused = await client.refusal(message(topic="Made"))
                assert refused.code == ResponseCode.SYSTEM_ERROR
                assert "1 replicas in sync did not confirm it within 100 ms" in (refused.remark or "")
                assert master.store.log.end == end
            await until(lambda: "Made" in tables(replica).topics)
            await client.send(topic="Made")


async def test_a_master_that_acknowledges_alone_does_not_depend_on_its_replicas(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(replica_timeout_ms=100) as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
    ):
        await until(lambda: replica.replication.table_sync.copies)
        async with held_tables(replica):
            await client.create_topic("Fresh")
            await client.send(topic="Fresh")
        await until(lambda: "Fresh" in tables(replica).topics)


async def test_a_replica_leaves_a_master_that_was_replaced_and_copies_the_next_ones_tables(
    tmp_path: Path,
) -> None:
    """It does not wait for the answer that the former master owes it."""
    async with controlled_group(tmp_path) as group:
        await group.start("a")
        for name in "bc":
            await group.start(name)
        await group.settled(3)
        leader = format_address(*group.controller.address)
        for broker_id in (2, 3, 1):
            async with Cluster(group.names) as cluster:
                await controllers.elect_master(cluster, [leader], CLUSTER, "broker-a", broker_id)
            chosen = group.brokers[broker_id - 1]
            await until(lambda chosen=chosen: group.master() is chosen)  # type: ignore[misc]
            await group.settled(3)
            topic = f"Of{broker_id}"
            async with BrokerClient(chosen.address) as client:
                await client.create_topic(topic)
            assert all(topic in tables(each).topics for each in group.brokers)


async def test_a_replica_without_its_masters_tables_gets_the_log_and_is_in_sync_when_they_come(
    tmp_path: Path,
) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a")
        may_copy = asyncio.Event()
        copy = TableSync._copy

        async def refuse(sync: TableSync, address: str) -> float:
            if not may_copy.is_set():
                raise Refused(ResponseCode.NO_PERMISSION, "no")
            return await copy(sync, address)

        with (
            patch("pyromq.broker.replication.table_sync._FIRST_COPY_S", 0.05),
            patch.object(TableSync, "_copy", refuse),
        ):
            await group.start("b")
            async with BrokerClient(master.address) as client:
                await client.create_topic()
                await client.send()
            await all_reported(master, 1)
            # It says so itself, and the master would not believe it otherwise.
            assert [cast(EpochReplicaLink, each).is_learner for each in side_of(master).links] == [True]
            assert side_of(master).wanted_set() is None
            assert len(members_of(master)) == 1
            may_copy.set()
            await group.settled(2)


async def test_a_replica_joins_with_every_change_that_was_promised_before(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        master = await group.start("a")
        take, may_take = TableSync._take, asyncio.Event()

        async def take_later(sync: TableSync, *answer: Any) -> bool:
            is_taken = await take(sync, *answer)
            sync._copied(sync._masters)  # its log comes, and the next answer does not
            await may_take.wait()
            return is_taken

        with patch.object(TableSync, "_take", take_later):
            replica = await group.start("b")
            async with BrokerClient(master.address) as client:
                await until(lambda: replica.replication.replica.link is not None)
                await client.create_topic("Fresh")
                await client.send(topic="Fresh")
            await all_reported(master, 1)
            assert side_of(master).wanted_set() is None
            assert "Fresh" not in tables(replica).topics
            may_take.set()
            await group.settled(2)
            assert "Fresh" in tables(replica).topics


async def test_only_a_master_hands_out_its_tables(tmp_path: Path) -> None:
    """One that has just started may have lost them, while replicas still take it for their master."""
    async with controlled_group(tmp_path) as group:
        for directory in "ab":
            await group.start(directory)
        master = await group.settled(2)
        (replica,) = (each for each in group.brokers if each is not master)
        async with BrokerClient(replica.address) as client:
            question = WatchTables(seen="", wait_millis=0)
            assert (await client.refusal(question)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        async with BrokerClient(master.address) as client:
            seen = (await client.call(question)).seen
            # It is replaced before something has changed.
            waiting = asyncio.create_task(client.call(WatchTables(seen=seen, wait_millis=600_000)))
            await until(lambda: len(master.replication.table_changes._waiting) == 2)
            master.role.change(Role(9, master.role.now.epoch + 1))
            with pytest.raises(Refused, match="only a master"):
                await waiting
