"""Accepts connections and ends them; what travels on them is the connection's business."""

import asyncio
import logging
import socket
from collections.abc import Callable, Collection

from pyromq.clock import Clock
from pyromq.errors import StateError
from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.frame import HeaderForm
from pyromq.remoting.connection import Connection
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.routing import Caller, Routes
from pyromq.remoting.traffic import Observer, Traffic, TrafficStatistics

__all__ = ["Observer", "Server", "ServerLimits"]

_log = logging.getLogger(__name__)

_FAREWELL_S = 1.0
"""How long closing connections may take to send what they still hold."""


class Server:
    """Serves one table of routes on one port.

    `admit` sees every request before its handler and may raise Refused.
    """

    def __init__(
        self,
        routes: Routes,
        *,
        limits: ServerLimits | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        admit: Callable[[Declaration, Caller], None] | None = None,
        form: int = HeaderForm.JSON,
    ) -> None:
        self._traffic = Traffic(
            routes=routes, limits=limits, clock=clock, observer=observer, admit=admit, form=form
        )
        self._listener: asyncio.Server | None = None
        self._address: tuple[str, int] | None = None
        self._sweep: asyncio.TimerHandle | None = None
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

    def statistics(self) -> TrafficStatistics:
        return self._traffic.statistics()

    def on_connection_lost(self, callback: Callable[[Connection], None]) -> None:
        """Call back once for every accepted connection that has ended."""
        self._lost_callbacks.append(callback)

    async def start(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 1024,
        send_buffer_bytes: int = 0,
        receive_buffer_bytes: int = 0,
    ) -> None:
        loop = asyncio.get_running_loop()
        listening = _listening_socket(host, port, send_buffer_bytes, receive_buffer_bytes)
        self._listener = await loop.create_server(self._accept, sock=listening, backlog=backlog)
        self._address = listening.getsockname()[:2]
        self._schedule_sweep()

    def _accept(self) -> Connection:
        connection = Connection(self._traffic)
        connection.on_close(self._lost)
        return connection

    def _lost(self, connection: Connection) -> None:
        for callback in self._lost_callbacks:
            callback(connection)

    def close_idle(self) -> None:
        """Close what has been silent for too long; called regularly while the server runs."""
        self._traffic.close_idle()

    def _schedule_sweep(self) -> None:
        interval_s = self._traffic.limits.idle_s / 12
        self._sweep = asyncio.get_running_loop().call_later(interval_s, self._run_sweep)

    def _run_sweep(self) -> None:
        self.close_idle()
        self._schedule_sweep()

    async def stop(self, grace_s: float = 30.0) -> None:
        """Stop accepting, let what is in flight finish, then close every connection."""
        if self._listener is None:
            return
        listener, self._listener = self._listener, None
        listener.close()
        traffic = self._traffic
        traffic.is_draining = True
        try:
            async with asyncio.timeout(grace_s):
                await traffic.wait_calm()
        except TimeoutError:
            _log.warning("stopped with requests in flight count=%d", traffic.in_flight)
        if self._sweep is not None:
            self._sweep.cancel()
        unfinished = list(traffic.tasks)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._close_connections()

    async def _close_connections(self) -> None:
        lost = asyncio.Event()
        open_connections = list(self._traffic.connections)
        if not open_connections:
            return

        def count_down(_: Connection) -> None:
            if not self._traffic.connections:
                lost.set()

        for connection in open_connections:
            connection.on_close(count_down)
            connection.close()
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await lost.wait()
        except TimeoutError:
            for connection in list(self._traffic.connections):
                connection.abort()
            await lost.wait()


def _listening_socket(
    host: str, port: int, send_buffer_bytes: int, receive_buffer_bytes: int
) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
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
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening
