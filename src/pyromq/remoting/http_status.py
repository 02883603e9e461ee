"""A small HTTP server for monitoring pages: GET and HEAD only.

It limits the size of a request, the time for one, the number of connections and the unsent bytes of answers.
It accepts every connection, see `http_connections`. A page that takes long is rendered in pieces, once for
all connections that ask for it meanwhile, and probes are answered in between.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias

import h11

from pyromq.clock import Clock, SystemClock
from pyromq.errors import StateError
from pyromq.remoting.acceptor import RESERVED_DESCRIPTORS, Acceptor
from pyromq.remoting.http_connections import HttpConnection, HttpConnections
from pyromq.remoting.ports import Ports
from pyromq.remoting.sweep import Sweep

_log = logging.getLogger(__name__)

Answer: TypeAlias = tuple[int, str, bytes]
"""Status, content type and body."""

Page: TypeAlias = Callable[[], Answer | Awaitable[Answer]]

_BACKLOG = 1024
_MAX_REQUEST_BYTES = 8192
_MAX_IGNORED_BYTES = 1024 * 1024
_CHUNK_BYTES = 64 * 1024
_SEND_BUFFER_BYTES = 256 * 1024
"""The system's send buffer of each connection: enough for a fast reader, little for one that stalls."""
_MEBIBYTE = 1024 * 1024
_TEXT = "text/plain; charset=utf-8"


async def in_turns(pieces: Iterable[bytes]) -> bytes:
    """All pieces together; between any two others have their turn."""
    made: list[bytes] = []
    for piece in pieces:
        made.append(piece)
        await asyncio.sleep(0)
    return b"".join(made)


class HttpStatus:
    def __init__(
        self,
        pages: Mapping[str, Page],
        *,
        clock: Clock | None = None,
        request_s: float = 5.0,
        stall_s: float = 30.0,
        max_connections: int = 64,
        max_unsent_bytes: int = 64 * _MEBIBYTE,
    ) -> None:
        """A request, with the pause before it, may take `request_s`. A connection that reads nothing of its
        answer for `stall_s` is dropped. All unsent answers together may have `max_unsent_bytes`; a single one
        may have more."""
        self._pages = dict(pages)
        self._max_connections = max_connections
        self._connections = HttpConnections(
            clock if clock is not None else SystemClock(),
            max_connections=max_connections,
            max_unsent_bytes=max_unsent_bytes,
            request_s=request_s,
            stall_s=stall_s,
        )
        self._sweep = Sweep(request_s / 4, self.close_overdue)
        self._acceptor: Acceptor | None = None
        self._address: tuple[str, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._pages_in_progress: dict[str, asyncio.Task[Answer]] = {}
        self._requests = 0

    def __repr__(self) -> str:
        host, port = self._address or ("not", "listening")
        return f"<HttpStatus {host}:{port} pages={sorted(self._pages)} connections={len(self._connections)}>"

    def statistics(self) -> dict[str, int]:
        """`dropped`: connections that took too long, or were closed to make room for others."""
        return {
            "connections": len(self._connections),
            "requests": self._requests,
            "dropped": self._connections.dropped,
        }

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise StateError("the HTTP endpoint has not been started")
        return self._address

    async def start(self, host: str, port: int) -> None:
        taken = Ports().listen(host, port, send_buffer_bytes=_SEND_BUFFER_BYTES)
        try:
            self._acceptor = Acceptor(
                taken,
                _BACKLOG,
                self._new_protocol,
                # So few that a new connection has its turn before newer ones replace it.
                max_per_turn=max(self._max_connections // 4, 1),
                # Clients at the other ports may have taken all that they can get.
                reserved_descriptors=RESERVED_DESCRIPTORS // 2,
            )
        except OSError:
            taken.close()
            raise
        self._address = taken.getsockname()[:2]
        self._sweep.start()

    async def stop(self) -> None:
        if self._acceptor is None:
            return
        acceptor, self._acceptor = self._acceptor, None
        await acceptor.close()
        self._sweep.stop()
        tasks = [*self._tasks, *self._pages_in_progress.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close_overdue(self) -> None:
        """Close connections that take too long; called regularly while it runs."""
        self._connections.close_overdue()

    def _new_protocol(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_REQUEST_BYTES, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._accept, loop=loop)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A chunk counts as written once the system has all of it.
        writer.transport.set_write_buffer_limits(0)
        host = str((writer.get_extra_info("peername") or ("",))[0])
        connection = self._connections.open(host, writer.transport)
        task = connection.task = asyncio.create_task(self._serve(connection, reader, writer))
        self._tasks.add(task)

        def end(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._connections.remove(connection)
            # A task that is cancelled before its first step does not close the writer itself.
            writer.close()

        task.add_done_callback(end)

    async def _serve(
        self, connection: HttpConnection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
        try:
            while await self._serve_one(connection, http, reader, writer):
                http.start_next_cycle()
                self._connections.await_request(connection)
            if http.their_state is not h11.DONE:
                self._connections.await_request(connection)
                await self._discard_rest(reader, writer)
        except OSError:
            # The peer is gone; there is no one to answer.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _discard_rest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read some of what the peer still sends: closing first would reset the connection and lose the
        answer."""
        writer.write_eof()
        ignored_bytes = 0
        while ignored_bytes < _MAX_IGNORED_BYTES and (data := await reader.read(_MAX_REQUEST_BYTES)):
            ignored_bytes += len(data)

    async def _serve_one(
        self,
        connection: HttpConnection,
        http: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; returns whether another may follow."""
        try:
            request = await _read_request(http, reader)
        except h11.RemoteProtocolError as problem:
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                answer = problem.error_status_hint, _TEXT, f"{problem}\n".encode()
                await self._write(connection, http, writer, b"GET", answer)
            return False
        if request is None:
            return False
        self._requests += 1
        await self._write(connection, http, writer, request.method, await self._answer(connection, request))
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _answer(self, connection: HttpConnection, request: h11.Request) -> Answer:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        page = self._pages.get(path)
        if page is None:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
        if request.method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n"
        if not asyncio.iscoroutinefunction(page):
            return await _render(path, page)
        rendering = self._pages_in_progress.get(path)
        if rendering is None:
            rendering = self._pages_in_progress[path] = asyncio.create_task(_render(path, page))
            rendering.add_done_callback(lambda _: self._pages_in_progress.pop(path, None))
        # The connection that asked first may close while others still wait for the page.
        with self._connections.answering(connection, 0):
            return await asyncio.shield(rendering)

    async def _write(
        self,
        connection: HttpConnection,
        http: h11.Connection,
        writer: asyncio.StreamWriter,
        method: bytes,
        answer: Answer,
    ) -> None:
        status, kind, body = answer
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        if http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        response = h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        head = http.send(response) or b""
        if method == b"HEAD":
            body = b""
        else:
            http.send(h11.Data(data=body))
        http.send(h11.EndOfMessage())
        with self._connections.answering(connection, len(head) + len(body)):
            # A small page is written at once. A large one is handed to the transport in chunks, so that
            # `notice_progress` can see how much the peer has read.
            rest = memoryview(head + body if len(body) <= _CHUNK_BYTES else head)
            await _write_chunk(connection, writer, rest)
            if len(body) > _CHUNK_BYTES:
                for start in range(0, len(body), _CHUNK_BYTES):
                    await _write_chunk(connection, writer, memoryview(body)[start : start + _CHUNK_BYTES])


async def _write_chunk(connection: HttpConnection, writer: asyncio.StreamWriter, chunk: memoryview) -> None:
    writer.write(chunk)
    connection.unwritten_bytes -= len(chunk)
    await writer.drain()


async def _render(path: str, page: Page) -> Answer:
    try:
        answer = page()
        return answer if isinstance(answer, tuple) else await answer
    except Exception:
        _log.exception("a status page failed target=%s", path)
        return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"failed\n"


async def _read_request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request, with its body read up to the limit; None if the peer closed the connection."""
    request: h11.Request | None = None
    body_bytes = 0
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(_MAX_REQUEST_BYTES))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body_bytes += len(event.data)
            if body_bytes > _MAX_REQUEST_BYTES:
                # Do not wait for the end of the body: answer, and close the connection.
                return request
        elif isinstance(event, h11.EndOfMessage) or event is h11.PAUSED:
            return request
        else:
            return None
