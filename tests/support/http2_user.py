"""A client of sessions over HTTP/2 in cleartext, in frames: it sees what a browser hides."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.support.http2_peer import HELLO, ReadFrame, data, headers, read_frames
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, Ping, TextMessage

from pyromq.http2 import frames, hpack


class Http2User:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = hpack.Decoder(65536)
        self._held = b""
        self.found: dict[int, dict[str, Any]] = {}
        """The answer of each stream."""
        self.settings: dict[int, int] = {}
        self.windows: dict[int, int] = {}
        """By how much the server has widened the window of each stream."""
        self.reads = True
        """Whether the server may send more than the first windows allow."""
        writer.write(HELLO)

    @classmethod
    @asynccontextmanager
    async def at(cls, target: str) -> "AsyncIterator[Http2User]":
        host, _, port = target.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def ask(self, stream_id: int, method: str, path: str, *more: hpack.Header, body: bytes = b"") -> None:
        """A whole request; a CONNECT stays open."""
        pseudo = [each for each in more if each[0][:1] == b":"]
        fields = [
            (b":method", method.encode()),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", b"x"),
            *pseudo,
            *(each for each in more if each not in pseudo),
        ]
        ends = not body and method != "CONNECT"
        flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
        self._writer.write(
            headers(stream_id, fields, flags) + (data(stream_id, body, ends=True) if body else b"")
        )

    def put(self, stream_id: int, payload: bytes, *, ends: bool = False) -> None:
        self._writer.write(data(stream_id, payload, ends=ends))

    def widen(self, stream_id: int, size: int) -> None:
        """Let the server send so much more."""
        self._writer.write(frames.window_update(stream_id, size) + frames.window_update(0, size))

    async def read(self) -> ReadFrame:
        """The next frame."""
        async with asyncio.timeout(60):
            while len(self._held) < 9 or len(self._held) < 9 + int.from_bytes(self._held[:3], "big"):
                more = await self._reader.read(65536)
                assert more, "the connection has ended"
                self._held += more
        end = 9 + int.from_bytes(self._held[:3], "big")
        (frame,), self._held = read_frames(self._held[:end]), self._held[end:]
        seen = self.found.setdefault(frame.stream_id, {"body": b"", "headers": {}, "ended": False})
        if frame.kind == frames.HEADERS:
            seen["headers"] |= dict(self._decoder.decode(frame.payload))
        elif frame.kind == frames.DATA:
            seen["body"] += frame.payload
            if self.reads and frame.payload:
                self.widen(frame.stream_id, len(frame.payload))
        elif frame.kind == frames.SETTINGS:
            self.settings |= dict(frames.SETTING.iter_unpack(frame.payload))
        elif frame.kind == frames.WINDOW_UPDATE:
            wider = frames.NUMBER.unpack(frame.payload)[0]
            self.windows[frame.stream_id] = self.windows.get(frame.stream_id, 0) + wider
        seen["ended"] |= frame.kind in (frames.DATA, frames.HEADERS) and bool(frame.flags & frames.END_STREAM)
        return frame

    async def read_until(self, stream_id: int, text: bytes = b"") -> dict[str, Any]:
        """The answer of a stream when it has this text, or when it has ended."""
        while True:
            answer = self.found.get(stream_id, {})
            if text in answer.get("body", b"") and (text or answer.get("ended")):
                return answer
            await self.read()

    async def status(self, stream_id: int) -> int:
        while b":status" not in self.found.get(stream_id, {"headers": {}})["headers"]:
            await self.read()
        return int(self.found[stream_id]["headers"][b":status"])

    async def socket(self, stream_id: int, path: str, *more: hpack.Header) -> "StreamSocket":
        version = (b"sec-websocket-version", b"13")
        self.ask(stream_id, "CONNECT", path, (b":protocol", b"websocket"), version, *more)
        assert await self.status(stream_id) == 200, self.found[stream_id]
        return StreamSocket(self, stream_id)


class StreamSocket:
    def __init__(self, user: Http2User, stream_id: int) -> None:
        self._user = user
        self._stream_id = stream_id
        self._ws = Connection(ConnectionType.CLIENT)
        self._taken = 0
        self._part = ""
        self._found: list[Any] = []
        self.closed: CloseConnection | None = None

    def send(self, **command: Any) -> None:
        self._user.put(self._stream_id, self._ws.send(TextMessage(json.dumps(command))))

    def close(self) -> None:
        self._user.put(self._stream_id, self._ws.send(CloseConnection(1000)))

    async def next(self) -> Any:
        """The next message; None when it is closed."""
        while True:
            body = self._user.found[self._stream_id]["body"]
            self._ws.receive_data(body[self._taken :])
            self._taken = len(body)
            for event in self._ws.events():
                if isinstance(event, TextMessage):
                    self._part += event.data
                    if event.message_finished:
                        self._found.append(json.loads(self._part))
                        self._part = ""
                elif isinstance(event, Ping):
                    self._user.put(self._stream_id, self._ws.send(event.response()))
                elif isinstance(event, CloseConnection):
                    self.closed = event
            if self._found:
                return self._found.pop(0)
            if self.closed is not None:
                return None
            await self._user.read()
