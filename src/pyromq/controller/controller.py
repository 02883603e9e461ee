"""Assembles the controller, starts it and stops it. The rules are in the parts."""

import asyncio
import logging

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.local_address import local_address
from pyromq.cluster.signing import signers
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
from pyromq.metrics import content_type
from pyromq.protocol.catalogue import CONTROLLER, Declaration
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.access.requests import AccessRequests
from pyromq.remoting.addresses import format_address
from pyromq.remoting.admission import Admission
from pyromq.remoting.channel import Channel
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.http_status import HttpStatus, in_turns
from pyromq.remoting.lifetime import Lifetime, end
from pyromq.remoting.ports import Ports
from pyromq.remoting.routing import Routes
from pyromq.remoting.security_metrics import register_security
from pyromq.remoting.server import Server

_log = logging.getLogger(__name__)

UNSERVED: dict[int, str] = {}
"""Requests to a controller that are not supported, by code, with the reason."""

_EVERYWHERE = ("", "0.0.0.0", "::")
_A_LITTLE_S = 0.05
_TEXT = "text/plain; charset=utf-8"


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


class Controller(Lifetime):
    """`async with Controller(settings) as controller: controller.address`."""

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
        super().__init__()
        self._ports = ports if ports is not None else Ports()
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._settings = LiveSettings(settings)
        self._store = store if store is not None else _chosen_store(settings, self._clock, files)
        self._file = SettingsFile(settings.config_store_path, files)
        self.liveness: Liveness[Channel] = Liveness(
            self._clock.monotonic(), unheard_timeout_s=settings.unheard_broker_timeout_ms / 1000
        )
        self._dialer = Dialer(
            ConnectionTerms(form=settings.header_form, clock=self._clock),
            tls=settings.tls_client,
            connect_timeout_s=settings.connect_timeout_ms / 1000,
            new_signer=signers(settings.credentials, clock=self._clock),
        )
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
        self._http = HttpStatus(
            {"/metrics": self._metrics_page, "/ready": self._ready_page, "/health": self._health_page},
            clock=self._clock,
        )
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
        """The address that brokers are told."""
        return self._require_own().address

    @property
    def metrics_address(self) -> tuple[str, int]:
        """The address of the HTTP port; raises StateError if there is none."""
        return self._http.address

    @property
    def is_leading(self) -> bool:
        return self._store.is_leading

    def _require_own(self) -> Leader:
        if self._own is None:
            raise StateError("the controller has not been started")
        return self._own

    async def start(self) -> None:
        if self._background:
            raise StateError("the controller has been started already")
        settings = self._settings.now
        taken = self._ports.listen(
            settings.bind_address,
            settings.port,
            send_buffer_bytes=settings.socket_send_buffer_bytes,
            receive_buffer_bytes=settings.socket_receive_buffer_bytes,
        )
        try:
            self._own = self._named(taken.getsockname()[1])
            self._metering = ControllerMetering(self._own, settings.group_name, self._store, self.liveness)
            register_security(self._metering.metrics, self._access.refused, settings.tls_cert_path)
            await self._store.open(self._own)
            if settings.metrics_exporter == "PROM":
                content_type()  # Import the metrics library before brokers connect.
                await self._http.start(settings.metrics_address, settings.metrics_port)
            await self._server.listen(taken, settings.socket_backlog)
        except BaseException:
            taken.close()
            await self._http.stop()
            await self._store.close()
            raise
        self._run_in_background(self._run(), "controller")
        _log.info("controller started address=%s:%d advertised=%s", *self.address, self.advertised_address)

    def _named(self, port: int) -> Leader:
        settings = self._settings.now
        if (own := settings.all_peers.get(settings.self_id)) is not None:
            return own
        host = local_address() if settings.bind_address in _EVERYWHERE else settings.bind_address
        return Leader(settings.self_id, format_address(host, port))

    async def stop(self) -> None:
        """Stop accepting, finish the requests in flight, then close."""
        if not self._begin_stop():
            return
        await self._server.stop(self._settings.now.shutdown_wait_seconds)
        await end(*self._background, self._election)
        await self._http.stop()
        await self._notices.close()
        await self._dialer.close()
        await self._store.close()
        await self._file.close()
        self._stopped.set()
        _log.info("controller stopped")

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store.run(), name="store")
            tasks.create_task(self._watch_brokers(), name="brokers")
            tasks.create_task(self._watch_masters(), name="masters")
            tasks.create_task(self._access.run(), name="access rules")

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

    async def _metrics_page(self) -> tuple[int, str, bytes]:
        if self._metering is None:
            return 503, _TEXT, b"starting\n"
        return 200, content_type(), await in_turns(self._metering.metrics.pieces())

    def _ready_page(self) -> tuple[int, str, bytes]:
        leader = self._store.leader
        if leader is None:
            return 503, _TEXT, b"no controller leads: masters stay as they are\n"
        return 200, _TEXT, f"ready, led by {leader.id} at {leader.address}\n".encode()

    def _health_page(self) -> tuple[int, str, bytes]:
        return 200, _TEXT, b"alive\n"
