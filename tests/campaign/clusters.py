"""The clusters that the campaign breaks, each with settings under which nothing acknowledged may be lost."""

import asyncio
import itertools
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from tests.campaign.apache_party import ApacheParty
from tests.campaign.disks import Disk
from tests.campaign.etcd_party import EtcdParty
from tests.campaign.history import Log
from tests.campaign.load import TOPIC
from tests.campaign.network import OWN_HOST, RELAYED_HOST, Network
from tests.campaign.parties import START_TIMEOUT_S, Party
from tests.campaign.plans import Shape
from tests.campaign.side_load import SIDE_TOPIC
from tests.support.broker_cluster import BROKER_NAME, BROKER_PORTS, BrokerClient, configuration
from tests.support.replicas import log_of

from pyromq.errors import PyroError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.controller import GetControllerMetadata, GetReplicaInfo
from pyromq.protocol.requests.inspection import GetBrokerRuntimeInfo
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer
from pyromq.store.message_store import MessageStore
from pyromq.testing.held_ports import held_port

QUEUES = 3
_DISK_MIB = 128
_CALL_S = 2.0
_LOOK_S = 0.05
_SCRUB_LOOK_S = 0.5
_LEASE_S = 4

A = TypeVar("A", bound=Answer)

_STORE: Mapping[str, Any] = {
    "log_segment_bytes": 1 << 20,
    "queue_file_bytes": 20_000,
    "timer_log_file_bytes": 16_384,
    "flush_interval_ms": 100,
    "queue_flush_interval_ms": 200,
    # A full disk must not make the broker delete what is being counted.
    "clean_forcibly": False,
    "disk_max_used_percent": 95,
    "disk_clean_forcibly_percent": 100,
    "disk_warning_percent": 100,
}
_TRANSACTIONS: Mapping[str, Any] = {
    "transaction_timeout_ms": 500,
    "transaction_check_interval_ms": 200,
    "transaction_op_interval_ms": 200,
    # Longer than any fault: nothing is given up.
    "transaction_check_max": 10**6,
}
_HURRIED: Mapping[str, Any] = {
    "not_active_timeout_ms": 3000,
    "replica_timeout_ms": 1000,
    "ha_silence_ms": 5000,
    "ha_heartbeat_ms": 1000,
    "connect_timeout_ms": 1000,
    "controller_timeout_ms": 3000,
    "controller_poll_ms": 1000,
    "leader_poll_ms": 2000,
    "replica_max_behind_ms": 2000,
    "in_sync_check_ms": 500,
    "heartbeat_interval_ms": 500,
}
_HURRIED_CONTROLLER: Mapping[str, Any] = {
    "scan_interval_ms": 500,
    "scan_masters_interval_ms": 500,
    "unheard_broker_timeout_ms": 3000,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """What brokers a cluster has; `flush` and the settings of each of them."""

    what: str
    flush: str
    brokers: tuple[Mapping[str, Any], ...]
    name_servers: int = 1
    controllers: int = 0
    is_hurried: bool = True
    """Whether its brokers wait for seconds where the defaults are tens of seconds."""
    is_relayed: bool = True
    """Whether its network can be broken; the relay takes part of the machine."""
    has_side: bool = True
    """Whether transactions and timed messages ride along."""
    is_asked_for: bool = False
    """Whether it runs only if somebody names it."""
    party: Callable[..., Party] = Party
    """How name servers, controllers and brokers run."""


APACHES: Mapping[str, Any] = {"is_apache": True}
"""A broker of Apache; its settings are in `apache_party`."""

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
        ({"controller_mode": True, "all_in_sync": True, "min_in_sync_replicas": 2},) * 3,
        controllers=1,
    ),
    "etcd": Kind(
        "the same under three controllers that share an etcd",
        "ASYNC_FLUSH",
        ({"controller_mode": True, "all_in_sync": True, "min_in_sync_replicas": 2},) * 3,
        controllers=3,
    ),
    "mixed": Kind(
        "two brokers and one of Apache's under a controller of ours",
        "ASYNC_FLUSH",
        (*({"controller_mode": True, "all_in_sync": True, "min_in_sync_replicas": 2},) * 2, APACHES),
        controllers=1,
        has_side=False,
        is_asked_for=True,
    ),
}
COMMON_KINDS = [name for name, kind in KINDS.items() if not kind.is_asked_for]


def calm(kind: Kind) -> Kind:
    """The same cluster as users have it: with the defaults of all timings, and no relay in between."""
    return replace(kind, is_hurried=False, is_relayed=False)


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
        self._dialer = Dialer()

    @property
    def shape(self) -> Shape:
        def of(kind: str) -> tuple[str, ...]:
            return tuple(name for name, party in self.parties.items() if party.kind == kind)

        return Shape(
            brokers=of("broker"),
            name_servers=of("namesrv"),
            controllers=of("controller"),
            etcds=of("etcd"),
            small_disks=all(disk.is_mounted for disk in self.disks.values()),
            own_disks=APACHES not in self._kind.brokers,
        )

    @property
    def _host(self) -> str:
        """Where the parties find each other."""
        return RELAYED_HOST if self._kind.is_relayed else OWN_HOST

    def _addresses(self, names: Iterable[str]) -> list[str]:
        return [f"{self._host}:{self._ports[name]}" for name in names]

    @property
    def namesrv(self) -> str:
        return ";".join(self._addresses(self.shape.name_servers))

    async def prepare(self, stack: AsyncExitStack) -> None:
        """Take ports and disks, and start everything; the stack gives all of it back."""
        kind = self._kind
        stack.push_async_callback(self.network.close)
        stack.push_async_callback(self._end)
        stack.push_async_callback(self._dialer.close)
        for number in range(kind.name_servers):
            port = self._take_port(stack, name := f"names{number}")
            self._add(name, "namesrv", bind_address=OWN_HOST, listen_port=port)
        names = [f"controller{number}" for number in range(kind.controllers)]
        for name in names:
            self._take_port(stack, name)
        controllers = self._addresses(names)
        decisions = self._add_etcd(stack) if kind.controllers > 1 else {}
        for number, name in enumerate(names):
            peers = ";".join(f"n{each}-{address}" for each, address in enumerate(controllers))
            hurry = _HURRIED_CONTROLLER if kind.is_hurried else {}
            self._add(name, "controller", self_id=f"n{number}", peers=peers, **hurry, **decisions)
        for number, settings in enumerate(kind.brokers):
            port = self._take_port(stack, name := f"broker{number}", BROKER_PORTS)
            disk = self.disks[name] = Disk(self._directory / name, _DISK_MIB)
            disk.mount()
            if settings is APACHES:
                self._add_apache(stack, name, port, ";".join(controllers))
                continue
            chosen: dict[str, Any] = {
                "bind_address": OWN_HOST,
                "broker_ip1": self._host,
                "broker_ip2": self._host,
                "namesrv_addr": self.namesrv,
                "listen_port": port,
                "store": self._store(),
                **({"controller_addr": ";".join(controllers)} if controllers else {}),
                **_TRANSACTIONS,
                **(_HURRIED if kind.is_hurried else {}),
            }
            self._add(name, "broker", **{**chosen, **settings})
        if kind.is_relayed:
            for name, port in self._ports.items():
                party = self.parties[name]
                has_ha_port = party.kind == "broker" and not isinstance(party, ApacheParty)
                await self.network.listen(name, port, *([port + 1] if has_ha_port else []))
        for others in ("etcd", "namesrv", "controller", "broker"):
            await asyncio.gather(*(each.start() for each in self.parties.values() if each.kind == others))
        await self._create_topic()

    def _take_port(self, stack: AsyncExitStack, name: str, distances: Sequence[int] = (0,)) -> int:
        self._ports[name] = stack.enter_context(held_port(distances))
        return self._ports[name]

    def _add_apache(self, stack: AsyncExitStack, name: str, port: int, controllers: str) -> None:
        party = self.parties[name] = ApacheParty(
            *(name, self._directory / name, self.network),
            port=port,
            host=self._host,
            names=self.namesrv,
            controllers=controllers,
            is_hurried=self._kind.is_hurried,
        )
        stack.callback(shutil.rmtree, party.broker.home, ignore_errors=True)

    def _add_etcd(self, stack: AsyncExitStack) -> dict[str, Any]:
        """An etcd, and the settings of the controllers that keep their decisions in it."""
        name, peer_port = "etcd0", stack.enter_context(held_port())
        port = self._take_port(stack, name)
        self.parties[name] = EtcdParty(name, self._directory / name, self.network, port, peer_port)
        return {
            "store_kind": "etcd",
            "etcd_endpoints": f"http://{self._host}:{port}",
            "etcd_lease_seconds": _LEASE_S,
        }

    def _add(self, name: str, kind: str, **settings: Any) -> None:
        self.parties[name] = self._kind.party(name, kind, self._directory / name, self.network, **settings)

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
        try:
            route = (await self._dialer.call(address, GetRoute(topic=TOPIC), _CALL_S)).body
            return self._broker_at(route.broker_datas[0].broker_addrs[0])
        except (PyroError, LookupError):
            return self.shape.brokers[0]

    def _broker_at(self, address: str | None) -> str:
        """Raises LookupError."""
        return {f"{self._host}:{self._ports[name]}": name for name in self.shape.brokers}[address or ""]

    async def find_leader(self) -> str:
        """The controller that leads; the first one if none does."""
        for name in self.shape.controllers:
            with suppress(PyroError):
                answer = await self._ask(name, GetControllerMetadata())
                if answer.is_leader:
                    return name
        return self.shape.controllers[0]

    async def wait_in_sync(self) -> str:
        """Until the controllers say that every broker is in sync; returns the master."""
        while True:
            with suppress(PyroError, LookupError):
                question = GetReplicaInfo(broker_name=BROKER_NAME)
                found = await self._ask(await self.find_leader(), question)
                if len(found.body.sync_state_set) == len(self.shape.brokers):
                    return self._broker_at(found.master_address)
            await asyncio.sleep(_LOOK_S)

    async def wait_whole(self) -> None:
        """Until every broker that may become master has everything, and nothing in its log is damaged."""
        if self.shape.controllers:
            await self.wait_in_sync()
            while not await self._are_same(await self._log_ends()):  # noqa: ASYNC110
                await asyncio.sleep(_SCRUB_LOOK_S)

    async def _ask(self, name: str, question: Request[A]) -> A:
        return await self._dialer.call(f"{OWN_HOST}:{self._ports[name]}", question, _CALL_S)

    # How a round ends

    async def wait_ended(self) -> None:
        """Until no transaction is open, and that is in the log."""
        while await self._info(await self.find_master(), "halfMessageCount") != "0":  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await asyncio.sleep(2 * _TRANSACTIONS["transaction_op_interval_ms"] / 1000)

    async def wait_equal(self) -> None:
        """Until every broker has the whole log, and has repaired what was damaged; nobody writes any more."""
        ends: set[int] = set()
        while len(ends) != 1 or min(ends) < 0:
            await asyncio.sleep(0.1)
            ends = await self._log_ends()
        (self._equal_end,) = ends
        while not await self._are_same(ends):  # noqa: ASYNC110
            await asyncio.sleep(_SCRUB_LOOK_S)

    async def _log_ends(self) -> set[int]:
        return {await self._log_end(name) for name in self.shape.brokers}

    async def _are_same(self, ends: set[int]) -> bool:
        """Whether the logs agree as far as all brokers have them. A broker finds damage when it scrubs its
        log, ten seconds after its start."""

        def digest(name: str) -> bytes:
            files = sorted((self._directory / name / "store" / "commitlog").iterdir())
            return sha256(b"".join(file.read_bytes() for file in files)[: min(ends)]).digest()

        def digests() -> set[bytes]:
            return set(map(digest, self.shape.brokers))

        return min(ends) >= 0 and len(await asyncio.to_thread(digests)) == 1

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
        for kind in ("broker", "controller", "namesrv", "etcd"):
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
        for message in itertools.chain.from_iterable(map(decode_records, views)):  # a view may have several
            found[message.queue_offset] = message.body.rstrip().decode()
        offset = max(found) + 1
    return found


@asynccontextmanager
async def running_cluster(directory: Path, kind: Kind) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        cluster = Cluster(directory, kind)
        await cluster.prepare(stack)
        yield cluster
