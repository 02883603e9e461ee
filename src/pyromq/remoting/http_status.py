"""A few pages for monitoring, over HTTP: GET and HEAD, nothing else, and little of everything.

Small limits protect it: bytes of a request, time for one, connections at a time, bytes of answers that nobody
reads. Whoever comes is let in, see `http_visits`. A page that takes long to make is made in pieces, once for
all who ask meanwhile, and probes are answered in between.
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
from pyromq.remoting.acceptor import KEPT_FOR_FILES, Acceptor
from pyromq.remoting.http_visits import Visit, Visits
from pyromq.remoting.server import listening_socket
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
"""Of the system, for each visitor: enough for a fast one, and little for one that does not read."""
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
        """`request_s` is how long a request, with the pause before it, may take. A visitor who reads nothing
        of an answer for `stall_s` has left. Answers to all visitors have `max_unsent_bytes`; one of them may
        have more."""
        self._pages = dict(pages)
        self._max_connections = max_connections
        self._visits = Visits(
            clock if clock is not None else SystemClock(),
            most=max_connections,
            most_unsent_bytes=max_unsent_bytes,
            request_s=request_s,
            stall_s=stall_s,
        )
        self._sweep = Sweep(request_s / 4, self.close_late)
        self._acceptor: Acceptor | None = None
        self._address: tuple[str, int] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._being_made: dict[str, asyncio.Task[Answer]] = {}
        self._requests = 0

    def __repr__(self) -> str:
        host, port = self._address or ("not", "listening")
        return f"<HttpStatus {host}:{port} pages={sorted(self._pages)} connections={len(self._visits)}>"

    def statistics(self) -> dict[str, int]:
        """`dropped`: those who took too long, or had to leave for others."""
        return {
            "connections": len(self._visits),
            "requests": self._requests,
            "dropped": self._visits.dropped,
        }

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise StateError("the HTTP endpoint has not been started")
        return self._address

    async def start(self, host: str, port: int) -> None:
        taken = listening_socket(host, port, send_buffer_bytes=_SEND_BUFFER_BYTES)
        try:
            self._acceptor = Acceptor(
                taken,
                _BACKLOG,
                self._new_visitor,
                # So few that a newcomer has its turn before others push it out.
                most_at_once=max(self._max_connections // 4, 1),
                # Clients at the other ports may have taken all that they can get.
                kept_descriptors=KEPT_FOR_FILES // 2,
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
        tasks = [*self._tasks, *self._being_made.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def close_late(self) -> None:
        """Close visitors who take too long; called regularly while it runs."""
        self._visits.close_late()

    def _new_visitor(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_REQUEST_BYTES, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._accept, loop=loop)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A chunk counts as written once the system has all of it.
        writer.transport.set_write_buffer_limits(0)
        host = str((writer.get_extra_info("peername") or ("",))[0])
        visit = self._visits.enter(host, writer.transport)
        task = visit.task = asyncio.create_task(self._serve(visit, reader, writer))
        self._tasks.add(task)

        def end(_: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._visits.leave(visit)
            # One that is cancelled before its first step does not close anything itself.
            writer.close()

        task.add_done_callback(end)

    async def _serve(self, visit: Visit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
        try:
            while await self._serve_one(visit, http, reader, writer):
                http.start_next_cycle()
                self._visits.await_request(visit)
            if http.their_state is not h11.DONE:
                self._visits.await_request(visit)
                await self._say_goodbye(reader, writer)
        except OSError:
            # A visitor that vanished: nobody is left to be told.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _say_goodbye(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read some of what the visitor still sends: closing before would reset the connection, and the
        answer with it."""
        writer.write_eof()
        ignored_bytes = 0
        while ignored_bytes < _MAX_IGNORED_BYTES and (data := await reader.read(_MAX_REQUEST_BYTES)):
            ignored_bytes += len(data)

    async def _serve_one(
        self,
        visit: Visit,
        http: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> bool:
        """Answer one request; whether another may follow."""
        try:
            request = await _read_request(http, reader)
        except h11.RemoteProtocolError as problem:
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                answer = problem.error_status_hint, _TEXT, f"{problem}\n".encode()
                await self._write(visit, http, writer, b"GET", answer)
            return False
        if request is None:
            return False
        self._requests += 1
        await self._write(visit, http, writer, request.method, await self._answer(visit, request))
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    async def _answer(self, visit: Visit, request: h11.Request) -> Answer:
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        page = self._pages.get(path)
        if page is None:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
        if request.method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n"
        if not asyncio.iscoroutinefunction(page):
            return await _made(path, page)
        making = self._being_made.get(path)
        if making is None:
            making = self._being_made[path] = asyncio.create_task(_made(path, page))
            making.add_done_callback(lambda _: self._being_made.pop(path, None))
        # Whoever asked first may leave: the others still wait for it.
        with self._visits.answering(visit, 0):
            return await asyncio.shield(making)

    async def _write(
        self, visit: Visit, http: h11.Connection, writer: asyncio.StreamWriter, method: bytes, answer: Answer
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
        with self._visits.answering(visit, len(head) + len(body)):
            # Small pages leave in one piece. Of large ones little lies with the transport, so that what is
            # left of them can be seen to shrink.
            rest = memoryview(head + body if len(body) <= _CHUNK_BYTES else head)
            await _write_chunk(visit, writer, rest)
            if len(body) > _CHUNK_BYTES:
                for start in range(0, len(body), _CHUNK_BYTES):
                    await _write_chunk(visit, writer, memoryview(body)[start : start + _CHUNK_BYTES])


async def _write_chunk(visit: Visit, writer: asyncio.StreamWriter, chunk: memoryview) -> None:
    writer.write(chunk)
    visit.unwritten_bytes -= len(chunk)
    await writer.drain()


async def _made(path: str, page: Page) -> Answer:
    try:
        answer = page()
        return answer if isinstance(answer, tuple) else await answer
    except Exception:
        _log.exception("a status page failed target=%s", path)
        return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"failed\n"


async def _read_request(http: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next request with its body, if any, read up to the limit; None if the visitor left."""
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
                # Its end is not worth waiting for: it is answered, and the connection is closed.
                return request
        elif isinstance(event, h11.EndOfMessage) or event is h11.PAUSED:
            return request
        else:
            return None
