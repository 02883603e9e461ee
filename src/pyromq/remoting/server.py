"""One listening port: accepts connections and closes them. `Connection` handles their requests."""

import socket
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from typing import cast

from pyromq.errors import ConnectFailed, StateError
from pyromq.remoting.acceptor import Acceptor
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup, ConnectionStatistics, ConnectionTerms
from pyromq.remoting.handshake import Handshake, HttpFront
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.networks import Networks
from pyromq.remoting.ports import Ports
from pyromq.remoting.routing import Routes
from pyromq.remoting.sweep import Sweep
from pyromq.remoting.tls import TlsServer

__all__ = ["Server", "ServerLimits", "ServerStatistics"]


@dataclass(frozen=True, slots=True)
class ServerStatistics(ConnectionStatistics):
    """`pending`: accepted sockets without a frame yet. `rejected`: those closed before their first frame."""

    pending: int
    rejected: int


class Server:
    """Serves one table of routes on one port.

    PROXY preambles are accepted from `trusted_proxies` only. `http2` serves HTTP/2 on the same port.
    """

    def __init__(
        self,
        routes: Routes,
        terms: ConnectionTerms | None = None,
        *,
        tls: TlsServer | None = None,
        trusted_proxies: Networks | None = None,
        http2: HttpFront | None = None,
    ) -> None:
        self._group = ConnectionGroup(terms, routes=routes)
        self._handshake = Handshake(self._group, tls, self._accepted, trusted_proxies or Networks(), http2)
        self._acceptor: Acceptor | None = None
        self._address: tuple[str, int] | None = None
        limits = self._group.limits
        self._sweep = Sweep(min(limits.idle_s / 12, limits.handshake_s / 2), self.close_idle)
        self._lost_callbacks: list[Callable[[Connection], None]] = []

    def __repr__(self) -> str:
        host, port = self._address or ("not", "listening")
        return f"<Server {host}:{port} {self._group!r}>"

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise StateError("the server has not been started")
        return self._address

    @property
    def connections(self) -> Collection[Connection]:
        return cast(Collection[Connection], self._group.connections)

    def statistics(self) -> ServerStatistics:
        totals = asdict(self._group.statistics())
        return ServerStatistics(
            **totals, pending=len(self._handshake.pending), rejected=self._handshake.rejected
        )

    def on_connection_lost(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` once for every accepted connection that has closed."""
        self._lost_callbacks.append(callback)

    async def start(self, host: str, port: int) -> None:
        await self.listen(Ports().listen(host, port))

    async def listen(self, taken: socket.socket, backlog: int = 1024) -> None:
        """Accept connections on a socket from `Ports.listen`."""
        try:
            self._acceptor = Acceptor(taken, backlog, self._handshake.new_connection)
        except OSError:
            taken.close()
            raise
        self._address = taken.getsockname()[:2]
        self._sweep.start()

    def accept(self, source: str) -> Connection:
        """This side of a connection from the same process; `source`: the address of its user.

        Raises ConnectFailed if there is no room for it.
        """
        if self._acceptor is None or not self._handshake.has_room:
            raise ConnectFailed(f"{self!r} takes no connection now")
        connection = Connection(self._group, source)
        self._accepted(connection)
        return connection

    def _accepted(self, connection: Connection) -> None:
        connection.on_close(self._lost)

    def _lost(self, connection: Connection) -> None:
        for callback in self._lost_callbacks:
            callback(connection)

    def close_idle(self) -> None:
        """Close idle connections and overdue handshakes; called regularly while the server runs."""
        self._group.close_idle()
        self._handshake.close_overdue()

    def start_draining(self) -> None:
        """Refuse requests from now on, except oneways and those of old clients that are answered at once."""
        self._group.is_draining = True

    async def stop(self, grace_s: float = 30.0) -> None:
        """Stop accepting, wait for the requests in flight, then close every connection."""
        if self._acceptor is None:
            return
        self.start_draining()
        acceptor, self._acceptor = self._acceptor, None
        await acceptor.close()
        self._handshake.close()
        await self._group.close(grace_s)
        self._sweep.stop()
