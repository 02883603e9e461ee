"""The status pages speak just enough HTTP, and no more."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from tests.conftest import ErrorLogs
from tests.support.loop import turn_until

from pyromq.clock import ManualClock
from pyromq.errors import StateError
from pyromq.remoting.http_status import HttpStatus

JSON = "application/json"

PROBE = b"GET /health HTTP/1.0\r\n\r\n"


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


async def test_a_visitor_that_says_nothing_is_shown_out() -> None:
    clock = ManualClock()
    status = HttpStatus(PAGES, clock=clock)
    await status.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*status.address)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: ")
    await turn_until(lambda: status.statistics()["connections"] == 1)
    clock.advance(4.9)
    status.close_overdue()
    assert status.statistics()["connections"] == 1
    clock.advance(0.1)
    status.close_overdue()
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    assert status.statistics()["dropped"] == 1
    writer.close()
    await status.stop()


async def test_the_pause_between_two_requests_is_counted_anew() -> None:
    clock = ManualClock()
    status = HttpStatus(PAGES, clock=clock)
    await status.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*status.address)
    for _ in range(3):
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"up 1\n")).startswith(b"HTTP/1.1 200 OK")
        clock.advance(4)
        status.close_overdue()
    writer.close()
    await status.stop()


@pytest.mark.parametrize("visitors", [64, 1000])
@pytest.mark.parametrize("said", [b"", b"GET /hea", b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_probes_are_answered_however_many_slow_visitors_there_are(visitors: int, said: bytes) -> None:
    status = HttpStatus(PAGES | {"/health": lambda: (200, "text/plain", b"alive\n")})
    await status.start("127.0.0.1", 0)
    slow = [socket.socket() for _ in range(visitors)]
    try:
        for number, each in enumerate(slow):
            each.setblocking(False)
            each.connect_ex(status.address)
            if said:
                with contextlib.suppress(OSError):
                    each.send(said)
            if number % 250 == 63:
                line, _, body = await exchange(status, PROBE)
                assert (line, body) == (b"HTTP/1.1 200 OK", b"alive\n")
        for _ in range(3):
            line, _, body = await exchange(status, PROBE)
            assert (line, body) == (b"HTTP/1.1 200 OK", b"alive\n")
        assert status.statistics()["connections"] <= 64
    finally:
        for each in slow:
            each.close()
        await status.stop()


class TestRoom:
    async def test_of_those_who_wait_for_nothing_the_oldest_makes_room(self, status: HttpStatus) -> None:
        first = await asyncio.open_connection(*status.address)
        await turn_until(lambda: status.statistics()["connections"] == 1)
        second = await asyncio.open_connection(*status.address)
        await turn_until(lambda: status.statistics()["connections"] == 2)
        line, _, _ = await exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert line == b"HTTP/1.1 200 OK"
        with contextlib.suppress(ConnectionError):
            assert await first[0].read() == b""
        assert status.statistics()["dropped"] == 1
        second[1].write(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await second[0].read()).endswith(b"up 1\n")
        for _, each in (first, second):
            each.close()

    async def test_the_address_with_the_most_visitors_makes_room(self) -> None:
        clock = ManualClock()
        status = HttpStatus(PAGES, clock=clock, max_connections=3)
        await status.start("127.0.0.1", 0)
        quiet = await asyncio.open_connection(*status.address, local_addr=("127.0.0.2", 0))
        await turn_until(lambda: status.statistics()["connections"] == 1)
        clock.advance(1)
        crowd = [await asyncio.open_connection(*status.address) for _ in range(20)]
        await turn_until(lambda: status.statistics()["dropped"] == 18)
        quiet[1].write(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert (await quiet[0].read()).endswith(b"up 1\n")
        for _, each in [quiet, *crowd]:
            each.close()
        await status.stop()


class TestSlowReaders:
    """A large page, and visitors whose systems take little of it at a time."""

    BODY = bytes(range(256)) * 8 * 1024

    @contextlib.asynccontextmanager
    async def serving(self, clock: ManualClock, **limits: int) -> AsyncIterator[HttpStatus]:
        status = HttpStatus(
            {"/large": lambda: (200, "text/plain", self.BODY), "/health": lambda: (200, "text/plain", b"")},
            clock=clock,
            **limits,
        )
        await status.start("127.0.0.1", 0)
        yield status
        await status.stop()

    async def reader(self, status: HttpStatus) -> socket.socket:
        each = socket.socket()
        each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        each.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(each, status.address)
        await loop.sock_sendall(each, b"GET /large HTTP/1.0\r\n\r\n")
        requests = status.statistics()["requests"]
        await turn_until(lambda: status.statistics()["requests"] > requests)
        return each

    async def test_one_that_reads_slowly_but_steadily_gets_its_page(self) -> None:
        clock = ManualClock()
        async with self.serving(clock) as status:
            visitor = await self.reader(status)
            got, unsent = b"", len(self.BODY) * 2
            while data := await asyncio.get_running_loop().sock_recv(visitor, 256 * 1024):
                got += data
                if (left := sum(each.unsent_bytes for each in status._connections)) < unsent:
                    unsent = left
                    clock.advance(29)  # several times the patience with those who take nothing
                status.close_overdue()
            assert got.partition(b"\r\n\r\n")[2] == self.BODY
            visitor.close()

    async def test_one_that_stops_reading_is_dropped(self) -> None:
        clock = ManualClock()
        async with self.serving(clock) as status:
            visitor = await self.reader(status)
            # What its system still takes is seen as reading; that comes to an end.
            while status.statistics()["connections"]:
                clock.advance(31)
                status.close_overdue()
                await asyncio.sleep(0)
            assert status.statistics() == {"connections": 0, "requests": 1, "dropped": 1}
            visitor.close()

    async def test_pages_that_nobody_reads_have_a_limit_together(self) -> None:
        async with self.serving(ManualClock(), max_unsent_bytes=3 * len(self.BODY)) as status:
            visitors = [await self.reader(status) for _ in range(12)]
            held = [each for each in status._connections if each.is_answered]
            assert sum(each.unsent_bytes for each in held) <= 3 * len(self.BODY)
            assert status.statistics()["dropped"] >= 8
            for each in visitors:
                each.close()

    async def test_readers_stay_while_there_is_room_and_leave_after_those_who_wait_for_nothing(self) -> None:
        async with self.serving(ManualClock(), max_connections=3) as status:
            visitor = await self.reader(status)
            idle = [await asyncio.open_connection(*status.address) for _ in range(8)]
            await turn_until(lambda: status.statistics()["dropped"] >= 6)
            assert [each.is_answered for each in status._connections] == [True, False, False]
            visitor.close()
            for _, each in idle:
                each.close()


class TestPagesInPieces:
    async def test_probes_are_answered_while_a_page_is_made(self) -> None:
        go_on = asyncio.Event()
        made = 0

        async def slow() -> tuple[int, str, bytes]:
            nonlocal made
            made += 1
            await go_on.wait()
            return 200, "text/plain", b"all figures\n"

        status = HttpStatus({"/metrics": slow, "/health": lambda: (200, "text/plain", b"alive\n")})
        await status.start("127.0.0.1", 0)
        scrapes = [asyncio.create_task(exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n")) for _ in range(5)]
        await turn_until(lambda: status.statistics()["requests"] == 5)
        assert (await exchange(status, PROBE))[2] == b"alive\n"
        go_on.set()
        assert [body for _, _, body in await asyncio.gather(*scrapes)] == [b"all figures\n"] * 5
        assert made == 1
        await status.stop()

    async def test_a_scrape_that_gives_up_leaves_the_page_to_the_others(self) -> None:
        go_on = asyncio.Event()

        async def slow() -> tuple[int, str, bytes]:
            await go_on.wait()
            return 200, "text/plain", b"all figures\n"

        status = HttpStatus({"/metrics": slow})
        await status.start("127.0.0.1", 0)
        first = asyncio.create_task(exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n"))
        await turn_until(lambda: status.statistics()["requests"] == 1)
        second = asyncio.create_task(exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n"))
        await turn_until(lambda: status.statistics()["requests"] == 2)
        next(iter(status._connections)).end()
        go_on.set()
        assert (await second)[2] == b"all figures\n"
        await asyncio.wait([first])
        first.exception()
        await status.stop()

    async def test_a_page_that_fails_on_the_way_is_told_so(self, error_logs: ErrorLogs) -> None:
        async def failing() -> tuple[int, str, bytes]:
            await asyncio.sleep(0)
            raise RuntimeError("no metrics today")

        status = HttpStatus({"/metrics": failing})
        await status.start("127.0.0.1", 0)
        line, _, _ = await exchange(status, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert line == b"HTTP/1.1 500 Internal Server Error"
        error_logs.expect("a status page failed target=/metrics")
        await status.stop()

    async def test_stopping_ends_a_page_that_is_being_made(self) -> None:
        async def endless() -> tuple[int, str, bytes]:
            await asyncio.Event().wait()
            raise AssertionError

        status = HttpStatus({"/metrics": endless})
        await status.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*status.address)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        await turn_until(lambda: status.statistics()["requests"] == 1)
        await status.stop()
        assert await reader.read() == b""
        writer.close()


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
