"""Name server, controllers and brokers, each a process on its own host; all are the classes that we ship.

A server that is down starts again when the fault that ended it is over. Whatever asks for the state of the
cluster looks into the objects of running processes, without a message.
"""

import asyncio
import json
import time
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.simulation.disk import SimulatedDisk
from tests.simulation.etcd import ETCD_PORT, EtcdData, SimulatedEtcd
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import Network, SimulatedPorts
from tests.simulation.object_store import ObjectData, SimulatedObjects
from tests.simulation.plans import Plan
from tests.simulation.processes import EPOCH_MS, Host, Process

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.controller.controller import Controller
from pyromq.controller.file_store import FileStore
from pyromq.controller.groups import GroupRecord, decode_group
from pyromq.controller.settings import ControllerSettings
from pyromq.controller.store import Stored
from pyromq.errors import PyroError
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.protocol.catalogue import CATALOGUE
from pyromq.protocol.requests.access import CreateUser, DeleteUser, UpdateUser
from pyromq.proxy.proxy import Proxy
from pyromq.proxy.settings import ProxySettings
from pyromq.remoting.program import Program
from pyromq.store.settings import StoreSettings

BROKER_NAME, CLUSTER = "group", "Simulated"
NAME_SERVER_PORT, CONTROLLER_PORT, BROKER_PORT, HA_PORT, FRONT_PORT = 9876, 9878, 10911, 10912, 8081
_CONTROLLERS = (("controller", "10.0.0.2"), ("controller2", "10.0.0.3"))
_GROUP_KEY = f"{ControllerSettings().etcd_prefix}groups/{BROKER_NAME}"
OPERATOR = ("operator", "secret")
_LIGHT: dict[str, Any] = {"light_queues": True, "multi_dispatch": True}
_TIERED: dict[str, Any] = {
    "tier_level": "NOT_IN_DISK",
    "tier_place": "/the-store",
    "tier_upkeep_interval_ms": 5000,
    "tier_orphan_hours": 1,
}
_SMALL_FILES: dict[str, Any] = {"log_segment_bytes": 16 * 1024}
_COMPACTED: dict[str, Any] = {"compaction_interval_ms": 1000, "compaction_removals_kept_hours": 0}
_SHORT_LIVED: dict[str, Any] = {
    "file_reserved_hours": 0,
    # Not in a run: a broker that was away longer than files stay has to be made anew.
    "delete_when": f"{(time.localtime(EPOCH_MS / 1000).tm_hour + 12) % 24}",
    # A file goes only when the queues that lead there are on disk.
    "queue_flush_interval_ms": 300,
    "queue_flush_least_pages": 0,
    "queue_flush_thorough_interval_ms": 1000,
}
_SIGNED = (CreateUser, UpdateUser, DeleteUser)
_USERS: dict[str, Any] = {
    "authentication": True,
    "authentication_whitelist": ",".join(
        str(code) for code, each in CATALOGUE.items() if each.request_type not in _SIGNED
    ),
    "first_user": json.dumps(dict(zip(("username", "password"), OPERATOR, strict=True))),
    # What a replica would have to sign is drawn by the operating system, not from the seed.
    "allow_unsigned_replicas": True,
    "ha_allowed_networks": "10.0.1.0/24",
    # Hosts are on a network without TLS.
    "allow_admin_without_tls": True,
}
"""Users can be made by the operator, and no other request needs one."""
_RESTART_S = 1.0
"""A program that ends by itself is started again after this time."""


class Server:
    """One server program on its host: started, killed and started again."""

    def __init__(self, host: Host, build: Callable[[Process], Program]) -> None:
        self.host = host
        self._build = build
        self.process: Process | None = None
        self.program: Program | None = None
        """The program, once it has started; None while it is down."""
        self.latest: Program | None = None
        """The same, also while it starts: a broker may be master before its start has ended."""
        self.failed_starts: list[str] = []
        self.ended: list[str] = []
        """Why it ended by itself."""
        self.started = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Server {self.host.name} {self.program!r}>"

    @property
    def disk(self) -> SimulatedDisk:
        assert self.host.disk is not None
        return self.host.disk

    @property
    def is_alive(self) -> bool:
        """Whether its process is there; it may be paused."""
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        if self.is_alive:
            self.kill()  # it took too long to stop
        self.process = self.host.start(self.host.name)
        self.process.run(self._run(self.process))

    async def _run(self, process: Process) -> None:
        while True:
            program = self.latest = self._build(process)
            try:
                await program.start()
            except (PyroError, OSError) as problem:
                self.failed_starts.append(f"{self.host.name} did not start: {problem!r}")
                await asyncio.sleep(_RESTART_S)
                continue
            self.program = program
            self.started.set()
            try:
                await program.run_until_stopped()
            except Exception as problem:
                self.ended.append(f"{self.host.name} ended: {problem!r}")
                self.host.loop.call_soon(self._start_again, process, context=Context())
            return

    def _start_again(self, process: Process) -> None:
        """It ended by itself: whoever watches over it kills what is left, and starts it again."""
        if self.process is process and not process.is_dead:
            self.kill()
            self.host.loop.call_later(_RESTART_S, self._start_unless_alive)

    def _start_unless_alive(self) -> None:
        if not self.is_alive:
            self.start()

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
        self._is_down()

    def lose_power(self) -> None:
        self.host.lose_power()
        self._is_down()

    def stop(self) -> None:
        """As an operator does it: the program saves everything and ends."""
        if self.process is not None and self.program is not None:
            self.process.run(self._stop(self.process, self.program), "stop")
            self._is_down()

    async def _stop(self, process: Process, program: Program) -> None:
        await program.stop()
        # From outside: a process cannot run on after its own end.
        process.host.loop.call_soon(process.kill, context=Context())

    def _is_down(self) -> None:
        self.program = self.latest = None
        self.started.clear()


@dataclass
class Consumer:
    """A client that may be killed, because another one takes its place."""

    process: Process
    start: Callable[[], Process]

    def start_again(self) -> None:
        if self.process.is_dead:
            self.process = self.start()


class SimulatedCluster:
    def __init__(self, plan: Plan, loop: SimulatedLoop, network: Network, root: Path) -> None:
        self.plan = plan
        self.loop = loop
        self.network = network
        self._root = root
        self.names = Server(self._host("names", "10.0.0.1"), self._name_server)
        uses_etcd = plan.has_controller and plan.controllers == "etcd"
        self.etcd_data = EtcdData()
        self._decoded: tuple[tuple[int, bytes] | None, GroupRecord | None] = None, None
        self._journaled: tuple[Program | None, dict[str, Stored]] = None, {}
        """The controller that runs, and what its journal has."""
        self.etcd = Server(self._host("etcd", "10.0.0.9"), self._etcd) if uses_etcd else None
        self.controllers = [
            Server(self._host(name, address), self._controller)
            for name, address in _CONTROLLERS[: 0 if not plan.has_controller else 2 if uses_etcd else 1]
        ]
        self.brokers = [
            Server(self._host(f"b{number}", f"10.0.1.{number}"), self._broker)
            for number in range(1, plan.replicas + 1)
        ]
        has_front = any(load.kind == "fronted" for load in plan.loads)
        self.front = (
            Server(self._host("front", "10.0.0.5", has_disk=False), self._front) if has_front else None
        )
        self.object_data = ObjectData(loop, Random(f"{plan.seed}/object store"))
        self._object_store = self._host("objects", "10.0.0.8", has_disk=False) if plan.has_tier else None
        self.wiped_s = 0.0
        """When the controllers lost their store last."""
        self._clients = self._lone = 0
        self.consumers: list[Consumer] = []
        self.chance = Random(f"{plan.seed}/faults")

    @property
    def name_server_address(self) -> str:
        return f"{self.names.host.address}:{NAME_SERVER_PORT}"

    @property
    def servers(self) -> list[Server]:
        etcd = [self.etcd] if self.etcd is not None else []
        front = [self.front] if self.front is not None else []
        return [self.names, *etcd, *self.controllers, *self.brokers, *front]

    def _host(self, name: str, address: str, *, has_disk: bool = True) -> Host:
        host = Host(self.loop, name, address, self.plan.seed)
        if has_disk:
            chance = Random(f"{self.plan.seed}/disk of {name}")
            host.disk = SimulatedDisk(self._root / name, chance, self.loop)
        self.network.add_host(host)
        return host

    def client(self, name: str) -> Process:
        """A process for a client, on a host of its own."""
        self._clients += 1
        return self._host(name, f"10.0.2.{self._clients}", has_disk=False).start(name)

    def lone_broker(self, name: str) -> Server:
        """A broker of another name, without replicas. Only its own clients use it: it takes no new topics."""
        role = {"broker_name": name, "broker_role": "ASYNC_MASTER", "auto_create_topics": False}
        self._lone += 1
        host = self._host(name, f"10.0.3.{self._lone}")
        return Server(host, lambda process: self._broker(process, role))

    # Programs

    def _name_server(self, process: Process) -> NameServer:
        directory = self._root / process.host.name
        return NameServer(
            NameServerSettings(
                bind_address=process.host.address,
                listen_port=NAME_SERVER_PORT,
                kv_config_path=directory / "kvConfig.json",
                config_store_path=directory / "namesrv.properties",
            ),
            clock=process.host.clock,
            files=process.host.files,
            ports=SimulatedPorts(self.network, process),
        )

    def _etcd(self, process: Process) -> SimulatedEtcd:
        return SimulatedEtcd(self.etcd_data, self.network, process)

    def _controller(self, process: Process) -> Controller:
        directory = self._root / process.host.name
        etcd = f"http://{self.etcd.host.address}:{ETCD_PORT}" if self.etcd is not None else ""
        return Controller(
            ControllerSettings(
                self_id=process.host.name,
                store_kind="etcd" if etcd else "file",
                etcd_endpoints=etcd,
                bind_address=process.host.address,
                listen_port=CONTROLLER_PORT,
                store_path=directory / "controller",
                config_store_path=directory / "controller.properties",
                **self.plan.controller_settings,
            ),
            clock=process.host.clock,
            files=process.host.files,
            ports=SimulatedPorts(self.network, process),
        )

    def _front(self, process: Process) -> Proxy:
        return Proxy(
            ProxySettings(
                bind_address=process.host.address,
                listen_port=FRONT_PORT,
                namesrv_addr=self.name_server_address,
                tls_mode="disabled",
                min_polling_ms=100,
                send_timeout_ms=6000,
                default_invisible_ms=15_000,
                shutdown_wait_seconds=2,
                log_dir=None,
            ),
            clock=process.host.clock,
            ports=SimulatedPorts(self.network, process),
        )

    def _broker(self, process: Process, role: dict[str, Any] | None = None) -> Broker:
        host = process.host
        settings: dict[str, Any] = {
            "broker_name": BROKER_NAME,
            "broker_cluster_name": CLUSTER,
            "broker_ip1": host.address,
            "bind_address": host.address,
            "listen_port": BROKER_PORT,
            "ha_listen_port": HA_PORT,
            "namesrv_addr": self.name_server_address,
            "fast_failure": False,
            "log_dir": None,
            "metrics_exporter": "DISABLE",
            "transaction_timeout_ms": 2000,
            "transaction_check_interval_ms": 3000,
            **(_USERS if any(load.kind == "tables" for load in self.plan.loads) else {}),
            **(_TIERED if self.plan.has_tier and role is None else {}),
            **(self._role_of(host) if role is None else role),
            **self.plan.broker_settings,
        }
        stored: dict[str, Any] = {
            "root": self._root / host.name / "store",
            "log_segment_bytes": 64 * 1024,
            "queue_file_bytes": 4000,
            "index_slots": 100,
            "index_units": 400,
            "timer_wheel_slots": 1024,
            "timer_log_file_bytes": 64 * 1024,
            "flush_disk_type": self.plan.flush,
            "disk_warning_percent": 100,
            # Otherwise a full disk deletes old messages to make room, as documented.
            "clean_forcibly": False,
            **(_LIGHT if any(load.kind == "light" for load in self.plan.loads) else {}),
            **(_COMPACTED if any(load.kind == "compacted" for load in self.plan.loads) else {}),
            **(_SMALL_FILES if self.plan.has_tier or self.plan.removes_files else {}),
            **(_SHORT_LIVED if self.plan.removes_files else {}),
            **self.plan.store_settings,
        }
        return Broker(
            BrokerConfiguration(BrokerSettings(**settings), StoreSettings(**stored)),
            clock=host.clock,
            files=host.files,
            ports=SimulatedPorts(self.network, process),
            objects=self._objects(process) if role is None else None,
        )

    def _objects(self, process: Process) -> SimulatedObjects | None:
        store = self._object_store
        return SimulatedObjects(self.object_data, store, self.network, process) if store is not None else None

    def _role_of(self, host: Host) -> dict[str, Any]:
        if self.controllers:
            addresses = (f"{each.host.address}:{CONTROLLER_PORT}" for each in self.controllers)
            return {
                "controller_mode": True,
                "controller_addr": ";".join(addresses),
                "all_in_sync": True,
                "min_in_sync_replicas": min(2, self.plan.replicas),
            }
        number = int(host.name[1:]) - 1
        if not number:
            return {"broker_role": "SYNC_MASTER", "in_sync_replicas": self.plan.replicas}
        return {"broker_role": "SLAVE", "broker_id": number}

    # The state

    def running(self) -> list[Broker]:
        return [each.program for each in self.brokers if isinstance(each.program, Broker)]

    def broker(self, server: Server) -> Broker | None:
        return server.program if isinstance(server.program, Broker) else None

    def master(self) -> Server | None:
        """The running broker that is master, of the latest epoch."""
        masters = [
            (broker.role.now.epoch, server)
            for server in self.brokers
            if (broker := self.broker(server)) is not None and broker.role.now.is_master
        ]
        return max(masters, key=lambda each: each[0], default=(0, None))[1]

    def in_sync(self) -> int:
        """How many brokers the present master counts as in sync."""
        master = self.master()
        broker = self.broker(master) if master is not None else None
        if broker is None:
            return 0
        side = broker.replication.master
        if isinstance(side, InSyncMaster):
            return len(side.in_sync.members) if side.in_sync is not None else 0
        return 1 + sum(side.is_in_sync(link) for link in side.links)

    def candidates(self, group: GroupRecord) -> list[Server]:
        """The running brokers of which the controller may make any the next master, as it has decided."""
        in_sync = {group.replicas[each].address for each in group.sync_set}
        return [
            server
            for server in self.brokers
            if (broker := self.broker(server)) is not None
            and f"{server.host.address}:{BROKER_PORT}" in in_sync
            and broker.role.now.epoch == group.master_epoch
        ]

    @property
    def is_whole(self) -> bool:
        """All brokers are in sync, and the controllers have a record of it."""
        if self.in_sync() != self.plan.replicas:
            return False
        group = self.recorded_group()
        return not self.controllers or (group is not None and len(group.sync_set) == self.plan.replicas)

    def recorded_group(self) -> GroupRecord | None:
        """What the controllers have stored for good."""
        if self.etcd is not None:
            found = self.etcd_data.value(_GROUP_KEY)
            if found != self._decoded[0]:
                self._decoded = found, decode_group(found[1]) if found is not None else None
            return self._decoded[1]
        program = self.controllers[0].program if self.controllers else None
        if program is not self._journaled[0]:
            store = program._store if isinstance(program, Controller) else None
            self._journaled = program, store._stored if isinstance(store, FileStore) else {}
        stored = self._journaled[1].get(BROKER_NAME)
        return stored.group if stored is not None else None

    def target(self, which: str) -> Server | None:
        """The master, or one of the replicas; if there is no master, any broker that is alive."""
        master = self.master()
        alive = [each for each in self.brokers if each.is_alive]
        others = [each for each in alive if each is not master]
        if which == "replica" and others:
            return self.chance.choice(others)
        return master if master is not None else self.chance.choice(alive) if alive else None

    def leading(self) -> list[Server]:
        """The controllers that lead as far as they know: at most one."""
        return [
            each
            for each in self.controllers
            if isinstance(each.program, Controller) and each.program.is_leading
        ]

    def wipe_controllers(self) -> None:
        """All that was decided is lost; the controllers go on with an empty store."""
        self.etcd_data.wipe()
        self.wiped_s = self.loop.time()
        if self.etcd is None:
            for each in self.controllers:
                each.kill()
                each.disk.wipe()
                each.start()

    def broker_hosts(self) -> list[Host]:
        return [each.host for each in self.brokers]

    def state(self) -> str:
        """For people."""
        parts = []
        for server in self.brokers:
            broker = self.broker(server)
            if broker is None:
                parts.append(f"{server.host.name} down {server.failed_starts[-1:]}")
            else:
                role, end = broker.role.now, broker.store.log.end
                kind = "master" if role.is_master else f"replica {role.broker_id}"
                problem = broker.replication.problem
                parts.append(f"{server.host.name} {kind} epoch {role.epoch} log {end} {problem}".strip())
        return f"{self.in_sync()} in sync ({'; '.join(parts)})"

    async def whole(self, timeout_s: float) -> bool:
        """Wait until all brokers are in sync; whether they are."""
        return await self.until(lambda: self.is_whole, timeout_s)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        deadline = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() > deadline:
                return False
            await asyncio.sleep(0.05)
        return True

    def start_all(self) -> None:
        for server in self.servers:
            server.start()
