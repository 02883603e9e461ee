"""A whole cluster in one process: a name server and brokers, without any configuration.

With replicas there is a controller, too, which makes another broker of a group the master when it loses its
master.
"""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.clock import Clock
from pyromq.cluster.local_address import local_address
from pyromq.controller.controller import Controller
from pyromq.controller.settings import ControllerSettings
from pyromq.errors import ConfigError, StateError
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.remoting.addresses import format_address
from pyromq.remoting.in_process import Find
from pyromq.remoting.server import Server
from pyromq.store.settings import StoreSettings

if TYPE_CHECKING:
    from pyromq.proxy.proxy import Proxy

LOG_SEGMENT_BYTES = 64 * 1024 * 1024
"""Small enough for a laptop: a log file takes its full size on disk from the start."""

PULL_MESSAGES, PULL_BYTES = 8192, 4 * 1024 * 1024
"""The maximum of one pull, for Spark, which asks for that much; ordinary consumers ask for 32 messages."""

_SHUTDOWN_S = 5
_IN_SYNC_TIMEOUT_S = 60.0
_TICK_S = 0.01
_PORTS_BETWEEN_BROKERS = 10
_EVERYWHERE = ("", "0.0.0.0", "::")
_BROKERS, _REPLICAS = range(1, 27), range(1, 10)
"""Names end with the alphabet; the command `pyromq standalone` has the same limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """The settings of a standalone cluster; the system chooses a port of 0.

    `servers`, `name_server`, `broker` and `store_settings` take any other setting by its name in Python;
    `servers` are those of every server. Each of several brokers has its own port and directory. There are
    `brokers` names, each with that many `replicas`, master included.
    """

    store: Path
    host: str = "127.0.0.1"
    namesrv_port: int = 9876
    broker_port: int = 10911
    flush: Literal["async", "sync"] = "async"
    grpc_port: int | None = None
    """For RocketMQ 5 clients; None serves none. It needs the extra `grpc`."""
    lite: bool = False
    """Allow lite topics, and serve sessions over HTTP on the port for gRPC, which needs the extra `http`."""
    brokers: int = 1
    replicas: int = 1
    broker_name: str = "broker-a"
    servers: dict[str, Any] = field(default_factory=dict)
    name_server: dict[str, Any] = field(default_factory=dict)
    broker: dict[str, Any] = field(default_factory=dict)
    store_settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.brokers not in _BROKERS:
            raise ConfigError("brokers", self.brokers, f"{_BROKERS[0]} to {_BROKERS[-1]}")
        if self.replicas not in _REPLICAS:
            raise ConfigError("replicas", self.replicas, f"{_REPLICAS[0]} to {_REPLICAS[-1]}")
        if self.flush not in ("async", "sync"):
            raise ConfigError("flush", self.flush, '"async" or "sync"')

    @property
    def reachable_host(self) -> str:
        """The host that clients connect to."""
        return local_address() if self.host in _EVERYWHERE else self.host

    def broker_names(self) -> list[str]:
        if self.brokers == 1:
            return [self.broker_name]
        return [f"broker-{chr(ord('a') + number)}" for number in range(self.brokers)]

    @property
    def broker_count(self) -> int:
        return self.brokers * self.replicas

    def broker_name_of(self, number: int) -> str:
        """Brokers of one name have numbers in a row."""
        return self.broker_names()[number // self.replicas]

    def directory_of(self, number: int) -> Path:
        if self.broker_count == 1:
            return self.store
        name = self.broker_name_of(number)
        return self.store / (name if self.replicas == 1 else f"{name}-{number % self.replicas}")

    @property
    def _common(self) -> dict[str, Any]:
        common = {"bind_address": self.host, "shutdown_wait_seconds": _SHUTDOWN_S, "log_dir": None}
        return common | self.servers

    def controller_settings(self) -> ControllerSettings:
        chosen: dict[str, Any] = {
            "listen_port": 0,
            "store_path": self.store / "controller",
            "config_store_path": self.store / "controller" / "controller.properties",
        }
        return ControllerSettings(**chosen | self._common)

    def name_server_settings(self) -> NameServerSettings:
        chosen: dict[str, Any] = {
            "listen_port": self.namesrv_port,
            "kv_config_path": self.store / "namesrv" / "kvConfig.json",
            "config_store_path": self.store / "namesrv" / "namesrv.properties",
        }
        return NameServerSettings(**chosen | self._common | self.name_server)

    def proxy(
        self, port: int, namesrv_address: str, clock: Clock | None = None, in_process: Find | None = None
    ) -> "Proxy":
        """The gRPC front; it calls brokers without a socket that it finds `in_process`."""
        # Imported late: protobuf is an extra.
        from pyromq.proxy.proxy import Proxy
        from pyromq.proxy.settings import ProxySettings

        chosen: dict[str, Any] = {
            "listen_port": port,
            "namesrv_addr": namesrv_address,
            "http_enable": self.lite,
        }
        return Proxy(ProxySettings(**chosen | self._common), clock=clock, in_process=in_process)

    def broker_port_of(self, number: int) -> int:
        return self.broker_port and self.broker_port + number * _PORTS_BETWEEN_BROKERS

    def broker_configuration(
        self, namesrv_address: str, number: int, port: int, controller_address: str = ""
    ) -> BrokerConfiguration:
        chosen: dict[str, Any] = {
            "broker_name": self.broker_name_of(number),
            "broker_ip1": self.reachable_host,
            "listen_port": port,
            "namesrv_addr": namesrv_address,
            "sql_filters": True,
            "body_filters": True,
            "trace_topic_enabled": True,
            # A client that is refused during a short stall has no other broker to use.
            "fast_failure": False,
            **self._common,
        }
        if controller_address:
            chosen |= {
                "controller_mode": True,
                "controller_addr": controller_address,
                # What is acknowledged survives the loss of any broker.
                "all_in_sync": True,
                "min_in_sync_replicas": min(2, self.replicas - 1),
            }
        stored: dict[str, Any] = {
            "root": self.directory_of(number),
            "flush_disk_type": "SYNC_FLUSH" if self.flush == "sync" else "ASYNC_FLUSH",
            "log_segment_bytes": LOG_SEGMENT_BYTES,
            "light_queues": self.lite,
            "multi_dispatch": self.lite,
            "max_batch_in_memory": PULL_MESSAGES,
            "max_batch_bytes_in_memory": PULL_BYTES,
            "max_batch_on_disk": PULL_MESSAGES,
            "max_batch_bytes_on_disk": PULL_BYTES,
            # The disk of a laptop is shared with other programs.
            "disk_max_used_percent": 95,
            "disk_clean_forcibly_percent": 98,
            "disk_warning_percent": 99,
        }
        return BrokerConfiguration(
            BrokerSettings(**chosen | self.broker), StoreSettings(**stored | self.store_settings)
        )


class Standalone:
    """`async with Standalone(settings) as cluster: cluster.namesrv`.

    After a stop it can be started again, with the same files and ports.
    """

    def __init__(self, settings: StandaloneSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._namesrv_port = settings.namesrv_port
        self._broker_ports = [settings.broker_port_of(number) for number in range(settings.broker_count)]
        self._name_server: NameServer | None = None
        self._controller: Controller | None = None
        self._brokers: dict[int, Broker] = {}
        self._grpc_port = settings.grpc_port
        self._proxy: Proxy | None = None
        self._http2: Proxy | None = None

    def __repr__(self) -> str:
        return f"<Standalone {self._name_server!r} {list(self._brokers.values())!r}>"

    @property
    def namesrv(self) -> str:
        """The address of the name server, for clients."""
        return format_address(self.settings.reachable_host, self.name_server.address[1])

    @property
    def name_server(self) -> NameServer:
        if self._name_server is None:
            raise StateError("the cluster has not been started")
        return self._name_server

    @property
    def broker(self) -> Broker:
        """The first running broker."""
        return self.brokers[0]

    @property
    def brokers(self) -> list[Broker]:
        """The running brokers."""
        if not self._brokers:
            raise StateError("no broker is running")
        return [broker for _, broker in sorted(self._brokers.items())]

    @property
    def grpc_address(self) -> str:
        """The address for RocketMQ 5 clients; raises StateError if there is none."""
        if self._proxy is None:
            raise StateError("the cluster has no gRPC port: set grpc_port")
        return format_address(self.settings.reachable_host, self._proxy.address[1])

    async def start(self) -> None:
        settings = replace(self.settings.name_server_settings(), listen_port=self._namesrv_port)
        self._name_server = NameServer(settings, clock=self._clock)
        await self._name_server.start()
        self._namesrv_port = self._name_server.address[1]
        try:
            if self.settings.replicas > 1:
                self._controller = Controller(self.settings.controller_settings(), clock=self._clock)
                await self._controller.start()
            front = None
            if self._grpc_port is not None:
                front = self.settings.proxy(self._grpc_port, self.namesrv, self._clock, self._server_at)
            self._http2 = front
            for number in range(self.settings.broker_count):
                await self.start_broker(number)
            await self.wait_in_sync()
            if front is not None:
                await front.start()
                self._grpc_port, self._proxy = front.address[1], front
        except BaseException:
            await self.stop()
            raise

    def _server_at(self, address: str) -> Server | None:
        found = (broker.server_at(address) for broker in self._brokers.values())
        return next((server for server in found if server is not None), None)

    async def run_until_stopped(self) -> None:
        brokers = [broker.run_until_stopped() for broker in self.brokers]
        controllers = [] if self._controller is None else [self._controller.run_until_stopped()]
        await asyncio.gather(self.name_server.run_until_stopped(), *controllers, *brokers)

    async def stop(self) -> None:
        """Stop the brokers before the name server, so that they can unregister."""
        if self._proxy is not None:
            proxy, self._proxy = self._proxy, None
            await proxy.stop()
        for number in list(self._brokers):
            await self.stop_broker(number)
        if self._controller is not None:
            await self._controller.stop()
            self._controller = None
        await self.name_server.stop()

    # Single brokers, by their number

    async def start_broker(self, number: int = 0) -> None:
        if number in self._brokers or not 0 <= number < self.settings.broker_count:
            raise StateError(f"broker {number} cannot be started: {self._who_runs()}")
        port = self._broker_ports[number]
        controller = "" if self._controller is None else self._controller.advertised_address
        configuration = self.settings.broker_configuration(self.namesrv, number, port, controller)
        broker = Broker(configuration, clock=self._clock, http2=self._http2)
        await broker.start()
        self._broker_ports[number] = broker.address[1]
        self._brokers[number] = broker

    async def stop_broker(self, number: int = 0) -> None:
        await self._leaving(number).stop()

    async def kill_broker(self, number: int = 0) -> None:
        """Stop a broker as a crash would."""
        await self._leaving(number).abandon()

    # Fail-over

    def master_number(self, broker_name: str | None = None) -> int:
        """The number of the broker that is the master of a name now; without a name, of the first one."""
        masters = self._masters(broker_name or self.settings.broker_names()[0])
        if not masters:
            raise StateError(f"{broker_name or 'the group'} has no master now: {self._who_runs()}")
        # A master that was replaced a moment ago may not know it yet.
        return max(masters, key=lambda number: self._brokers[number].role.now.epoch)

    async def kill_master(self, broker_name: str | None = None) -> int:
        """Stop the master as a crash would; returns its number, for `start_broker`."""
        number = self.master_number(broker_name)
        await self.kill_broker(number)
        return number

    async def wait_in_sync(self) -> None:
        """Wait until all running brokers of every name are in sync with a master; any may fail then."""
        async with asyncio.timeout(_IN_SYNC_TIMEOUT_S):
            names = self.settings.broker_names() if self.settings.replicas > 1 else []
            while not all(map(self._is_in_sync, names)):  # noqa: ASYNC110
                await asyncio.sleep(_TICK_S)

    def _masters(self, name: str) -> list[int]:
        return [number for number in self._members(name) if self._brokers[number].role.now.is_master]

    def _members(self, name: str) -> list[int]:
        return [number for number in self._brokers if self.settings.broker_name_of(number) == name]

    def _is_in_sync(self, name: str) -> bool:
        members = self._members(name)
        if not members:
            return True
        masters = self._masters(name)
        if len(masters) != 1:
            return False
        master = self._brokers[masters[0]].replication.master
        return sum(map(master.is_in_sync, master.links)) == len(members) - 1

    def _leaving(self, number: int) -> Broker:
        if number not in self._brokers:
            raise StateError(f"broker {number} is not running: {self._who_runs()}")
        return self._brokers.pop(number)

    def _who_runs(self) -> str:
        return f"there are {self.settings.broker_count}, numbered from 0; running: {sorted(self._brokers)}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
