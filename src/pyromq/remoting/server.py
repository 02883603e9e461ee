"""Accepts connections and ends them; what travels on them is the connection's business."""

import socket
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

from pyromq.clock import Clock
from pyromq.errors import StateError
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.acceptor import Acceptor
from pyromq.remoting.admission import Admission
from pyromq.remoting.connection import Connection
from pyromq.remoting.entrance import Entrance
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.networks import Networks
from pyromq.remoting.routing import Routes
from pyromq.remoting.sweep import Sweep
from pyromq.remoting.tls import TlsServer
from pyromq.remoting.traffic import FastPath, Observer, Traffic, TrafficStatistics

__all__ = ["Observer", "Server", "ServerLimits", "ServerStatistics", "listening_socket"]


@dataclass(frozen=True, slots=True)
class ServerStatistics(TrafficStatistics):
    """`arriving`: accepted, nothing known of them yet. `turned_away`: refused before their first frame."""

    arriving: int
    turned_away: int


class Server:
    """Serves one table of routes on one port.

    `admission` decides about every request. `direct` reads the headers of the busiest requests, `fast_path`
    handles the plainest of them; both serve only connections that the admission vouches for. Only
    `trusted_proxies` may say by a PROXY preamble for whom they open a connection.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        limits: ServerLimits | None = None,
        tls: TlsServer | None = None,
        trusted_proxies: Networks | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        admission: Admission | None = None,
        form: int = HeaderForm.JSON,
        direct: DirectHeaders | None = None,
        fast_path: FastPath | None = None,
    ) -> None:
        self._traffic = Traffic(
            routes=routes,
            limits=limits,
            clock=clock,
            observer=observer,
            admission=admission,
            form=form,
            direct=direct,
            fast_path=fast_path,
        )
        self._entrance = Entrance(self._traffic, tls, self._welcome, trusted_proxies or Networks())
        self._acceptor: Acceptor | None = None
        self._address: tuple[str, int] | None = None
        limits = self._traffic.limits
        self._sweep = Sweep(min(limits.idle_s / 12, limits.handshake_s / 2), self.close_idle)
        self._lost_callbacks: list[Callable[[Connection], None]] = []

    def __repr__(self) -> str:
        host, port = self._address or ("not", "listening")
        return f"<Server {host}:{port} {self._traffic!r}>"

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise StateError("the server has not been started")
        return self._address

    @property
    def connections(self) -> Collection[Connection]:
        return self._traffic.connections

    def statistics(self) -> ServerStatistics:
        traffic = asdict(self._traffic.statistics())
        return ServerStatistics(
            **traffic, arriving=len(self._entrance.arrivals), turned_away=self._entrance.turned_away
        )

    def on_connection_lost(self, callback: Callable[[Connection], None]) -> None:
        """Call back once for every accepted connection that has ended."""
        self._lost_callbacks.append(callback)

    async def start(self, host: str, port: int) -> None:
        await self.listen(listening_socket(host, port))

    async def listen(self, taken: socket.socket, backlog: int = 1024) -> None:
        """Let clients in at a port that was taken before."""
        try:
            self._acceptor = Acceptor(taken, backlog, self._entrance.accept)
        except OSError:
            taken.close()
            raise
        self._address = taken.getsockname()[:2]
        self._sweep.start()

    def _welcome(self, connection: Connection) -> None:
        connection.on_close(self._lost)

    def _lost(self, connection: Connection) -> None:
        for callback in self._lost_callbacks:
            callback(connection)

    def close_idle(self) -> None:
        """Close what has been silent for too long; called regularly while the server runs."""
        self._traffic.close_idle()
        self._entrance.close_late()

    def send_away(self) -> None:
        """From now on requests are left to other servers, but for those that are answered at once."""
        self._traffic.is_draining = True

    async def stop(self, grace_s: float = 30.0) -> None:
        """Stop accepting, let what is in flight finish, then close every connection."""
        if self._acceptor is None:
            return
        self.send_away()
        acceptor, self._acceptor = self._acceptor, None
        await acceptor.close()
        self._entrance.close()
        await self._traffic.close(grace_s)
        self._sweep.stop()


def listening_socket(
    host: str, port: int, *, send_buffer_bytes: int = 0, receive_buffer_bytes: int = 0
) -> socket.socket:
    """Take a port, before anyone is let in; 0 lets the system choose. An OSError says which port it was."""
    try:
        return _bound_socket(host or "0.0.0.0", port, send_buffer_bytes, receive_buffer_bytes)
    except OSError as problem:
        raise OSError(problem.errno, f"could not listen on {host}:{port}: {problem.strerror}") from problem


def _bound_socket(host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted sockets inherit these.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if send_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        if receive_buffer_bytes:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address)
        # Until one of them listens, several may be bound to a port.
        listening.listen()
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
