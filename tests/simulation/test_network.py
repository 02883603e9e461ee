"""The simulated world without a cluster: time, processes and connections."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, cast

import pytest
from tests.simulation.loop import Livelock, SimulatedLoop
from tests.simulation.network import Network, SimulatedPorts
from tests.simulation.processes import Host, Process

from pyromq.remoting.acceptor import Acceptor

PORT = 80

_worlds: list["World"] = []
"""Kept until the end: coroutines of killed processes never go on, and must not be collected either."""


class Talker(asyncio.Protocol):
    """Remembers what happened to its connection."""

    def __init__(self) -> None:
        self.heard = b""
        self.end: list[Exception | None] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.heard += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.end.append(exc)

    def say(self, data: bytes) -> None:
        assert self.transport is not None
        self.transport.write(data)


class World:
    """Two hosts, a process on each, and a connection between them."""

    def __init__(self) -> None:
        _worlds.append(self)
        self.loop = SimulatedLoop(Random(1), max_steps=100_000)
        self.network = Network(self.loop, Random(2))
        self.near, self.far = (self._host(name) for name in ("near", "far"))
        self.client, self.server = self.near.start("client"), self.far.start("server")
        self.caller, self.called = Talker(), Talker()

    def _host(self, name: str) -> Host:
        host = Host(self.loop, name, f"address of {name}", seed=1)
        self.network.add_host(host)
        return host

    def run(self, work: Callable[["World"], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            await self.server.run(self._listen(self.server))
            await self.client.run(self._connect())
            await asyncio.sleep(0.1)
            await work(self)

        try:
            self.loop.run_until_complete(main())
        finally:
            self.loop.close()

    async def _listen(self, process: Process) -> None:
        Acceptor(SimulatedPorts(self.network, process).listen("", PORT), 1, lambda: self.called)

    async def _connect(self) -> None:
        await self.loop.create_connection(lambda: self.caller, self.far.address, PORT)


def test_bytes_arrive_in_order_and_time_leaps() -> None:
    async def work(world: World) -> None:
        for number in range(200):
            world.caller.say(b"%d," % number)
            await asyncio.sleep(0.0001)
        await asyncio.sleep(3600)
        assert world.called.heard == b"".join(b"%d," % number for number in range(200))

    World().run(work)


def test_a_partition_holds_what_is_sent_until_it_heals() -> None:
    async def work(world: World) -> None:
        world.network.block(world.near.address, world.far.address)
        world.caller.say(b"held")
        world.called.say(b"the other way is open")
        await asyncio.sleep(60)
        assert (world.called.heard, world.caller.heard) == (b"", b"the other way is open")
        world.network.unblock(world.near.address, world.far.address)
        await asyncio.sleep(5)
        assert world.called.heard == b"held"

    World().run(work)


def test_the_peer_of_a_killed_process_is_told_and_its_coroutines_never_go_on() -> None:
    ended: list[str] = []

    async def wait() -> None:
        try:
            await asyncio.sleep(1)
        finally:
            ended.append("a killed process ran on")

    async def work(world: World) -> None:
        world.server.run(wait())
        await asyncio.sleep(0.5)
        world.server.kill()
        await asyncio.sleep(10)
        assert len(world.caller.end) == 1
        assert not world.called.end
        assert not ended

    World().run(work)


def test_a_host_without_power_says_nothing_and_resets_old_connections_when_it_is_back() -> None:
    async def work(world: World) -> None:
        world.far.lose_power()
        world.caller.say(b"anyone?")
        await asyncio.sleep(60)
        assert not world.caller.end
        world.far.start("server")
        await asyncio.sleep(5)
        assert isinstance(world.caller.end[0], ConnectionResetError)

    World().run(work)


def test_a_paused_process_goes_on_where_it_was() -> None:
    async def work(world: World) -> None:
        world.server.pause()
        world.caller.say(b"later")
        await asyncio.sleep(60)
        assert world.called.heard == b""
        world.server.go_on()
        await asyncio.sleep(0.1)
        assert world.called.heard == b"later"

    World().run(work)


def test_a_program_that_spins_is_found() -> None:
    async def work(_: World) -> None:
        while True:  # noqa: ASYNC110 (it is the mistake)
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        World().run(work)


def test_a_thread_is_a_step_that_takes_the_time_of_its_disk() -> None:
    async def work(world: World) -> None:
        def read() -> str:
            world.loop.spend(2.0)
            return "done"

        began_s = world.loop.time()
        assert await asyncio.to_thread(read) == "done"
        assert 2.0 <= world.loop.time() - began_s < 2.1

    World().run(work)
