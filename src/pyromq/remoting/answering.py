"""What the peer asks on one connection: each request goes to its handler, and its answer into the outbox.

All frames of one read are handled together, unless they take so long that others would have to wait. An
answer that is not there at once counts as in flight until it is; too many of them, and further requests that
may have to wait are refused.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyromq.errors import LocalProtocolError, Refused
from pyromq.protocol.catalogue import Answer, Declaration, RawAnswer, decode_request, encode_answer
from pyromq.protocol.codes import V5_3_1, ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame
from pyromq.remoting.outbox import Outbox
from pyromq.remoting.routing import Caller, Route
from pyromq.remoting.traffic import Traffic

if TYPE_CHECKING:
    from pyromq.remoting.connection import Connection

_log = logging.getLogger(__name__)

_MAX_REMARK_CHARS = 1024
_FRAME_COST_BYTES = 1024
"""What a waiting request costs beside its body and its texts."""

_TURN_S = 0.005
"""How long the frames of one connection may take before everybody else has a turn. What one frame takes is
bounded where it is read and handled."""


class Answering:
    __slots__ = ("_outbox", "_traffic", "backlog", "in_flight", "in_flight_bytes", "overload")

    def __init__(self, traffic: Traffic, outbox: Outbox) -> None:
        self._traffic = traffic
        self._outbox = outbox
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.overload: str | None = None
        """Why requests that may have to wait are refused."""
        self.backlog: list[Frame] = []
        """What was read and waits until the peer has read its answers, or others have had their turn."""

    @property
    def has_too_many_bytes(self) -> bool:
        return self.in_flight_bytes >= self._traffic.limits.max_in_flight_bytes_per_connection

    def handle(
        self, frames: list[Frame], connection: "Connection", take_answer: Callable[[Frame], None]
    ) -> None:
        traffic = self._traffic
        routes = traffic.routes
        observe = traffic.observer.request_handled if traffic.observer is not None else None
        monotonic = traffic.clock.monotonic
        admission = traffic.admission
        outbox = self._outbox
        started = monotonic()
        turn_ends = started + _TURN_S
        outbox.cork()
        for position, frame in enumerate(frames):
            if frame.flag & RESPONSE_FLAG:
                take_answer(frame)
                continue
            route = routes.get(frame.code)
            result: int | None
            if traffic.is_draining and route is not None and _is_sent_away(route, frame):
                result = self._send_away(frame)
            elif route is not None and route.may_wait and (overload := self.overload or traffic.overload):
                result = self._refuse_for_overload(frame, overload)
            else:
                try:
                    caller = Caller(connection, frame)
                    if admission is not None:
                        admission.identify(caller)
                    if route is None:
                        result = self._decline(frame)
                    else:
                        request = decode_request(route.declaration, frame)
                        if admission is not None:
                            admission.authorize(route.declaration, request, caller)
                        answer = route.handler(request, caller)
                        if route.may_wait and self._is_deferred(connection, route, frame, answer, started):
                            result = None
                        else:
                            result = self._answer(route.declaration, answer, frame)
                except Exception as problem:
                    result = self._answer_problem(frame, problem, connection)
            now = monotonic()
            if observe is not None and result is not None:
                declaration = route.declaration if route is not None else None
                observe(declaration, frame.code, result, now - started, False)
            started = now
            if now > turn_ends and position + 1 < len(frames):
                self.backlog = frames[position + 1 :]
                connection.let_others_go_first()
                break
            if outbox.is_full:
                connection.flush()
                outbox.cork()
                if outbox.is_blocked and traffic.stops_reading:
                    # The peer is not reading: keep the remaining frames for later.
                    self.backlog = frames[position + 1 :]
                    break
        connection.flush()

    # Answers that come later

    def _is_deferred(
        self, connection: "Connection", route: Route, frame: Frame, answer: Any, started: float
    ) -> bool:
        """Whether the answer comes later; if so, see to it that it is sent then."""
        if route.is_async:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_task(answer)
            # The loop itself holds tasks only weakly.
            self._traffic.tasks.add(future)
        elif isinstance(answer, asyncio.Future):
            future = answer
        else:
            return False
        size_bytes = _FRAME_COST_BYTES + len(frame.body) + len(frame.remark or "")
        size_bytes += sum(map(len, frame.ext)) + sum(map(len, frame.ext.values()))
        self.begin(size_bytes, connection)
        future.add_done_callback(partial(self._finish, connection, route, frame, size_bytes, started))
        return True

    def _finish(
        self,
        connection: "Connection",
        route: Route,
        frame: Frame,
        size_bytes: int,
        started: float,
        future: "asyncio.Future[Any]",
    ) -> None:
        traffic = self._traffic
        traffic.tasks.discard(future)
        self.end(size_bytes, connection)
        try:
            result = self._answer(route.declaration, future.result(), frame)
        except asyncio.CancelledError:
            result = self._answer_code(frame, ResponseCode.SYSTEM_ERROR, "the request was cancelled")
        except Exception as problem:
            result = self._answer_problem(frame, problem, connection)
        connection.flush_soon()
        if traffic.observer is not None:
            seconds = traffic.clock.monotonic() - started
            traffic.observer.request_handled(route.declaration, frame.code, result, seconds, True)
        traffic.end(size_bytes)

    def begin(self, size_bytes: int, connection: "Connection") -> None:
        """Count in what is answered later."""
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._traffic.begin(size_bytes)
        self._judge_load(connection)

    def end(self, size_bytes: int, connection: "Connection") -> None:
        """The answer is there; `traffic.end` follows once it has been put into the outbox."""
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self.overload is not None:
            self._judge_load(connection)

    def _judge_load(self, connection: "Connection") -> None:
        limits = self._traffic.limits
        if self.has_too_many_bytes:
            self.overload = f"{limits.max_in_flight_bytes_per_connection} bytes in flight on this connection"
            connection.stop_reading_for_load()
            return
        connection.read_again_after_load()
        if self.in_flight >= limits.max_in_flight_per_connection:
            self.overload = f"{limits.max_in_flight_per_connection} requests in flight on this connection"
        else:
            self.overload = None

    # Answers of every kind

    def _answer(self, declaration: Declaration, answer: Answer | RawAnswer | None, frame: Frame) -> int:
        if frame.flag & ONEWAY_FLAG:
            return ResponseCode.SUCCESS if answer is None else answer.code
        if answer is None:
            return self._answer_code(frame, ResponseCode.SUCCESS, None)
        try:
            self._outbox.put_frame(encode_answer(declaration, answer, frame))
        except LocalProtocolError as problem:
            _log.warning("an answer to %s could not be sent: %s", declaration.name, problem)
            return self._answer_code(
                frame, ResponseCode.SYSTEM_ERROR, f"answer to {declaration.name}: {problem}"
            )
        return answer.code

    def _answer_code(self, frame: Frame, code: int, remark: str | None) -> int:
        if not frame.flag & ONEWAY_FLAG:
            self._outbox.put_frame(frame.answer(code, remark))
        return code

    def _answer_problem(self, frame: Frame, problem: Exception, connection: "Connection") -> int:
        if isinstance(problem, Refused):
            return self._answer_code(frame, problem.code, _sendable(problem.remark or "") or None)
        _log.error("a handler failed code=%d peer=%s", frame.code, connection.peer_address, exc_info=problem)
        return self._answer_code(
            frame, ResponseCode.SYSTEM_ERROR, _sendable(f"{type(problem).__name__}: {problem}")
        )

    def _decline(self, frame: Frame) -> int:
        self._traffic.unsupported_requests += 1
        # java: the remark starts with a space
        remark = f" request type {frame.code} not supported"
        if (reason := self._traffic.unserved.get(frame.code)) is not None:
            remark += f": {reason}"
        return self._answer_code(frame, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def _send_away(self, frame: Frame) -> int:
        self._traffic.go_away_answers += 1
        # java: older clients do not know that code, and try another server after this one
        knows = frame.version > V5_3_1
        code = ResponseCode.GO_AWAY if knows else ResponseCode.SERVICE_NOT_AVAILABLE
        return self._answer_code(frame, code, "please go away: this server is stopping")

    def _refuse_for_overload(self, frame: Frame, overload: str) -> int:
        self._traffic.busy_answers += 1
        # java: clients and tools know the prefix
        return self._answer_code(frame, ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy: {overload}")


def _is_sent_away(route: Route, frame: Frame) -> bool:
    """Whether a stopping server leaves a request to others: what may have to wait would hold it up."""
    return route.may_wait or (frame.version > V5_3_1 and not frame.flag & ONEWAY_FLAG)


def _sendable(remark: str) -> str:
    """A remark that every header can carry: not too long, and nothing that UTF-8 cannot write."""
    return remark[:_MAX_REMARK_CHARS].encode(errors="replace").decode()
