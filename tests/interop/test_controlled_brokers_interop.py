"""Our brokers and Apache's under one controller, and ours under Apache's: each takes over from the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.apache import ApacheBroker, ApacheNameServer, free_ports, saved_table
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST, Release
from tests.support.broker_cluster import BROKER_NAME, CLUSTER, TOPIC, BrokerClient, running_broker
from tests.support.controlled_group import ControlledGroup, controlled_group, members_of
from tests.support.replicas import log_of, until

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import GetReplicaInfo
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.replication import GetEpochs
from pyromq.remoting.addresses import format_address
from pyromq.remoting.dialer import Dialer

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

COUNT = 1500


@asynccontextmanager
async def apaches(release: Release, names: str, controller: str, store: Path) -> AsyncIterator[ApacheBroker]:
    chosen = {
        "enableControllerMode": "true",
        "controllerAddr": controller,
        "brokerRole": "SLAVE",
        "allAckInSyncStateSet": "true",
    }
    broker = ApacheBroker(release, names, store, BROKER_NAME, CLUSTER, -1, settings=chosen)
    await asyncio.to_thread(broker.start)
    try:
        yield broker
    finally:
        await asyncio.to_thread(broker.__exit__)


async def fill(address: tuple[str, int], first: int, count: int) -> None:
    async with BrokerClient(address) as client:
        await client.create_topic()
        for start in range(first, first + count, 100):
            sends = (client.send(b"%d " % n + b"x" * 900, queue_id=0) for n in range(start, start + 100))
            assert {answer.code for answer in await asyncio.gather(*sends)} == {ResponseCode.SUCCESS}


async def end_of(address: tuple[str, int]) -> int:
    async with BrokerClient(address) as client:
        return int((await client.call(GetBrokerRuntimeInfo())).body.table["commitLogMaxOffset"])


async def epochs_of(address: tuple[str, int]) -> list[tuple[int, int]]:
    async with BrokerClient(address) as client:
        found = (await client.call(GetEpochs())).body
    return [(each.epoch, each.start_offset) for each in found.epoch_list]


async def until_in_sync(group: ControlledGroup, count: int) -> None:
    dialer = Dialer()
    async with asyncio.timeout(240):
        while True:
            found = await dialer.call(
                format_address(*group.controller.address), GetReplicaInfo(broker_name=BROKER_NAME), 60
            )
            if len(found.body.sync_state_set) == count and found.master_address:
                break
            await asyncio.sleep(0.1)
    await dialer.close()


def bytes_in(store: Path, end: int) -> bytes:
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    return b"".join(path.read_bytes() for path in files)[:end]


@pytest.mark.parametrize("release", [APACHE_5, APACHE_NEWEST], ids=str)
async def test_apaches_broker_and_ours_take_over_from_each_other(tmp_path: Path, release: Release) -> None:
    """Ours leads, Apache's copies; ours dies, Apache's leads; ours returns, cuts, copies, and leads again."""
    async with controlled_group(tmp_path) as group:
        controller = format_address(*group.controller.address)
        ours = await group.start("ours")
        async with apaches(release, group.names, controller, tmp_path / "theirs") as theirs:
            address = "127.0.0.1", theirs.port
            await until_in_sync(group, 2)
            await fill(ours.address, 0, COUNT)
            assert await end_of(address) == ours.store.log.end
            assert bytes_in(tmp_path / "theirs", ours.store.log.end) == log_of(ours.store)
            assert await epochs_of(address) == [(1, 0)]
            await until(lambda: TOPIC in saved_table(theirs.store, "topics.json"))

            await group.crash(ours)
            await until_in_sync(group, 1)
            async with asyncio.timeout(60):
                while (await epochs_of(address))[-1][0] < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            await fill(address, COUNT, 500)
            ours = await group.start("ours")
            await until_in_sync(group, 2)
            await fill(address, COUNT + 500, 500)
            end = await end_of(address)
            await until(lambda: ours.store.log.end == end)
            assert bytes_in(tmp_path / "theirs", end) == log_of(ours.store)
            assert await epochs_of(address) == await epochs_of(ours.address)

            await asyncio.to_thread(theirs.kill)
            await until(lambda: ours.role.now.is_master)
            assert ours.store.queues.max_offset(TOPIC, 0) == COUNT + 1000
            await fill(ours.address, COUNT + 1000, 100)
            await asyncio.to_thread(theirs.start)
            await until_in_sync(group, 2)
            await fill(ours.address, COUNT + 1100, 100)
            assert await end_of(address) == ours.store.log.end
            assert bytes_in(tmp_path / "theirs", ours.store.log.end) == log_of(ours.store)


@pytest.mark.parametrize("release", [APACHE_5, APACHE_NEWEST], ids=str)
async def test_our_brokers_and_apaches_under_apaches_controller(tmp_path: Path, release: Release) -> None:
    port = free_ports()
    controller = f"127.0.0.1:{port}"
    settings = {
        "enableControllerInNamesrv": "true",
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(tmp_path / "controller"),
        "mappedFileSize": str(1 << 20),
    }
    names = ApacheNameServer(release, settings=settings)
    await asyncio.to_thread(names.start)
    try:
        chosen: dict[str, Any] = {
            "controller_mode": True,
            "controller_addr": controller,
            "namesrv_addr": names.address,
            "all_in_sync": True,
        }
        async with running_broker(tmp_path / "a", **chosen) as first:
            await _led(first)
            async with running_broker(tmp_path / "b", **chosen) as second:
                await until(lambda: len(members_of(first)) == 2)
                await fill(first.address, 0, 500)
                await until(lambda: second.store.log.end == first.store.log.end)
                await first.abandon()
                await _led(second)
                await fill(second.address, 500, 500)
                async with running_broker(tmp_path / "a", **chosen) as returned:
                    await until(lambda: len(members_of(second)) == 2)
                    await fill(second.address, 1000, 100)
                    await until(lambda: returned.store.log.end == second.store.log.end)
                    assert log_of(returned.store) == log_of(second.store)
                    assert second.role.now.epoch > 1
                await until(lambda: members_of(second) == {2})
                async with apaches(release, names.address, controller, tmp_path / "theirs") as theirs:
                    await _taken_over_in_turns(second, theirs, controller, names.address)
    finally:
        await asyncio.to_thread(names.__exit__)


async def _taken_over_in_turns(ours: Broker, theirs: ApacheBroker, controller: str, names: str) -> None:
    """Ours leads, then Apache's, then ours again."""
    address = "127.0.0.1", theirs.port
    await in_time(lambda: members_of(ours) == {2, 3})
    await fill(ours.address, 1100, 100)
    assert await end_of(address) == ours.store.log.end
    await in_time(lambda: TOPIC in saved_table(theirs.store, "topics.json"))
    async with Cluster(names) as cluster:
        await controllers.elect_master(cluster, [controller], CLUSTER, BROKER_NAME, 3)
    await in_time(lambda: not ours.role.now.is_master and ours.replication.replica.is_connected)
    await fill(address, 1200, 100)
    end = await end_of(address)
    await in_time(lambda: ours.store.log.end == end)
    assert bytes_in(theirs.store, end) == log_of(ours.store)
    assert await epochs_of(address) == await epochs_of(ours.address)
    await asyncio.to_thread(theirs.kill)
    await _led(ours)
    await fill(ours.address, 1300, 100)
    assert ours.store.queues.max_offset(TOPIC, 0) == 1400


async def in_time(is_true: Callable[[], object]) -> None:
    """Like `until`, but a JVM may have to start first."""
    async with asyncio.timeout(240):
        while not is_true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def _led(broker: Broker) -> None:
    await in_time(lambda: broker.role.now.is_master)
