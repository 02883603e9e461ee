"""Processes that die without a word, on either side."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_process import broker_process
from tests.support.name_server_process import start_name_server_process
from tests.support.name_servers import TIMEOUT_S, Peer, name_server, register_broker
from tools import campaign

from pyromq.clock import ManualClock
from pyromq.config.durable_file import DurableFile
from pyromq.errors import ConnectionLost, Refused
from pyromq.nameserver.kv_table import KvTable
from pyromq.nameserver.nameserver import NameServer
from pyromq.protocol.requests.kv import GetKvNamespace, PutKvEntry
from pyromq.protocol.requests.routes import GetRoute
from pyromq.remoting.dialer import Dialer


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NameServer]:
    async with name_server(tmp_path) as running:
        yield running


async def test_clients_are_told_when_a_broker_is_killed(server: NameServer) -> None:
    async with Peer(server) as client, Peer(server) as other:
        await other.call(register_broker("stays", 0, ["t"]))
        async with broker_process(server.address, "dies", ["t", "u"]) as broker:
            route = (await client.watch("t")).body
            assert [each.broker_name for each in route.broker_datas] == ["dies", "stays"]
            broker.kill()
            assert await client.wait_told() == ["t"]
            route = (await client.call(GetRoute(topic="t"))).body
            assert [each.broker_name for each in route.broker_datas] == ["stays"]


async def test_clients_are_told_when_a_broker_hangs(tmp_path: Path) -> None:
    clock = ManualClock()
    async with name_server(tmp_path, clock=clock, scan_interval_ms=5) as server, Peer(server) as client:
        with pytest.raises(Refused, match="No topic route info"):
            await client.watch("t")
        async with broker_process(server.address, "hangs", ["t"], timeout_ms=300) as broker:
            assert await client.wait_told() == ["t"]
            broker.send_signal(signal.SIGSTOP)
            try:
                clock.advance(0.301)
                assert await client.wait_told() == ["t"]
                assert server.statistics().tables.live_brokers == 0
            finally:
                broker.send_signal(signal.SIGCONT)


async def test_every_confirmed_kv_entry_survives_kill_9(tmp_path: Path) -> None:
    chance = campaign.chance("name server")
    confirmed: dict[str, str] = {}
    for round_ in range(4):
        process, (host, port) = await start_name_server_process(tmp_path)
        dialer = Dialer()
        address = f"{host}:{port}"
        if confirmed:
            kept = (await dialer.call(address, GetKvNamespace(namespace="n"), TIMEOUT_S)).body.table
            assert kept.items() >= confirmed.items()
        enough = asyncio.Event()
        limit = len(confirmed) + chance.randint(1, 60)

        async def put_until_killed(
            writer: int, dialer: Dialer, address: str, round_: int, enough: asyncio.Event, limit: int
        ) -> None:
            for number in range(1000):
                key, value = f"{round_}-{writer}-{number}", "v" * chance.randint(1, 200)
                try:
                    await dialer.call(address, PutKvEntry(namespace="n", key=key, value=value), TIMEOUT_S)
                except ConnectionLost:
                    return
                confirmed[key] = value
                if len(confirmed) >= limit:
                    enough.set()

        async with asyncio.TaskGroup() as writers:
            for writer in range(8):
                writers.create_task(put_until_killed(writer, dialer, address, round_, enough, limit))
            await enough.wait()
            process.kill()
            await process.wait()
        await dialer.close()
    table = KvTable()
    table.load(next(DurableFile(tmp_path / "kvConfig.json").contents())[1])
    assert dict(table.namespace("n") or {}).items() >= confirmed.items()


async def test_a_restarted_name_server_learns_routes_from_brokers_that_register_again(tmp_path: Path) -> None:
    process, address = await start_name_server_process(tmp_path)
    async with broker_process(address, "a", ["t"]):
        process.kill()
        await process.wait()
    async with name_server(tmp_path) as again, Peer(again) as peer:
        with pytest.raises(Refused, match="No topic route info"):
            await peer.call(GetRoute(topic="t"))
        async with broker_process(again.address, "a", ["t"]):
            assert len((await peer.call(GetRoute(topic="t"))).body.broker_datas) == 1
