"""All HTTP that is not gRPC, on connections of both versions, within common limits."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from pyromq.http2 import hpack
from pyromq.proxy.http.exchange import Exchange, RequestBody
from pyromq.proxy.http.http1 import Http1Connection
from pyromq.proxy.http.http2 import Http2Exchange, StreamOrigin
from pyromq.proxy.http.problems import HttpError, PeerGone
from pyromq.remoting.limits import ServerLimits

_log = logging.getLogger(__name__)

_BODY_S: Final = 30.0

Handler = Callable[[Exchange], Awaitable[None]]
Refuse = Callable[[Exchange, HttpError], Awaitable[None]]


class HttpServer:
    """`handler` answers every request; `refuse` those for which there is no room."""

    def __init__(
        self,
        handler: Handler,
        refuse: Refuse,
        *,
        limits: ServerLimits,
        max_body_bytes: int,
        max_connections: int,
        stall_s: float,
    ) -> None:
        self.limits = limits
        self.stall_s = stall_s
        self.is_draining = False
        self._handler = handler
        self._refuse = refuse
        self._max_body_bytes = max_body_bytes
        self._max_connections = max_connections
        self._connections: set[Http1Connection] = set()
        self._streams = 0
        self._held_bytes = 0
        self._empty: asyncio.Event | None = None

    def __repr__(self) -> str:
        return f"<HttpServer connections={len(self)} streams={self._streams} held_bytes={self._held_bytes}>"

    def __len__(self) -> int:
        """The number of open HTTP/1.1 connections."""
        return len(self._connections)

    @property
    def _has_room(self) -> bool:
        return len(self._connections) + self._streams < self._max_connections

    def new_connection(self, source: str | None) -> Http1Connection:
        return Http1Connection(self, source)

    def exchange(
        self, connection: StreamOrigin, stream_id: int, headers: list[hpack.Header], is_secure: bool
    ) -> Http2Exchange | None:
        """A request on an HTTP/2 connection; None if there are too many."""
        if not self._has_room:
            return None
        return Http2Exchange(
            connection, stream_id, headers, is_secure, self.new_body(), self.stall_s, self._answer_stream
        )

    async def _answer_stream(self, exchange: Http2Exchange) -> None:
        self._streams += 1
        try:
            await self.answer(exchange)
        finally:
            self._streams -= 1
            exchange.close_socket()

    # Called by connections

    def opened(self, connection: Http1Connection) -> bool:
        """Whether there is room for it."""
        has_room = self._has_room and not self.is_draining
        self._connections.add(connection)
        return has_room

    def closed(self, connection: Http1Connection) -> None:
        self._connections.discard(connection)
        if self._empty is not None and not self._connections:
            self._empty.set()

    def new_body(self) -> RequestBody:
        return RequestBody(self._max_body_bytes, _BODY_S, self._hold)

    def _hold(self, size_bytes: int) -> bool:
        if size_bytes > 0 and self._held_bytes + size_bytes > self.limits.max_partial_bytes:
            return False
        self._held_bytes += size_bytes
        return True

    async def answer(self, exchange: Exchange, *, has_room: bool = True) -> None:
        """Have a request answered; whatever happens, nothing of it is left."""
        try:
            if has_room:
                await self._handler(exchange)
            else:
                await self._refuse(exchange, HttpError(503, "there are too many connections"))
        except PeerGone:
            pass
        finally:
            exchange.body.forget()

    # Ending

    async def stop(self, grace_s: float) -> None:
        """End everything under way: streams of a lite topic would last for ever."""
        self.is_draining = True
        self._empty = asyncio.Event()
        for connection in list(self._connections):
            connection.leave()
        if self._connections:
            try:
                async with asyncio.timeout(grace_s):
                    await self._empty.wait()
            except TimeoutError:
                for connection in list(self._connections):
                    connection.abort()
