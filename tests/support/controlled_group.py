"""Brokers of one name under a controller, in this process, with the name server that clients ask."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_cluster import running_broker
from tests.support.controlled_brokers import controller
from tests.support.name_servers import name_server
from tests.support.replicas import until

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.controller.controller import Controller
from pyromq.nameserver.nameserver import NameServer
from pyromq.remoting.addresses import format_address


class ControlledGroup:
    def __init__(self, root: Path, names: NameServer, leader: Controller, *others: Controller) -> None:
        self.root = root
        self.names = format_address(*names.address)
        self.controller = leader
        self._controllers = ";".join(format_address(*each.address) for each in (leader, *others))
        self._running: dict[str, tuple[Broker, AsyncExitStack]] = {}

    @property
    def brokers(self) -> list[Broker]:
        return [broker for broker, _ in self._running.values()]

    async def start(self, directory: str, **settings: Any) -> Broker:
        """Start a broker; the same directory again is a restart."""
        stack = AsyncExitStack()
        chosen: dict[str, Any] = {
            "controller_mode": True,
            "controller_addr": self._controllers,
            "namesrv_addr": self.names,
            "heartbeat_interval_ms": 200,
            "all_in_sync": True,
        }
        broker = await stack.enter_async_context(running_broker(self.root / directory, **chosen | settings))
        self._running[directory] = broker, stack
        return broker

    async def crash(self, broker: Broker) -> str:
        """End a broker as a kill would; returns its directory."""
        directory = next(key for key, (each, _) in self._running.items() if each is broker)
        _, stack = self._running.pop(directory)
        await broker.abandon()
        await stack.aclose()
        return directory

    async def stop(self, broker: Broker) -> str:
        directory = next(key for key, (each, _) in self._running.items() if each is broker)
        _, stack = self._running.pop(directory)
        await stack.aclose()
        return directory

    async def stop_all(self) -> None:
        for broker in self.brokers:
            await self.stop(broker)

    def master(self) -> Broker | None:
        """Whoever has been master for the fewest epochs."""
        masters = [each for each in self.brokers if each.role.now.is_master]
        return max(masters, key=lambda each: each.role.now.epoch, default=None)

    async def settled(self, in_sync: int) -> Broker:
        """Wait until there is a master and so many brokers are in sync and connected to it; returns it."""

        def is_settled() -> bool:
            master = self.master()
            return master is not None and len(members_of(master)) == in_sync and is_in_touch(master)

        await until(is_settled)
        found = self.master()
        assert found is not None
        return found


def side_of(broker: Broker) -> InSyncMaster:
    master = broker.replication.master
    assert isinstance(master, InSyncMaster)
    return master


def is_in_touch(master: Broker) -> bool:
    """Whether all in sync have reported to it: after an election they are about to come."""
    in_sync = side_of(master).in_sync
    return in_sync is not None and len(in_sync.members - in_sync.reports.keys()) == 1


def members_of(broker: Broker) -> frozenset[int]:
    in_sync = side_of(broker).in_sync
    return in_sync.members if in_sync is not None else frozenset()


async def all_reported(master: Broker, replicas: int) -> None:
    """So many replicas have said that they have the whole log: whoever does not join now never does."""

    def have_all() -> bool:
        links = side_of(master).links
        return len(links) == replicas and all(
            each.is_started and each.acknowledged == master.store.log.end for each in links
        )

    await until(have_all)


@asynccontextmanager
async def controlled_group(root: Path, **settings: Any) -> AsyncIterator[ControlledGroup]:
    """`settings` are those of the controller."""
    async with name_server(root / "names") as names, controller(root, **settings) as leader:
        group = ControlledGroup(root, names, leader)
        try:
            yield group
        finally:
            await group.stop_all()
