"""One duplex connection: our calls and theirs, side by side, answers in any order.

All frames of one read are handled together and their answers leave in one write. Opaque numbers are ours
alone: an answer is matched against our own calls, whatever numbers the peer uses for its calls.
"""

import asyncio
import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from pyromq.errors import (
    CallTimeout,
    ConnectionLost,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
)
from pyromq.protocol.catalogue import (
    Answer,
    Declaration,
    RawAnswer,
    Request,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
)
from pyromq.protocol.codes import V5_3_1, ResponseCode
from pyromq.protocol.direct_answers import DirectAnswers
from pyromq.protocol.frame import ONEWAY_FLAG, RESPONSE_FLAG, Frame
from pyromq.protocol.framing import FrameReader, encode_head
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.routing import Caller, Route
from pyromq.remoting.traffic import Traffic

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_MAX_REMARK_CHARS = 1024
_FRAME_COST_BYTES = 1024
"""What a waiting request costs beside its body and its texts."""

_SHORT_BYTES = 64 * 1024
_COPIED_BYTES = 16 * 1024

_NOBODY: tuple[None, float] = (None, 0.0)

# Why a socket is not read at the moment.
_PEER_DOES_NOT_READ = 1
_TOO_MANY_BYTES_IN_FLIGHT = 2

NOT_CONNECTED = asyncio.Transport()
"""Stands where the transport will be."""


class Connection(asyncio.Protocol):
    __slots__ = (
        "__weakref__",
        "_backlog",
        "_close_callbacks",
        "_close_reason",
        "_direct_answers",
        "_expiry",
        "_expiry_at",
        "_is_active",
        "_is_corked",
        "_is_retired",
        "_last_active",
        "_last_unsent_bytes",
        "_loop",
        "_next_opaque",
        "_outgoing",
        "_outgoing_bytes",
        "_overload",
        "_pending",
        "_read_stops",
        "_reader",
        "_traffic",
        "_transport",
        "_writable",
        "in_flight",
        "in_flight_bytes",
        "is_open",
        "local_address",
        "partial_bytes",
        "peer_address",
    )

    def __init__(self, traffic: Traffic, peer_address: str | None = None) -> None:
        """`peer_address`: where the peer really is, if that is not the other end of the socket."""
        self.is_open = False
        self.peer_address = peer_address or ""
        self.local_address = ""
        self.in_flight = 0
        self.in_flight_bytes = 0
        self.partial_bytes = 0
        self._traffic = traffic
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = NOT_CONNECTED
        self._direct_answers = DirectAnswers()
        self._reader = FrameReader(traffic.limits.max_frame_bytes, traffic.direct or self._direct_answers)
        self._outgoing: list[bytes | memoryview] = []
        self._outgoing_bytes = 0
        self._is_corked = False
        self._is_retired = False
        self._backlog: list[Frame] = []
        self._read_stops = 0
        self._writable: asyncio.Event | None = None
        self._overload: str | None = None
        self._pending: dict[int, tuple[asyncio.Future[Frame], float]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_at = math.inf
        self._next_opaque = 0
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._close_reason = ""
        self._is_active = True
        self._last_active = 0.0
        self._last_unsent_bytes = 0

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return (
            f"<Connection {self.local_address} to {self.peer_address} {state} calls={len(self._pending)} "
            f"in_flight={self.in_flight} unsent_bytes={self.unsent_bytes}>"
        )

    @property
    def unsent_bytes(self) -> int:
        return self._outgoing_bytes + (self._transport.get_write_buffer_size() if self.is_open else 0)

    @property
    def pending_calls(self) -> int:
        return len(self._pending)

    # Our side: calling

    async def call(self, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        """Send a request and wait for its answer.

        Raises Refused, CallTimeout, ConnectionLost, or RemoteProtocolError if the answer cannot be read.
        """
        while self._writable is not None:
            timeout_s = await self._wait_writable_for(timeout_s)
        opaque = self._take_opaque()
        request_type: type[Request[A]]
        if type(request) is FilledForm:
            request_type = request.form.request_type
            self._send_filled(request, opaque)
        else:
            assert isinstance(request, Request)
            request_type = type(request)
            self._send_request(request, opaque, oneway=False)
        answered: asyncio.Future[Frame] = self._loop.create_future()
        deadline = self._loop.time() + timeout_s
        self._pending[opaque] = (answered, deadline)
        if deadline < self._expiry_at:
            self._expire_at(deadline)
        try:
            frame = await answered
        except TimeoutError:
            name = request_type.__name__
            raise CallTimeout(f"{self.peer_address}: no answer to {name} in {timeout_s:.3g} s") from None
        finally:
            self._pending.pop(opaque, None)
            self._direct_answers.expected.pop(opaque, None)
            if self._is_retired and not self._pending:
                self.close()
        return decode_answer(request_type, frame)

    def send_oneway(self, request: Request[Any]) -> None:
        """Send a request that nobody answers; who sends many of them awaits `wait_writable` in between."""
        self._send_request(request, self._take_opaque(), oneway=True)

    async def wait_writable(self) -> None:
        """Wait while much is waiting to be sent already."""
        while self._writable is not None:
            await self._writable.wait()

    async def _wait_writable_for(self, timeout_s: float) -> float:
        """Wait until there is room for another request; the time that is left."""
        deadline = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self.wait_writable()
        except TimeoutError:
            raise CallTimeout(f"{self.peer_address}: could not be sent in {timeout_s} s") from None
        return deadline - self._loop.time()

    def _take_opaque(self) -> int:
        opaque = self._next_opaque
        # java: the counter is an int32 that wraps through the negative numbers
        self._next_opaque = opaque + 1 if opaque != 0x7FFFFFFF else -0x80000000
        return opaque

    def _send_request(self, request: Request[Any], opaque: int, *, oneway: bool) -> None:
        if not self.is_open:
            raise ConnectionLost(f"{self.peer_address}: {self._close_reason or 'the connection is closed'}")
        frame = encode_request(request, opaque, form=self._traffic.form, oneway=oneway)
        if self._traffic.prepare is not None:
            self._traffic.prepare(frame)
        self._enqueue(frame)
        self._flush_soon()

    def _send_filled(self, request: FilledForm[Any], opaque: int) -> None:
        if not self.is_open:
            raise ConnectionLost(f"{self.peer_address}: {self._close_reason or 'the connection is closed'}")
        form, body = request.form, request.body
        head = form.head(request.values, opaque, len(body), self._traffic.limits.max_frame_bytes)
        self._direct_answers.expected[opaque] = form.read_answer
        self._outgoing += (head, body)
        self._outgoing_bytes += len(head) + len(body)
        self._flush_soon()

    def _expire_at(self, deadline: float) -> None:
        """One timer does for all calls: most are answered long before, and most wait equally long."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry_at = deadline
        self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        self._expiry, self._expiry_at = None, math.inf
        soonest = math.inf
        for answered, deadline in self._pending.values():
            if deadline > now:
                soonest = min(soonest, deadline)
            elif not answered.done():
                answered.set_exception(TimeoutError())
        if soonest < math.inf:
            self._expire_at(soonest)

    def _take_answer(self, frame: Frame) -> None:
        answered, _ = self._pending.pop(frame.opaque, _NOBODY)
        if answered is None or answered.done():
            self._traffic.unmatched_answers += 1
            _log.debug("dropped an unmatched answer peer=%s opaque=%d", self.peer_address, frame.opaque)
        else:
            answered.set_result(frame)

    # Their side: answering

    def data_received(self, data: bytes) -> None:
        self._is_active = True
        if self._traffic.express is not None:
            data = self._go_express(data)
            if not data:
                return
        reader = self._reader
        frames = reader.feed(data)
        if frames:
            self._traffic.frames_read += len(frames)
            if self._backlog:
                self._backlog += frames
            else:
                self._handle(frames)
        self._count_partial()
        if reader.damage is not None:
            self._hang_up(reader.damage)

    def _count_partial(self) -> None:
        change = self._reader.buffered_bytes - self.partial_bytes
        if change and self.is_open:
            self.partial_bytes += change
            self._traffic.buffer(change)

    def _go_express(self, data: bytes) -> bytes:
        """What the short road leaves over."""
        traffic = self._traffic
        express = traffic.express
        if (
            self._backlog
            or self._read_stops
            or traffic.is_draining
            or self._overload
            or traffic.overload
            or express is None
        ):
            return data
        if self.partial_bytes:
            # Unfinished frames are short as a rule; a long one is not copied before it is complete.
            if self.partial_bytes > _SHORT_BYTES and self._reader.missing_bytes > len(data):
                return data
            data = self._reader.take_rest() + data
            self._count_partial()
        while data:
            frames, position = express(data, self)
            if not frames:
                break
            traffic.frames_read += frames
            data = data[position:]
            is_much = self._outgoing_bytes >= traffic.limits.write_high_water_bytes
            if self._outgoing:
                self._flush()
            # What ended at a frame for the other road is over; after much it goes on if the peer reads it.
            if not is_much or self._read_stops:
                break
        return data

    def put(self, answers: bytes | memoryview) -> None:
        """Send whole frames, or the next part of one, with whatever else leaves in this turn of the loop."""
        self._outgoing.append(answers)
        self._outgoing_bytes += len(answers)

    def defer(self, size_bytes: int) -> None:
        """Count in requests that are answered later, together."""
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        self._traffic.begin(size_bytes)
        self._judge_load()

    def settle(self, answers: bytes, size_bytes: int) -> None:
        """Send the answers to requests that were deferred."""
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self._overload is not None:
            self._judge_load()
        self.put(answers)
        self._flush_soon()
        self._traffic.end(size_bytes)

    def _handle(self, frames: list[Frame]) -> None:
        traffic = self._traffic
        routes = traffic.routes
        observe = traffic.observer.request_handled if traffic.observer is not None else None
        monotonic = traffic.clock.monotonic
        admit = traffic.admit
        high_water_bytes = traffic.limits.write_high_water_bytes
        started = monotonic() if observe is not None else 0.0
        self._is_corked = True
        for position, frame in enumerate(frames):
            if frame.flag & RESPONSE_FLAG:
                self._take_answer(frame)
                continue
            route = routes.get(frame.code)
            if route is None:
                result = self._decline(frame)
            elif traffic.is_draining and self._is_sent_away(route, frame):
                result = self._send_away(frame)
            elif route.may_wait and (overload := self._overload or traffic.overload):
                result = self._refuse_for_overload(frame, overload)
            else:
                try:
                    request = decode_request(route.declaration, frame)
                    caller = Caller(self, frame)
                    if admit is not None:
                        admit(route.declaration, caller)
                    answer = route.handler(request, caller)
                    if route.may_wait and self._is_deferred(route, frame, answer, started):
                        continue
                    result = self._answer(route.declaration, answer, frame)
                except Exception as problem:
                    result = self._answer_problem(frame, problem)
            if observe is not None:
                now = monotonic()
                declaration = route.declaration if route is not None else None
                observe(declaration, frame.code, result, now - started, False)
                started = now
            if self._outgoing_bytes >= high_water_bytes:
                self._flush()
                self._is_corked = True
                if self._read_stops & _PEER_DOES_NOT_READ:
                    # Nor is what was read already answered into the void.
                    self._backlog = frames[position + 1 :]
                    break
        self._flush()

    def _is_deferred(self, route: Route, frame: Frame, answer: Any, started: float) -> bool:
        """Whether the answer comes later; if so, see to it that it is sent then."""
        traffic = self._traffic
        if route.is_async:
            future: asyncio.Future[Any] = self._loop.create_task(answer)
            # The loop itself holds tasks only weakly.
            traffic.tasks.add(future)
        elif isinstance(answer, asyncio.Future):
            future = answer
        else:
            return False
        size_bytes = _FRAME_COST_BYTES + len(frame.body) + len(frame.remark or "")
        size_bytes += sum(map(len, frame.ext)) + sum(map(len, frame.ext.values()))
        self.in_flight += 1
        self.in_flight_bytes += size_bytes
        traffic.begin(size_bytes)
        self._judge_load()
        future.add_done_callback(partial(self._finish, route, frame, size_bytes, started))
        return True

    def _finish(
        self, route: Route, frame: Frame, size_bytes: int, started: float, future: "asyncio.Future[Any]"
    ) -> None:
        traffic = self._traffic
        traffic.tasks.discard(future)
        self.in_flight -= 1
        self.in_flight_bytes -= size_bytes
        if self._overload is not None:
            self._judge_load()
        try:
            result = self._answer(route.declaration, future.result(), frame)
        except asyncio.CancelledError:
            result = self._answer_code(frame, ResponseCode.SYSTEM_ERROR, "the request was cancelled")
        except Exception as problem:
            result = self._answer_problem(frame, problem)
        self._flush_soon()
        if traffic.observer is not None:
            seconds = traffic.clock.monotonic() - started
            traffic.observer.request_handled(route.declaration, frame.code, result, seconds, True)
        traffic.end(size_bytes)

    def _judge_load(self) -> None:
        limits = self._traffic.limits
        if self.in_flight_bytes >= limits.max_in_flight_bytes_per_connection:
            self._overload = f"{limits.max_in_flight_bytes_per_connection} bytes in flight on this connection"
            self._stop_reading(_TOO_MANY_BYTES_IN_FLIGHT)
            return
        self._read_again(_TOO_MANY_BYTES_IN_FLIGHT)
        if self.in_flight >= limits.max_in_flight_per_connection:
            self._overload = f"{limits.max_in_flight_per_connection} requests in flight on this connection"
        else:
            self._overload = None

    def _answer(self, declaration: Declaration, answer: Answer | RawAnswer | None, frame: Frame) -> int:
        if frame.flag & ONEWAY_FLAG:
            return ResponseCode.SUCCESS if answer is None else answer.code
        if answer is None:
            return self._answer_code(frame, ResponseCode.SUCCESS, None)
        try:
            self._enqueue(encode_answer(declaration, answer, frame))
        except LocalProtocolError as problem:
            _log.warning("an answer to %s could not be sent: %s", declaration.name, problem)
            return self._answer_code(
                frame, ResponseCode.SYSTEM_ERROR, f"answer to {declaration.name}: {problem}"
            )
        return answer.code

    def _answer_code(self, frame: Frame, code: int, remark: str | None) -> int:
        if not frame.flag & ONEWAY_FLAG:
            self._enqueue(frame.answer(code, remark))
        return code

    def _answer_problem(self, frame: Frame, problem: Exception) -> int:
        if isinstance(problem, Refused):
            return self._answer_code(frame, problem.code, _sendable(problem.remark or "") or None)
        _log.error("a handler failed code=%d peer=%s", frame.code, self.peer_address, exc_info=problem)
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

    def _is_sent_away(self, route: Route, frame: Frame) -> bool:
        """Whether a stopping server leaves a request to others: what may have to wait would hold it up."""
        return route.may_wait or (frame.version > V5_3_1 and not frame.flag & ONEWAY_FLAG)

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

    # Writing

    def _enqueue(self, frame: Frame) -> None:
        body = frame.body
        head = encode_head(frame, len(body), self._traffic.limits.max_frame_bytes)
        self._outgoing.append(head)
        self._outgoing_bytes += len(head) + len(body)
        if body:
            self._outgoing.append(body)

    def _flush_soon(self) -> None:
        """What is sent in one turn of the loop leaves in one write."""
        if self._outgoing_bytes >= self._traffic.limits.write_high_water_bytes:
            self._flush()
        elif not self._is_corked:
            self._is_corked = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_corked = False
        outgoing = self._outgoing
        if not outgoing:
            return
        size_bytes = self._outgoing_bytes
        self._outgoing = []
        self._outgoing_bytes = 0
        if not self.is_open:
            return
        self._is_active = True
        if len(outgoing) == 1:
            self._transport.write(outgoing[0])
        elif size_bytes <= _COPIED_BYTES:
            self._transport.write(b"".join(outgoing))
        else:
            # Copying much into one piece costs more than handing over the pieces.
            self._transport.writelines(outgoing)
        if self._writable is not None:
            unsent_bytes = self._transport.get_write_buffer_size()
            if unsent_bytes > self._traffic.limits.max_unsent_bytes_per_connection:
                self._traffic.closed_for_not_reading += 1
                _log.warning(
                    "closed a connection that is not read peer=%s unsent_bytes=%d",
                    self.peer_address,
                    unsent_bytes,
                )
                self._close_reason = "the peer does not read"
                self.abort()

    def pause_writing(self) -> None:
        self._writable = asyncio.Event()
        self._stop_reading(_PEER_DOES_NOT_READ)

    def resume_writing(self) -> None:
        self._wake_writers()
        self._read_again(_PEER_DOES_NOT_READ)

    def _wake_writers(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    def _stop_reading(self, reason: int) -> None:
        if not self._traffic.stops_reading:
            return
        if not self._read_stops and self.is_open:
            self._transport.pause_reading()
        self._read_stops |= reason

    def _read_again(self, reason: int) -> None:
        if not self._read_stops & reason:
            return
        self._read_stops &= ~reason
        if self._backlog and not self._read_stops & _PEER_DOES_NOT_READ:
            frames, self._backlog = self._backlog, []
            self._handle(frames)
        if not self._read_stops and self.is_open:
            self._transport.resume_reading()

    # Beginning and end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._traffic.limits.write_high_water_bytes)
        self.peer_address = self.peer_address or format_socket_address(transport.get_extra_info("peername"))
        self.local_address = format_socket_address(transport.get_extra_info("sockname"))
        self.is_open = True
        self._last_active = self._traffic.clock.monotonic()
        self._traffic.opened += 1
        self._traffic.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._traffic.connections.discard(self)
        self._forget_partial()
        self._backlog.clear()
        self._outgoing.clear()
        self._outgoing_bytes = 0
        reason = self._close_reason or (str(exc) if exc is not None else "the peer closed the connection")
        self._close_reason = reason
        if self._expiry is not None:
            self._expiry.cancel()
        for answered, _ in self._pending.values():
            if not answered.done():
                answered.set_exception(ConnectionLost(f"{self.peer_address}: {reason}"))
        self._pending.clear()
        self._wake_writers()
        for callback in self._close_callbacks:
            try:
                callback(self)
            except Exception:
                _log.exception("a close callback failed peer=%s", self.peer_address)
        self._close_callbacks.clear()

    def on_close(self, callback: "Callable[[Connection], None]") -> None:
        """Call back once when the connection has ended."""
        self._close_callbacks.append(callback)

    def close(self) -> None:
        """Send what is still to be sent, then close."""
        if self.is_open:
            self._close_reason = self._close_reason or "closed by this side"
            self._flush()
            self.is_open = False
            self._transport.close()

    def retire(self) -> None:
        """Close once the calls that are under way have ended."""
        self._is_retired = True
        if not self._pending:
            self.close()

    def abort(self) -> None:
        """Close at once."""
        self._close_reason = self._close_reason or "closed by this side"
        self.is_open = False
        self._forget_partial()
        self._transport.abort()

    def _forget_partial(self) -> None:
        self._traffic.buffer(-self.partial_bytes)
        self.partial_bytes = 0

    def _hang_up(self, damage: RemoteProtocolError) -> None:
        self._traffic.closed_for_bad_input += 1
        _log.warning(
            "closed a connection that does not speak the protocol peer=%s: %s", self.peer_address, damage
        )
        self._close_reason = str(damage)
        self.close()

    def idle_for(self, now: float) -> float:
        """How long there was no traffic, as precisely as this is asked."""
        unsent_bytes = self._transport.get_write_buffer_size()
        if self._is_active or unsent_bytes != self._last_unsent_bytes:
            self._is_active = False
            self._last_active = now
            self._last_unsent_bytes = unsent_bytes
        return now - self._last_active


def _sendable(remark: str) -> str:
    """A remark that every header can carry: not too long, and nothing that UTF-8 cannot write."""
    return remark[:_MAX_REMARK_CHARS].encode(errors="replace").decode()
