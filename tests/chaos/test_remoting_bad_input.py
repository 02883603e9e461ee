"""Whatever strangers send, they are answered or cut off, and everyone else is served as before."""

import asyncio
import os
import random
import resource
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from struct import pack

import pytest
from tests.support.echo_server import Counts
from tests.support.echo_service import Echo, EchoService, Large, Note, Wait
from tests.support.loop import turn_until
from tests.support.serving import dialing, serving
from tests.support.wire_client import WireClient

from pyromq.clock import ManualClock
from pyromq.protocol.catalogue import encode_request
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.framing import encode_frame
from pyromq.remoting.server import Server, ServerLimits

MEBIBYTE = 1024 * 1024
GOOD_FRAME = encode_frame(encode_request(Echo(text="good"), 7))


@asynccontextmanager
async def still_serving(server: Server) -> AsyncIterator[WireClient]:
    """A well-behaved client, connected before and served after."""
    async with await WireClient.connect(server.address) as witness:
        assert (await witness.call(encode_request(Echo(text="before"), 1))).ext["text"] == "before"
        yield witness
        assert (await witness.call(encode_request(Echo(text="after"), 2))).ext["text"] == "after"
    async with await WireClient.connect(server.address) as newcomer:
        assert (await newcomer.call(encode_request(Echo(text="new"), 3))).ext["text"] == "new"


NOT_FRAMES = {
    "a length of zero": pack(">iI", 0, 0),
    "a length below the header": pack(">iI", 3, 0),
    "a negative length": pack(">iI", -1, 0),
    "the smallest length": pack(">iI", -(2**31), 0),
    "the largest length": b"\x7f\xff\xff\xff\x00\x00\x00\x00",
    "one byte more than allowed": pack(">iI", 16 * MEBIBYTE - 3, 0),
    "only a length, too large": b"\x7f\xff\xff\xff",
    "a header larger than its frame": pack(">iI", 100, 97) + bytes(96),
    "an unknown header form": pack(">iI", 20, 7 << 24 | 4) + bytes(16),
    "a header that is no JSON": pack(">iI", 8, 4) + b"oops",
    "a header that is an array": pack(">iI", 6, 2) + b"[]",
    "a header without a code": pack(">iI", 6, 2) + b"{}",
    "a code that is no number": pack(">iI", 4 + 12, 12) + b'{"code":"x"}',
    "a deeply nested header": pack(">iI", 4 + 100_000, 100_000) + b"[" * 100_000,
    "a binary header cut short": pack(">iI", 9, 1 << 24 | 5) + bytes(5),
    "a binary remark of negative length": pack(">iI", 25, 1 << 24 | 21) + bytes(13) + b"\xff" * 8,
    "binary fields that run over": pack(">iI", 25, 1 << 24 | 21) + bytes(17) + b"\x00\x00\x0f\xff",
    "HTTP": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS where there is none": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("data", NOT_FRAMES.values(), ids=NOT_FRAMES.keys())
@pytest.mark.parametrize("after_good", [False, True], ids=["at once", "after a good frame"])
async def test_what_is_no_frame_closes_its_connection_alone(data: bytes, after_good: bool) -> None:
    async with serving(EchoService()) as server, still_serving(server):
        async with await WireClient.connect(server.address) as stranger:
            stranger.write(GOOD_FRAME + data if after_good else data)
            answers = await stranger.wait_closed()
        assert [answer.opaque for answer in answers] == ([7] if after_good else [])
        statistics = server.statistics()
        assert statistics.closed_for_bad_input + statistics.rejected == 1
        assert statistics.partial_bytes == 0


@pytest.mark.parametrize("form", list(HeaderForm))
async def test_a_frame_cut_short_anywhere_harms_nobody(form: HeaderForm) -> None:
    frame = encode_frame(encode_request(Echo(text="cut", body=b"body"), 1, form=form))
    async with serving(EchoService()) as server, still_serving(server):
        for size in range(1, len(frame)):
            async with await WireClient.connect(server.address) as stranger:
                stranger.write(frame[:size])
                stranger.end()
                assert await stranger.wait_closed() == []
        await turn_until(lambda: server.statistics().connections == 1)
        assert server.statistics().partial_bytes == 0


@pytest.mark.parametrize("seed", range(4))
async def test_random_bytes_harm_nobody(seed: int) -> None:
    chance = random.Random(seed)
    async with serving(EchoService()) as server, still_serving(server):
        for _ in range(100):
            data = chance.randbytes(chance.randrange(1, 2000))
            if chance.random() < 0.5:
                # More interesting: a good frame with a few wrong bytes.
                damaged = bytearray(GOOD_FRAME * 3)
                for _ in range(chance.randrange(1, 6)):
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
                data = bytes(damaged)
            async with await WireClient.connect(server.address) as stranger:
                stranger.write(data)
                stranger.end()
                await stranger.wait_closed()
        await turn_until(lambda: server.statistics().connections == 1)
        assert server.statistics().partial_bytes == 0


async def test_half_open_sockets_and_slow_senders_are_closed_when_idle() -> None:
    clock = ManualClock()
    async with serving(EchoService(), clock=clock) as server:
        silent = [await WireClient.connect(server.address) for _ in range(20)]
        halfway = [await WireClient.connect(server.address) for _ in range(20)]
        for stranger in halfway:
            stranger.write(GOOD_FRAME[:-1])
        await turn_until(lambda: server.statistics().partial_bytes == 20 * (len(GOOD_FRAME) - 1))
        assert server.statistics().pending == 20
        server.close_idle()
        clock.advance(120)
        server.close_idle()
        for stranger in silent + halfway:
            assert await stranger.wait_closed() == []
            await stranger.close()
        await turn_until(lambda: server.statistics().connections + server.statistics().pending == 0)
        assert server.statistics().partial_bytes == 0


async def test_many_unfinished_frames_hold_bounded_memory() -> None:
    limits = ServerLimits(max_partial_bytes=8 * MEBIBYTE)
    start = encode_frame(Frame(31_001, body=bytes(2 * MEBIBYTE)))[:MEBIBYTE]
    async with serving(EchoService(), limits=limits) as server, still_serving(server):
        strangers = []
        for count in range(1, 31):
            stranger = await WireClient.connect(server.address)
            strangers.append(stranger)
            stranger.write(start)
            await stranger.drain()
            await turn_until(
                lambda count=count: (
                    server.statistics().opened == count + 1  # type: ignore[misc]
                    and server.statistics().partial_bytes >= min(count, 7) * MEBIBYTE
                )
            )
            assert server.statistics().partial_bytes <= 8 * MEBIBYTE
        assert server.statistics().closed_for_bad_input >= 22
        for stranger in strangers:
            await stranger.close()


async def test_a_flood_of_oneways_is_taken_without_an_answer() -> None:
    service = EchoService()
    async with serving(service) as server, still_serving(server):
        async with await WireClient.connect(server.address) as flood:
            one = encode_frame(encode_request(Note(text="n"), 1, oneway=True))
            unknown = encode_frame(Frame(29_999, flag=2))
            for _ in range(20):
                flood.write((one + unknown) * 1000)
                await flood.drain()
            flood.write(GOOD_FRAME)
            assert (await flood.frame()).opaque == 7, "the first answer is that of the only question"
        assert len(service.notes) == 20_000


async def test_a_flood_of_waiting_requests_is_bounded_and_told_so() -> None:
    service = EchoService()
    limits = ServerLimits(max_in_flight_per_connection=10)
    async with (
        serving(service, limits=limits) as server,
        still_serving(server),
        await WireClient.connect(server.address) as flood,
    ):
        flood.send(*(encode_request(Wait(number=n), n) for n in range(1000)))
        refused = await flood.frames(990)
        assert {frame.code for frame in refused} == {2}
        assert {frame.remark for frame in refused} == {
            "[OVERLOAD]system busy: 10 requests in flight on this connection"
        }
        assert server.statistics().in_flight == 10
        await service.wait_arrived(10)
        for number in range(10):
            service.release(number)
        assert {frame.code for frame in await flood.frames(10)} == {0}


async def test_a_peer_that_never_reads_is_not_read_from_and_holds_bounded_memory() -> None:
    clock = ManualClock()
    async with serving(EchoService(), clock=clock) as server, still_serving(server) as witness:
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            deaf.connect(server.address)
            deaf.setblocking(False)
            questions = encode_frame(encode_request(Large(size_bytes=100_000), 1)) * 1000
            sent_bytes = 0
            while True:  # until the server no longer reads, and the kernel's buffers are full
                try:
                    sent_bytes += deaf.send(questions)
                except BlockingIOError:
                    if any(connection._pause_reasons for connection in server.connections):
                        break
                await asyncio.sleep(0)
            unsent_bytes = max(connection.unsent_bytes for connection in server.connections)
            assert 0 < unsent_bytes < 2 * MEBIBYTE
            server.close_idle()
            clock.advance(60)
            await witness.call(encode_request(Echo(), 1))
            server.close_idle()
            clock.advance(60)
            await witness.call(encode_request(Echo(), 1))
            server.close_idle()
            await turn_until(lambda: server.statistics().connections == 1)
            assert server.statistics().closed_for_idling == 1


async def test_clients_that_come_and_go_leave_nothing_behind() -> None:
    service = EchoService()
    async with serving(service) as server, still_serving(server):
        for number in range(200):
            stranger = await WireClient.connect(server.address)
            stranger.send(encode_request(Wait(number=number), 1))
            if number % 2:
                stranger.abort()
            else:
                await stranger.close()
        async with await WireClient.connect(server.address) as last:
            # Sockets are accepted in order: whoever came before has been accepted by now.
            await last.call(encode_request(Echo(), 1))
        await turn_until(lambda: server.statistics().connections == 1 and server.statistics().pending == 0)
        await turn_until(lambda: len(service.waiting) == server.statistics().in_flight)
        for number in list(service.waiting):
            service.release(number)
        await turn_until(lambda: server.statistics().in_flight == 0)
        assert server.statistics().in_flight_bytes == 0
        assert not server._group.tasks


@contextmanager
def open_files_allowed(wanted: int) -> Iterator[int]:
    """Raise the limit on open files as far as the system lets us; how many there may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = max(soft, wanted) if hard == resource.RLIM_INFINITY else min(max(soft, wanted), hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    try:
        yield allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to measure another process")
async def test_ten_thousand_idle_connections_cost_little_and_hinder_nobody() -> None:
    """The server is a process of its own, on the same kind of loop, with our limit on open files."""
    with open_files_allowed(10_500) as allowed:
        count = min(10_000, allowed - 500)
        if count < 1000:
            pytest.skip(f"the system allows only {allowed} open files")
        program = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.support.echo_server",
            "uvloop" if type(asyncio.get_running_loop()).__module__ == "uvloop" else "asyncio",
            cwd=Path(__file__).parents[2],
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert program.stdin is not None
        assert program.stdout is not None
        address = ("127.0.0.1", int(await program.stdout.readline()))
        idle: list[socket.socket] = []
        try:
            async with dialing() as dialer:
                name = f"127.0.0.1:{address[1]}"
                await dialer.call(name, Counts(), 10)
                before_bytes = resident_bytes(program.pid)
                for number in range(count):
                    idle.append(socket.create_connection(address))
                    if number % 2:  # half of them have spoken once
                        idle[-1].sendall(encode_frame(encode_request(Note(text="hi"), 1, oneway=True)))
                seen = await dialer.call(name, Counts(), 30)
                while seen.connections + seen.pending < count + 1 or seen.connections < count // 2 + 1:
                    seen = await dialer.call(name, Counts(), 30)
                used_bytes = resident_bytes(program.pid) - before_bytes
                assert used_bytes < count * 20_000, f"{used_bytes // count} bytes per idle connection"
                answers = await asyncio.gather(
                    *(dialer.call(name, Echo(text=str(n)), 30) for n in range(1000))
                )
                assert [answer.text for answer in answers] == [str(n) for n in range(1000)]
        finally:
            for client in idle:
                client.close()
            program.stdin.close()
            assert await program.wait() == 0
