"""A WebSocket on an HTTP/1.1 connection; wsproto reads and writes its frames.

Messages that are not taken fill a small queue, and then nothing more is read. Frames are not compressed.
"""

import asyncio
from collections import deque
from typing import Final, Protocol

import h11
from wsproto import WSConnection
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Ping, Request, TextMessage
from wsproto.utilities import RemoteProtocolError

from pyromq.proxy.http.problems import HttpError, PeerGone

_MAX_UNREAD: Final = 4
_MAX_MESSAGE: Final = 1024 * 1024


class SocketCarrier(Protocol):
    """The connection of a WebSocket."""

    def become(self, socket: "WebSocket") -> bytes: ...

    def put_bytes(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class WebSocket:
    def __init__(self, connection: SocketCarrier, request: h11.Request, max_bytes: int) -> None:
        """Raises HttpError if the request opens none."""
        self._connection = connection
        self._max_bytes = min(max_bytes, _MAX_MESSAGE)
        self._ws = WSConnection(ConnectionType.SERVER)
        try:
            self._ws.initiate_upgrade_connection(
                [(bytes(name), bytes(value)) for name, value in request.headers],
                request.target.decode("latin-1"),
            )
            (opening,) = [each for each in self._ws.events() if isinstance(each, Request)]
        except (RemoteProtocolError, ValueError) as problem:
            raise HttpError(400, f"no WebSocket can be opened: {problem}") from None
        self.protocols = list(opening.subprotocols)
        self.is_accepted = False
        self._part = ""
        self._messages: deque[str] = deque()
        self._arrived = asyncio.Event()
        self._is_over = False

    async def accept(self, protocol: str | None) -> None:
        rest = self._connection.become(self)
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
