"""A peer that says exactly the bytes it is told to: for what no well-behaved client would send."""

import asyncio
import contextlib
import ssl
from types import TracebackType

from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader, encode_frame


class WireClient:
    """A raw socket. `frames` reads answers; `wait_closed` waits until the server has hung up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameReader()
        self._received: list[Frame] = []

    @classmethod
    async def connect(cls, address: tuple[str, int], **options: object) -> "WireClient":
        reader, writer = await asyncio.open_connection(*address, **options)  # type: ignore[arg-type]
        return cls(reader, writer)

    @property
    def address(self) -> str:
        host, port = self._writer.get_extra_info("sockname")[:2]
        return f"{host}:{port}"

    async def start_tls(self, context: ssl.SSLContext) -> None:
        await self._writer.start_tls(context)

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        await self._writer.drain()

    def end(self) -> None:
        """Say that nothing more will be said."""
        self._writer.write_eof()

    def abort(self) -> None:
        self._writer.transport.abort()

    def send(self, *frames: Frame) -> None:
        """All frames in one write."""
        self._writer.write(b"".join(map(encode_frame, frames)))

    async def frame(self) -> Frame:
        return (await self.frames(1))[0]

    async def frames(self, count: int) -> list[Frame]:
        """The next frames; EOFError if the server hangs up before."""
        while len(self._received) < count:
            data = await self._reader.read(65536)
            if not data:
                raise EOFError(f"the server hung up after {len(self._received)} of {count} frames")
            self._received += self._frames.feed(data)
        taken, self._received = self._received[:count], self._received[count:]
        return taken

    async def call(self, frame: Frame) -> Frame:
        self.send(frame)
        return await self.frame()

    async def wait_closed(self) -> list[Frame]:
        """Read until the server has hung up; returns what it still said."""
        try:
            while data := await self._reader.read(65536):
                self._received += self._frames.feed(data)
        except ConnectionError:
            pass
        taken, self._received = self._received, []
        return taken

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def __aenter__(self) -> "WireClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
