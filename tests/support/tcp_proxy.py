"""A TCP proxy that can be cut and stalled: what a network does to a cluster, on one machine."""

import asyncio
import contextlib
from types import TracebackType


class TcpProxy:
    """Listens at `host` and forwards to `target`; leaving the block closes everything."""

    def __init__(self, target: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> None:
        self._target = target
        self._host, self._port = host, port
        self._server: asyncio.Server | None = None
        self._flowing, self._answering = asyncio.Event(), asyncio.Event()
        self.flow()
        self._writers: set[asyncio.StreamWriter] = set()
        self._pipes: set[asyncio.Task[None]] = set()
        self.accepted = 0

    def __repr__(self) -> str:
        state = "flowing" if self._flowing.is_set() else "stalled"
        return f"<TcpProxy {self.address} -> {self._target} {state} accepted={self.accepted}>"

    @property
    def address(self) -> str:
        return f"{self._host}:{self._port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, self._host, self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    def stall(self) -> None:
        """Swallow everything, in both directions, without closing anything."""
        self._flowing.clear()
        self._answering.clear()

    def stall_answers(self) -> None:
        """The same only for what the target sends."""
        self._answering.clear()

    def flow(self) -> None:
        """What was swallowed arrives late."""
        self._flowing.set()
        self._answering.set()

    async def cut(self) -> None:
        """End every connection and take no more until `start`."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for writer in list(self._writers):
            writer.transport.abort()
        for pipe in list(self._pipes):
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def __aenter__(self) -> "TcpProxy":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cut()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.add(writer)
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        if writer.transport.is_closing():  # cut meanwhile
            onward_writer.transport.abort()
            return
        self._writers.add(onward_writer)
        there, back = (reader, onward_writer, self._flowing), (onward_reader, writer, self._answering)
        for source, sink, flowing in (there, back):
            pipe = asyncio.create_task(self._forward(source, sink, flowing))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _forward(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, flowing: asyncio.Event
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await source.read(65536):
                await flowing.wait()
                sink.write(data)
                await sink.drain()
        sink.close()
        self._writers.discard(sink)
