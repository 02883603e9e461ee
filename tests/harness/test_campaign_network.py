"""The network of the campaign knows who calls whom, and cuts and slows each direction on its own."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from tests.campaign.network import CLIENTS, RELAYED_HOST, Network, owner_of

from pyromq.testing.held_ports import held_port

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whose a connection is")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """Keeps what it gets, and the streams to answer on."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes] = asyncio.Queue()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        with suppress(ConnectionError):
            while data := await reader.read(100):
                self.got.put_nowait(data)
        self.got.put_nowait(b"")
        writer.close()


@pytest.fixture
async def party() -> AsyncIterator[tuple[Network, Server, Streams]]:
    network, server = Network(), Server()
    with held_port() as port:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", port)
        await network.listen("server", port)
        reader, writer = await asyncio.open_connection(RELAYED_HOST, port)
        writer.write(b"hello")
        async with asyncio.timeout(60):
            assert await server.got.get() == b"hello"
            yield network, server, (reader, writer)
        writer.close()
        await network.close()
        listening.close()


async def test_a_cut_direction_delivers_late_and_the_other_one_at_once(
    party: tuple[Network, Server, Streams],
) -> None:
    network, server, (reader, writer) = party
    network.cut(CLIENTS, "server")
    writer.write(b"late")
    server.writers[0].write(b"at once")
    assert await reader.read(100) == b"at once"
    assert server.got.empty()
    network.heal(CLIENTS, "server")
    assert await server.got.get() == b"late"


async def test_a_reset_ends_connections_of_the_two_parties_only(
    party: tuple[Network, Server, Streams],
) -> None:
    network, server, (reader, writer) = party
    network.reset("server", "somebody else")
    writer.write(b"still there")
    assert await server.got.get() == b"still there"
    network.reset("server", CLIENTS)
    with suppress(ConnectionError):
        assert await reader.read(100) == b""
    assert await server.got.get() == b""


async def test_a_party_that_ends_a_connection_ends_it_for_the_other_one(
    party: tuple[Network, Server, Streams],
) -> None:
    _, server, (_, writer) = party
    writer.close()
    assert await server.got.get() == b""


def test_the_owner_of_a_connection_is_found_among_several_processes() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as connection,
    ):
        port = connection.getsockname()[1]
        assert owner_of(port, {other.pid: "other", os.getpid(): "this"}) == "this"
        assert owner_of(port, {other.pid: "other"}) is None
        other.kill()


async def test_one_bit_of_the_next_body_turns_over_and_no_other(
    party: tuple[Network, Server, Streams],
) -> None:
    network, server, (reader, _) = party
    network.flip("server", 0, seed=7)
    flipped = []
    for sent in (b"no body", b"p0-1".ljust(64), b"p0-2".ljust(64)):
        server.writers[0].write(sent)
        received = await reader.readexactly(len(sent))
        flipped.append((int.from_bytes(sent) ^ int.from_bytes(received)).bit_count())
    assert flipped == [0, 1, 0]
