"""Outgoing connections by address: opened when needed, shared by all callers, closed when idle.

Many callers share one attempt to connect. After a failure the dialer backs off, longer each time; until the
next attempt, callers get the last failure at once.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from pyromq.errors import CallTimeout, ConnectFailed, Refused, StateError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.connection_group import ConnectionGroup, ConnectionStatistics, ConnectionTerms
from pyromq.remoting.in_process import Find, connect
from pyromq.remoting.routing import Routes
from pyromq.remoting.sweep import Sweep
from pyromq.remoting.tls import TlsClient, TlsOptions

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

FIRST_BACKOFF_S = 0.1
MAX_BACKOFF_S = 1.0
"""Less than callers wait: a server that is back is found before their deadline."""
_FORGET_AFTER_S = 10.0
ONEWAY_TIMEOUT_S = 3.0


@dataclass(frozen=True, slots=True)
class DialerStatistics(ConnectionStatistics):
    failed_attempts: int
    addresses_backing_off: int


class _Destination:
    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.retry_at = 0.0
        self.last_failure = ""
        self.is_lost = False
        """It could not be reached, and the log says so."""

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open


class Dialer:
    """Opens connections and makes calls on them.

    `routes` answers the requests that peers send on these connections. `new_signer` is
    called for each connection: what it returns gets every request before it is sent, to sign it.
    """

    def __init__(
        self,
        terms: ConnectionTerms | None = None,
        *,
        routes: Routes | None = None,
        tls: TlsOptions | None = None,
        new_signer: Callable[[], Callable[[Frame], None]] | None = None,
        connect_timeout_s: float = 3.0,
        in_process: Find | None = None,
        source: str = "127.0.0.1:0",
    ) -> None:
        """`in_process` finds servers of this process, which are reached without a socket; they see `source`
        as the address of this side."""
        self._group = ConnectionGroup(terms, routes=routes, new_signer=new_signer, pauses_reading=False)
        self._tls = TlsClient(tls, self._group.clock) if tls is not None else None
        self._connect_timeout_s = connect_timeout_s
        self._in_process = in_process
        self._source = source
        self._destinations: dict[str, _Destination] = {}
        self._lost_callbacks: list[Callable[[Connection], None]] = []
        self._sweep = Sweep(self._group.limits.idle_s / 12, self.close_idle)
        self._failed_attempts = 0
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"addresses={len(self._destinations)}"
        return f"<Dialer {state} {self._group!r}>"

    def statistics(self) -> DialerStatistics:
        backing_off = sum(1 for destination in self._destinations.values() if destination.failures)
        return DialerStatistics(
            **asdict(self._group.statistics()),
            failed_attempts=self._failed_attempts,
            addresses_backing_off=backing_off,
        )

    def on_connection_lost(self, callback: Callable[[Connection], None]) -> None:
        """Call `callback` once for every connection that has closed."""
        self._lost_callbacks.append(callback)

    async def call(self, address: str, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        """Call the server at this address; the timeout includes connecting.

        If the server answers GO_AWAY, call once more on a new connection: another server may listen by now.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        destination = self._destinations.get(address)
        connection = destination.connection if destination is not None else None
        if connection is None or not connection.is_open:
            connection = await self._connection_until(address, deadline)
            timeout_s = deadline - loop.time()
        try:
            return await connection.call(request, timeout_s)
        except Refused as refusal:
            if refusal.code != ResponseCode.GO_AWAY:
                raise
        self.retire(address, connection)
        connection = await self._connection_until(address, deadline)
        return await connection.call(request, deadline - loop.time())

    def writable(self, address: str) -> Connection | None:
        """The connection to an address, if one is open and takes requests now."""
        destination = self._destinations.get(address)
        connection = destination.connection if destination is not None else None
        return connection if connection is not None and connection.is_writable else None

    async def send_oneway(
        self, address: str, request: Request[Any], timeout_s: float = ONEWAY_TIMEOUT_S
    ) -> None:
        """Send a request without an answer. A server that hangs takes no more bytes, hence the timeout."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        connection = await self._connection_until(address, deadline)
        try:
            async with asyncio.timeout_at(deadline):
                await connection.wait_writable()
        except TimeoutError:
            raise CallTimeout(f"{address}: not sent in {timeout_s:.3g} s") from None
        connection.send_oneway(request)

    @property
    def max_frame_bytes(self) -> int:
        return self._group.limits.max_frame_bytes

    def reset_backoff(self, address: str) -> None:
        """The address is said to be reachable again: let the next call connect at once."""
        destination = self._destinations.get(address)
        if destination is not None:
            destination.failures = 0

    def hang_up(self, address: str, reason: str) -> None:
        """End the connection to an address; calls on it fail at once."""
        destination = self._destinations.get(address)
        if destination is not None and destination.connection is not None:
            _log.info("connection ended address=%s: %s", address, reason)
            destination.connection.abort()

    async def connection(self, address: str) -> Connection:
        """The connection to an address, opened if there is none; raises ConnectFailed."""
        if self._is_closed:
            raise StateError("the dialer is closed")
        destination = self._destinations.get(address)
        if destination is None:
            destination = self._destinations[address] = _Destination()
        elif destination.connection is not None and destination.connection.is_open:
            return destination.connection
        attempt = destination.attempt
        if attempt is None:
            wait_s = destination.retry_at - self._group.clock.monotonic()
            if destination.failures and wait_s > 0:
                failure = ConnectFailed(destination.last_failure)
                failure.add_note(f"next attempt in {wait_s:.1f} s")
                raise failure
            attempt = destination.attempt = asyncio.create_task(self._open(address, destination))
            attempt.add_done_callback(_retrieve)
        try:
            # A caller that gives up must not cancel the attempt for the others.
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise ConnectFailed(f"{address}: the dialer was closed") from None
            raise
        except ConnectFailed as problem:
            # Callers share it: without this, each adds its own frames to one traceback.
            raise problem.with_traceback(None) from problem.__cause__

    async def _connection_until(self, address: str, deadline: float) -> Connection:
        try:
            async with asyncio.timeout_at(deadline):
                return await self.connection(address)
        except TimeoutError:
            raise CallTimeout(f"{address}: not connected before the deadline") from None

    async def _open(self, address: str, destination: _Destination) -> Connection:
        self._sweep.start()
        try:
            connection = await self._connect(address)
        except ConnectFailed as problem:
            backoff_s = min(FIRST_BACKOFF_S * 2.0**destination.failures, MAX_BACKOFF_S)
            destination.failures += 1
            destination.retry_at = self._group.clock.monotonic() + backoff_s
            destination.last_failure = str(problem)
            self._failed_attempts += 1
            level = logging.DEBUG if destination.is_lost else logging.INFO
            destination.is_lost = True
            _log.log(level, "could not connect address=%s: %s", address, problem)
            raise
        finally:
            destination.attempt = None
        destination.failures = 0
        if destination.is_lost:
            destination.is_lost = False
            _log.info("connected again address=%s", address)
        destination.connection = connection
        return connection

    async def _connect(self, address: str) -> Connection:
        server = self._in_process(address) if self._in_process is not None else None
        if server is not None:
            connection = self._new_connection(address)
            connect(connection, server.accept(self._source))
            return connection
        host, port = parse_address(address)
        context = self._tls.context() if self._tls is not None else None
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: self._new_connection(address), host, port, ssl=context
                )
        except TimeoutError:
            raise ConnectFailed(f"{address}: no connection in {self._connect_timeout_s} s") from None
        except OSError as problem:
            # asyncio has no words for a peer that hangs up during the handshake.
            silent = (
                type(problem).__name__ if context is None else "it ended the handshake: does it have TLS?"
            )
            raise ConnectFailed(f"{address}: {str(problem) or silent}") from problem
        except ValueError as problem:
            # The host cannot be resolved as a name; it may come from a stranger's registration.
            raise ConnectFailed(f"{address!r} is not an address: {problem}") from problem
        return connection

    def _new_connection(self, address: str) -> Connection:
        connection = Connection(self._group, address)
        connection.on_close(self._lost)
        return connection

    def _lost(self, connection: Connection) -> None:
        destination = self._destinations.get(connection.peer_address)
        if destination is not None and destination.connection is connection:
            destination.connection = None
            if destination.attempt is None:
                del self._destinations[connection.peer_address]
        for callback in self._lost_callbacks:
            callback(connection)

    def retire(self, address: str, connection: Connection) -> None:
        """Close the connection when its calls have ended, and open another one for the next call."""
        destination = self._destinations.get(address)
        if destination is not None and destination.connection is connection:
            destination.connection = None
        connection.retire()

    def close_idle(self) -> None:
        """Close idle connections and forget addresses that failed long ago; called regularly."""
        self._group.close_idle()
        now = self._group.clock.monotonic()
        for address, destination in list(self._destinations.items()):
            is_used = destination.attempt is not None or destination.is_connected
            if not is_used and now > destination.retry_at + _FORGET_AFTER_S:
                del self._destinations[address]

    async def close(self) -> None:
        self._is_closed = True
        self._sweep.stop()
        attempts = [d.attempt for d in self._destinations.values() if d.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        await self._group.close(grace_s=0)


def _retrieve(attempt: "asyncio.Task[Connection]") -> None:
    """Retrieve the failure: if all callers gave up, asyncio would log it as never retrieved."""
    if not attempt.cancelled():
        attempt.exception()
