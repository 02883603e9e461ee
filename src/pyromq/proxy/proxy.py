"""The front as a server: its parts, its port, and its life."""

import asyncio
import logging
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings
from pyromq.clock import Clock, SystemClock
from pyromq.cluster.local_address import local_address
from pyromq.errors import ConfigError, StateError
from pyromq.metrics import Metrics
from pyromq.protocol.catalogue import BROKER
from pyromq.proxy.access import FrontAccess
from pyromq.proxy.acknowledging import ProxyAcknowledging
from pyromq.proxy.certificate import write_certificate
from pyromq.proxy.clients import Clients
from pyromq.proxy.cluster import FrontAdmission, ProxyCluster
from pyromq.proxy.context import FrontContext
from pyromq.proxy.grpc.call import Quick
from pyromq.proxy.grpc.server import GrpcServer
from pyromq.proxy.lite import ProxyLiteTopics
from pyromq.proxy.membership import ProxyMembership
from pyromq.proxy.metering import ProxyMetering
from pyromq.proxy.receiving import Receiving
from pyromq.proxy.renewal import Renewal
from pyromq.proxy.routing import Routing
from pyromq.proxy.sending import ProxySending
from pyromq.proxy.service import Handler, methods
from pyromq.proxy.settings import ProxySettings
from pyromq.proxy.telemetry import Telemetry
from pyromq.proxy.topics import ProxyTopics
from pyromq.proxy.transactions import ProxyTransactions
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.access.requests import AccessRequests
from pyromq.remoting.addresses import format_address
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.exporters import exporters
from pyromq.remoting.in_process import Find
from pyromq.remoting.ports import Ports
from pyromq.remoting.program import Program, Work
from pyromq.remoting.routing import Routes
from pyromq.remoting.server import Server
from pyromq.remoting.tls import TlsServer

if TYPE_CHECKING:
    from pyromq.proxy.http.server import HttpServer

_log = logging.getLogger(__name__)

_EVERYWHERE = ("", "0.0.0.0", "::")
_SWEEP_S = 5.0
_HTTP_GRACE_S = 2.0
_HTTP_ENVELOPE_BYTES = 64 * 1024
_HOME = Path("~/proxy").expanduser()
"""Where users are kept unless the settings say otherwise."""


class _TooEarly(asyncio.Protocol):
    """A connection that came before the start, or after the stop."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


class Proxy(Program):
    """Serves gRPC clients of the cluster that `settings.namesrv_addr` names."""

    NAME = "proxy"

    def __init__(
        self,
        settings: ProxySettings,
        *,
        clock: Clock | None = None,
        access: AccessRules | None = None,
        in_process: Find | None = None,
        ports: Ports | None = None,
    ) -> None:
        """`access`: the rules of the broker in the same process; else those of the settings hold.
        `in_process` finds brokers in the same process."""
        self._clock: Clock = clock if clock is not None else SystemClock()
        address, pages = (settings.metrics_address, settings.metrics_port), {"/ready": self._ready}
        super().__init__(exporters(settings, settings.PART, address, pages, self._clock))
        self._ports = ports if ports is not None else Ports()
        self.settings = settings
        self.access = access
        self.in_process = in_process
        self._servers: list[Server] = []
        self._grpc: GrpcServer | None = None
        self._http: HttpServer | None = None
        self._clients = Clients(self._clock, settings.client_expiry_ms / 1000)
        self._metering: ProxyMetering | None = None

    def __repr__(self) -> str:
        return f"<Proxy {self._servers!r} {self._clients!r}>"

    @property
    def address(self) -> tuple[str, int]:
        return self.addresses[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """All addresses it listens on for clients."""
        if not self._servers:
            raise StateError("the proxy has not been started")
        return [server.address for server in self._servers]

    # Other ports hand their HTTP connections over: it is an `HttpFront`.

    @property
    def speaks_http1(self) -> bool:
        return self.settings.http_enable

    def __len__(self) -> int:
        return len(self._grpc) if self._grpc is not None else 0

    def new_http1_connection(self, source: str | None) -> asyncio.Protocol:
        return self._grpc.new_http1_connection(source) if self._grpc is not None else _TooEarly()

    def new_connection(self, source: str | None) -> asyncio.Protocol:
        return self._grpc.new_connection(source) if self._grpc is not None else _TooEarly()

    @property
    def clients(self) -> Clients:
        return self._clients

    async def _open(self, opened: AsyncExitStack) -> None:
        settings = self.settings
        listening = self._take_ports()
        port = listening[0].getsockname()[1]
        try:
            session = await Session.obtain(
                self._client_settings(), clock=self._clock, in_process=self.in_process
            )
            opened.push_async_callback(session.release)
            tls = self._tls_server(opened)
        except BaseException:
            for each in listening:
                each.close()
            raise
        self._owns_access = self.access is None
        access = self.access = self.access or AccessRules(settings, self._clock, directory=_HOME)
        admission = FrontAccess(access.control) if access.control is not None else None
        limits = replace(settings.limits, idle_s=settings.idle_ms / 1000)
        observe = None
        if self._exporters:
            node = format_address(local_address(), port)
            self._metering = ProxyMetering(settings, node, lambda: self._grpc, self._clients)
            observe = self._metering.call_ended
        handlers, quick = self._handlers(session, port, admission)
        self._grpc = GrpcServer(
            methods(handlers, admission, observe, quick),
            limits=limits,
            max_message_bytes=settings.max_request_bytes,
            clock=self._clock,
            http=self._http,
        )
        opened.push_async_callback(self._leave)
        for each in listening:
            server = Server(
                Routes(AccessRequests(access), serving=BROKER),
                ConnectionTerms(limits=limits, admission=access.control, clock=self._clock),
                tls=tls,
                trusted_proxies=settings.trusted_proxies,
                http2=self._grpc,
            )
            self._servers.append(server)
            await server.listen(each, settings.socket_backlog)

    def _work(self) -> Work:
        work = {"silent clients": self._forget_silent_clients(), "renewal": self._renewal.run()}
        if self._owns_access and self.access is not None:
            work["access rules"] = self.access.run()
        return work

    def _measured(self) -> Metrics | None:
        return self._metering.metrics if self._metering is not None else None

    def _ready(self) -> tuple[int, str]:
        is_ready = self._grpc is not None and not self._grpc.is_draining
        return (200, "ready\n") if is_ready else (503, "starting or stopping\n")

    def _take_ports(self) -> list[socket.socket]:
        settings, taken = self.settings, list[socket.socket]()
        try:
            for port in (settings.listen_port, settings.second_port):
                if port is not None:
                    taken.append(settings.take_port(self._ports, port))
        except OSError:
            for each in taken:
                each.close()
            raise
        return taken

    def _client_settings(self) -> ClientSettings:
        settings = self.settings
        return ClientSettings.of(
            settings.namesrv_addr,
            credentials=settings.credentials,
            tls=settings.tls_client,
            connect_timeout_s=settings.connect_timeout_ms / 1000,
            client_ip=None if settings.bind_address in _EVERYWHERE else settings.bind_address,
        )

    def _tls_server(self, opened: AsyncExitStack) -> TlsServer:
        settings = self.settings
        if settings.tls_generates and settings.tls_cert_path is None and settings.tls_mode != "disabled":
            directory = opened.enter_context(TemporaryDirectory(prefix="pyromq-proxy-"))
            certificate, key = write_certificate(Path(directory))
            settings = replace(settings, tls_cert_path=certificate, tls_key_path=key)
        return settings.tls_server(self._clock, offers_http2=True, offers_http1=settings.http_enable)

    def _handlers(
        self, session: Session, port: int, admission: FrontAdmission | None
    ) -> tuple[dict[str, Handler], dict[str, Quick]]:
        """The handlers by the names of their rpcs, and the quick ones."""
        settings, clock, clients = self.settings, self._clock, self._clients
        timeout_s = settings.send_timeout_ms / 1000
        cluster = ProxyCluster(session, timeout_s, admission)
        topics = ProxyTopics(cluster, clock, settings.cache_refresh_seconds)
        context = FrontContext(cluster, topics, clients, clock, settings)
        transactions = ProxyTransactions(cluster, clock, settings.transaction_expiry_ms / 1000)
        membership = self._membership = ProxyMembership(
            cluster, transactions, clock, timeout_s=timeout_s, relay_timeout_s=settings.relay_timeout_seconds
        )
        transactions.ask(membership.publishers)
        renewal = self._renewal = Renewal(cluster, topics, clock, settings)
        self._lite = lite = ProxyLiteTopics(context, membership)
        clients.on_leave(lite.leave)
        clients.on_leave(membership.leave)
        clients.on_leave(renewal.release)
        if self._metering is not None:
            self._metering.watch(renewal, transactions)
        routing = Routing(cluster, topics, settings, port)
        sending = ProxySending(context, transactions)
        telemetry = Telemetry(clients, membership, topics, settings)
        acknowledging = ProxyAcknowledging(context, renewal)
        receiving = self._receiving = Receiving(context, membership, acknowledging, renewal)
        if settings.http_enable:
            self._http = self._http_server(context, sending)
        quick = {"SendMessage": sending.quick, "AckMessage": acknowledging.quick}
        handlers: dict[str, Handler] = {
            "QueryRoute": routing.query_route,
            "QueryAssignment": routing.query_assignment,
            "SendMessage": sending.send,
            "RecallMessage": sending.recall,
            "EndTransaction": transactions.end,
            "ReceiveMessage": receiving.receive,
            "AckMessage": acknowledging.ack,
            "ChangeInvisibleDuration": acknowledging.change,
            "ForwardMessageToDeadLetterQueue": acknowledging.forward_to_dead_letters,
            "SyncLiteSubscription": lite.sync,
            "Telemetry": telemetry.stream,
            "Heartbeat": telemetry.heartbeat,
            "NotifyClientTermination": telemetry.terminate,
        }
        return handlers, {name: each for name, each in quick.items() if each is not None}

    def _http_server(self, context: FrontContext, sending: ProxySending) -> "HttpServer":
        try:
            from pyromq.proxy.http.app import HttpApp
            from pyromq.proxy.http.identity import HttpAccess
            from pyromq.proxy.http.messages import HttpMessages
            from pyromq.proxy.http.server import HttpServer
            from pyromq.proxy.http.sessions import HttpSessions
        except ModuleNotFoundError as missing:
            raise ConfigError("httpEnable", True, f"pip install 'pyromq[http]' ({missing})") from None
        settings, clock, app = self.settings, self._clock, HttpApp(self.settings.origins)
        control = self.access.control if self.access is not None else None
        plain = settings.http_allow_plain_passwords
        access = HttpAccess(control, clock, allows_plain_passwords=plain)
        HttpSessions(context, access, app)
        HttpMessages(context, sending, access, app)
        return HttpServer(
            app.handle,
            app.refuse,
            limits=replace(settings.limits, idle_s=settings.idle_ms / 1000),
            max_body_bytes=_http_body_bytes(settings),
            max_connections=settings.http_max_connections,
            stall_s=settings.http_stall_seconds,
        )

    async def _forget_silent_clients(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            self._clients.forget_silent()

    async def _drain(self) -> None:
        assert self._grpc is not None
        if self._http is not None:
            await self._http.stop(_HTTP_GRACE_S)
        await self._grpc.stop(self.settings.shutdown_wait_seconds)
        for server in self._servers:
            await server.stop(0)

    async def _leave(self) -> None:
        """Give back what clients have received here."""
        await self._renewal.hand_over()
        for client in self._clients:
            self._clients.forget(client)
        await self._receiving.close()
        await self._lite.close()
        await self._renewal.close()
        await self._membership.close()
        self._grpc = None


def _http_body_bytes(settings: ProxySettings) -> int:
    """The limit of a message as base64 in JSON, but no more than a request."""
    most = settings.max_request_bytes
    return (
        min(settings.max_message_bytes * 4 // 3 + _HTTP_ENVELOPE_BYTES, most)
        if settings.max_message_bytes
        else most
    )
