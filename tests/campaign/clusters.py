"""The clusters that the campaign breaks, each with settings under which nothing acknowledged may be lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.history import Log
from tests.campaign.load import TOPIC
from tests.campaign.network import OWN_HOST, RELAYED_HOST, Network
from tests.campaign.parties import START_TIMEOUT_S, Disk, Party
from tests.campaign.plans import Shape
from tests.campaign.side_load import SIDE_TOPIC
from tests.support.broker_cluster import BROKER_PORTS, BrokerClient, configuration
from tests.support.replicas import log_of

from pyromq.errors import PyroError
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer
from pyromq.store.message_store import MessageStore
from pyromq.testing.held_ports import held_port

QUEUES = 3
_DISK_MIB = 128
_CALL_S = 2.0

_STORE: Mapping[str, Any] = {
    "log_segment_bytes": 1 << 20,
    "queue_file_bytes": 20_000,
    "timer_log_file_bytes": 16_384,
    "flush_interval_ms": 100,
    "queue_flush_interval_ms": 200,
    # A full disk must not make the broker delete what is being counted.
    "disk_max_used_percent": 95,
    "disk_clean_forcibly_percent": 100,
    "disk_warning_percent": 100,
}
_BROKER: Mapping[str, Any] = {
    "bind_address": OWN_HOST,
    "broker_ip1": RELAYED_HOST,
    "broker_ip2": RELAYED_HOST,
    "not_active_timeout_ms": 3000,
    "replica_timeout_ms": 1000,
    "ha_silence_ms": 5000,
    "ha_heartbeat_ms": 1000,
    "connect_timeout_ms": 1000,
    "transaction_timeout_ms": 500,
    "transaction_check_interval_ms": 200,
    "transaction_op_interval_ms": 200,
    # Longer than any fault: nothing is given up.
    "transaction_check_max": 10**6,
}


_QUICK: Mapping[str, Any] = {
    "controller_timeout_ms": 3000,
    "controller_poll_ms": 1000,
    "leader_poll_ms": 2000,
    "replica_max_behind_ms": 2000,
    "in_sync_check_ms": 500,
    "heartbeat_interval_ms": 500,
}
"""Under a controller: seconds instead of tens of seconds, so that a round has many fail-overs."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What brokers a cluster has; `flush` and the settings of each of them."""

    what: str
    flush: str
    brokers: tuple[Mapping[str, Any], ...]
    name_servers: int = 1
    has_controller: bool = False


KINDS = {
    "single": Kind("one broker, SYNC_FLUSH", "SYNC_FLUSH", ({},)),
    "pair": Kind(
        "SYNC_MASTER with one replica, inSyncReplicas=2",
        "ASYNC_FLUSH",
        ({"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}, {"broker_role": "SLAVE", "broker_id": 1}),
        name_servers=2,
    ),
    "group": Kind(
        "three brokers under a controller, allAckInSyncStateSet, minInSyncReplicas=2",
        "ASYNC_FLUSH",
        ({"controller_mode": True, "all_in_sync": True, "min_in_sync_replicas": 2, **_QUICK},) * 3,
        has_controller=True,
    ),
}


class Cluster:
    """The parties of a running cluster, by name."""

    def __init__(self, directory: Path, kind: Kind) -> None:
        self.network = Network()
        self.parties: dict[str, Party] = {}
        self.disks: dict[str, Disk] = {}
        self._directory = directory
        self._kind = kind
        self._ports: dict[str, int] = {}
        self._equal_end = 0

    @property
    def shape(self) -> Shape:
        def of(kind: str) -> tuple[str, ...]:
            return tuple(name for name, party in self.parties.items() if party.kind == kind)

        return Shape(
            brokers=of("broker"),
            name_servers=of("namesrv"),
            controllers=of("controller"),
            small_disks=all(disk.is_mounted for disk in self.disks.values()),
        )

    @property
    def namesrv(self) -> str:
        return ";".join(f"{RELAYED_HOST}:{self._ports[name]}" for name in self.shape.name_servers)

    async def prepare(self, stack: AsyncExitStack) -> None:
        """Take ports and disks, and start everything; the stack gives all of it back."""
        stack.push_async_callback(self.network.close)
        stack.push_async_callback(self._end)
        for number in range(self._kind.name_servers):
            port = self._ports[f"names{number}"] = stack.enter_context(held_port())
            self._add(f"names{number}", "namesrv", bind_address=OWN_HOST, listen_port=port)
        controller: dict[str, Any] = {}
        if self._kind.has_controller:
            port = self._ports["controller0"] = stack.enter_context(held_port())
            controller = {"controller_addr": f"{RELAYED_HOST}:{port}"}
            self._add(
                "controller0",
                "controller",
                peers=f"n0-{controller['controller_addr']}",
                scan_interval_ms=500,
                scan_masters_interval_ms=500,
                unheard_broker_timeout_ms=3000,
            )
        for number, settings in enumerate(self._kind.brokers):
            name = f"broker{number}"
            port = self._ports[name] = stack.enter_context(held_port(BROKER_PORTS))
            disk = self.disks[name] = Disk(self._directory / name, _DISK_MIB)
            disk.mount()
            common = {"namesrv_addr": self.namesrv, "listen_port": port, "store": self._store()}
            self._add(name, "broker", **_BROKER, **common, **controller, **settings)
        for name, port in self._ports.items():
            is_broker = self.parties[name].kind == "broker"
            await self.network.listen(name, port, *([port + 1] if is_broker else []))
        await asyncio.gather(*(party.start() for party in self.parties.values() if party.kind != "broker"))
        await asyncio.gather(*(party.start() for party in self.parties.values() if party.kind == "broker"))
        await self._create_topic()

    def _add(self, name: str, kind: str, **settings: Any) -> None:
        self.parties[name] = Party(name, kind, self._directory / name, self.network, **settings)

    def _store(self) -> dict[str, Any]:
        return {**_STORE, "flush_disk_type": self._kind.flush}

    async def _create_topic(self) -> None:
        """At the master, whoever that is."""
        async with asyncio.timeout(START_TIMEOUT_S):
            while True:
                for name in self.shape.brokers:
                    async with BrokerClient((OWN_HOST, self._ports[name])) as client:
                        try:
                            await client.create_topic(TOPIC, QUEUES)
                            return await client.create_topic(SIDE_TOPIC, 1)
                        except PyroError:
                            await asyncio.sleep(0.1)

    async def _end(self) -> None:
        for party in self.parties.values():
            await party.kill()
        for disk in self.disks.values():
            disk.unmount()

    async def find_master(self) -> str:
        """The broker that name servers show as master; the first one if they show none."""
        address = f"{OWN_HOST}:{self._ports[self.shape.name_servers[0]]}"
        dialer = Dialer()
        try:
            route = (await dialer.call(address, GetRoute(topic=TOPIC), _CALL_S)).body
            found = route.broker_datas[0].broker_addrs[0]
        except (PyroError, LookupError):
            found = ""
        finally:
            await dialer.close()
        by_address = {f"{RELAYED_HOST}:{self._ports[name]}": name for name in self.shape.brokers}
        return by_address.get(found, self.shape.brokers[0])

    # How a round ends

    async def wait_ended(self) -> None:
        """Until no transaction is open, and that is in the log."""
        while await self._info(await self.find_master(), "halfMessageCount") != "0":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * _BROKER["transaction_op_interval_ms"] / 1000)

    async def wait_equal(self) -> None:
        """Until every broker has the whole log; nobody writes any more."""
        ends: set[int] = set()
        while len(ends) != 1 or min(ends) < 0:
            await asyncio.sleep(0.1)
            ends = {await self._log_end(name) for name in self.shape.brokers}
        (self._equal_end,) = ends

    async def _log_end(self, name: str) -> int:
        """Where the log of a broker ends; a number that no other has if it does not say."""
        end = await self._info(name, "commitLogMaxOffset")
        return -2 - self.shape.brokers.index(name) if end is None else int(end)

    async def _info(self, name: str, key: str) -> str | None:
        """What a broker tells about itself; None if it does not."""
        try:
            async with BrokerClient((OWN_HOST, self._ports[name])) as client:
                info = await client.call(GetBrokerRuntimeInfo(), _CALL_S)
        except PyroError:
            return None
        return info.body.table.get(key)

    async def stop(self) -> None:
        for kind in ("broker", "controller", "namesrv"):
            await asyncio.gather(*(party.stop() for party in self.parties.values() if party.kind == kind))

    def stored(self) -> tuple[dict[str, Log], dict[str, Counter[str]], list[str]]:
        """What the stopped brokers hold, how often they hold the side load, and what is wrong with it."""
        logs: dict[str, Log] = {}
        copies: dict[str, Counter[str]] = {}
        raw: dict[str, bytes] = {}
        for name in self.shape.brokers:
            settings = configuration(self._directory / name / "store", store=self._store()).store
            with MessageStore.open(settings) as store:
                logs[name] = {queue: _messages(store, TOPIC, queue) for queue in range(QUEUES)}
                copies[name] = Counter(_messages(store, SIDE_TOPIC, 0).values())
                # A master that stops may still record which transactions have ended.
                raw[name] = log_of(store)[: self._equal_end]
        first = self.shape.brokers[0]
        wrong = [
            f"the logs of {first} and {name} are not the same bytes"
            for name, log in raw.items()
            if log != raw[first]
        ]
        return logs, copies, wrong


def _messages(store: MessageStore, topic: str, queue: int) -> dict[int, str]:
    found: dict[int, str] = {}
    offset = 0
    while views := store.read(topic, queue, offset, 32).views:
        for view in views:
            message = decode_record(view)
            found[message.queue_offset] = message.body.rstrip().decode()
        offset = max(found) + 1
    return found


@asynccontextmanager
async def running_cluster(directory: Path, kind: Kind) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(directory, kind)
        await cluster.prepare(stack)
        yield cluster
