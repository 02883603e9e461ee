"""One HTTP/1.1 connection: h11 reads and writes, wsproto does so once it is a WebSocket.

Requests are answered one after the other. While one is answered, little more is read. Each wait has a limit:
for a request's head, for its body, for the next request, and for a peer that reads its answer slowly.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import Any, Protocol, cast

import h11

from pyromq.proxy.http.exchange import Exchange, Head, Headers, RequestBody
from pyromq.proxy.http.problems import PeerGone
from pyromq.proxy.http.websocket import WebSocket
from pyromq.remoting.addresses import format_socket_address
from pyromq.remoting.limits import ServerLimits
from pyromq.remoting.outbox import NOT_CONNECTED

_log = logging.getLogger(__name__)

MAX_HEAD_BYTES = 32 * 1024
_MAX_AHEAD_BYTES = 64 * 1024
"""The limit of what a peer may send before its last request is answered."""


class Owner(Protocol):
    """The server of a connection."""

    limits: ServerLimits
    stall_s: float
    is_draining: bool

    def opened(self, connection: "Http1Connection") -> bool: ...

    def closed(self, connection: "Http1Connection") -> None: ...

    def new_body(self) -> RequestBody: ...

    async def answer(self, exchange: Exchange, *, has_room: bool = True) -> None: ...


class Http1Connection(asyncio.Protocol):
    def __init__(self, server: Owner, source: str | None) -> None:
        self._server = server
        self._source = source
        self._transport = NOT_CONNECTED
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._exchange: Http1Exchange | None = None
        self._task: asyncio.Task[None] | None = None
        self._socket: WebSocket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_head_begun = False
        self._drained: asyncio.Future[None] | None = None
        self._is_lost = self._is_paused = self._is_refused = False
        self.peer_address = source or ""

    def __repr__(self) -> str:
        return f"<Http1Connection from {self.peer_address} answering={self._exchange is not None}>"

    # From the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if not self.peer_address:
            self.peer_address = format_socket_address(transport.get_extra_info("peername"))
        self._transport.set_write_buffer_limits(self._server.limits.write_high_water_bytes)
        self._is_refused = not self._server.opened(self)
        self._wait(self._server.limits.idle_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_lost = True
        self._wait(None)
        self._server.closed(self)
        self.resume_writing()
        if self._socket is not None:
            self._socket.lost()
        if self._task is not None:
            self._task.cancel()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        if self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self._socket is not None and self._socket.is_accepted:
            self._socket.feed(data)
            return
        if not self._has_head_begun and self._exchange is None:
            self._has_head_begun = True
            self._wait(self._server.limits.handshake_s)
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        return False

    def _advance(self) -> None:
        try:
            while True:
                event = self._http.next_event()
                if event is h11.NEED_DATA:
                    break
                if event is h11.PAUSED:
                    if len(self._http.trailing_data[0]) > _MAX_AHEAD_BYTES:
                        self._transport.pause_reading()
                    break
                if isinstance(event, h11.Request):
                    self._begin(event)
                elif isinstance(event, h11.Data) and self._exchange is not None:
                    self._exchange.body.feed(bytes(event.data))
                elif isinstance(event, h11.EndOfMessage) and self._exchange is not None:
                    self._exchange.body.end()
                elif isinstance(event, h11.ConnectionClosed):
                    self._transport.close()
                    break
        except h11.RemoteProtocolError as problem:
            self._broken(problem)

    def _begin(self, request: h11.Request) -> None:
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        if size > MAX_HEAD_BYTES:
            raise h11.RemoteProtocolError(
                f"the head of the request has more than {MAX_HEAD_BYTES} bytes", error_status_hint=431
            )
        self._wait(None)
        self._has_head_begun = False
        is_secure = self._transport.get_extra_info("ssl_object") is not None
        headers = [(bytes(name), bytes(value)) for name, value in request.headers]
        head = Head.of(request.method, request.target, headers, self.peer_address, is_secure)
        exchange = self._exchange = Http1Exchange(self, head, self._server.new_body(), request)
        self._task = self._loop.create_task(self._answer(exchange))

    async def _answer(self, exchange: "Http1Exchange") -> None:
        if self._http.they_are_waiting_for_100_continue:
            self.put(h11.InformationalResponse(status_code=100, headers=[]))
        await self._server.answer(exchange, has_room=not self._is_refused)
        if self._is_lost:
            return
        if self._socket is not None and self._socket.is_accepted:
            self._transport.close()
            return
        self._exchange = self._task = self._socket = None
        if self._server.is_draining or not (
            self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        ):
            # Whatever the peer still sends of a request that was refused is not read.
            self._transport.close()
            return
        self._http.start_next_cycle()
        self._transport.resume_reading()
        self._wait(self._server.limits.idle_s)
        if self._http.trailing_data[0]:
            self._advance()

    def _broken(self, problem: h11.RemoteProtocolError) -> None:
        _log.info("closing an HTTP connection peer=%s: %s", self.peer_address, problem)
        if self._exchange is None and self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            text = f"{problem}\n".encode()
            headers = [
                ("content-type", "text/plain"),
                ("content-length", str(len(text))),
                ("connection", "close"),
            ]
            self.put(h11.Response(status_code=problem.error_status_hint, headers=headers))
            self.put(h11.Data(data=text))
            self.put(h11.EndOfMessage())
        self._transport.close()

    # Waiting

    def _wait(self, seconds: float | None) -> None:
        """Close the connection unless something happens in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if seconds is not None:
            self._timer = self._loop.call_later(seconds, self._transport.close)

    def leave(self) -> None:
        """End what is under way: the server stops."""
        if self._task is not None:
            self._task.cancel()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    # Towards the socket

    def put(self, event: Any) -> None:
        data = self._http.send(event)
        if data:
            self.put_bytes(data)

    def put_bytes(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    async def drain(self) -> None:
        if self._is_paused and not self._is_lost:
            if self._drained is None or self._drained.done():
                self._drained = self._loop.create_future()
            try:
                async with asyncio.timeout(self._server.stall_s):
                    await asyncio.shield(self._drained)
            except TimeoutError:
                _log.info("closing an HTTP connection that does not read peer=%s", self.peer_address)
                self._transport.abort()
                raise PeerGone("it did not read its answer") from None
        if self._is_lost or self._transport.is_closing():
            raise PeerGone("the connection is closed")

    async def become(self, socket: WebSocket, protocol: str | None) -> bytes:
        self._socket = socket
        if self._exchange is not None:
            self._exchange.answer_has_begun = True
        return self._http.trailing_data[0]

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()


class Http1Exchange:
    def __init__(
        self, connection: Http1Connection, head: Head, body: RequestBody, request: h11.Request
    ) -> None:
        self.head = head
        self.body = body
        self.answer_has_begun = False
        self._connection = connection
        self._request = request

    async def begin(self, status: int, headers: Headers) -> None:
        self.answer_has_begun = True
        if not self.body.is_whole:
            headers = [*headers, (b"connection", b"close")]
        self._connection.put(
            h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase.encode())
        )

    async def write(self, data: bytes) -> None:
        if self.head.method != "HEAD":
            self._connection.put(h11.Data(data=data))
        await self._connection.drain()

    def end(self) -> None:
        self._connection.put(h11.EndOfMessage())

    def socket(self) -> WebSocket | None:
        if self.head.headers.get("upgrade", "").lower() != "websocket":
            return None
        return WebSocket.upgraded(self._connection, self._request, self.body.max_bytes)
