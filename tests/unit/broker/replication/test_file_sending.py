"""Frames from a file arrive as they are, however the replica reads, and none after the connection ended."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.broker.replication import file_sending
from pyromq.broker.replication.file_sending import FileSending, WhenSent, file_sender
from pyromq.filesystem import Files

CONTENT = bytes(range(251)) * 40_000
"""Ten megabytes: more than a socket takes at once."""

Frames = list[tuple[bytes, int, int]]
Outcomes = asyncio.Queue[BaseException | None]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "file"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A connection: the master's end, and the replica's."""
    master, replica = connected()
    yield master, replica
    master.close()
    replica.close()


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        replica = socket.create_connection(listening.getsockname())
        master, _ = listening.accept()
    master.setblocking(False)
    replica.setblocking(False)
    return master, replica


def sending(master: socket.socket) -> tuple[FileSending, Outcomes]:
    outcomes: Outcomes = asyncio.Queue()
    return FileSending(master.fileno(), outcomes.put_nowait), outcomes


async def received(replica: socket.socket, size: int) -> bytes:
    loop, parts = asyncio.get_running_loop(), bytearray()
    async with asyncio.timeout(60):
        while len(parts) < size:
            parts += await loop.sock_recv(replica, size - len(parts)) or pytest.fail("closed too early")
    return bytes(parts)


@settings(max_examples=examples(30))
@given(
    frames=st.lists(
        st.tuples(st.binary(max_size=40), st.integers(0, 9_000), st.integers(1, 5_000)), min_size=1
    )
)
def test_frames_arrive_as_they_are(file: Path, frames: Frames) -> None:
    async def check() -> None:
        master, replica = connected()
        sender, outcomes = sending(master)
        sender.send(Files().open(file), frames)
        expected = b"".join(header + CONTENT[begin : begin + size] for header, begin, size in frames)
        assert await received(replica, len(expected)) == expected
        assert await outcomes.get() is None
        assert not sender.is_busy
        sender.close()
        master.close()
        replica.close()

    asyncio.run(check())


@pytest.mark.parametrize("waits", [0, 8])
async def test_a_replica_that_reads_late_gets_everything(
    file: Path, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, waits: int
) -> None:
    monkeypatch.setattr(file_sending, "_WAITS", waits)
    master, replica = ends
    sender, outcomes = sending(master)
    sender.send(Files().open(file), [(b"head", 0, len(CONTENT))])
    while not sender._is_waiting:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert sender.is_busy
    assert await received(replica, 4 + len(CONTENT)) == b"head" + CONTENT
    assert await outcomes.get() is None
    sender.close()


async def test_one_file_after_the_other_is_sent(
    file: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    sender, outcomes = sending(ends[0])
    for begin in range(3):
        sender.send(Files().open(file), [(b"h", begin, 1000), (b"", 7, 1)])
        assert await outcomes.get() is None
        assert await received(ends[1], 1002) == b"h" + CONTENT[begin : begin + 1000] + b"\x07"
    sender.close()


@pytest.mark.parametrize("waits", [0, 1000])
async def test_after_close_nothing_is_sent_and_nobody_is_told(
    file: Path, ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, waits: int
) -> None:
    monkeypatch.setattr(file_sending, "_WAITS", waits)
    master, replica = ends
    sender, outcomes = sending(master)
    sender.send(Files().open(file), [(b"", 0, len(CONTENT))])
    await received(replica, 10)
    sender.close()
    sender.close()
    while sender.is_busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    loop, rest = asyncio.get_running_loop(), 0
    while part := await loop.sock_recv(replica, 1 << 20):
        rest += len(part)
    assert rest < len(CONTENT)
    assert outcomes.empty()


async def test_a_replica_that_is_gone_is_told(file: Path, ends: tuple[socket.socket, socket.socket]) -> None:
    master, replica = ends
    sender, outcomes = sending(master)
    replica.close()
    sender.send(Files().open(file), [(b"", 0, len(CONTENT))])
    assert isinstance(await outcomes.get(), OSError)
    sender.close()


async def test_a_file_that_is_too_short_is_told(
    file: Path, ends: tuple[socket.socket, socket.socket]
) -> None:
    sender, outcomes = sending(ends[0])
    sender.send(Files().open(file), [(b"", len(CONTENT) - 5, 10)])
    assert "ends before" in str(await outcomes.get())
    sender.close()


class Offering(asyncio.Transport):
    """A transport without a socket that sends files itself."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self.offer if name == "file_sender" else default

    def offer(self, sent: WhenSent) -> str:
        return "its own"


def test_a_transport_may_send_files_itself() -> None:
    assert str(file_sender(Offering(), lambda _: None)) == "its own"
    assert file_sender(asyncio.Transport(), lambda _: None) is None
