"""A gRPC channel over the simulated network: as much of C-core's as `FrontUser` asks for.

Each call fails with its connection, and the next one makes a new connection. Nothing is sent twice.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, cast

from pyromq.http2 import frames, hpack
from pyromq.proxy.grpc.framing import MessageReader, frame_message

_MAX_BYTES = 1 << 24
Metadata = Iterable[tuple[str, str]]
Parse = Callable[[bytes], Any]
Serialize = Callable[[Any], bytes]


class CallFailed(Exception):
    """The front has refused the call, or it is not known what has become of it."""


class SimulatedChannel:
    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._connection: _Connection | None = None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def unary_unary(self, path: str, serialize: Serialize, parse: Parse) -> Callable[..., Awaitable[Any]]:
        async def call(request: Any, metadata: Metadata, timeout: float) -> Any:
            async with self._stream(path, metadata, timeout) as stream:
                stream.write(serialize(request), is_last=True)
                answers = [parse(each) async for each in stream]
            if len(answers) != 1:
                raise CallFailed(f"{len(answers)} answers")
            return answers[0]

        return call

    def unary_stream(self, path: str, serialize: Serialize, parse: Parse) -> Callable[..., Any]:
        async def call(request: Any, metadata: Metadata, timeout: float) -> AsyncIterator[Any]:
            async with self._stream(path, metadata, timeout) as stream:
                stream.write(serialize(request), is_last=True)
                async for each in stream:
                    yield parse(each)

        return call

    def stream_stream(self, path: str, serialize: Serialize, parse: Parse) -> Callable[..., "OpenCall"]:
        def call(metadata: Metadata) -> OpenCall:
            return OpenCall(self._begin(path, metadata, None), serialize, parse)

        return call

    @asynccontextmanager
    async def _stream(self, path: str, metadata: Metadata, timeout: float) -> AsyncIterator["_Stream"]:
        stream: _Stream | None = None
        try:
            async with asyncio.timeout(timeout):
                stream = await self._begin(path, metadata, timeout)
                yield stream
        except TimeoutError:
            raise CallFailed("timeout") from None
        finally:
            if stream is not None:
                stream.leave()

    async def _begin(self, path: str, metadata: Metadata, timeout: float | None) -> "_Stream":
        if self._connection is None or self._connection.is_over:
            loop = asyncio.get_running_loop()
            try:
                _, self._connection = await loop.create_connection(_Connection, *self._address)
            except OSError as problem:
                raise CallFailed(str(problem)) from problem
        fields = [
            (b":method", b"POST"),
            (b":scheme", b"http"),
            (b":path", path.encode()),
            (b":authority", self._address[0].encode()),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *((name.encode(), value.encode()) for name, value in metadata),
        ]
        if timeout is not None:
            fields.append((b"grpc-timeout", f"{int(timeout * 1000)}m".encode()))
        return self._connection.open(hpack.encode(fields))


class OpenCall:
    """A call with a stream both ways."""

    def __init__(self, beginning: Awaitable["_Stream"], serialize: Serialize, parse: Parse) -> None:
        self._beginning: Awaitable[_Stream] | None = beginning
        self._serialize = serialize
        self._parse = parse
        self._stream: _Stream | None = None

    async def write(self, message: Any) -> None:
        if self._stream is None:
            assert self._beginning is not None
            self._stream = await self._beginning
        self._stream.write(self._serialize(message))

    async def read(self) -> Any:
        assert self._stream is not None
        async for each in self._stream:
            return self._parse(each)
        raise CallFailed("the stream has ended")


class _Stream:
    """One call on its connection."""

    def __init__(self, connection: "_Connection", number: int) -> None:
        self._connection = connection
        self._number = number
        self.reader = MessageReader(_MAX_BYTES)
        self.arrived: asyncio.Queue[bytes | CallFailed | None] = asyncio.Queue()
        """Messages, and None or the failure at the end."""
        self.is_over = False

    def write(self, message: bytes, *, is_last: bool = False) -> None:
        self._connection.send(
            frames.frame(
                frames.DATA, frames.END_STREAM if is_last else 0, self._number, frame_message(message)
            )
        )

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        found = await self.arrived.get()
        if found is None:
            raise StopAsyncIteration
        if isinstance(found, CallFailed):
            raise found
        return found

    def end(self, failure: CallFailed | None) -> None:
        self.is_over = True
        self.arrived.put_nowait(failure)

    def leave(self) -> None:
        if not self.is_over:
            self.is_over = True
            self._connection.send(frames.rst_stream(self._number, frames.ErrorCode.CANCEL))
        self._connection.streams.pop(self._number, None)


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.streams: dict[int, _Stream] = {}
        self.is_over = False
        """No more calls: it is lost, or the front is about to leave."""
        self._next = 1
        self._received = bytearray()
        self._decoder = hpack.Decoder(_MAX_BYTES)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.send(frames.PREFACE + frames.settings({}))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True
        for stream in list(self.streams.values()):
            if not stream.is_over:
                stream.end(CallFailed(f"the connection is lost: {exc}"))
        self.streams.clear()

    def open(self, headers: bytes) -> _Stream:
        stream = self.streams[self._next] = _Stream(self, self._next)
        self.send(frames.frame(frames.HEADERS, frames.END_HEADERS, self._next, headers))
        self._next += 2
        return stream

    def send(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= frames.HEADER_BYTES:
            size, kind, flags, number = frames.read_header(received, 0)
            end = frames.HEADER_BYTES + size
            if len(received) < end:
                return
            payload = bytes(received[frames.HEADER_BYTES : end])
            del received[:end]
            self._take(kind, flags, number, payload)

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        stream = self.streams.get(number)
        if kind in (frames.SETTINGS, frames.PING) and not flags & frames.ACK:
            self.send(frames.frame(kind, frames.ACK, 0, payload if kind == frames.PING else b""))
        elif kind == frames.GOAWAY:
            self.is_over = True
        elif kind == frames.DATA and payload:
            self.send(frames.window_update(0, len(payload)))
            if stream is not None:
                self.send(frames.window_update(number, len(payload)))
                for message in stream.reader.feed(payload):
                    stream.arrived.put_nowait(message)
        elif kind == frames.HEADERS:
            fields = dict(self._decoder.decode(payload))
            if flags & frames.END_STREAM and stream is not None:
                status = fields.get(b"grpc-status", b"0")
                text = f"status {status.decode()}: {fields.get(b'grpc-message', b'').decode()}"
                stream.end(None if status == b"0" else CallFailed(text))
        elif kind == frames.RST_STREAM and stream is not None:
            stream.end(CallFailed("the stream was reset"))
