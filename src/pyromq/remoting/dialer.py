"""Connections to others, by address: opened when needed, shared by everyone, closed when idle.

Many callers share one attempt to connect. After a failure the address rests for a while, longer each time;
until then callers get the failure at once instead of another wait.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from pyromq.clock import Clock
from pyromq.errors import CallTimeout, ConnectFailed, Refused, StateError
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.connection import Connection
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.routing import Routes
from pyromq.remoting.sweep import Sweep
from pyromq.remoting.tls import TlsClient, TlsOptions
from pyromq.remoting.traffic import Observer, Traffic, TrafficStatistics

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 10.0


@dataclass(frozen=True, slots=True)
class DialerStatistics(TrafficStatistics):
    failed_attempts: int
    resting_addresses: int


class _Destination:
    """What is known about one address."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.attempt: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.rests_until = 0.0
        self.last_failure = ""

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_open


class Dialer:
    """Opens connections and makes calls on them.

    `routes` serves what the other sides ask on these connections, within `limits`. `prepare` may change every
    request before it is sent: it is where signatures come from.
    """

    def __init__(
        self,
        *,
        routes: Routes | None = None,
        limits: ServerLimits | None = None,
        tls: TlsOptions | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        prepare: Callable[[Frame], None] | None = None,
        form: int = HeaderForm.JSON,
        connect_timeout_s: float = 3.0,
    ) -> None:
        self._traffic = Traffic(
            routes=routes,
            limits=limits,
            clock=clock,
            observer=observer,
            prepare=prepare,
            form=form,
            stops_reading=False,
        )
        self._tls = TlsClient(tls, clock) if tls is not None else None
        self._connect_timeout_s = connect_timeout_s
        self._destinations: dict[str, _Destination] = {}
        self._lost_callbacks: list[Callable[[Connection], None]] = []
        self._sweep = Sweep(self._traffic.limits.idle_s / 12, self.close_idle)
        self._failed_attempts = 0
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"addresses={len(self._destinations)}"
        return f"<Dialer {state} {self._traffic!r}>"

    def statistics(self) -> DialerStatistics:
        resting = sum(1 for destination in self._destinations.values() if destination.failures)
        return DialerStatistics(
            **asdict(self._traffic.statistics()),
            failed_attempts=self._failed_attempts,
            resting_addresses=resting,
        )

    def on_connection_lost(self, callback: Callable[[Connection], None]) -> None:
        """Call back once for every opened connection that has ended."""
        self._lost_callbacks.append(callback)

    async def call(self, address: str, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        """Call whoever listens there; the time includes connecting.

        A server that is going away gets the call once more, on a new connection: it may be another by now.
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
        self._retire(address, connection)
        connection = await self._connection_until(address, deadline)
        return await connection.call(request, deadline - loop.time())

    async def send_oneway(self, address: str, request: Request[Any]) -> None:
        connection = await self.connection(address)
        await connection.wait_writable()
        connection.send_oneway(request)

    def expect(self, address: str) -> None:
        """Someone is said to be there again: the next call need not wait for the rest after a failure."""
        destination = self._destinations.get(address)
        if destination is not None:
            destination.failures = 0

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
            rest_s = destination.rests_until - self._traffic.clock.monotonic()
            if destination.failures and rest_s > 0:
                raise ConnectFailed(f"{destination.last_failure}; next attempt in {rest_s:.1f} s")
            attempt = destination.attempt = asyncio.create_task(self._open(address, destination))
            attempt.add_done_callback(_retrieve)
        try:
            # One caller that gives up does not take the attempt away from the others.
            return await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if attempt.cancelled():
                raise ConnectFailed(f"{address}: the dialer was closed") from None
            raise

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
            pause_s = min(FIRST_PAUSE_S * 2.0**destination.failures, LONGEST_PAUSE_S)
            destination.failures += 1
            destination.rests_until = self._traffic.clock.monotonic() + pause_s
            destination.last_failure = str(problem)
            self._failed_attempts += 1
            _log.info("could not connect address=%s failures=%d: %s", address, destination.failures, problem)
            raise
        finally:
            destination.attempt = None
        destination.failures = 0
        destination.connection = connection
        return connection

    async def _connect(self, address: str) -> Connection:
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
            raise ConnectFailed(f"{address}: {problem}") from problem
        except ValueError as problem:
            # A host that no name server could be asked for; it may come from a stranger's registration.
            raise ConnectFailed(f"{address!r} is no address: {problem}") from problem
        return connection

    def _new_connection(self, address: str) -> Connection:
        connection = Connection(self._traffic, address)
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

    def _retire(self, address: str, connection: Connection) -> None:
        destination = self._destinations.get(address)
        if destination is not None and destination.connection is connection:
            destination.connection = None
        connection.retire()

    def close_idle(self) -> None:
        """Close silent connections and forget long-failed addresses; called regularly while there are any."""
        self._traffic.close_idle()
        now = self._traffic.clock.monotonic()
        for address, destination in list(self._destinations.items()):
            is_used = destination.attempt is not None or destination.is_connected
            if not is_used and now > destination.rests_until + LONGEST_PAUSE_S:
                del self._destinations[address]

    async def close(self) -> None:
        self._is_closed = True
        self._sweep.stop()
        attempts = [d.attempt for d in self._destinations.values() if d.attempt is not None]
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        await self._traffic.close(grace_s=0)


def _retrieve(attempt: "asyncio.Task[Connection]") -> None:
    """Everyone who waited may have left: then nobody else looks at the failure."""
    if not attempt.cancelled():
        attempt.exception()
