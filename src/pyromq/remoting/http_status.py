"""A few pages for monitoring, over HTTP: GET and HEAD, nothing else, and little of everything.

Small limits protect it: bytes of a request, time for one, connections at a time.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import TypeAlias

import h11

from pyromq.errors import StateError
from pyromq.remoting.acceptor import Acceptor
from pyromq.remoting.server import listening_socket

_log = logging.getLogger(__name__)

Page: TypeAlias = Callable[[], tuple[int, str, bytes]]
"""Gives status, content type and body."""

_BACKLOG = 100
_MAX_REQUEST_BYTES = 8192
_MAX_IGNORED_BYTES = 1024 * 1024
_TEXT = "text/plain; charset=utf-8"


class HttpStatus:
    def __init__(
        self, pages: Mapping[str, Page], *, timeout_s: float = 10.0, max_connections: int = 64
    ) -> None:
        """`timeout_s` is how long a request, or the pause before it, may take."""
        self._pages = dict(pages)
        self._timeout_s = timeout_s
        self._max_connections = max_connections
        self._acceptor: Acceptor | None = None
        self._address: tuple[str, int] | None = None
        self._visits: set[asyncio.Task[None]] = set()
        self._requests = 0
        self._turned_away = 0

    def __repr__(self) -> str:
        host, port = self._address or ("not", "listening")
        return f"<HttpStatus {host}:{port} pages={sorted(self._pages)} connections={len(self._visits)}>"

    def statistics(self) -> dict[str, int]:
        return {
            "connections": len(self._visits),
            "requests": self._requests,
            "turned_away": self._turned_away,
        }

    @property
    def address(self) -> tuple[str, int]:
        if self._address is None:
            raise StateError("the HTTP endpoint has not been started")
        return self._address

    async def start(self, host: str, port: int) -> None:
        taken = listening_socket(host, port)
        try:
            self._acceptor = Acceptor(taken, _BACKLOG, self._new_visitor)
        except OSError:
            taken.close()
            raise
        self._address = taken.getsockname()[:2]

    async def stop(self) -> None:
        if self._acceptor is None:
            return
        acceptor, self._acceptor = self._acceptor, None
        await acceptor.close()
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)

    def _new_visitor(self) -> asyncio.StreamReaderProtocol:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=_MAX_REQUEST_BYTES, loop=loop)
        return asyncio.StreamReaderProtocol(reader, self._accept, loop=loop)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._visits) >= self._max_connections:
            self._turned_away += 1
            writer.transport.abort()
            return
        visit = asyncio.create_task(self._serve(reader, writer))
        self._visits.add(visit)
        visit.add_done_callback(self._visits.discard)
        # One that is cancelled before its first step does not close anything itself.
        visit.add_done_callback(lambda _: writer.close())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_REQUEST_BYTES)
        try:
            while await self._serve_one(http, reader, writer):
                http.start_next_cycle()
            if http.their_state is not h11.DONE:
                await self._say_goodbye(reader, writer)
        except OSError:
            # A slow or vanished visitor: nobody is left to be told.
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
        async with asyncio.timeout(self._timeout_s):
            while ignored_bytes < _MAX_IGNORED_BYTES and (data := await reader.read(_MAX_REQUEST_BYTES)):
                ignored_bytes += len(data)

    async def _serve_one(
        self, http: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; whether another may follow."""
        try:
            async with asyncio.timeout(self._timeout_s):
                request = await _read_request(http, reader)
        except h11.RemoteProtocolError as problem:
            if http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                await self._write(
                    http, writer, b"GET", problem.error_status_hint, _TEXT, f"{problem}\n".encode()
                )
            return False
        if request is None:
            return False
        self._requests += 1
        status, kind, body = self._answer(request)
        await self._write(http, writer, request.method, status, kind, body)
        return http.our_state is h11.DONE and http.their_state is h11.DONE

    def _answer(self, request: h11.Request) -> tuple[int, str, bytes]:
        page = self._pages.get(request.target.partition(b"?")[0].decode("ascii", "replace"))
        if page is None:
            return HTTPStatus.NOT_FOUND, _TEXT, b"not found\n"
        if request.method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n"
        try:
            return page()
        except Exception:
            _log.exception("a status page failed target=%s", request.target.decode("ascii", "replace"))
            return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, b"failed\n"

    async def _write(
        self,
        http: h11.Connection,
        writer: asyncio.StreamWriter,
        method: bytes,
        status: int,
        kind: str,
        body: bytes,
    ) -> None:
        headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "GET, HEAD"))
        if http.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [
            h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)
        ]
        if method != b"HEAD":
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        writer.write(b"".join(http.send(event) or b"" for event in events))
        async with asyncio.timeout(self._timeout_s):
            await writer.drain()


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
