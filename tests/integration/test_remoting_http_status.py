"""The status pages speak just enough HTTP, and no more."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from tests.conftest import ErrorLogs
from tests.support.loop import turn_until

from pyromq.errors import StateError
from pyromq.remoting.http_status import HttpStatus

JSON = "application/json"


def broken() -> tuple[int, str, bytes]:
    raise RuntimeError("no metrics today")


PAGES = {
    "/metrics": lambda: (200, "text/plain; version=0.0.4", b"up 1\n"),
    "/ready": lambda: (503, JSON, b'{"ready": false}'),
    "/broken": broken,
}


@pytest.fixture
async def status() -> AsyncIterator[HttpStatus]:
    status = HttpStatus(PAGES, max_connections=2)
    await status.start("127.0.0.1", 0)
    yield status
    await status.stop()


async def exchange(status: HttpStatus, data: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Send bytes, read until the server hangs up; the first answer's status line, headers and body."""
    reader, writer = await asyncio.open_connection(*status.address)
    writer.write(data)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition(b"\r\n\r\n")
    line, *headers = head.split(b"\r\n")
    return line, dict(header.lower().split(b": ", 1) for header in headers), body


async def test_a_page_is_served(status: HttpStatus) -> None:
    line, headers, body = await exchange(
        status, b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    assert line == b"HTTP/1.1 200 OK"
    assert headers[b"content-type"] == b"text/plain; version=0.0.4"
    assert headers[b"content-length"] == b"5"
    assert body == b"up 1\n"


async def test_the_page_decides_its_status_and_the_query_does_not_matter(status: HttpStatus) -> None:
    line, _, body = await exchange(status, b"GET /ready?probe=1 HTTP/1.0\r\n\r\n")
    assert (line, body) == (b"HTTP/1.1 503 Service Unavailable", b'{"ready": false}')


async def test_head_gets_the_headers_alone(status: HttpStatus) -> None:
    line, headers, body = await exchange(status, b"HEAD /metrics HTTP/1.0\r\n\r\n")
    assert (line, headers[b"content-length"], body) == (b"HTTP/1.1 200 OK", b"5", b"")


async def test_a_connection_may_be_used_again(status: HttpStatus) -> None:
    one = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    _, _, rest = await exchange(status, one + one + last)
    assert rest.count(b"HTTP/1.1 200 OK") == 1
    assert rest.count(b"HTTP/1.1 503") == 1
    assert status.statistics()["requests"] == 3


@pytest.mark.parametrize(
    ("sent", "line"),
    [
        (b"GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"DELETE /metrics HTTP/1.0\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"POST /metrics HTTP/1.0\r\nContent-Length: 3\r\n\r\nabc", b"HTTP/1.1 405 Method Not Allowed"),
        (
            b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n" + bytes(9999),
            b"HTTP/1.1 405 Method Not Allowed",
        ),
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"\x00\x00\x00\x85\x00\r\n\r\n", b"HTTP/1.1 400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 20_000, b"HTTP/1.1 431 Request Header Fields Too Large"),
    ],
)
async def test_what_cannot_be_served_is_told_so(status: HttpStatus, sent: bytes, line: bytes) -> None:
    answered, headers, _ = await exchange(status, sent)
    assert answered == line
    if b"405" in line:
        assert headers[b"allow"] == b"get, head"


async def test_a_failing_page_does_no_more_harm(status: HttpStatus, error_logs: ErrorLogs) -> None:
    line, _, _ = await exchange(status, b"GET /broken HTTP/1.0\r\n\r\n")
    assert line == b"HTTP/1.1 500 Internal Server Error"
    error_logs.expect("a status page failed target=/broken")
    line, _, _ = await exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n")
    assert line == b"HTTP/1.1 200 OK"


async def test_connections_beyond_the_limit_are_closed_at_once(status: HttpStatus) -> None:
    held = [await asyncio.open_connection(*status.address) for _ in range(2)]
    await turn_until(lambda: status.statistics()["connections"] == 2)
    reader, writer = await asyncio.open_connection(*status.address)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    assert status.statistics()["turned_away"] == 1
    for _, each in [*held, (reader, writer)]:
        each.close()
    await turn_until(lambda: status.statistics()["connections"] == 0)


async def test_a_visitor_that_says_nothing_is_shown_out() -> None:
    status = HttpStatus(PAGES, timeout_s=0.01)
    await status.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*status.address)
    assert await reader.read() == b""
    writer.close()
    await status.stop()


async def test_stopping_ends_what_is_open() -> None:
    status = HttpStatus(PAGES)
    with pytest.raises(StateError):
        _ = status.address
    await status.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*status.address)
    await turn_until(lambda: status.statistics()["connections"] == 1)
    assert "connections=1" in repr(status)
    await status.stop()
    await status.stop()
    assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_while_it_stops_is_not_served_for_ever(turns: int) -> None:
    status = HttpStatus(PAGES)
    await status.start("127.0.0.1", 0)
    with socket.create_connection(status.address) as visitor:
        for _ in range(turns):
            await asyncio.sleep(0)
        await status.stop()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.to_thread(visitor.recv, 1) == b""
