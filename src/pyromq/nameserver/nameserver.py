"""Assembles the name server, starts it and stops it. The rules are in the parts."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.server_dialer import server_dialer
from pyromq.config.durable_file import DurableFile
from pyromq.config.live import LiveSettings
from pyromq.config.saving import Saving
from pyromq.config.settings_file import SettingsFile
from pyromq.errors import RemoteProtocolError
from pyromq.filesystem import Files
from pyromq.metrics import Metrics
from pyromq.nameserver.broker_requests import BrokerRequests
from pyromq.nameserver.cluster_test import ClusterTestLookup
from pyromq.nameserver.config_requests import ConfigRequests
from pyromq.nameserver.consequences import Consequences
from pyromq.nameserver.departures import Departures
from pyromq.nameserver.fast_path import fast_path
from pyromq.nameserver.inventory_reading import InventoryReading
from pyromq.nameserver.kv_requests import KvRequests
from pyromq.nameserver.kv_table import KvTable
from pyromq.nameserver.metering import NameServerMetering
from pyromq.nameserver.readiness import Readiness
from pyromq.nameserver.route_lookup import RouteLookup
from pyromq.nameserver.route_table import RouteTable, TableSizes
from pyromq.nameserver.settings import NameServerSettings
from pyromq.nameserver.tables import RouteRules
from pyromq.nameserver.topic_requests import TopicRequests
from pyromq.protocol.catalogue import NAMESERVER, declaration_of
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.access.requests import AccessRequests
from pyromq.remoting.addresses import format_address
from pyromq.remoting.admission import Admission
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.exporters import exporters
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work
from pyromq.remoting.routing import Routes
from pyromq.remoting.security_metrics import register_security
from pyromq.remoting.server import Server, ServerStatistics
from pyromq.remoting.slices import Slices

_log = logging.getLogger(__name__)

UNSERVED: dict[int, str] = {}
"""Requests to a name server that are not supported, by code, with the reason."""

_FIRST_KV_LOG_S = 60.0
_KV_LOG_INTERVAL_S = 600.0


@dataclass(frozen=True, slots=True)
class NameServerStatistics:
    tables: TableSizes
    traffic: ServerStatistics
    watches: int
    kv_entries: int
    is_ready: bool


class NameServer(Program):
    """`async with NameServer(settings) as server: server.address`."""

    NAME = "name server"

    def __init__(
        self,
        settings: NameServerSettings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        admission: Admission | None = None,
        ports: Ports | None = None,
    ) -> None:
        """`admission` decides instead of the settings of access control."""
        files = files or Files()
        self._clock: Clock = clock if clock is not None else SystemClock()
        address, pages = (settings.metrics_address, settings.metrics_port or 0), {"/ready": self._ready}
        super().__init__(exporters(settings, settings.PART, address, pages, self._clock))
        self._ports = ports if ports is not None else Ports()
        self._live_settings = settings_now = LiveSettings(settings)

        self._table = RouteTable()
        self._kv = KvTable()
        self._readiness = Readiness(self._clock)
        self._metrics = Metrics(settings.metric_labels)
        self._dialer = server_dialer(settings, self._clock)
        self.access = AccessRules(
            settings, self._clock, directory=settings.kv_config_path.parent, files=files
        )
        self._consequences = Consequences(self._dialer, self._metrics)
        watches = self._consequences.watches
        self._metering = NameServerMetering(self._metrics, self._table, self._kv, watches, self._readiness)
        register_security(self._metrics, self.access.refused, settings.tls_cert_path)
        self._departures = Departures(
            self._table, self._consequences, settings_now, self._clock, self._metering.departures
        )
        self._reading = InventoryReading()
        self._kv_file = DurableFile(settings.kv_config_path, files)
        self._kv_saving = Saving(self._kv_file.path, self._kv.encode, self._kv_file.save)
        self._settings_file = SettingsFile(settings.config_store_path, files)
        self._lookup = RouteLookup(self._table, self._kv, self._readiness, watches)

        routes = Routes(
            self._route_service(settings),
            TopicRequests(self._table, self._consequences, settings_now, Slices(self._clock)),
            BrokerRequests(
                self._table,
                self._kv,
                self._consequences,
                settings_now,
                self._clock,
                self._departures,
                self._reading,
            ),
            KvRequests(self._kv, self._kv_saving, self._lookup.order_changed),
            ConfigRequests(settings_now, self._settings_file),
            AccessRequests(self.access),
            serving=NAMESERVER,
            unserved=UNSERVED,
        )
        self.routes = routes
        self._server = Server(
            routes,
            ConnectionTerms(
                limits=settings.limits,
                clock=self._clock,
                observer=self._metering,
                admission=admission or self.access.control,
                form=settings.header_form,
                fast_path=None
                if settings.cluster_test
                else fast_path(self._lookup, self._metering, self._clock, settings.limits),
                # Nearly all requests to a name server are route queries.
                direct=DirectHeaders([declaration_of(GetRoute)]),
            ),
            tls=settings.tls_server(self._clock),
            trusted_proxies=settings.trusted_proxies,
        )
        self._server.on_connection_lost(self._connection_lost)
        for listener in (self._apply_settings, self._readiness.apply_settings, self._lookup.apply_settings):
            settings_now.on_change(listener)

    def __repr__(self) -> str:
        return f"<NameServer {self._server!r} {self._table!r}>"

    @property
    def settings(self) -> NameServerSettings:
        return self._live_settings.now

    @property
    def address(self) -> tuple[str, int]:
        """The address it listens on; raises StateError before the start."""
        return self._server.address

    def statistics(self) -> NameServerStatistics:
        return NameServerStatistics(
            tables=self._table.sizes(),
            traffic=self._server.statistics(),
            watches=len(self._consequences.watches),
            kv_entries=len(self._kv),
            is_ready=self._readiness.is_ready,
        )

    async def _open(self, opened: AsyncExitStack) -> None:
        await self._load_kv()
        settings = self.settings
        taken = settings.take_port(self._ports, settings.listen_port)
        await self._server.listen(taken, settings.socket_backlog)
        opened.push_async_callback(self._settings_file.close)
        opened.push_async_callback(self._kv_saving.close)
        opened.push_async_callback(self._dialer.close)
        opened.push_async_callback(self._consequences.close)
        opened.callback(self._reading.close)

    def _work(self) -> Work:
        return {"name server": self._run()}

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._departures.run(), name="expiry")
            tasks.create_task(self._log_kv(), name="kv log")
            tasks.create_task(self.access.run(), name="access rules")

    async def _drain(self) -> None:
        await self._server.stop(self.settings.shutdown_wait_seconds)

    def _measured(self) -> Metrics:
        return self._metrics

    def _described(self) -> str:
        return f"address={format_address(*self.address)}"

    async def _log_kv(self) -> None:
        await asyncio.sleep(_FIRST_KV_LOG_S)
        while True:
            _log.info("kv entries=%d", len(self._kv))
            for namespace, key, value in self._kv:
                _log.info("kv namespace=%s key=%s value=%s", namespace, key, value)
            await asyncio.sleep(_KV_LOG_INTERVAL_S)

    async def _load_kv(self) -> None:
        """Load the file, or its backup if the file is damaged; without either, start empty."""
        contents = await asyncio.to_thread(lambda: list(self._kv_file.contents()))
        for path, data in contents:
            try:
                self._kv.load(data)
            except RemoteProtocolError as problem:
                aside = await asyncio.to_thread(self._kv_file.put_aside, path)
                _log.error("could not read file=%s, moved it to %s: %s", path, aside.name, problem)
            else:
                _log.info("kv configuration loaded file=%s entries=%d", path, len(self._kv))
                return

    def _connection_lost(self, connection: Connection) -> None:
        self._consequences.watches.forget(connection)
        if not self._is_stopping:  # When stopping, we close the connections; the brokers are not gone.
            self._departures.connection_lost(connection)

    def _route_service(self, settings: NameServerSettings) -> RouteLookup | ClusterTestLookup:
        if not settings.cluster_test:
            return self._lookup
        return ClusterTestLookup(
            self._lookup, self._dialer, settings.cluster_test_name_servers, settings.product_env_name
        )

    def _apply_settings(self, settings: NameServerSettings) -> None:
        self._table.rules = RouteRules(
            delete_absent_topics=settings.delete_topic_with_broker_registration,
            notify_min_broker_id=settings.notify_min_broker_id_changed,
            broker_expiry_ms=settings.broker_expiry_ms,
            guard_live_brokers=settings.guard_live_brokers,
        )

    def _ready(self) -> tuple[int, str]:
        if self._readiness.is_ready:
            return 200, "ready\n"
        return 503, f"ready in {self._readiness.remaining_s:.0f} s\n"
