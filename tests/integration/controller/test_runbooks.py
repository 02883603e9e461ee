"""The runbooks about lost stores: a lost etcd, and a whole cluster restored from the copy of a replica.

Every acknowledged message is there afterwards.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import ErrorLogs
from tests.support.broker_cluster import CLUSTER, BrokerClient
from tests.support.controlled_brokers import controller
from tests.support.controlled_group import ControlledGroup, controlled_group, members_of
from tests.support.etcd import Etcd, running_etcd
from tests.support.name_servers import name_server
from tests.support.replicas import caught_up, log_of, until
from tests.support.small_stores import messages_in

from pyromq.admin import controllers
from pyromq.admin.cluster import Cluster
from pyromq.broker.broker import Broker
from pyromq.controller.controller import Controller
from pyromq.controller.file_store import FileStore
from pyromq.nameserver.nameserver import NameServer
from pyromq.remoting.addresses import format_address

QUICK: dict[str, Any] = {"controller_poll_ms": 200}
PREFIX = "/runbooks/"


async def send(broker: Broker, numbers: range) -> None:
    async with BrokerClient(broker.address) as client:
        await client.create_topic()
        for number in numbers:
            await client.send(b"%d" % number, queue_id=0)


def bodies(broker: Broker) -> list[int]:
    found: list[int] = []
    while more := messages_in(broker.store.read("Orders", 0, len(found), 1000)):
        found += [int(each.body) for each in more]
    return found


@dataclass
class EtcdScene:
    """Two controllers over an etcd, and a group of three brokers."""

    root: Path
    etcd: Etcd
    names: NameServer
    running: AsyncExitStack
    group: ControlledGroup
    controllers: list[Controller]

    async def restart_controllers(self) -> None:
        """At the same addresses."""
        ports = [each.address[1] for each in self.controllers]
        for each in self.controllers:
            await each.stop()
        self.controllers = await start_controllers(self.root, self.etcd, self.running, *ports)

    async def crash_master(self, master: Broker) -> Broker:
        """The next master, after a fail-over and the return of the one that failed."""
        old = await self.group.crash(master)
        await self.group.settled(2)
        await self.group.start(old, **QUICK)
        return await self.group.settled(3)


async def start_controllers(root: Path, etcd: Etcd, running: AsyncExitStack, *ports: int) -> list[Controller]:
    chosen: dict[str, Any] = {"store_kind": "etcd", "etcd_endpoints": etcd.endpoint, "etcd_prefix": PREFIX}
    return [
        await running.enter_async_context(
            controller(root / name, self_id=name, listen_port=port, etcd_lease_seconds=2, **chosen)
        )
        for name, port in zip(("n0", "n1"), ports or (0, 0), strict=True)
    ]


@asynccontextmanager
async def over_etcd(root: Path, logs: ErrorLogs) -> AsyncIterator[EtcdScene]:
    with running_etcd(root) as etcd:
        async with AsyncExitStack() as running:
            names = await running.enter_async_context(name_server(root / "names"))
            started = await start_controllers(root, etcd, running)
            group = ControlledGroup(root, names, *started)
            running.push_async_callback(group.stop_all)
            for name in "abc":
                await group.start(name, **QUICK)
            await group.settled(3)
            yield EtcdScene(root, etcd, names, running, group, started)
    logs.allow("etcd cannot be used, masters stay as they are")
    logs.allow("could not elect masters")


async def test_members_of_etcd_that_return_are_all_that_is_needed(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with over_etcd(tmp_path, error_logs) as scene:
        master = await scene.group.settled(3)
        await send(master, range(10))
        scene.etcd.kill()
        await until(lambda: not any(each.is_leading for each in scene.controllers))
        await send(master, range(10, 20))
        scene.etcd.start()
        await until(lambda: any(each.is_leading for each in scene.controllers))
        new = await scene.crash_master(master)
        assert bodies(new) == list(range(20))


async def test_an_empty_etcd_at_the_same_address_is_entered_by_the_running_brokers(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with over_etcd(tmp_path, error_logs) as scene:
        master = await scene.group.settled(3)
        await send(master, range(10))
        scene.etcd.kill()
        shutil.rmtree(scene.etcd.data)
        await send(master, range(10, 20))
        scene.etcd.start()
        await until(lambda: master.role.now.epoch > 1000)
        assert await scene.group.settled(3) is master
        await send(master, range(20, 30))
        new = await scene.crash_master(master)
        assert new is not master
        for each in scene.group.brokers:
            await caught_up(each, new)
            assert bodies(each) == list(range(30))


async def test_after_an_old_snapshot_of_etcd_the_keys_are_deleted(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with over_etcd(tmp_path, error_logs) as scene:
        master = await scene.group.settled(3)
        await send(master, range(10))
        scene.etcd.kill()
        shutil.copytree(scene.etcd.data, tmp_path / "snapshot")
        scene.etcd.start()
        await until(lambda: any(each.is_leading for each in scene.controllers))
        master = await scene.crash_master(master)
        await send(master, range(10, 20))
        epoch = master.role.now.epoch
        scene.etcd.kill()
        shutil.rmtree(scene.etcd.data)
        shutil.copytree(tmp_path / "snapshot", scene.etcd.data)
        scene.etcd.start()
        # The record knows another master, of an older epoch: nobody follows it.
        await until(lambda: any(each.is_leading for each in scene.controllers))
        await send(master, range(20, 30))
        assert (master.role.now.is_master, master.role.now.epoch) == (True, epoch)
        scene.etcd.kill()
        shutil.rmtree(scene.etcd.data)  # as the keys under the prefix, of which there are no others here
        scene.etcd.start()
        await scene.restart_controllers()
        await until(lambda: (scene.group.master() or master).role.now.epoch > 1000)
        found = await scene.group.settled(3)
        for each in scene.group.brokers:
            await caught_up(each, found)
            assert bodies(each) == list(range(30))


async def test_a_whole_cluster_is_restored_from_the_copy_of_a_replica(tmp_path: Path) -> None:
    async with controlled_group(tmp_path / "old") as group:
        for name in "abc":
            await group.start(name, **QUICK)
        master = await group.settled(3)
        await send(master, range(300))
        replica = next(each for each in group.brokers if each is not master)
        await caught_up(replica, master)
        stopped = await group.stop(replica)
        copy = tmp_path / "new" / "copy"
        shutil.copytree(group.root / stopped, copy)
        store = next(path.parent for path in copy.rglob("commitlog"))
        verified = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "pyromq", "store", "inspect", str(store), "--verify"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr
        await group.start(stopped, **QUICK)
        await group.settled(3)
    # All of it is gone now but the copy.
    async with controlled_group(tmp_path / "new") as group:
        only = await group.start("copy", **QUICK)
        session = only.replication.session
        assert session is not None
        await until(lambda: "have not offered their logs yet" in session.problem)
        leader = format_address(*group.controller.address)
        async with Cluster(group.names) as cluster:
            shown = (await controllers.replicas(cluster, [leader], ["broker-a"]))["broker-a"]
            (offered,) = shown.not_in_sync_replicas
            assert offered.broker_id is not None
            await controllers.elect_master(cluster, [leader], CLUSTER, "broker-a", offered.broker_id)
        await until(lambda: only.role.now.is_master)
        await group.start("d", **QUICK)
        await group.start("e", **QUICK)
        await until(lambda: len(members_of(only)) == 3)
        assert await group.settled(3) is only
        await send(only, range(300, 310))
        for each in group.brokers:
            await caught_up(each, only)
            assert log_of(each.store) == log_of(only.store)
            assert bodies(each) == list(range(310))


async def test_a_new_broker_that_was_first_is_removed_and_the_others_come_back_with_everything(
    tmp_path: Path,
) -> None:
    async with controlled_group(tmp_path) as group:
        for name in "abc":
            await group.start(name, **QUICK)
        master = await group.settled(3)
        await send(master, range(20))
        for each in group.brokers:
            await caught_up(each, master)
        await group.stop_all()
        store = group.controller._store
        assert isinstance(store, FileStore)
        store._stored.clear()
        new = await group.start("new", **QUICK)
        await until(lambda: new.role.now.is_master)
        first = await group.start("a", **QUICK)
        session = first.replication.session
        assert session is not None
        # Both have the id 1.
        await until(lambda: "is alive at" in session.problem)
        assert not first.role.now.is_master
        await group.stop(first)
        await group.stop(new)
        leader = format_address(*group.controller.address)
        async with Cluster(group.names) as cluster:
            await controllers.clean_metadata(
                cluster, [leader], "broker-a", cluster_name=CLUSTER, also_living=True
            )
        for name in "abc":
            await group.start(name, **QUICK)
        found = await group.settled(3)
        for each in group.brokers:
            await caught_up(each, found)
            assert bodies(each) == list(range(20))
