"""The state that all connections of one server, or of one dialer, share: routes, limits and totals.

Totals are updated when a request begins and ends, so that checking for overload reads one attribute.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from pyromq.clock import Clock, SystemClock
from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.remoting.admission import Admission
from pyromq.remoting.channel import SocketChannel
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.routing import RequestRoute, Routes

_log = logging.getLogger(__name__)

_CLOSE_TIMEOUT_S = 1.0
"""How long closing connections may take to send their outboxes."""


class Observer(Protocol):
    """Called after every handled request, for counting. Must not wait and must not raise."""

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        """`declaration` is None for unsupported codes. A oneway request counts with the code that its answer
        would have had. `waited`: the answer came later."""
        ...


class FastPath(Protocol):
    """Handles the most frequent requests straight from the bytes of a read, before frames are decoded."""

    def __call__(self, data: bytes, connection: Any, /) -> tuple[int, int]:
        """Handle whole frames up to the first one that is not for this path; returns how many frames and how
        many bytes. Answers go to `connection.put` or, later, `connection.settle`."""
        ...


@dataclass(frozen=True, slots=True)
class ConnectionStatistics:
    """Current figures of one server or dialer, and totals since its start."""

    connections: int
    in_flight: int
    in_flight_bytes: int
    partial_bytes: int
    opened: int
    frames_read: int
    busy_answers: int
    go_away_answers: int
    unsupported_requests: int
    unmatched_answers: int
    closed_for_bad_input: int
    closed_for_idling: int
    closed_for_not_reading: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTerms:
    """How connections are treated. `admission` decides about every request. `direct` decodes the headers of
    the most frequent requests, `fast_path` handles the simplest of them; both are used only for connections
    that the admission vouches for."""

    limits: ServerLimits = field(default_factory=ServerLimits)
    clock: Clock = field(default_factory=SystemClock)
    observer: Observer | None = None
    admission: Admission | None = None
    form: int = HeaderForm.JSON
    direct: DirectHeaders | None = None
    fast_path: FastPath | None = None


class ConnectionGroup:
    def __init__(
        self,
        terms: ConnectionTerms | None = None,
        *,
        routes: Routes | None = None,
        new_signer: Callable[[], Callable[[Frame], None]] | None = None,
        pauses_reading: bool = True,
    ) -> None:
        terms = terms if terms is not None else ConnectionTerms()
        self.direct = terms.direct
        self.fast_path = terms.fast_path
        self.routes: dict[int, RequestRoute] = routes.by_code if routes is not None else {}
        self.unserved: dict[int, str] = routes.unserved if routes is not None else {}
        self.limits = terms.limits
        self.clock = terms.clock
        self.observer = terms.observer
        self.admission = terms.admission
        self.new_signer = new_signer
        self.form = terms.form
        self.pauses_reading = pauses_reading
        self.is_draining = False
        self.overload: str | None = None
        self.connections: dict[SocketChannel, None] = {}
        """In the order of their arrival, which a set would not keep."""
        self.tasks: set[asyncio.Future[Any]] = set()
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.partial_bytes = 0
        self.opened = 0
        self.frames_read = 0
        self.busy_answers = 0
        self.go_away_answers = 0
        self.unsupported_requests = 0
        self.unmatched_answers = 0
        self.closed_for_bad_input = 0
        self.closed_for_idling = 0
        self.closed_for_not_reading = 0
        self._nothing_in_flight: asyncio.Event | None = None

    def __repr__(self) -> str:
        return (
            f"<ConnectionGroup connections={len(self.connections)} in_flight={self.in_flight} "
            f"in_flight_bytes={self.in_flight_bytes} partial_bytes={self.partial_bytes}>"
        )

    def statistics(self) -> ConnectionStatistics:
        _, *counts = (each.name for each in fields(ConnectionStatistics))
        return ConnectionStatistics(len(self.connections), *(getattr(self, name) for name in counts))

    def begin(self, size_bytes: int) -> None:
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._update_overload()

    def end(self, size_bytes: int) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self.overload is not None:
            self._update_overload()
        if self.in_flight == 0 and self._nothing_in_flight is not None:
            self._nothing_in_flight.set()

    def _update_overload(self) -> None:
        limits = self.limits
        if self.in_flight >= limits.max_in_flight:
            self.overload = f"{limits.max_in_flight} requests in flight on this server"
        elif self.in_flight_bytes >= limits.max_in_flight_bytes:
            self.overload = f"{limits.max_in_flight_bytes} bytes in flight on this server"
        else:
            self.overload = None

    def buffer(self, change_bytes: int) -> None:
        """Count bytes of unfinished frames; above the limit, close the connection with the largest one."""
        self.partial_bytes += change_bytes
        if change_bytes > 0 and self.partial_bytes > self.limits.max_partial_bytes:
            largest = max(self.connections, key=lambda connection: connection.partial_bytes)
            self.closed_for_bad_input += 1
            _log.warning(
                "closed the connection with the largest unfinished frame peer=%s partial_bytes=%d "
                "all_partial_bytes=%d",
                largest.peer_address,
                largest.partial_bytes,
                self.partial_bytes,
            )
            largest.abort()

    def close_idle(self) -> None:
        """Close every connection that has been idle for too long."""
        now = self.clock.monotonic()
        for connection in list(self.connections):
            if connection.idle_for(now) >= self.limits.idle_s:
                self.closed_for_idling += 1
                _log.info("closed an idle connection peer=%s", connection.peer_address)
                connection.abort()

    async def close(self, grace_s: float) -> None:
        """Wait for the requests in flight, cancel those that take too long, then close all connections."""
        self.is_draining = True
        if self.in_flight:
            self._nothing_in_flight = asyncio.Event()
            try:
                async with asyncio.timeout(grace_s):
                    await self._nothing_in_flight.wait()
            except TimeoutError:
                _log.warning("stopped with requests in flight count=%d", self.in_flight)
        unfinished = list(self.tasks)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._close_connections()

    async def _close_connections(self) -> None:
        lost = asyncio.Event()

        def note_the_last(_: SocketChannel) -> None:
            if not self.connections:
                lost.set()

        for connection in list(self.connections):
            connection.on_close(note_the_last)
            connection.close()
        if not self.connections:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await lost.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.on_close(note_the_last)  # it may have opened meanwhile
                connection.abort()
            # A connection whose opening was cancelled may never see its end.
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S if self.connections else 0):
                    await lost.wait()
            self.connections.clear()
