"""What all connections of one server, or of one dialer, share: the table, the limits, the totals.

Totals are kept when something begins and ends, so that asking "is there room" costs one attribute.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyromq.clock import Clock, SystemClock
from pyromq.protocol.catalogue import Declaration
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.remoting.admission import Admission
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.routing import Route, Routes

if TYPE_CHECKING:
    from pyromq.remoting.connection import Connection

_log = logging.getLogger(__name__)

_FAREWELL_S = 1.0
"""How long closing connections may take to send what they still hold."""


class Observer(Protocol):
    """Told about every request that was handled; it counts, it never waits and never raises."""

    def request_handled(
        self, declaration: Declaration | None, code: int, result_code: int, seconds: float, waited: bool
    ) -> None:
        """`declaration` is None for codes nobody serves; oneways count with the code they would have got.
        `waited`: the answer was not there at once."""
        ...


class FastPath(Protocol):
    """A shorter way for requests that come by the hundred thousand: it sees the bytes of a read first."""

    def __call__(self, data: bytes, connection: "Connection") -> tuple[int, int]:
        """Handle whole frames from the start on, up to the first one that is not for this path; how many
        frames, and how many bytes. Answers go to `connection.put` or, later, `connection.settle`."""
        ...


@dataclass(frozen=True, slots=True)
class TrafficStatistics:
    """Totals of one server or dialer, at one moment and since its start."""

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


class Traffic:
    def __init__(
        self,
        *,
        routes: Routes | None = None,
        limits: ServerLimits | None = None,
        clock: Clock | None = None,
        observer: Observer | None = None,
        admission: Admission | None = None,
        prepare: Callable[[Frame], None] | None = None,
        form: int = HeaderForm.JSON,
        direct: DirectHeaders | None = None,
        fast_path: FastPath | None = None,
        stops_reading: bool = True,
    ) -> None:
        self.direct = direct
        self.fast_path = fast_path
        self.routes: dict[int, Route] = routes.by_code if routes is not None else {}
        self.unserved: dict[int, str] = routes.unserved if routes is not None else {}
        self.limits = limits if limits is not None else ServerLimits()
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.observer = observer
        self.admission = admission
        self.prepare = prepare
        self.form = form
        self.stops_reading = stops_reading
        self.is_draining = False
        self.overload: str | None = None
        self.connections: set[Connection] = set()
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
        self._calm: asyncio.Event | None = None

    def __repr__(self) -> str:
        return (
            f"<Traffic connections={len(self.connections)} in_flight={self.in_flight} "
            f"in_flight_bytes={self.in_flight_bytes} partial_bytes={self.partial_bytes}>"
        )

    def statistics(self) -> TrafficStatistics:
        return TrafficStatistics(
            connections=len(self.connections),
            in_flight=self.in_flight,
            in_flight_bytes=self.in_flight_bytes,
            partial_bytes=self.partial_bytes,
            opened=self.opened,
            frames_read=self.frames_read,
            busy_answers=self.busy_answers,
            go_away_answers=self.go_away_answers,
            unsupported_requests=self.unsupported_requests,
            unmatched_answers=self.unmatched_answers,
            closed_for_bad_input=self.closed_for_bad_input,
            closed_for_idling=self.closed_for_idling,
            closed_for_not_reading=self.closed_for_not_reading,
        )

    def begin(self, size_bytes: int) -> None:
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._judge_load()

    def end(self, size_bytes: int) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self.overload is not None:
            self._judge_load()
        if self.in_flight == 0 and self._calm is not None:
            self._calm.set()

    def _judge_load(self) -> None:
        limits = self.limits
        if self.in_flight >= limits.max_in_flight:
            self.overload = f"{limits.max_in_flight} requests in flight on this server"
        elif self.in_flight_bytes >= limits.max_in_flight_bytes:
            self.overload = f"{limits.max_in_flight_bytes} bytes in flight on this server"
        else:
            self.overload = None

    def buffer(self, change_bytes: int) -> None:
        """Count bytes of unfinished frames; when there are too many, give up the largest of them."""
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
        """Close every connection that was neither read nor written for too long."""
        now = self.clock.monotonic()
        for connection in list(self.connections):
            if connection.idle_for(now) >= self.limits.idle_s:
                self.closed_for_idling += 1
                _log.info("closed an idle connection peer=%s", connection.peer_address)
                connection.abort()

    async def close(self, grace_s: float) -> None:
        """Let what is in flight finish, cancel what does not, then close every connection."""
        self.is_draining = True
        if self.in_flight:
            self._calm = asyncio.Event()
            try:
                async with asyncio.timeout(grace_s):
                    await self._calm.wait()
            except TimeoutError:
                _log.warning("stopped with requests in flight count=%d", self.in_flight)
        unfinished = list(self.tasks)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        await self._close_connections()

    async def _close_connections(self) -> None:
        lost = asyncio.Event()

        def note_the_last(_: "Connection") -> None:
            if not self.connections:
                lost.set()

        for connection in list(self.connections):
            connection.on_close(note_the_last)
            connection.close()
        if not self.connections:
            return
        try:
            async with asyncio.timeout(_FAREWELL_S):
                await lost.wait()
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            await lost.wait()
