"""Assembles the controller, starts it and stops it. The rules are in the parts."""

import asyncio
import logging
from contextlib import AsyncExitStack

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.local_address import local_address
from pyromq.cluster.server_dialer import server_dialer
from pyromq.config.live import LiveSettings
from pyromq.config.settings_file import SettingsFile
from pyromq.controller.elections import Elections
from pyromq.controller.etcd_gateway import EtcdGateway
from pyromq.controller.etcd_store import EtcdStore
from pyromq.controller.file_store import FileStore
from pyromq.controller.group_requests import GroupRequests
from pyromq.controller.journal import Journal
from pyromq.controller.liveness import Liveness
from pyromq.controller.metering import ControllerMetering
from pyromq.controller.own_requests import OwnRequests
from pyromq.controller.role_notices import RoleNotices
from pyromq.controller.settings import ControllerSettings
from pyromq.controller.store import ControllerStore, Leader
from pyromq.errors import StateError
from pyromq.filesystem import Files
from pyromq.metrics import Metrics
from pyromq.protocol.catalogue import CONTROLLER, Declaration
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.access.requests import AccessRequests
from pyromq.remoting.addresses import format_address
from pyromq.remoting.admission import Admission
from pyromq.remoting.channel import Channel
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.exporters import exporters
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work, end
from pyromq.remoting.routing import Routes
from pyromq.remoting.security_metrics import register_security
from pyromq.remoting.server import Server

_log = logging.getLogger(__name__)

UNSERVED: dict[int, str] = {}
"""Requests to a controller that are not supported, by code, with the reason."""

_EVERYWHERE = ("", "0.0.0.0", "::")
_A_LITTLE_S = 0.05


def _chosen_store(settings: ControllerSettings, clock: Clock, files: Files) -> ControllerStore:
    if settings.store_kind == "file":
        return FileStore(Journal(settings.store_path, files))
    endpoints, lease_s = settings.all_etcd_endpoints, int(settings.etcd_lease_seconds)
    gateway = EtcdGateway(
        endpoints,
        timeout_s=lease_s / 4,
        tls=settings.etcd_tls() if any(each.is_tls for each in endpoints) else None,
        user=settings.etcd_user,
        password=settings.etcd_password,
    )
    return EtcdStore(gateway, settings.etcd_prefix, lease_s, clock)


class Controller(Program):
    """`async with Controller(settings) as controller: controller.address`."""

    NAME = "controller"

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        clock: Clock | None = None,
        files: Files | None = None,
        admission: Admission | None = None,
        store: ControllerStore | None = None,
        ports: Ports | None = None,
    ) -> None:
        """`admission` decides instead of the settings of access control."""
        files = files or Files()
        self._clock: Clock = clock if clock is not None else SystemClock()
        address, pages = (settings.metrics_address, settings.metrics_port), {"/ready": self._ready}
        super().__init__(exporters(settings, settings.PART, address, pages, self._clock))
        self._ports = ports if ports is not None else Ports()
        self._settings = LiveSettings(settings)
        self._store = store if store is not None else _chosen_store(settings, self._clock, files)
        self._file = SettingsFile(settings.config_store_path, files)
        self.liveness: Liveness[Channel] = Liveness(
            self._clock.monotonic(), unheard_timeout_s=settings.unheard_broker_timeout_ms / 1000
        )
        self._dialer = server_dialer(settings, self._clock)
        self._access = AccessRules(settings, self._clock, directory=settings.store_path, files=files)
        self._notices = RoleNotices(self._dialer)
        self._metering: ControllerMetering | None = None
        self.elections = Elections(
            self._store, self.liveness, self._notices, self._settings, self._clock, self._count_election
        )
        self.routes = Routes(
            GroupRequests(self.elections, self._store, self.liveness, self._clock),
            OwnRequests(
                self._store, self.liveness, self._settings, self._file, self._clock, self._require_own
            ),
            AccessRequests(self._access),
            serving=CONTROLLER,
            unserved=UNSERVED,
        )
        self._server = Server(
            self.routes,
            ConnectionTerms(
                limits=settings.limits,
                clock=self._clock,
                observer=self,
                admission=admission or self._access.control,
                form=settings.header_form,
            ),
            tls=settings.tls_server(self._clock),
            trusted_proxies=settings.trusted_proxies,
        )
        self._server.on_connection_lost(self._connection_lost)
        self._own: Leader | None = None
        self._election: asyncio.Task[None] | None = None
        self._election_wanted = False
        self._settings.on_change(self._apply_settings)
        self._store.on_leading(self._elect_soon)  # the former leader may have died with a master

    def __repr__(self) -> str:
        return f"<Controller {self._server!r} {self._store!r}>"

    @property
    def address(self) -> tuple[str, int]:
        """The address it listens on; raises StateError before the start."""
        return self._server.address

    @property
    def advertised_address(self) -> str:
        """The address that brokers get."""
        return self._require_own().address

    @property
    def is_leading(self) -> bool:
        return self._store.is_leading

    def _require_own(self) -> Leader:
        if self._own is None:
            raise StateError("the controller has not been started")
        return self._own

    async def _open(self, opened: AsyncExitStack) -> None:
        settings = self._settings.now
        taken = settings.take_port(self._ports, settings.port)
        opened.push_async_callback(self._file.close)
        opened.push_async_callback(self._store.close)
        try:
            self._own = self._named(taken.getsockname()[1])
            self._metering = ControllerMetering(
                self._own, settings.group_name, self._store, self.liveness, settings.metric_labels
            )
            register_security(self._metering.metrics, self._access.refused, settings.tls_cert_path)
            await self._store.open(self._own)
            await self._server.listen(taken, settings.socket_backlog)
        except BaseException:
            taken.close()
            raise
        opened.push_async_callback(self._dialer.close)
        opened.push_async_callback(self._notices.close)
        opened.push_async_callback(self._end_election)

    def _work(self) -> Work:
        return {"controller": self._run()}

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.run(), name="store")
            tasks.create_task(self._watch_brokers(), name="brokers")
            tasks.create_task(self._watch_masters(), name="masters")
            tasks.create_task(self._access.run(), name="access rules")

    async def _drain(self) -> None:
        await self._server.stop(self._settings.now.shutdown_wait_seconds)

    async def _end_election(self) -> None:
        await end(self._election)

    def _measured(self) -> Metrics | None:
        return self._metering.metrics if self._metering is not None else None

    def _described(self) -> str:
        return f"address={format_address(*self.address)} advertised={self.advertised_address}"

    def _named(self, port: int) -> Leader:
        settings = self._settings.now
        if (own := settings.all_peers.get(settings.self_id)) is not None:
            return own
        host = local_address() if settings.bind_address in _EVERYWHERE else settings.bind_address
        return Leader(settings.self_id, format_address(host, port))

    async def _watch_brokers(self) -> None:
        while True:
            # java: only every interval; a broker that hangs is noticed later then
            wait_s = self.liveness.next_expiry_s(self._clock.monotonic()) + _A_LITTLE_S
            interval_s = self._settings.now.scan_interval_ms / 1000
            await asyncio.sleep(min(max(wait_s, _A_LITTLE_S), interval_s))
            self.expire_brokers()

    def expire_brokers(self) -> None:
        """Take note of brokers whose heartbeats have stopped."""
        for name, broker_id in self.liveness.expire(self._clock.monotonic()):
            _log.warning("broker is gone, its heartbeats have stopped group=%s id=%d", name, broker_id)
            self._elect_soon()

    async def _watch_masters(self) -> None:
        while True:
            await asyncio.sleep(self._settings.now.scan_masters_interval_ms / 1000)
            self._elect_soon()

    def _connection_lost(self, connection: Connection) -> None:
        if self._is_stopping:  # We close the connections; the brokers are not gone.
            return
        for name, broker_id in self.liveness.connection_lost(connection):
            _log.warning("broker is gone, its connection has closed group=%s id=%d", name, broker_id)
            self._elect_soon()

    def _elect_soon(self) -> None:
        """Have one task look at all groups; a wish that comes meanwhile makes it look again."""
        self._election_wanted = True
        if self._election is None or self._election.done():
            self._election = asyncio.create_task(self._elect(), name="election")

    async def _elect(self) -> None:
        while self._election_wanted:
            self._election_wanted = False
            await self.elections.elect_where_masters_are_gone()

    def _apply_settings(self, settings: ControllerSettings) -> None:
        self.liveness.max_step_s = 2 * settings.scan_interval_ms / 1000

    def _count_election(self, cluster: str, group: str, result: str) -> None:
        if self._metering is not None:
            self._metering.count_election(cluster, group, result)

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        if self._metering is not None:
            self._metering.request_handled(declaration, code, result_code, seconds, waited)

    def _ready(self) -> tuple[int, str]:
        leader = self._store.leader
        if leader is None:
            return 503, "no controller leads: masters stay as they are\n"
        return 200, f"ready, led by {leader.id} at {leader.address}\n"
