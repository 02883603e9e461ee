"""One client's connection: HTTP/2 streams become calls, calls become tasks.

Everything that one read brings is handled together, unless it is much: then in slices, with turns for other
connections in between. Answers that are ready in the same turn of the event loop go out in one write. A call
that its client cancels, or whose deadline passes, is cancelled here.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from math import inf
from types import CoroutineType
from typing import Any, Protocol, cast
from urllib.parse import quote

from google.protobuf.message import DecodeError

from pyromq.http2 import hpack
from pyromq.http2.connection import Http2Connection
from pyromq.http2.events import (
    ConnectionEnded,
    DataReceived,
    Event,
    RequestReceived,
    StreamDrained,
    StreamReset,
    WholeRequest,
)
from pyromq.http2.frames import ErrorCode
from pyromq.http2.limits import Http2Limits
from pyromq.proxy.grpc.call import Call, Later, Method, Shape
from pyromq.proxy.grpc.framing import MessageReader, frame_message
from pyromq.proxy.grpc.metadata import Metadata
from pyromq.proxy.grpc.status import GrpcCode, GrpcError
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.outbox import NOT_CONNECTED
from pyromq.remoting.slices import Slices
from pyromq.remoting.soon import soon_of

_log = logging.getLogger(__name__)

_GRPC = b"application/grpc"
_BEGIN = hpack.encode([(b":status", b"200"), (b"content-type", _GRPC)])
_OK = hpack.encode([(b"grpc-status", b"0")])
_MAX_TIMER_S = 86_400.0
_MAX_MESSAGE_CHARS = 4096
_FEW_EVENTS = 64
"""How many are handled at once; a busy client sends that many calls together."""


def _trailers(error: GrpcError) -> list[hpack.Header]:
    trailers = [(b"grpc-status", str(int(error.code)).encode())]
    if error.message:
        text = quote(error.message[:_MAX_MESSAGE_CHARS], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")
        trailers.append((b"grpc-message", text.encode()))
    if error.code == GrpcCode.UNIMPLEMENTED:
        trailers.append((b"grpc-accept-encoding", b"identity"))
    return trailers


class HttpExchanges(Protocol):
    """Takes the requests that are not calls of gRPC, and all of HTTP/1.1."""

    def __len__(self) -> int:
        """The number of HTTP/1.1 connections."""
        ...

    def new_connection(self, source: str | None) -> asyncio.Protocol:
        """Of HTTP/1.1."""
        ...

    def exchange(
        self, connection: "GrpcConnection", stream_id: int, headers: list[hpack.Header], is_secure: bool
    ) -> Call | None:
        """A request as a raw call; None if there are too many."""
        ...


class ConnectionOwner(Protocol):
    """The server of a connection."""

    http: HttpExchanges | None

    methods: Mapping[str, Method]
    limits: ServerLimits
    http2_limits: Http2Limits
    max_message_bytes: int
    is_draining: bool
    slices: Slices
    """For reads that bring much."""

    def opened(self, connection: "GrpcConnection") -> None: ...

    def closed(self, connection: "GrpcConnection") -> None: ...

    def hold(self, connection: "GrpcConnection", change: int) -> None:
        """Unfinished requests grew or shrank; raises GrpcError if there are too many bytes of them."""
        ...


class GrpcConnection(asyncio.Protocol):
    def __init__(self, server: ConnectionOwner, source: str | None) -> None:
        self._server = server
        self._http2 = Http2Connection(server.http2_limits, takes_protocols=server.http is not None)
        self._transport = NOT_CONNECTED
        self._calls: dict[int, Call] = {}
        self._begun: set[int] = set()
        self._refused: dict[int, bytes] = {}
        """Requests that are not calls, and their status: it is sent when the request has ended."""
        self._loop = asyncio.get_running_loop()
        self._soon = soon_of(self._loop)
        self._is_flush_planned = False
        self._is_write_paused = False
        self._unhandled: deque[Event] = deque()
        """The rest of a large read, which has to wait for another turn."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._is_secure = False
        self.peer_address = source or ""
        self.peer_host = b""
        self.local_address = ("", 0)
        self.idle_since = self._heard_at = self._loop.time()
        self._asked_at = inf

    def __repr__(self) -> str:
        return f"<GrpcConnection from {self.peer_address} calls={len(self._calls)} {self._http2!r}>"

    @property
    def calls(self) -> list[Call]:
        return list(self._calls.values())

    def has_call(self, call: Call) -> bool:
        return self._calls.get(call.stream_id) is call

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self.peer_address:
            self.peer_address = format_socket_address(transport.get_extra_info("peername"))
        self.peer_host = self.peer_address.rpartition(":")[0].strip("[]").encode()
        name = transport.get_extra_info("sockname")
        self.local_address = (str(name[0]), int(name[1])) if name else ("", 0)
        self._transport.set_write_buffer_limits(self._server.limits.write_high_water_bytes)
        self._server.opened(self)
        self._is_secure = transport.get_extra_info("ssl_object") is not None
        _log.debug("gRPC client connected peer=%s tls=%s", self.peer_address, self._is_secure)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._unhandled.clear()
        self._server.closed(self)
        for call in self.calls:
            self._drop(call)

    def data_received(self, data: bytes) -> None:
        self._heard_at, self._asked_at = self._loop.time(), inf
        events = self._http2.receive(data, self._heard_at)
        if len(events) > _FEW_EVENTS or self._unhandled:
            self._unhandled += events
            self._server.slices.run(self._handle_some)
            self._choose_reading()
            return
        for event in events:
            self._handle(event)
        self._flush_behind_handlers()

    def _handle_some(self) -> bool:
        """Handle what waits until the slice is over; whether that is all."""
        while self._unhandled:
            self._handle(self._unhandled.popleft())
            if self._server.slices.is_over():
                break
        self._flush_behind_handlers()
        if self._unhandled:
            return False
        self._choose_reading()
        return True

    def _choose_reading(self) -> None:
        """A peer that does not read gets nothing more to answer for; one that sent much waits until it is
        handled."""
        if self._transport.is_closing():
            return
        if self._is_write_paused or self._unhandled:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _flush_behind_handlers(self) -> None:
        if self._http2.has_output and not self._is_flush_planned:
            # Behind the handlers of streams that have just begun: their first answers go along.
            self._is_flush_planned = True
            self._loop.call_soon(self._flush)

    def pause_writing(self) -> None:
        self._is_write_paused = True
        self._choose_reading()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._choose_reading()

    def _handle(self, event: Event) -> None:
        kind = type(event)
        if kind is WholeRequest:
            self._take_whole(cast(WholeRequest, event))
        elif kind is RequestReceived:
            self._begin(cast(RequestReceived, event))
        elif kind is DataReceived:
            self._take(cast(DataReceived, event))
        elif kind is StreamReset:
            self._refused.pop(cast(StreamReset, event).stream_id, None)
            call = self._calls.get(cast(StreamReset, event).stream_id)
            if call is not None:
                self._drop(call)
        elif kind is StreamDrained:
            call = self._calls.get(cast(StreamDrained, event).stream_id)
            if call is not None:
                call.drained()
        elif kind is ConnectionEnded:
            ended = cast(ConnectionEnded, event)
            log = _log.debug if ended.code == ErrorCode.NO_ERROR else _log.info
            log("closing a gRPC connection peer=%s code=%d: %s", self.peer_address, ended.code, ended.reason)
            self._flush()
            self._transport.close()

    # Calls

    def _begin(self, event: RequestReceived) -> None:
        self._open(event.stream_id, event.headers)
        if event.has_ended:
            self._take(DataReceived(event.stream_id, b"", True))

    def _take_whole(self, event: WholeRequest) -> None:
        call = self._open(event.stream_id, event.headers)
        quick = call.method.quick if call is not None else None
        if call is None or quick is None or len(event.data) > self._server.max_message_bytes:
            self._take(DataReceived(event.stream_id, event.data, True))
            return
        try:
            call.has_begun = quick(event.data, call)
        except Exception as problem:
            self._fail(call, self._unexpected(call, problem))
        else:
            if not call.has_begun:
                self._take(DataReceived(event.stream_id, event.data, True))

    def _open(self, stream_id: int, headers: list[hpack.Header]) -> Call | None:
        """A new call; None if it is none."""
        metadata = Metadata(headers)
        raw = metadata.raw
        is_post = raw(b":method", b"") == b"POST"
        if not is_post or not raw(b"content-type", b"").startswith(_GRPC):
            if self._server.http is not None and not self._server.is_draining:
                return self._open_exchange(stream_id, headers, self._server.http)
            self._refused[stream_id] = b"415" if is_post else b"405"
            return None
        path = raw(b":path", b"").decode("utf-8", "replace")
        try:
            method = self._server.methods.get(path)
            if method is None:
                raise GrpcError(GrpcCode.UNIMPLEMENTED, f"the method {path} is not served")
            if self._server.is_draining:
                raise GrpcError(GrpcCode.UNAVAILABLE, "the server is stopping")
            timeout_s = metadata.timeout_s()
        except GrpcError as error:
            self._end(stream_id, error)
            return None
        now = self._loop.time()
        deadline = now + timeout_s
        call = self._calls[stream_id] = Call(self, stream_id, path, method, metadata, now, deadline)
        if deadline < self._timer_at:
            self._expire_at(deadline)
        if method.shape is Shape.BOTH_STREAMS:
            call.task = self._loop.create_task(self._run_stream(call))
        return call

    def _open_exchange(
        self, stream_id: int, headers: list[hpack.Header], http: "HttpExchanges"
    ) -> Call | None:
        """A new request that is not a call of gRPC; None if there are too many."""
        exchange = http.exchange(self, stream_id, headers, self._is_secure)
        if exchange is None:
            self._refused[stream_id] = b"503"
            return None
        self._calls[stream_id] = exchange
        exchange.task = self._loop.create_task(self._run_stream(exchange))
        return exchange

    def _refuse(self, stream_id: int) -> None:
        status = self._refused.pop(stream_id)
        block = hpack.encode([(b":status", status), (b"content-type", b"text/plain")])
        self._http2.send_headers(stream_id, block)
        self._http2.send_data(stream_id, b"this port speaks gRPC\n")
        self._http2.send_trailers(stream_id, b"")

    def _take(self, event: DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            if event.has_ended and event.stream_id in self._refused:
                self._refuse(event.stream_id)
            return
        if call.is_raw:
            call.received(event.data, event.has_ended)
            return
        reader = call.reader
        if reader is None:
            reader = call.reader = MessageReader(self._server.max_message_bytes)
        try:
            before = reader.held_bytes
            messages = reader.feed(event.data)
            self._server.hold(self, reader.held_bytes - before)
            self._take_messages(call, messages, event.has_ended)
        except GrpcError as error:
            self._fail(call, error)
        except DecodeError as problem:
            self._fail(call, GrpcError(GrpcCode.INTERNAL, f"the request cannot be decoded: {problem}"))

    def _take_messages(self, call: Call, messages: list[bytes], has_ended: bool) -> None:
        if call.method.shape is Shape.BOTH_STREAMS:
            for each in messages:
                call.arrived(call.method.request_type.FromString(each))
            if has_ended:
                call.half_closed()
        elif messages:
            if len(messages) > 1 or call.has_begun:
                raise GrpcError(GrpcCode.INVALID_ARGUMENT, "the call has more than one request")
            call.has_begun = True
            request = call.method.request_type.FromString(messages[0])
            if call.method.shape is Shape.UNARY:
                self.go_on(call, partial(call.method.handler, request, call))
            else:
                call.task = self._loop.create_task(self._run_answers(call, request))
        elif has_ended and not call.has_begun:
            raise GrpcError(GrpcCode.INVALID_ARGUMENT, "the call ended without a whole request")

    def go_on(self, call: Call, work: Callable[[], Any]) -> None:
        """Answer a unary call with what its handler, or the rest of it, returns: most need no task."""
        try:
            answer = work()
        except GrpcError as error:
            self._fail(call, error)
        except Exception as problem:
            self._fail(call, self._unexpected(call, problem))
        else:
            if type(answer) is Later:
                answer.waiting.add_done_callback(lambda _: self.go_on(call, answer.answer))
            elif not isinstance(answer, CoroutineType):
                self._answer(call, answer)
            elif self.has_call(call):
                call.task = self._loop.create_task(self._run_unary(call, answer))
            else:
                answer.close()

    async def _run_unary(self, call: Call, answering: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await answering
        except GrpcError as error:
            self._fail(call, error)
        except Exception as problem:
            self._fail(call, self._unexpected(call, problem))
        else:
            self._answer(call, answer)

    def _answer(self, call: Call, answer: Any) -> None:
        if self._close(call):
            self._http2.answer(call.stream_id, _BEGIN, frame_message(answer.SerializeToString()), _OK)
            self._flush_soon()

    def answer_quickly(self, call: Call, framed: bytes, status: int) -> None:
        """Send the whole answer of a quick call."""
        observe = call.method.observe
        if observe is not None:
            observe(status, self._loop.time() - call.began)
        if self._close(call):
            self._http2.answer(call.stream_id, _BEGIN, framed, _OK)
            self._flush_soon()

    async def _run_answers(self, call: Call, request: Any) -> None:
        await self._run_sending(call, call.method.handler(request, call))

    async def _run_stream(self, call: Call) -> None:
        await self._run_sending(call, call.method.handler(call))

    async def _run_sending(self, call: Call, handling: Any) -> None:
        try:
            await handling
        except GrpcError as error:
            self._fail(call, error)
        except Exception as problem:
            self._fail(call, self._unexpected(call, problem))
        else:
            if self._close(call):
                self._start_answer(call)
                self._http2.send_trailers(call.stream_id, _OK)
                self._begun.discard(call.stream_id)
                self._flush_soon()

    def _unexpected(self, call: Call, problem: Exception) -> GrpcError:
        _log.error("a gRPC call failed call=%r", call, exc_info=problem)
        return GrpcError(GrpcCode.INTERNAL, f"{type(problem).__name__}: {problem}")

    def send(self, call: Call, framed: bytes) -> bool:
        """Send a part of an answer; False if it waits for the peer."""
        if not self.has_call(call):
            return True
        self._start_answer(call)
        is_sent = self._http2.send_data(call.stream_id, framed)
        self._flush_soon()
        return is_sent

    def _start_answer(self, call: Call) -> None:
        if call.stream_id not in self._begun:
            self._begun.add(call.stream_id)
            self._http2.send_headers(call.stream_id, _BEGIN)

    # Raw calls

    def begin(self, call: Call, block: bytes) -> None:
        """Send the headers of an answer."""
        if self.has_call(call):
            self._begun.add(call.stream_id)
            self._http2.send_headers(call.stream_id, block)
            self._flush_soon()

    def end_stream(self, call: Call) -> None:
        """The answer is complete."""
        if self._close(call):
            self._begun.discard(call.stream_id)
            self._http2.send_trailers(call.stream_id, b"")
            self._flush_soon()

    def hold(self, call: Call, *, is_held: bool) -> None:
        """Have the peer send little more, or continue."""
        if self.has_call(call):
            self._http2.hold(call.stream_id, is_held=is_held)
            self._flush_soon()

    def give_up(self, call: Call) -> None:
        """Forget what the peer does not read."""
        if self._close(call):
            self._begun.discard(call.stream_id)
            self._http2.reset(call.stream_id, ErrorCode.CANCEL)
            self._flush_soon()

    # Endings

    def end_call(self, call: Call, error: GrpcError) -> None:
        """End a call for the server's own reasons, and cancel its handler."""
        task = call.task
        self._fail(call, error)
        if task is not None:
            task.cancel()

    def _expire_at(self, deadline: float) -> None:
        """One timer serves all calls: most are answered early."""
        if self._timer is not None:
            self._timer.cancel()
        now = self._loop.time()
        self._timer_at = min(deadline, now + _MAX_TIMER_S)
        self._timer = self._loop.call_later(self._timer_at - now, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time()
        for call in self.calls:
            if call.deadline <= now:
                error = GrpcError(GrpcCode.DEADLINE_EXCEEDED, "the deadline of the call passed")
                self.end_call(call, error)
        soonest = min((call.deadline for call in self._calls.values()), default=inf)
        if soonest < inf:
            self._expire_at(soonest)

    def _fail(self, call: Call, error: GrpcError) -> None:
        if call.is_raw:
            has_begun = call.stream_id in self._begun
            (self.end_stream if has_begun else self.give_up)(call)
        elif self._close(call):
            self._end(call.stream_id, error)
        self._flush_soon()

    def _end(self, stream_id: int, error: GrpcError) -> None:
        trailers = _trailers(error)
        if stream_id in self._begun:
            self._begun.discard(stream_id)
        else:
            trailers = [(b":status", b"200"), (b"content-type", _GRPC), *trailers]
        self._http2.send_trailers(stream_id, hpack.encode(trailers))

    def _drop(self, call: Call) -> None:
        """The caller is gone."""
        if self._close(call):
            self._begun.discard(call.stream_id)
            call.drained()
            if call.task is not None:
                call.task.cancel()

    def _close(self, call: Call) -> bool:
        """Forget a call; False if it was over already."""
        if self._calls.pop(call.stream_id, None) is None:
            return False
        if call.reader is not None:
            self._server.hold(self, -call.reader.held_bytes)
        if not self._calls:
            self.idle_since = self._loop.time()
            self._flush_soon()
        return True

    # Towards the socket

    def leave(self) -> None:
        """Tell the peer that no more calls are taken here; close the connection unless it has calls."""
        self._http2.leave()
        self._flush()
        if not self._calls and not self._http2.waiting_bytes:
            self._transport.close()

    def look_for_peer(self, silent_s: float, patience_s: float) -> None:
        """Ask a peer that has been silent for so long for a sign of life; without one the connection ends."""
        now = self._loop.time()
        if self._heard_at > now - silent_s:
            return
        if self._asked_at == inf:
            self._asked_at = now
            self._http2.ping()
            self._flush_soon()
        elif self._asked_at <= now - patience_s:
            _log.info("closing a gRPC connection whose peer is gone peer=%s", self.peer_address)
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def _flush_soon(self) -> None:
        if not self._is_flush_planned:
            self._is_flush_planned = True
            self._soon.call(self._flush)

    def _flush(self) -> None:
        self._is_flush_planned = False
        output = self._http2.take_output()
        if output and not self._transport.is_closing():
            self._transport.write(output)
            unsent = self._transport.get_write_buffer_size() + self._http2.waiting_bytes
            if unsent > self._server.limits.max_unsent_bytes_per_connection:
                _log.info("closing a gRPC connection that does not read peer=%s", self.peer_address)
                self._transport.abort()
        if self._server.is_draining and not self._calls and not self._http2.waiting_bytes:
            self._transport.close()
