"""A WebSocket on an HTTP/1.1 connection or on a stream of HTTP/2; wsproto reads and writes its frames.

Messages that are not taken fill a small queue, and then nothing more is read. Frames are not compressed.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol, Self

import h11
from wsproto import WSConnection
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.utilities import RemoteProtocolError

from pyromq.proxy.http.problems import HttpError, PeerGone

_MAX_UNREAD: Final = 4
_MAX_MESSAGE: Final = 1024 * 1024


class SocketCarrier(Protocol):
    """The connection or stream of a WebSocket."""

    async def become(self, socket: "WebSocket", protocol: str | None) -> bytes:
        """From now on all that comes in is the socket's; what came already is returned."""
        ...

    def put_bytes(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class WebSocket:
    def __init__(
        self, carrier: SocketCarrier, ws: WSConnection | Connection, protocols: list[str], max_bytes: int
    ) -> None:
        self._connection = carrier
        self._max_bytes = min(max_bytes, _MAX_MESSAGE)
        self._ws = ws
        self.protocols = protocols
        self.is_accepted = False
        self._part = ""
        self._messages: deque[str] = deque()
        self._arrived = asyncio.Event()
        self._is_over = False

    @classmethod
    def upgraded(cls, carrier: SocketCarrier, request: h11.Request, max_bytes: int) -> Self:
        """Raises HttpError if the request opens none."""
        ws = WSConnection(ConnectionType.SERVER)
        try:
            ws.initiate_upgrade_connection(
                [(bytes(name), bytes(value)) for name, value in request.headers],
                request.target.decode("latin-1"),
            )
            (opening,) = [each for each in ws.events() if isinstance(each, Request)]
        except (RemoteProtocolError, ValueError) as problem:
            raise HttpError(400, f"no WebSocket can be opened: {problem}") from None
        return cls(carrier, ws, list(opening.subprotocols), max_bytes)

    @classmethod
    def on_stream(cls, carrier: SocketCarrier, headers: Mapping[str, str], max_bytes: int) -> Self:
        """On a stream of HTTP/2, where nothing is left of the handshake but the choice of a protocol."""
        wanted = headers.get("sec-websocket-protocol", "")
        protocols = [each.strip() for each in wanted.split(",") if each.strip()]
        return cls(carrier, Connection(ConnectionType.SERVER), protocols, max_bytes)

    async def accept(self, protocol: str | None) -> None:
        rest = await self._connection.become(self, protocol)
        if isinstance(self._ws, WSConnection):
            self._connection.put_bytes(self._ws.send(AcceptConnection(subprotocol=protocol)))
        self.is_accepted = True
        if rest:
            self.feed(rest)

    def feed(self, data: bytes) -> None:
        if self._is_over:
            return
        try:
            self._ws.receive_data(data)
            for event in self._ws.events():
                if isinstance(event, TextMessage):
                    self._take(event.data, is_whole=event.message_finished)
                elif isinstance(event, BytesMessage):
                    self._fail(1003, "messages must be text")
                elif isinstance(event, Ping) and self._ws.state is ConnectionState.OPEN:
                    self._connection.put_bytes(self._ws.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self._connection.put_bytes(self._ws.send(event.response()))
                    self.lost()
        except RemoteProtocolError as problem:
            self._fail(1002, str(problem))

    def _take(self, text: str, *, is_whole: bool) -> None:
        self._part += text
        if len(self._part) > self._max_bytes:
            self._fail(1009, f"a message is larger than {self._max_bytes} bytes")
        elif is_whole:
            self._messages.append(self._part)
            self._part = ""
            self._arrived.set()
            if len(self._messages) >= _MAX_UNREAD:
                self._connection.pause_reading()

    def _fail(self, code: int, reason: str) -> None:
        self._put_close(code, reason)
        self.lost()

    def _put_close(self, code: int, reason: str) -> None:
        if self._ws.state is ConnectionState.OPEN:
            self._connection.put_bytes(self._ws.send(CloseConnection(code, reason[:100])))

    def lost(self) -> None:
        self._is_over = True
        self._arrived.set()

    async def send(self, text: str) -> None:
        if self._is_over:
            raise PeerGone("the WebSocket is closed")
        self._connection.put_bytes(self._ws.send(TextMessage(text)))
        await self._connection.drain()

    async def ping(self) -> None:
        if self._is_over:
            raise PeerGone("the WebSocket is closed")
        self._connection.put_bytes(self._ws.send(Ping()))
        await self._connection.drain()

    async def receive(self) -> str | None:
        while not self._messages:
            if self._is_over:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        message = self._messages.popleft()
        if len(self._messages) == _MAX_UNREAD - 1:
            self._connection.resume_reading()
        return message

    async def close(self, code: int, reason: str) -> None:
        self._put_close(code, reason)
        self.lost()
