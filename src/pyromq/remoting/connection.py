"""One duplex connection: our calls and theirs, side by side, answers in any order.

It reads, and it knows whether it is open. What it sends goes through the outbox, our own calls wait among the
pending calls, and what the peer asks is answered by `answering`.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, TypeVar, cast

from pyromq.errors import CallTimeout, ConnectionLost, RemoteProtocolError
from pyromq.protocol.catalogue import Answer, Request, decode_answer, encode_request
from pyromq.protocol.direct_answers import DirectAnswers
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.answering import Answering
from pyromq.remoting.outbox import Outbox
from pyromq.remoting.pending_calls import PendingCalls
from pyromq.remoting.traffic import Traffic

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_SHORT_BYTES = 64 * 1024

# Why a socket is not read at the moment.
_PEER_DOES_NOT_READ = 1
_TOO_MANY_BYTES_IN_FLIGHT = 2
_OTHERS_WAIT = 4

_MAX_FRAMES_AT_ONCE = 2048


class State(Enum):
    CONNECTING = auto()
    OPEN = auto()
    RETIRED = auto()
    """Open until the calls that are under way have ended."""
    CLOSED = auto()


class Connection(asyncio.Protocol):
    __slots__ = (
        "__weakref__",
        "_answering",
        "_close_callbacks",
        "_close_reason",
        "_direct_answers",
        "_is_active",
        "_last_active",
        "_last_unsent_bytes",
        "_loop",
        "_others_wait",
        "_outbox",
        "_pending",
        "_read_stops",
        "_reader",
        "_state",
        "_traffic",
        "local_address",
        "partial_bytes",
        "peer_address",
        "vouched_version",
    )

    def __init__(self, traffic: Traffic, peer_address: str | None = None) -> None:
        """`peer_address`: where the peer really is, if that is not the other end of the socket."""
        self.peer_address = peer_address or ""
        self.local_address = ""
        self.partial_bytes = 0
        self.vouched_version = -1
        """The version of the rules under which the server's admission vouches for this connection."""
        self._state = State.CONNECTING
        self._traffic = traffic
        self._loop = asyncio.get_running_loop()
        self._outbox = Outbox(traffic.limits)
        self._pending = PendingCalls(self._loop)
        self._answering = Answering(traffic, self._outbox)
        self._direct_answers = DirectAnswers()
        self._reader = FrameReader(
            traffic.limits.max_frame_bytes, traffic.direct or self._direct_answers, _MAX_FRAMES_AT_ONCE
        )
        self._read_stops = 0
        self._others_wait = False
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._close_reason = ""
        self._is_active = True
        self._last_active = 0.0
        self._last_unsent_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<Connection {self.local_address} to {self.peer_address} {self._state.name.lower()} "
            f"calls={len(self._pending)} in_flight={self.in_flight} unsent_bytes={self.unsent_bytes}>"
        )

    @property
    def is_open(self) -> bool:
        return self._state is State.OPEN or self._state is State.RETIRED

    @property
    def unsent_bytes(self) -> int:
        waiting = self._outbox.transport.get_write_buffer_size() if self.is_open else 0
        return self._outbox.size_bytes + waiting

    @property
    def pending_calls(self) -> int:
        return len(self._pending)

    @property
    def in_flight(self) -> int:
        return self._answering.in_flight

    # Calling

    async def call(self, request: Request[A] | FilledForm[A], timeout_s: float) -> A:
        """Send a request and wait for its answer.

        Raises Refused, CallTimeout, ConnectionLost, or RemoteProtocolError if the answer cannot be read.
        """
        while self._outbox.is_blocked:
            timeout_s = await self._wait_writable_for(timeout_s)
        opaque = self._pending.take_opaque()
        request_type: type[Request[A]]
        if type(request) is FilledForm:
            request_type = request.form.request_type
            self._send_filled(request, opaque)
        else:
            assert isinstance(request, Request)
            request_type = type(request)
            self._send_request(request, opaque, oneway=False)
        try:
            frame = await self._pending.wait(opaque, timeout_s)
        except TimeoutError:
            name = request_type.__name__
            raise CallTimeout(f"{self.peer_address}: no answer to {name} in {timeout_s:.3g} s") from None
        finally:
            self._pending.forget(opaque)
            self._direct_answers.expected.pop(opaque, None)
            if self._state is State.RETIRED and not self._pending:
                self.close()
        return decode_answer(request_type, frame)

    def send_oneway(self, request: Request[Any]) -> None:
        """Send a request that nobody answers; who sends many of them awaits `wait_writable` in between."""
        self._send_request(request, self._pending.take_opaque(), oneway=True)

    async def wait_writable(self) -> None:
        """Wait while much is waiting to be sent already."""
        await self._outbox.wait_writable()

    async def _wait_writable_for(self, timeout_s: float) -> float:
        """Wait until there is room for another request; the time that is left."""
        deadline = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self.wait_writable()
        except TimeoutError:
            raise CallTimeout(f"{self.peer_address}: could not be sent in {timeout_s} s") from None
        return deadline - self._loop.time()

    def _send_request(self, request: Request[Any], opaque: int, *, oneway: bool) -> None:
        self._check_open()
        frame = encode_request(request, opaque, form=self._traffic.form, oneway=oneway)
        if self._traffic.prepare is not None:
            self._traffic.prepare(frame)
        self._outbox.put_frame(frame)
        self.flush_soon()

    def _send_filled(self, request: FilledForm[Any], opaque: int) -> None:
        self._check_open()
        form, body = request.form, request.body
        self._outbox.put(form.head(request.values, opaque, len(body), self._traffic.limits.max_frame_bytes))
        self._outbox.put(body)
        self._direct_answers.expected[opaque] = form.read_answer
        self.flush_soon()

    def _check_open(self) -> None:
        if not self.is_open:
            raise ConnectionLost(f"{self.peer_address}: {self._close_reason or 'the connection is closed'}")

    def _take_answer(self, frame: Frame) -> None:
        if not self._pending.take(frame):
            self._traffic.unmatched_answers += 1
            _log.debug("dropped an unmatched answer peer=%s opaque=%d", self.peer_address, frame.opaque)

    # Reading

    def data_received(self, data: bytes) -> None:
        self._is_active = True
        is_vouched_for = self._is_vouched_for()
        if self._traffic.fast_path is not None and is_vouched_for:
            data = self._take_fast_path(data)
            if not data:
                return
        reader = self._reader
        if reader.damage is not None:
            return  # What came before it is still being answered.
        self._take_frames(reader.feed(data))
        if reader.has_more or reader.damage is not None:
            self._see_to_the_rest()

    def _is_vouched_for(self) -> bool:
        traffic = self._traffic
        if traffic.admission is None:
            return True
        is_vouched_for = self.vouched_version == traffic.admission.version
        # Direct headers leave out what a signature is made of.
        self._reader.direct = traffic.direct if is_vouched_for else None
        return is_vouched_for

    def _take_frames(self, frames: list[Frame]) -> None:
        if frames:
            self._traffic.frames_read += len(frames)
            if self._answering.backlog:
                self._answering.backlog += frames
            else:
                self._answering.handle(frames, self, self._take_answer)
        self._count_partial()

    def _see_to_the_rest(self) -> None:
        """What was read and not handled is not forgotten; what is not a frame ends the connection."""
        if self._others_wait:
            return
        reader = self._reader
        if self._answering.backlog or reader.has_more:
            if not self._read_stops & _PEER_DOES_NOT_READ:
                self.let_others_go_first()
        elif reader.damage is not None:
            self._hang_up(reader.damage)

    def let_others_go_first(self) -> None:
        """Read no more, and go on with what was read when everybody else has had a turn."""
        self._others_wait = True
        self._stop_reading(_OTHERS_WAIT)
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._others_wait = False
        self._read_stops &= ~_OTHERS_WAIT
        self._handle_the_rest()

    def _handle_the_rest(self) -> None:
        """Handle what was read and had to wait; read on as soon as nothing speaks against it."""
        if self.is_open and not self._others_wait and not self._read_stops & _PEER_DOES_NOT_READ:
            if self._answering.backlog:
                frames, self._answering.backlog = self._answering.backlog, []
                self._answering.handle(frames, self, self._take_answer)
            elif self._reader.has_more:
                self._is_vouched_for()
                self._take_frames(self._reader.feed(b""))
            self._see_to_the_rest()
        if not self._read_stops and self.is_open:
            self._outbox.transport.resume_reading()

    def _count_partial(self) -> None:
        change = self._reader.buffered_bytes - self.partial_bytes
        if change and self.is_open:
            self.partial_bytes += change
            self._traffic.buffer(change)

    def _take_fast_path(self, data: bytes) -> bytes:
        """What the fast path leaves over."""
        traffic = self._traffic
        fast_path = traffic.fast_path
        if (
            self._answering.backlog
            or self._read_stops
            or traffic.is_draining
            or self._answering.overload
            or traffic.overload
            or fast_path is None
        ):
            return data
        if self.partial_bytes:
            # Unfinished frames are short as a rule; a long one is not copied before it is complete.
            if self.partial_bytes > _SHORT_BYTES and self._reader.missing_bytes > len(data):
                return data
            data = self._reader.take_rest() + data
            self._count_partial()
        while data:
            frames, position = fast_path(data, self)
            if not frames:
                break
            traffic.frames_read += frames
            data = data[position:]
            is_much = self._outbox.is_full
            self.flush()
            # What ended at a frame for the general path is over; after much it goes on if the peer reads it.
            if not is_much or self._read_stops:
                break
        return data

    def put(self, answers: bytes | memoryview) -> None:
        """Send whole frames, or the next part of one, with whatever else leaves in this turn of the loop."""
        self._outbox.put(answers)

    def defer(self, size_bytes: int) -> None:
        """Count in requests that are answered later, together."""
        self._answering.begin(size_bytes, self)

    def settle(self, answers: bytes, size_bytes: int) -> None:
        """Send the answers to requests that were deferred."""
        self._answering.end(size_bytes, self)
        self._outbox.put(answers)
        self.flush_soon()
        self._traffic.end(size_bytes)

    def stop_reading_for_load(self) -> None:
        self._stop_reading(_TOO_MANY_BYTES_IN_FLIGHT)

    def read_again_after_load(self) -> None:
        self._read_again(_TOO_MANY_BYTES_IN_FLIGHT)

    def _stop_reading(self, reason: int) -> None:
        if not self._traffic.stops_reading:
            return
        if not self._read_stops and self.is_open:
            self._outbox.transport.pause_reading()
        self._read_stops |= reason

    def _read_again(self, reason: int) -> None:
        if not self._read_stops & reason:
            return
        self._read_stops &= ~reason
        self._handle_the_rest()

    # Writing

    def flush_soon(self) -> None:
        """What is sent in one turn of the loop leaves in one write."""
        if self._outbox.is_full:
            self.flush()
        elif self._outbox.cork():
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        if not self._outbox.flush():
            return
        self._is_active = True
        if self._outbox.is_blocked:
            unsent_bytes = self._outbox.transport.get_write_buffer_size()
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
        self._outbox.block()
        self._stop_reading(_PEER_DOES_NOT_READ)

    def resume_writing(self) -> None:
        self._outbox.unblock()
        self._read_again(_PEER_DOES_NOT_READ)

    # Beginning and end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outbox.transport = connected = cast(asyncio.Transport, transport)
        connected.set_write_buffer_limits(high=self._traffic.limits.write_high_water_bytes)
        self.peer_address = self.peer_address or format_socket_address(transport.get_extra_info("peername"))
        self.local_address = format_socket_address(transport.get_extra_info("sockname"))
        self._state = State.OPEN
        self._last_active = self._traffic.clock.monotonic()
        self._traffic.opened += 1
        self._traffic.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = State.CLOSED
        self._traffic.connections.discard(self)
        self._forget_partial()
        self._answering.backlog.clear()
        self._outbox.close()
        reason = self._close_reason or (str(exc) if exc is not None else "the peer closed the connection")
        self._close_reason = reason
        self._pending.fail(f"{self.peer_address}: {reason}")
        self._outbox.unblock()
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
            self.flush()
            self._end()
            self._outbox.transport.close()

    def retire(self) -> None:
        """Close once the calls that are under way have ended."""
        if not self._pending:
            self.close()
        elif self._state is State.OPEN:
            self._state = State.RETIRED

    def abort(self) -> None:
        """Close at once."""
        self._close_reason = self._close_reason or "closed by this side"
        self._end()
        self._forget_partial()
        self._outbox.transport.abort()

    def _end(self) -> None:
        self._state = State.CLOSED
        self._outbox.close()

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
        unsent_bytes = self._outbox.transport.get_write_buffer_size()
        if self._is_active or unsent_bytes != self._last_unsent_bytes:
            self._is_active = False
            self._last_active = now
            self._last_unsent_bytes = unsent_bytes
        return now - self._last_active
