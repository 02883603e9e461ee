"""Answers the peer's requests on one connection: calls the handler and puts its answer into the outbox.

All frames of one read are handled together, unless that takes so long that other connections would wait. A
request that is answered later counts as in flight until then. At the limit, further requests that may have
to wait are refused.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from pyromq.errors import LocalProtocolError, Refused
from pyromq.protocol.catalogue import Answer, Declaration, RawAnswer, decode_request, encode_answer
from pyromq.protocol.codes import V5_3_1, ResponseCode
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame
from pyromq.remoting.channel import SocketChannel
from pyromq.remoting.connection_group import ConnectionGroup
from pyromq.remoting.outbox import Outbox
from pyromq.remoting.routing import Caller, RequestRoute

_log = logging.getLogger(__name__)

_MAX_REMARK_CHARS = 1024
_FRAME_COST_BYTES = 1024
"""The memory that a waiting request takes, without its body and its texts."""

_TURN_S = 0.005
"""How long the frames of one connection may take before other connections have a turn. The decoders and the
handlers bound the time of a single frame."""


class Answering:
    __slots__ = (
        "_backlog_received_at",
        "_group",
        "_outbox",
        "backlog",
        "in_flight",
        "in_flight_bytes",
        "overload",
    )

    def __init__(self, group: ConnectionGroup, outbox: Outbox) -> None:
        self._group = group
        self._outbox = outbox
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.overload: str | None = None
        """Why requests that may have to wait are refused."""
        self.backlog: list[Frame] = []
        """Frames that wait until the peer has read its answers, or until others have had their turn."""
        self._backlog_received_at: float | None = None
        """When the frames were read that wait for others."""

    def handle(
        self, frames: list[Frame], connection: SocketChannel, take_answer: Callable[[Frame], None]
    ) -> None:
        group = self._group
        routes = group.routes
        observe = group.observer.request_handled if group.observer is not None else None
        monotonic = group.clock.monotonic
        admission = group.admission
        outbox, high_water_bytes = self._outbox, group.limits.write_high_water_bytes
        started = monotonic()
        turn_ends = started + _TURN_S
        received_at, self._backlog_received_at = self._backlog_received_at, None
        if received_at is None:
            received_at = started
        outbox.is_corked = True
        for position, frame in enumerate(frames):
            if frame.flag & RESPONSE_FLAG:
                take_answer(frame)
                continue
            route = routes.get(frame.code)
            result: int | None
            if group.is_draining and route is not None and _is_refused_while_draining(route, frame):
                result = self._answer_go_away(frame)
            elif route is not None and route.may_wait and (overload := self.overload or group.overload):
                result = self._answer_overload(frame, overload)
            else:
                caller = Caller(connection, frame, received_at)
                try:
                    if admission is not None:
                        admission.identify(caller)
                    if route is None:
                        result = self._answer_unsupported(frame)
                    else:
                        request = decode_request(route.declaration, frame)
                        if admission is not None:
                            admission.authorize(route.declaration, request, caller)
                        answer = route.handler(request, caller)
                        if route.may_answer_later and self._is_deferred(
                            connection, route, caller, answer, started
                        ):
                            result = None
                        else:
                            result = self._answer(route.declaration, answer, frame)
                except Exception as problem:
                    result = self._answer_problem(frame, problem, connection)
                if caller.allowed and result is not None:
                    self._note_outcome(caller, route, result)
            now = monotonic()
            if observe is not None and result is not None:
                declaration = route.declaration if route is not None else None
                observe(declaration, frame.code, result, now - started, False)
            started = now
            if now > turn_ends and position + 1 < len(frames):
                self.backlog = frames[position + 1 :]
                self._backlog_received_at = received_at
                connection.yield_turn()
                break
            if outbox.size_bytes >= high_water_bytes:
                connection.flush()
                outbox.is_corked = True
                if outbox.is_blocked and group.pauses_reading:
                    # The peer is not reading: keep the remaining frames for later.
                    self.backlog = frames[position + 1 :]
                    break
        connection.flush()

    # Answers that come later

    def _is_deferred(
        self, connection: SocketChannel, route: RequestRoute, caller: Caller, answer: Any, started: float
    ) -> bool:
        """Whether the answer comes later; if so, arrange that it is sent then."""
        if route.is_async:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_task(answer)
            # The loop itself holds tasks only weakly.
            self._group.tasks.add(future)
        elif isinstance(answer, asyncio.Future):
            future = answer
        else:
            return False
        frame = caller.frame
        size_bytes = _FRAME_COST_BYTES + len(frame.body) + len(frame.remark or "")
        size_bytes += sum(map(len, frame.ext)) + sum(map(len, frame.ext.values()))
        self.begin(size_bytes, connection)
        future.add_done_callback(partial(self._finish, connection, route, caller, size_bytes, started))
        return True

    def _finish(
        self,
        connection: SocketChannel,
        route: RequestRoute,
        caller: Caller,
        size_bytes: int,
        started: float,
        future: "asyncio.Future[Any]",
    ) -> None:
        group, frame = self._group, caller.frame
        group.tasks.discard(future)
        self.end(size_bytes, connection)
        try:
            result = self._answer(route.declaration, future.result(), frame)
        except asyncio.CancelledError:
            result = self._answer_code(frame, ResponseCode.SYSTEM_ERROR, "the request was cancelled")
        except Exception as problem:
            result = self._answer_problem(frame, problem, connection)
        connection.flush_soon()
        if caller.allowed:
            self._note_outcome(caller, route, result)
        if group.observer is not None:
            seconds = group.clock.monotonic() - started
            group.observer.request_handled(route.declaration, frame.code, result, seconds, True)
        group.end(size_bytes)

    def _note_outcome(self, caller: Caller, route: RequestRoute | None, result: int) -> None:
        if self._group.admission is not None and route is not None:
            self._group.admission.finished(caller, route.declaration, result)

    def begin(self, size_bytes: int, connection: SocketChannel) -> None:
        """Count a request that is answered later."""
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._group.begin(size_bytes)
        self._update_overload(connection)

    def end(self, size_bytes: int, connection: SocketChannel) -> None:
        """Count a request as answered; call `group.end` after putting the answer into the outbox."""
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self.overload is not None:
            self._update_overload(connection)

    def _update_overload(self, connection: SocketChannel) -> None:
        limits = self._group.limits
        if self.in_flight_bytes >= limits.max_in_flight_bytes_per_connection:
            self.overload = f"{limits.max_in_flight_bytes_per_connection} bytes in flight on this connection"
            connection.pause_reading_for_load()
            return
        if self.overload is not None:
            connection.resume_reading_after_load()
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

    def _answer_problem(self, frame: Frame, problem: Exception, connection: SocketChannel) -> int:
        if isinstance(problem, Refused):
            # Its stack holds the request, and often a future that holds the refusal: such a cycle would stay.
            problem.__cause__ = problem.__context__ = problem.__traceback__ = None
            return self._answer_code(frame, problem.code, _sendable(problem.remark or "") or None)
        _log.error("a handler failed code=%d peer=%s", frame.code, connection.peer_address, exc_info=problem)
        return self._answer_code(
            frame, ResponseCode.SYSTEM_ERROR, _sendable(f"{type(problem).__name__}: {problem}")
        )

    def _answer_unsupported(self, frame: Frame) -> int:
        self._group.unsupported_requests += 1
        # java: the remark starts with a space
        remark = f" request type {frame.code} not supported"
        if (reason := self._group.unserved.get(frame.code)) is not None:
            remark += f": {reason}"
        return self._answer_code(frame, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)

    def _answer_go_away(self, frame: Frame) -> int:
        self._group.go_away_answers += 1
        # java: older clients do not know that code, and try another server after this one
        knows = frame.version > V5_3_1
        code = ResponseCode.GO_AWAY if knows else ResponseCode.SERVICE_NOT_AVAILABLE
        return self._answer_code(frame, code, "please go away: this server is stopping")

    def _answer_overload(self, frame: Frame, overload: str) -> int:
        self._group.busy_answers += 1
        # java: clients and tools know the prefix
        return self._answer_code(frame, ResponseCode.SYSTEM_BUSY, f"[OVERLOAD]system busy: {overload}")


def _is_refused_while_draining(route: RequestRoute, frame: Frame) -> bool:
    """Whether a stopping server refuses a request; one that may have to wait would delay the stop."""
    return route.may_wait or (frame.version > V5_3_1 and not frame.flag & ONEWAY_FLAG)


def _sendable(remark: str) -> str:
    """The remark, cut to the maximum length and without characters that UTF-8 cannot encode."""
    return remark[:_MAX_REMARK_CHARS].encode(errors="replace").decode()
