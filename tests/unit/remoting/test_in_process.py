"""Connections within a process behave as those over sockets do."""

import asyncio
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.remoting.in_process import connect


class Recorded(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = bytearray()
        self.reads: list[bytes] = []
        self.events: list[str] = []
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert type(data) is bytes
        self.reads.append(data)
        self.received += data

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        assert not self.lost.is_set()
        self.lost.set()


def pair() -> tuple[Recorded, Recorded]:
    near, far = Recorded(), Recorded()
    connect(near, far)
    return near, far


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_everything_written_in_one_turn_arrives_together() -> None:
    near, far = pair()
    near.transport.write(b"a")
    near.transport.writelines([memoryview(b"bc"), bytearray(b"d")])
    assert not far.reads  # never within the write
    await turns()
    assert far.reads == [b"abcd"]


async def test_a_buffer_may_change_after_it_was_written() -> None:
    near, far = pair()
    buffer = bytearray(b"before")
    near.transport.write(memoryview(buffer))
    buffer[:] = b"after!"
    await turns()
    assert bytes(far.received) == b"before"


async def test_a_writer_is_told_to_wait_for_a_reader_that_does_not_read() -> None:
    near, far = pair()
    near.transport.set_write_buffer_limits(high=10)
    far.transport.pause_reading()
    near.transport.write(b"x" * 11)
    await turns()
    assert (near.events, near.transport.get_write_buffer_size(), far.reads) == (["pause"], 11, [])
    far.transport.resume_reading()
    await turns()
    assert (near.events, near.transport.get_write_buffer_size()) == (["pause", "resume"], 0)
    assert far.received == b"x" * 11


@pytest.mark.parametrize("ends", ["close", "abort"])
async def test_the_end_of_one_side_is_the_end_of_the_other(ends: str) -> None:
    near, far = pair()
    near.transport.write(b"last words")
    getattr(near.transport, ends)()
    async with asyncio.timeout(5):
        await near.lost.wait()
        await far.lost.wait()
    assert bytes(far.received) == (b"last words" if ends == "close" else b"")
    assert near.transport.is_closing()
    assert far.transport.is_closing()
    far.transport.write(b"to nobody")
    await turns()
    assert near.received == b""


async def test_a_side_that_waits_for_its_reader_learns_that_the_reader_is_gone() -> None:
    near, far = pair()
    far.transport.set_write_buffer_limits(high=1)
    near.transport.pause_reading()
    far.transport.pause_reading()
    far.transport.write(b"unread")
    near.transport.close()
    async with asyncio.timeout(5):
        await far.lost.wait()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(["pause", "resume", "turn"])), max_size=30))
def test_no_byte_is_lost_or_moved(steps: list[bytes | str]) -> None:
    async def run() -> None:
        near, far = pair()
        near.transport.set_write_buffer_limits(high=16)
        for step in steps:
            if isinstance(step, bytes):
                near.transport.write(step)
            elif step == "turn":
                await turns(1)
            else:
                getattr(far.transport, f"{step}_reading")()
        far.transport.resume_reading()
        near.transport.close()
        async with asyncio.timeout(5):
            await far.lost.wait()
        assert bytes(far.received) == b"".join(step for step in steps if isinstance(step, bytes))

    asyncio.run(run())
