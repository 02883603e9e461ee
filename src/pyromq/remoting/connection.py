"""One duplex connection: both sides send requests, and answers come in any order.

The connection reads frames and keeps its state. `Outbox` writes, `PendingCalls` holds our calls that wait
for an answer, and `Answering` handles the peer's requests.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar, cast

import msgspec

from pyromq.errors import CallTimeout, ConnectionLost, RemoteProtocolError
from pyromq.protocol.catalogue import Answer, Request, decode_answer, encode_request
from pyromq.protocol.direct_answers import DirectAnswers
from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader
from pyromq.protocol.request_forms import FilledForm
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.admission import Grants
from pyromq.remoting.answering import Answering
from pyromq.remoting.connection_group import ConnectionGroup
from pyromq.remoting.networks import is_loopback
from pyromq.remoting.outbox import Outbox
from pyromq.remoting.pending_calls import PendingCalls, Waiting
from pyromq.remoting.soon import soon_of
from pyromq.remoting.tls import certificate_names
from pyromq.security.address_patterns import host_of

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_SHORT_BYTES = 64 * 1024

# Reasons for which reading is paused.
_PEER_DOES_NOT_READ = 1
_TOO_MANY_BYTES_IN_FLIGHT = 2
_OTHERS_ARE_WAITING = 4

_MAX_FRAMES_AT_ONCE = 2048


class ConnectionState(Enum):
    NEW = "new"
    OPEN = "open"
    RETIRED = "retired"
    """Open until the pending calls have ended."""
    CLOSED = "closed"
    """Nothing more is sent; the transport may still be writing."""


_OPEN, _RETIRED, _CLOSED = ConnectionState.OPEN, ConnectionState.RETIRED, ConnectionState.CLOSED


class StartedCall(msgspec.Struct, Generic[A], frozen=True, gc=False):
    """A request that was sent; `answered` is done when it is over."""

    connection: "Connection"
    opaque: int
    request_type: type[Request[A]]
    answered: "asyncio.Future[Frame]"
    timeout_s: float

    def result(self) -> A:
        """The answer, once `answered` is done; raises as `Connection.call` does."""
        self.connection.forget(self.opaque)
        try:
            frame = self.answered.result()
        except TimeoutError:
            raise self.timed_out() from None
        return decode_answer(self.request_type, frame, self.connection.peer_address)

    def timed_out(self) -> CallTimeout:
        address, name = self.connection.peer_address, self.request_type.__name__
        return CallTimeout(f"{address}: no answer to {name} in {self.timeout_s:.3g} s")


class Connection(asyncio.Protocol):
    __slots__ = (
        "__weakref__",
        "_answering",
        "_close_callbacks",
        "_close_reason",
        "_direct_answers",
        "_group",
        "_idle_since",
        "_last_unsent_bytes",
        "_loop",
        "_outbox",
        "_pause_reasons",
        "_pending",
        "_reader",
        "_sign",
        "_soon",
        "certificate_names",
        "fast_path",
        "grants",
        "is_private",
        "local_address",
        "number",
        "partial_bytes",
        "peer_address",
        "put",
        "quick",
        "state",
        "take_opaque",
        "vouched_version",
    )

    def __init__(self, group: ConnectionGroup, peer_address: str | None = None) -> None:
        """`peer_address`: the peer's real address, if a proxy is at the other end of the socket."""
        self.peer_address = peer_address or ""
        self.local_address = ""
        self.number = 0
        """Its place in the order in which connections were opened."""
        self.partial_bytes = 0
        self.vouched_version = -1
        """The version of the rules under which the server's admission vouches for this connection."""
        self.grants: Grants | None = None
        """The rights it is vouched for; None means all."""
        self.is_private = False
        """Whether it is safe from others on the network: they can neither read it nor write to it."""
        self.certificate_names: tuple[str, ...] = ()
        """The names in the peer's certificate, which has been checked."""
        self.state = ConnectionState.NEW
        self._group = group
        self._loop = asyncio.get_running_loop()
        self._soon = soon_of(self._loop)
        self._sign = group.new_signer() if group.new_signer is not None else None
        self._outbox = Outbox(group.limits)
        # Bound here: a method in between would cost every answer a call.
        self.put = self._outbox.put
        self._pending = PendingCalls(self._loop)
        self.take_opaque = self._pending.take_opaque
        self.fast_path = group.fast_path
        self.quick: dict[int, Any] = {}
        """The state by which a client's fast path reads answers, by the numbers of its calls."""
        self._answering = Answering(group, self._outbox)
        self._direct_answers = DirectAnswers()
        # Direct headers do not contain the fields that a signature covers.
        direct = group.direct if group.admission is None else None
        self._reader = FrameReader(
            group.limits.max_frame_bytes, direct or self._direct_answers, _MAX_FRAMES_AT_ONCE
        )
        self._pause_reasons = 0
        self._close_callbacks: list[Callable[[Connection], None]] = []
        self._close_reason = ""
        self._idle_since: float | None = None
        """None if something was read or written since `idle_for` last looked."""
        self._last_unsent_bytes = 0

    def __repr__(self) -> str:
        return (
            f"<Connection {self.local_address} to {self.peer_address} {self.state.value} "
            f"calls={len(self._pending)} in_flight={self.in_flight} unsent_bytes={self.unsent_bytes}>"
        )

    @property
    def is_open(self) -> bool:
        return self.state is _OPEN or self.state is _RETIRED

    @property
    def socket_host(self) -> str:
        """The IP address at the other end of the socket, whatever name or proxy led there."""
        name = self._outbox.transport.get_extra_info("peername")
        return str(name[0]) if name else ""

    @property
    def unsent_bytes(self) -> int:
        waiting = self._outbox.transport.get_write_buffer_size() if self.is_open else 0
        return self._outbox.size_bytes + waiting

    @property
    def pending_calls(self) -> int:
        return len(self._pending)

    @property
    def calls(self) -> PendingCalls:
        """Our calls that wait for an answer."""
        return self._pending

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
        started = self.begin(request, timeout_s)
        try:
            frame = await started.answered
        except TimeoutError:
            raise started.timed_out() from None
        finally:
            self.forget(started.opaque)
        return decode_answer(started.request_type, frame, self.peer_address)

    def begin(self, request: FilledForm[A] | Request[A], timeout_s: float) -> "StartedCall[A]":
        """The same for callers that are not coroutines; only while the connection is writable."""
        opaque = self._pending.take_opaque()
        request_type: type[Request[A]]
        if type(request) is FilledForm:
            request_type = request.form.request_type
            self._send_filled(request, opaque)
        else:
            assert isinstance(request, Request)
            request_type = type(request)
            self._send_request(request, opaque, oneway=False)
        return StartedCall(self, opaque, request_type, self._pending.wait(opaque, timeout_s), timeout_s)

    def forget(self, opaque: int) -> None:
        """The caller no longer waits for this answer, or it has arrived."""
        self._pending.by_opaque.pop(opaque, None)
        self._direct_answers.expected.pop(opaque, None)
        if self.state is _RETIRED and not self._pending:
            self.close()

    # Calls whose requests are complete frames, and whose answers the fast path may read

    def send_quickly(self, frame: bytes, opaque: int, timeout_s: float) -> "asyncio.Future[Any]":
        """A future of the answer: a Frame, or what the fast path makes of it. `end_quick_call` afterwards."""
        answered = self._pending.wait(opaque, timeout_s)
        self._outbox.put(frame)
        self.flush_soon()
        return answered

    def begin_quickly(self, frame: bytes, opaque: int, waiting: Waiting, timeout_s: float) -> None:
        """The same, for something that waits instead of a future: the fast path finds it in `quick`."""
        self._pending.expect(opaque, waiting, timeout_s)
        self.quick[opaque] = waiting
        self._outbox.put(frame)
        self.flush_soon()

    def end_quick_call(self, opaque: int) -> None:
        self.quick.pop(opaque, None)
        self._pending.by_opaque.pop(opaque, None)
        if self.state is _RETIRED and not self._pending:
            self.close()

    def send_oneway(self, request: Request[Any]) -> None:
        """Send a request without an answer. Await `wait_writable` between many of them."""
        self._send_request(request, self._pending.take_opaque(), oneway=True)

    @property
    def is_writable(self) -> bool:
        return self.state is _OPEN and not self._outbox.is_blocked

    async def wait_writable(self) -> None:
        """Wait while too much is waiting to be sent."""
        await self._outbox.wait_writable()

    async def _wait_writable_for(self, timeout_s: float) -> float:
        """Wait until another request can be sent; returns the time that is left."""
        deadline = self._loop.time() + timeout_s
        try:
            async with asyncio.timeout_at(deadline):
                await self.wait_writable()
        except TimeoutError:
            raise CallTimeout(f"{self.peer_address}: the request was not sent in {timeout_s} s") from None
        return deadline - self._loop.time()

    def _send_request(self, request: Request[Any], opaque: int, *, oneway: bool) -> None:
        if self.state is not _OPEN and not self.is_open:
            raise self._lost()
        frame = encode_request(request, opaque, form=self._group.form, oneway=oneway)
        if self._sign is not None:
            self._sign(frame)
        self._outbox.put_frame(frame)
        self.flush_soon()

    def _send_filled(self, request: FilledForm[Any], opaque: int) -> None:
        if self.state is not _OPEN and not self.is_open:
            raise self._lost()
        form, body = request.form, request.body
        head = form.head(request.values, opaque, len(body), self._group.limits.max_frame_bytes)
        self._outbox.put_whole(head, body)
        self._direct_answers.expected[opaque] = form.read_answer
        self.flush_soon()

    def _lost(self) -> ConnectionLost:
        return ConnectionLost(f"{self.peer_address}: {self._close_reason or 'the connection is closed'}")

    def _take_answer(self, frame: Frame) -> None:
        if not self._pending.take(frame):
            self._group.unmatched_answers += 1
            _log.debug("dropped an unmatched answer peer=%s opaque=%d", self.peer_address, frame.opaque)

    # Reading

    def data_received(self, data: bytes) -> None:
        self._idle_since = None
        group = self._group
        admission = group.admission
        if self.fast_path is not None and (admission is None or self.vouched_version == admission.version):
            data = self._take_fast_path(data)
            if not data:
                return
        reader = self._reader
        if reader.damage is not None:
            return  # Earlier frames are still being answered.
        self._take_frames(reader.feed(data))
        if reader.has_more or reader.damage is not None:
            self._continue_or_close()

    def _take_frames(self, frames: list[Frame]) -> None:
        if frames:
            self._group.frames_read += len(frames)
            if self._answering.backlog:
                self._answering.backlog += frames
            else:
                self._answering.handle(frames, self, self._take_answer)
        self._count_partial()

    def _continue_or_close(self) -> None:
        """Arrange for the unhandled frames to be handled later; after bytes that are not a frame, close."""
        if self._pause_reasons & _OTHERS_ARE_WAITING:
            return
        reader = self._reader
        if self._answering.backlog or reader.has_more:
            if not self._pause_reasons & _PEER_DOES_NOT_READ:
                self.yield_turn()
        elif reader.damage is not None:
            self._close_for_bad_input(reader.damage)

    def yield_turn(self) -> None:
        """Pause reading, and continue with the backlog after all other connections have had a turn."""
        self._pause_reading(_OTHERS_ARE_WAITING)
        self._pause_reasons |= _OTHERS_ARE_WAITING  # also if reading never pauses
        self._loop.call_soon(self._resume_reading, _OTHERS_ARE_WAITING)

    def _handle_backlog(self) -> None:
        """Handle frames that had to wait; resume reading when no reason to pause is left."""
        if self.is_open and not self._pause_reasons & (_OTHERS_ARE_WAITING | _PEER_DOES_NOT_READ):
            if self._answering.backlog:
                frames, self._answering.backlog = self._answering.backlog, []
                self._answering.handle(frames, self, self._take_answer)
            elif self._reader.has_more:
                self._take_frames(self._reader.feed(b""))
            self._continue_or_close()
        if not self._pause_reasons and self.is_open:
            self._outbox.transport.resume_reading()

    def _count_partial(self) -> None:
        change = self._reader.buffered_bytes - self.partial_bytes
        if change and self.is_open:
            self.partial_bytes += change
            self._group.buffer(change)

    def _take_fast_path(self, data: bytes) -> bytes:
        """Offer the data to the fast path; returns the rest, which the general path has to handle."""
        group = self._group
        fast_path = self.fast_path
        if (
            self._answering.backlog
            or self._pause_reasons
            or group.is_draining
            or self._answering.overload
            or group.overload
            or fast_path is None
        ):
            return data
        if self.partial_bytes:
            # Most unfinished frames are short. Do not copy a long one before it is complete.
            if self.partial_bytes > _SHORT_BYTES and self._reader.missing_bytes > len(data):
                return data
            data = self._reader.take_rest() + data
            self._count_partial()
        while data:
            frames, position = fast_path(data, self)
            if not frames:
                break
            group.frames_read += frames
            data = data[position:]
            is_much = bool(data) and self._outbox.is_full
            if self._outbox.size_bytes:
                self.flush()
            # The fast path stops at a frame for the general path, or when the outbox is full. In the latter
            # case it continues, unless the peer does not read.
            if not is_much or self._pause_reasons:
                break
        return data

    def defer(self, size_bytes: int) -> None:
        """Count a group of requests that are answered later, together."""
        self._answering.begin(size_bytes, self)

    def settle(self, answers: bytes, size_bytes: int) -> None:
        """Send the answers to deferred requests."""
        self._answering.end(size_bytes, self)
        self._outbox.put(answers)
        self.flush_soon()
        self._group.end(size_bytes)

    def pause_reading_for_load(self) -> None:
        self._pause_reading(_TOO_MANY_BYTES_IN_FLIGHT)

    def resume_reading_after_load(self) -> None:
        self._resume_reading(_TOO_MANY_BYTES_IN_FLIGHT)

    def _pause_reading(self, reason: int) -> None:
        if not self._group.pauses_reading:
            return
        if not self._pause_reasons and self.is_open:
            self._outbox.transport.pause_reading()
        self._pause_reasons |= reason

    def _resume_reading(self, reason: int) -> None:
        if not self._pause_reasons & reason:
            return
        self._pause_reasons &= ~reason
        self._handle_backlog()

    # Writing

    def flush_soon(self) -> None:
        """Write everything that is sent in this turn of the loop at once, at its end."""
        outbox = self._outbox
        if outbox.size_bytes >= self._group.limits.write_high_water_bytes:
            self.flush()
        elif not outbox.is_corked:
            outbox.is_corked = True
            self._soon.call(self.flush)

    def flush(self) -> None:
        if not self._outbox.flush():
            return
        self._idle_since = None
        if self._outbox.is_blocked:
            unsent_bytes = self._outbox.transport.get_write_buffer_size()
            if unsent_bytes > self._group.limits.max_unsent_bytes_per_connection:
                self._group.closed_for_not_reading += 1
                _log.warning(
                    "closed a connection whose peer does not read peer=%s unsent_bytes=%d",
                    self.peer_address,
                    unsent_bytes,
                )
                self._close_reason = "the peer does not read"
                self.abort()

    def pause_writing(self) -> None:
        self._outbox.block()
        self._pause_reading(_PEER_DOES_NOT_READ)

    def resume_writing(self) -> None:
        self._outbox.unblock()
        self._resume_reading(_PEER_DOES_NOT_READ)

    # Beginning and end

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._outbox.transport = connected = cast(asyncio.Transport, transport)
        is_proxied = bool(self.peer_address)
        connected.set_write_buffer_limits(high=self._group.limits.write_high_water_bytes)
        self.peer_address = self.peer_address or format_socket_address(transport.get_extra_info("peername"))
        self.local_address = format_socket_address(transport.get_extra_info("sockname"))
        is_unix = isinstance(transport.get_extra_info("sockname"), str)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.certificate_names = certificate_names(tls)
        peer, local = host_of(self.peer_address), host_of(self.local_address)
        is_near = is_unix or is_loopback(peer) or peer == local  # a machine's own address, whichever it is
        self.is_private = tls is not None or (is_near and not is_proxied)
        self.state = _OPEN
        self._group.opened += 1
        self.number = self._group.opened
        self._group.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.state = _CLOSED
        self._group.connections.pop(self, None)
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
        """Call `callback` once when the connection has closed."""
        self._close_callbacks.append(callback)

    def close(self) -> None:
        """Send everything in the outbox, then close."""
        if self.is_open:
            self._close_reason = self._close_reason or "closed by this side"
            self.flush()
            self._end()
            self._outbox.transport.close()

    def retire(self) -> None:
        """Close as soon as no calls are pending."""
        if self.state is _OPEN:
            self.state = _RETIRED
        if not self._pending:
            self.close()

    def abort(self) -> None:
        self._close_reason = self._close_reason or "closed by this side"
        self._end()
        self._forget_partial()
        self._outbox.transport.abort()

    def _end(self) -> None:
        self.state = _CLOSED
        self._outbox.close()

    def _forget_partial(self) -> None:
        self._group.buffer(-self.partial_bytes)
        self.partial_bytes = 0

    def _close_for_bad_input(self, damage: RemoteProtocolError) -> None:
        self._group.closed_for_bad_input += 1
        _log.warning(
            "closed a connection that does not speak the protocol peer=%s: %s", self.peer_address, damage
        )
        self._close_reason = str(damage)
        self.close()

    def idle_for(self, now: float) -> float:
        """How long nothing was read or written; only as precise as the calls of this method are frequent."""
        unsent_bytes = self._outbox.transport.get_write_buffer_size()
        if self._idle_since is None or unsent_bytes != self._last_unsent_bytes:
            self._idle_since = now
            self._last_unsent_bytes = unsent_bytes
        return now - self._idle_since
