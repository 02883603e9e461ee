"""A replica reads as fast as its master sends, lets others have their turns, and reports once for each."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.fake_transport import FakeTransport
from tests.support.small_stores import append, small_settings

from pyromq.broker.replication import master_link
from pyromq.broker.replication.master_link import MasterLink
from pyromq.clock import ManualClock
from pyromq.protocol.replication import encode_header, encode_report
from pyromq.store.message_store import MessageStore

BUFFER_BYTES = 1000


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[MessageStore, MessageStore]]:
    monkeypatch.setattr(master_link, "_BUFFER_BYTES", BUFFER_BYTES)
    with (
        MessageStore.open(small_settings(tmp_path / "m")) as master,
        MessageStore.open(small_settings(tmp_path / "r")) as replica,
    ):
        for _ in range(40):
            append(master, b"x" * 300)
        replica.copying.begin()
        yield master, replica


def frames_of(store: MessageStore) -> bytes:
    stream, offset = bytearray(), 0
    while piece := store.log.bytes_at(offset, 3000):
        stream += encode_header(offset, len(piece)) + piece
        offset += len(piece)
    return bytes(stream)


def read(link: MasterLink, stream: bytes) -> bytes:
    """As the loop does it: as much as fits; returns the rest."""
    buffer = link.get_buffer(-1)
    size = min(len(buffer), len(stream))
    buffer[:size] = stream[:size]
    link.buffer_updated(size)
    return stream[size:]


async def test_what_was_read_in_a_turn_is_reported_once(stores: tuple[MessageStore, MessageStore]) -> None:
    master, replica = stores
    link = MasterLink(replica, ManualClock(), lambda: None)
    transport = FakeTransport(link)  # type: ignore[arg-type]
    link.connection_made(transport)
    assert transport.writes == [encode_report(0)]
    rest = frames_of(master)
    while rest:
        transport.writes.clear()
        reads = 0
        while rest and transport.is_reading():
            rest = read(link, rest)
            reads += 1
        assert reads <= master_link._FULL_READS
        await asyncio.sleep(0)
        assert transport.writes[-1] == encode_report(replica.log.end)
        assert len(transport.writes) <= 2
        assert transport.is_reading()
    assert replica.log.end == master.log.end


async def test_after_its_end_a_link_reports_nothing(stores: tuple[MessageStore, MessageStore]) -> None:
    master, replica = stores
    link = MasterLink(replica, ManualClock(), lambda: None)
    transport = FakeTransport(link)  # type: ignore[arg-type]
    link.connection_made(transport)
    read(link, frames_of(master))
    transport.writes.clear()
    transport.abort()
    await asyncio.sleep(0)
    assert not transport.writes
    assert link.ended.exception() is not None
