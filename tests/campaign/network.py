"""A network of named parties on one machine, in which single directions can be cut and slowed.

Every party listens on 127.0.0.1 and tells the others to use 127.0.0.2 instead, where a relay of ours accepts
at the same port. The relay finds out who calls: Linux tells which process owns a socket. So it knows the two
ends of each connection, and can treat each direction of each pair of parties on its own.

A cut direction swallows nothing for ever: like TCP after a partition, it delivers late what was sent
meanwhile, if both ends still want it. While either direction is cut, no connection can be opened. A
port can be held up alone: the other streams between the same parties go on. It can also turn over one bit.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from random import Random

from tests.campaign.disks import bit_of_body

OWN_HOST = "127.0.0.1"
RELAYED_HOST = "127.0.0.2"
CLIENTS = "clients"
"""This process, whose producers and consumers are a party, too."""

_CHUNK_BYTES = 65_536
_ESTABLISHED = "01"
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
"""Java speaks IPv4 through sockets of IPv6."""


class _Direction:
    """From one party to another."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.delay_s = 0.0

    async def pass_through(self) -> None:
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        await self.open.wait()


class _Port:
    """What a server sends from one of its ports, to everyone."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.flips: list[int] = []
        """The seeds of bits to turn over, in the next chunks that have a body."""

    def damaged(self, data: bytes) -> bytes:
        if not self.flips or (flipped := bit_of_body(data, Random(self.flips[-1]))) is None:
            return data
        self.flips.pop()
        byte, bit = flipped
        return data[:byte] + bytes([data[byte] ^ bit]) + data[byte + 1 :]


class Network:
    """`await listen("broker0", 10911)`; `cut("broker0", "broker1")` stops bytes from the one to the other."""

    def __init__(self) -> None:
        self._processes: dict[int, str] = {os.getpid(): CLIENTS}
        self._directions: dict[tuple[str, str], _Direction] = defaultdict(_Direction)
        self._ports: dict[tuple[str, int], _Port] = {}
        self._servers: list[asyncio.Server] = []
        self._relayed: dict[asyncio.Task[None], tuple[str, str]] = {}

    def __repr__(self) -> str:
        cut = [pair for pair, direction in self._directions.items() if not direction.open.is_set()]
        return f"<Network of {sorted(self._processes.values())} connections={len(self._relayed)} cut={cut}>"

    def runs_as(self, pid: int, party: str) -> None:
        """The process of a party; it replaces an earlier one."""
        self._processes = {each: name for each, name in self._processes.items() if name != party}
        self._processes[pid] = party

    async def listen(self, party: str, *ports: int) -> None:
        """Relay connections to these ports of a party, from now on."""
        for place, port in enumerate(ports):
            self._ports[party, place] = self._ports[party, port] = _Port()

            async def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int = port
            ) -> None:
                await self._accept(party, port, reader, writer)

            self._servers.append(await asyncio.start_server(accept, RELAYED_HOST, port))

    # Faults

    def cut(self, sender: str, receiver: str) -> None:
        self._directions[sender, receiver].open.clear()

    def slow(self, sender: str, receiver: str, delay_s: float) -> None:
        self._directions[sender, receiver].delay_s = delay_s

    def hold(self, party: str, place: int, *, is_held: bool = True) -> None:
        """Nothing that a party sends from its first, second, … port arrives for a while."""
        if is_held:
            self._ports[party, place].open.clear()
        else:
            self._ports[party, place].open.set()

    def flip(self, party: str, place: int, seed: int) -> None:
        """Turn over one bit of the next message that a party sends from a port."""
        self._ports[party, place].flips.append(seed)

    def reset(self, one: str, other: str) -> None:
        """End all connections between two parties."""
        for task, ends in list(self._relayed.items()):
            if set(ends) == {one, other}:
                task.cancel()

    def heal(self, *parties: str) -> None:
        """All is well again between these parties, or everywhere."""
        for pair, direction in self._directions.items():
            if not parties or set(pair) == set(parties):
                direction.delay_s = 0.0
                direction.open.set()
        if not parties:
            for port in self._ports.values():
                port.open.set()
                port.flips.clear()

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for task in list(self._relayed):
            task.cancel()
        await asyncio.gather(*self._relayed, return_exceptions=True)

    # Relaying

    async def _accept(
        self, target: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        caller = owner_of(writer.get_extra_info("peername")[1], self._processes)
        if caller is None:  # gone again, or a stranger
            writer.transport.abort()
            return
        self._relayed[task] = (caller, target)
        try:
            await self._relay(caller, target, port, reader, writer)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            del self._relayed[task]
            writer.transport.abort()

    async def _relay(
        self,
        caller: str,
        target: str,
        port: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        there, back = self._directions[caller, target], self._directions[target, caller]
        await there.pass_through()
        await back.pass_through()
        onward_reader, onward_writer = await asyncio.open_connection(OWN_HOST, port)
        pipes = [
            asyncio.create_task(_forward(reader, onward_writer, there, _Port())),
            asyncio.create_task(_forward(onward_reader, writer, back, self._ports[target, port])),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            onward_writer.transport.abort()
            await asyncio.gather(*pipes, return_exceptions=True)


async def _forward(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: _Direction, port: _Port
) -> None:
    while data := await source.read(_CHUNK_BYTES):
        await direction.pass_through()
        await port.open.wait()
        sink.write(port.damaged(data))
        await sink.drain()
    # The end of a stream is a packet, too.
    await direction.pass_through()


def owner_of(port: int, processes: dict[int, str]) -> str | None:
    """The party whose process has a connection from this port of 127.0.0.x."""
    inodes = set(_inodes_at(port))
    for pid, party in processes.items():
        if inodes & set(_sockets_of(pid)):
            return party
    return None


def _inodes_at(port: int) -> Iterable[str]:
    ending = f":{port:04X}"
    for table in _TABLES:
        for line in table.read_text().splitlines()[1:]:
            words = line.split()
            if words[1].endswith(ending) and words[3] == _ESTABLISHED:
                yield words[9]


def _sockets_of(pid: int) -> Iterable[str]:
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                yield target[8:-1]
    except OSError:  # it ended, or closed one meanwhile
        return
