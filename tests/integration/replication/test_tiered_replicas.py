"""A replica with an empty disk copies what its master's disk has, and serves the rest from the tier."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.integration.broker.test_tier import (
    MESSAGES,
    QUEUES,
    SMALL_FILES,
    body,
    offloaded,
    read_all,
    send_all,
    sent,
)
from tests.integration.broker.test_tier_restore import log_files, restored
from tests.integration.replication.test_damaged_replicas import flip
from tests.support.broker_cluster import CLUSTER, TOPIC, BrokerClient
from tests.support.controlled_group import controlled_group
from tests.support.replicas import broker_group, caught_up, log_of, until

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.broker.services import tiering as service
from pyromq.remoting.addresses import format_address

QUIET = "Quiet"
QUIET_MESSAGES = 3


def tier(root: Path) -> dict[str, Any]:
    return {
        "store": {"file_reserved_hours": 0, "disk_max_used_percent": 95, **SMALL_FILES},
        "tier_level": "NOT_IN_DISK",
        "tier_place": str(root / "lake"),
    }


async def history(broker: Broker) -> None:
    """Two topics whose messages have left the disk; Quiet gets no others."""
    async with BrokerClient(broker.address) as client:
        for topic in (TOPIC, QUIET):
            await client.create_topic(topic, queues=QUEUES)
        for number in range(QUIET_MESSAGES):
            await client.send(body(number), topic=QUIET, queue_id=0)
        await send_all(client)
    await offloaded(broker)
    assert broker.store.log.start > 0


async def knows(replica: Broker, master: Broker) -> None:
    """The replica has its master's log, and its queues go on where those of its master do."""
    await caught_up(replica, master)
    await until(
        lambda: all(
            replica.store.queues.max_offset(topic, queue_id)
            == master.store.queues.max_offset(topic, queue_id)
            for topic in (TOPIC, QUIET)
            for queue_id in range(QUEUES)
        )
    )


async def check(broker: Broker, messages: int = MESSAGES) -> None:
    async with BrokerClient(broker.address) as client:
        for queue_id in range(QUEUES):
            found = await read_all(client, queue_id, messages // QUEUES, hold_ms=15_000)
            assert found == sent(queue_id, messages)
        quiet = await read_all(client, 0, QUIET_MESSAGES, topic=QUIET, hold_ms=15_000)
        assert quiet == [body(number) for number in range(QUIET_MESSAGES)]


async def test_an_empty_replica_takes_the_tail_from_its_master_and_the_rest_from_the_tier(
    tmp_path: Path,
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master(**tier(tmp_path)) as master,
    ):
        await history(master)
        async with group.replica(**tier(tmp_path)) as replica:
            await knows(replica, master)
            assert replica.store.log.start == master.store.log.start
            assert log_of(replica.store) == log_of(master.store)
            assert replica.tiering is not None
            await check(replica)
            assert replica.tiering.history.messages_out > 0
        async with group.replica(**tier(tmp_path)) as replica:  # it starts again
            await knows(replica, master)
            await check(replica)


async def test_a_damaged_file_is_repaired_from_the_group_before_it_is_uploaded(tmp_path: Path) -> None:
    files: dict[str, Any] = {"store": SMALL_FILES}
    async with (
        broker_group(tmp_path) as group,
        group.master(**files) as master,
        group.replica(**files) as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(queues=QUEUES)
        await send_all(client)
        await caught_up(replica, master)
        sound = log_of(master.store)
    flip(tmp_path / "master", body(3))
    async with (
        broker_group(tmp_path) as group,
        group.replica(**tier(tmp_path)) as replica,
        group.master(**tier(tmp_path)) as master,
    ):
        await offloaded(master)
        assert master.replication.repair.repaired_ranges == 1
    outcome = await asyncio.to_thread(restored, tmp_path)
    assert not outcome.problems
    (first, second, *_) = sorted(log_files(tmp_path).items())
    assert sound.startswith(first[1] + second[1])


async def test_a_replica_keeps_the_files_that_its_master_has_not_uploaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    monkeypatch.setattr(service, "_MAX_PAUSE_S", 0.05)
    lake, away = tmp_path / "lake", tmp_path / "away"
    async with (
        broker_group(tmp_path) as group,
        group.master(**tier(tmp_path)) as master,
        group.replica(**tier(tmp_path)) as replica,
    ):
        await history(master)
        await caught_up(replica, master)
        uploaded_to = master.store.log.start
        lake.rename(away)
        lake.write_bytes(b"not a directory")
        async with BrokerClient(master.address) as client:
            await send_all(client, MESSAGES)
        await caught_up(replica, master)
        await until(lambda: replica.store.clean(on_demand=True).is_kept_for_tier)
        assert replica.store.log.start <= uploaded_to
        lake.unlink()
        away.rename(lake)
        await offloaded(master)
        await until(lambda: (replica.store.clean(on_demand=True), replica.store.log.start)[1] > uploaded_to)


async def test_an_empty_replica_that_becomes_the_master_goes_on_where_the_old_one_was(tmp_path: Path) -> None:
    async with controlled_group(tmp_path) as group:
        old = await group.start("a", **tier(tmp_path))
        await history(old)
        new = await group.start("b", **tier(tmp_path))
        await group.settled(2)
        await knows(new, old)
        await group.crash(old)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        async with BrokerClient(new.address) as client:
            answer = await client.send(b"goes on", topic=QUIET, queue_id=0)
            assert answer.queue_offset == QUIET_MESSAGES
            await send_all(client, MESSAGES)
        await offloaded(new)
        await check(new, 2 * MESSAGES)
        async with BrokerClient(new.address) as client:
            last = await client.pull(QUIET_MESSAGES, topic=QUIET, queue_id=0, hold_ms=15_000)
            assert last.bodies == [b"goes on"]
        assert new.tiering is not None
        assert new.tiering.manifest is not None
        assert new.tiering.manifest.epoch == new.role.now.epoch


async def test_an_empty_replica_that_cannot_read_all_of_the_tier_gives_no_offset_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error_logs: ErrorLogs
) -> None:
    monkeypatch.setattr(service, "_POLL_S", 0.05)
    async with controlled_group(tmp_path) as group:
        old = await group.start("a", **tier(tmp_path))
        async with BrokerClient(old.address) as client:
            for topic in (TOPIC, QUIET):
                await client.create_topic(topic, queues=QUEUES)
            for begin in (0, MESSAGES):
                for number in range(begin, begin + QUIET_MESSAGES):
                    await client.send(body(number), topic=QUIET, queue_id=0)
                await send_all(client, begin)
        await offloaded(old)
        assert old.tiering is not None
        last = old.tiering.history.index.visible((QUIET, 0), 0)[-1]
        assert last.end_offset == 2 * QUIET_MESSAGES
        for place in (tmp_path / "lake").rglob(last.segment.name.rpartition("/")[2]):
            place.unlink()
        new = await group.start("b", **tier(tmp_path))
        await group.settled(2)
        await caught_up(new, old)
        replica = new.tiering
        assert replica is not None
        await until(lambda: last.segment.name in replica.damaged)
        assert new.store.queues.max_offset(QUIET, 0) == 0  # its master knows it
        await group.crash(old)
        await until(lambda: new.role.now.is_master and not new.role.barrier)
        async with BrokerClient(new.address) as client:
            answer = await client.send(b"goes on", topic=QUIET, queue_id=0)
            assert answer.queue_offset >= 2 * QUIET_MESSAGES
    error_logs.expect_repeatedly("a segment cannot be read, its readers wait: ")


async def test_a_lost_group_is_restored_under_an_empty_controller(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    """Every broker and the controller are lost: the tier is all there is."""
    lost = tmp_path / "lost"
    async with controlled_group(lost) as group:
        master = await group.start("a", **tier(tmp_path))
        await history(master)
        assert master.tiering is not None
        assert master.tiering.manifest is not None
        end, epoch = master.tiering.manifest.end, master.role.now.epoch
        kept = master.tiering.history.index.end_of((TOPIC, 0))
    shutil.rmtree(lost)
    new = tmp_path / "new"
    outcome = await asyncio.to_thread(restored, tmp_path)
    assert not outcome.problems
    new.mkdir()
    (tmp_path / "store").rename(new / "a")
    async with controlled_group(new) as group:
        first = await group.start("a", **tier(tmp_path))
        # It cannot know whether there are others with more, so an operator says that there are none.
        session = first.replication.session
        assert session is not None
        await until(lambda: "an operator can decide with mqadmin electMaster" in session.problem)
        leader = format_address(*group.controller.address)
        async with Cluster(group.names) as cluster:
            await controllers.elect_master(cluster, [leader], CLUSTER, "broker-a", 1)
        await until(lambda: first.role.now.is_master and not first.role.barrier)
        assert first.role.now.epoch > epoch
        second = await group.start("b", **tier(tmp_path))
        await group.settled(2)
        async with BrokerClient(first.address) as client:
            assert (await client.send(b"goes on", topic=QUIET, queue_id=0)).queue_offset == QUIET_MESSAGES
            assert (await client.send(b"goes on", queue_id=0)).queue_offset == kept
            await send_all(client, 1000)
            assert (await read_all(client, 0, kept, hold_ms=15_000))[:kept] == sent(0)[:kept]
        await offloaded(first)
        await knows(second, first)
        assert first.tiering is not None
        assert first.tiering.manifest is not None
        assert first.tiering.manifest.end > end
        assert not first.tiering.problem
        async with BrokerClient(second.address) as client:
            assert (await read_all(client, 0, kept, hold_ms=15_000))[:kept] == sent(0)[:kept]
