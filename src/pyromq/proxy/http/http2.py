"""One request on a stream of the front's HTTP/2 connections, which otherwise carry gRPC calls."""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from math import inf
from typing import Any, Final, Protocol

from pyromq.http2 import hpack
from pyromq.proxy.grpc.call import Call, CallOrigin, Method, Shape
from pyromq.proxy.grpc.metadata import Metadata
from pyromq.proxy.http.exchange import Head, Headers, RequestBody
from pyromq.proxy.http.problems import HttpError, PeerGone
from pyromq.proxy.http.websocket import WebSocket

_log = logging.getLogger(__name__)

_NAME: Final = "/http"
"""All of them together, for metrics."""
_WEBSOCKET: Final = b"websocket"
_OF_HTTP_1: Final = frozenset((b"connection", b"keep-alive", b"transfer-encoding"))


class StreamOrigin(CallOrigin, Protocol):
    """The connection of a stream."""

    def begin(self, call: Call, block: bytes) -> None: ...

    def end_stream(self, call: Call) -> None: ...

    def hold(self, call: Call, *, is_held: bool) -> None: ...

    def give_up(self, call: Call) -> None: ...


class Http2Exchange(Call):
    """A call of another kind: its connection counts, cancels and ends it like the others."""

    __slots__ = ("_origin", "_protocol", "_socket", "_stall_s", "answer_has_begun", "body", "head")

    def __init__(
        self,
        connection: StreamOrigin,
        stream_id: int,
        headers: list[hpack.Header],
        is_secure: bool,
        body: RequestBody,
        stall_s: float,
        handler: Callable[[Any], Any],
    ) -> None:
        raw = dict(headers)
        method, target = raw[b":method"], raw[b":path"]
        shown = [each for each in headers if each[0][:1] != b":"]
        shown.append((b"host", raw.get(b":authority", raw.get(b"host", b""))))
        served = Method(Shape.BOTH_STREAMS, None, handler)
        now = asyncio.get_running_loop().time()
        super().__init__(connection, stream_id, _NAME, served, Metadata(headers), now, inf)
        self.head = Head.of(method, target, shown, connection.peer_address, is_secure)
        self.body = body
        self.answer_has_begun = False
        self._origin = connection
        self._stall_s = stall_s
        self._protocol = raw.get(b":protocol")
        self._socket: WebSocket | None = None

    is_raw = True

    def received(self, data: bytes, has_ended: bool) -> None:
        if self._socket is not None and self._socket.is_accepted:
            self._socket.feed(data)
            if has_ended:
                self._socket.lost()
            return
        self.body.feed(data)
        if has_ended:
            self.body.end()

    async def begin(self, status: int, headers: Headers) -> None:
        self.answer_has_begun = True
        sent = [each for each in headers if each[0] not in _OF_HTTP_1]
        self._origin.begin(self, hpack.encode([(b":status", b"%d" % HTTPStatus(status)), *sent]))

    async def write(self, data: bytes) -> None:
        if not self.is_open:
            raise PeerGone("the stream is closed")
        if self.head.method == "HEAD" or not data:
            return
        self.put_bytes(data)
        await self.drain()

    def end(self) -> None:
        self._origin.end_stream(self)

    def socket(self) -> WebSocket | None:
        """A stream that CONNECT makes one (RFC 8441)."""
        if self.head.method != "CONNECT":
            return None
        if self._protocol != _WEBSOCKET:
            raise HttpError(501, "CONNECT is for WebSockets only")
        if self.head.headers.get("sec-websocket-version") != "13":
            raise HttpError(400, "no WebSocket can be opened: expected sec-websocket-version 13")
        self._socket = WebSocket.on_stream(self, self.head.headers, self.body.max_bytes)
        return self._socket

    def close_socket(self) -> None:
        """The stream ends with its WebSocket."""
        if self._socket is not None and self._socket.is_accepted:
            self.end()

    # As the carrier of a WebSocket

    async def become(self, socket: WebSocket, protocol: str | None) -> bytes:
        if self.body.is_whole:
            raise HttpError(400, "the stream has ended")
        chosen = [] if protocol is None else [(b"sec-websocket-protocol", protocol.encode())]
        await self.begin(200, chosen)
        return self.body.take()

    def put_bytes(self, data: bytes) -> None:
        if not self._connection.send(self, data) and self._drained is None:
            self._drained = asyncio.get_running_loop().create_future()

    async def drain(self) -> None:
        if self._drained is not None:
            try:
                async with asyncio.timeout(self._stall_s):
                    await asyncio.shield(self._drained)
            except TimeoutError:
                _log.info("ending an HTTP/2 stream that is not read peer=%s", self.peer_address)
                self._origin.give_up(self)
                raise PeerGone("it did not read its answer") from None
        if not self.is_open:
            raise PeerGone("the stream is closed")

    def pause_reading(self) -> None:
        self._origin.hold(self, is_held=True)

    def resume_reading(self) -> None:
        self._origin.hold(self, is_held=False)
