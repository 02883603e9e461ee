"""A client of sessions over HTTP/1.1, on plain sockets: one connection for each request."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import h11
from wsproto import WSConnection
from wsproto.connection import ConnectionType
from wsproto.events import AcceptConnection, CloseConnection, Ping, RejectConnection, Request, TextMessage


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Event(NamedTuple):
    """A server-sent event; comments have neither id nor data."""

    id: int | None
    kind: str | None
    data: str

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class Events:
    """A stream of events that a request has opened."""

    def __init__(self, answer: Answer, pieces: AsyncIterator[bytes]) -> None:
        self.answer = answer
        self._pieces = pieces
        self._text = b""

    async def __aiter__(self) -> AsyncIterator[Event]:
        async for piece in self._pieces:
            self._text += piece
            while b"\n\n" in self._text:
                block, _, self._text = self._text.partition(b"\n\n")
                fields: dict[str, list[str]] = {}
                for line in block.decode().split("\n"):
                    name, _, value = line.partition(":")
                    fields.setdefault(name, []).append(value.removeprefix(" "))
                if "data" in fields:
                    (kind,) = fields.get("event", [""])
                    place = fields.get("id")
                    yield Event(int(place[0]) if place else None, kind or None, "\n".join(fields["data"]))

    async def take(self, count: int) -> list[Event]:
        found: list[Event] = []
        async with asyncio.timeout(60):
            async for event in self:
                found.append(event)
                if len(found) == count:
                    break
        return found


class Socket:
    def __init__(self, ws: WSConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ws = ws
        self._reader = reader
        self._writer = writer
        self.protocol: str | None = None
        self.closed: CloseConnection | None = None
        self._found: list[Any] = []

    async def send(self, **command: Any) -> None:
        self._writer.write(self._ws.send(TextMessage(json.dumps(command))))
        await self._writer.drain()

    async def next(self) -> Any:
        """The next message; None when it is closed."""
        async with asyncio.timeout(60):
            while not self._found and self.closed is None:
                data = await self._reader.read(65536)
                self._ws.receive_data(data or None)
                for event in self._ws.events():
                    if isinstance(event, TextMessage):
                        self._found.append(json.loads(event.data))
                    elif isinstance(event, Ping):
                        self._writer.write(self._ws.send(event.response()))
                    elif isinstance(event, CloseConnection):
                        self.closed = event
                    elif isinstance(event, AcceptConnection):
                        self.protocol = event.subprotocol
                        self._found.append("accepted")
                    elif isinstance(event, RejectConnection):
                        self._found.append(event.status_code)
        return self._found.pop(0) if self._found else None


class HttpUser:
    def __init__(self, target: str, **headers: str) -> None:
        self.host, _, port = target.rpartition(":")
        self.port = int(port)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def ask(self, method: str, path: str, body: bytes | Any = b"", **headers: str) -> Answer:
        async with self._asked(method, path, body, headers) as (answer, pieces):
            return answer._replace(body=b"".join([each async for each in pieces]))

    @asynccontextmanager
    async def events(self, path: str, **headers: str) -> AsyncIterator[Events]:
        async with self._asked("GET", path, b"", headers) as (answer, pieces):
            yield Events(answer, pieces)

    @asynccontextmanager
    async def _asked(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {"host": f"{self.host}:{self.port}", **self.headers}
        named |= {name.replace("_", "-"): value for name, value in headers.items()}
        if content:
            named["content-length"] = str(len(content))
        http = h11.Connection(h11.CLIENT)
        reader, writer = await asyncio.open_connection(self.host, self.port)
        try:
            writer.write(
                http.send(h11.Request(method=method, target=path, headers=list(named.items()))) or b""
            )
            if content:
                writer.write(http.send(h11.Data(data=content)) or b"")
            writer.write(http.send(h11.EndOfMessage()) or b"")

            async def next_event() -> Any:
                while (event := http.next_event()) is h11.NEED_DATA:
                    http.receive_data(await reader.read(65536))
                return event

            async with asyncio.timeout(60):
                start = await next_event()
            assert isinstance(start, h11.Response)

            async def pieces() -> AsyncIterator[bytes]:
                while isinstance(event := await next_event(), h11.Data):
                    yield bytes(event.data)

            shown = {name.decode(): value.decode() for name, value in start.headers}
            yield Answer(start.status_code, shown, b""), pieces()
        finally:
            writer.close()

    @asynccontextmanager
    async def socket(self, path: str, *protocols: str, **headers: str) -> AsyncIterator[Socket]:
        ws = WSConnection(ConnectionType.CLIENT)
        reader, writer = await asyncio.open_connection(self.host, self.port)
        more = [(name.encode(), value.encode()) for name, value in (self.headers | headers).items()]
        opening = Request(f"{self.host}:{self.port}", path, subprotocols=list(protocols), extra_headers=more)
        writer.write(ws.send(opening))
        try:
            yield Socket(ws, reader, writer)
        finally:
            writer.close()
