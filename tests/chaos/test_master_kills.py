"""Masters are killed under load, one after the other: a replica takes over, nothing acknowledged is lost."""

import asyncio
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BrokerClient, configuration
from tests.support.controlled_brokers import controller
from tests.support.killable_broker import start_killable_broker
from tests.support.name_servers import name_server
from tests.support.replicas import log_of
from tools import campaign

from pyromq import Message
from pyromq.aio import Producer
from pyromq.errors import PyroError
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.controller import GetReplicaInfo, GetReplicaInfoAnswer
from pyromq.remoting.addresses import format_address, parse_address
from pyromq.remoting.dialer import Dialer
from pyromq.store.message_store import MessageStore

ROUNDS = campaign.rounds(2)
SENDERS = 4
QUEUES = 3
FILE_SIZES = {"log_segment_bytes": 128 * 1024, "queue_file_bytes": 4000}
"""Those of a killable broker."""


class Load:
    """What a producer sent, and where the brokers said that it is."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._grown = asyncio.Condition()
        self.is_over = False

    async def send(self, sender: int) -> None:
        number = 0
        while not self.is_over:
            number += 1
            body = b"%d-%d" % (sender, number)
            try:
                result = await self._producer.send(Message("Orders", body))
            except PyroError:
                continue
            if not result.is_ok:
                continue  # stored, but not confirmed by those in sync
            place = result.queue.queue_id, result.queue_offset
            assert place not in self.acknowledged, "two messages have one place"
            self.acknowledged[place] = body
            async with self._grown:
                self._grown.notify_all()

    async def grow(self, count: int) -> None:
        """Return when so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        async with asyncio.timeout(60), self._grown:
            await self._grown.wait_for(lambda: len(self.acknowledged) >= wanted)


@pytest.mark.timeout(240)
async def test_what_was_acknowledged_survives_every_master(tmp_path: Path) -> None:
    chance = campaign.chance("masters")
    async with name_server(tmp_path / "names") as names, controller(tmp_path) as leader:
        settings: dict[str, Any] = {
            "controller_mode": True,
            "controller_addr": format_address(*leader.address),
            "namesrv_addr": format_address(*names.address),
            "all_in_sync": True,
            "in_sync_replicas": 2,
            "heartbeat_interval_ms": 200,
        }
        dialer = Dialer()
        running: dict[int, tuple[str, Process]] = {}

        async def start(directory: str) -> None:
            process, address = await start_killable_broker(tmp_path / directory, "ASYNC_FLUSH", **settings)
            running[address[1]] = directory, process

        async def settled(count: int) -> GetReplicaInfoAnswer:
            async with asyncio.timeout(60):
                while True:
                    found = await dialer.call(
                        settings["controller_addr"], GetReplicaInfo(broker_name="broker-a"), 60
                    )
                    if len(found.body.sync_state_set) == count and found.master_address:
                        return found
                    await asyncio.sleep(0.02)

        try:
            for directory in "abc":
                await start(directory)
            first = parse_address((await settled(3)).master_address or "")
            async with BrokerClient(first) as client:
                await client.create_topic(queues=QUEUES)
            async with Producer("tills", settings["namesrv_addr"]) as producer:
                load = Load(producer)
                senders = [asyncio.create_task(load.send(each)) for each in range(SENDERS)]
                for _ in range(ROUNDS):
                    found = await settled(3)
                    await load.grow(chance.randrange(20, 300))
                    directory, process = running.pop(parse_address(found.master_address or "")[1])
                    process.kill()
                    await process.wait()
                    await load.grow(50)
                    await start(directory)
                await settled(3)
                await load.grow(50)
                load.is_over = True
                await asyncio.gather(*senders)
        finally:
            for _, process in running.values():
                process.kill()
                await process.wait()
            await dialer.close()
    logs = []
    for directory in "abc":
        stored = configuration(tmp_path / directory, store=FILE_SIZES).store
        with MessageStore.open(stored) as store:
            logs.append(log_of(store))
            for (queue_id, offset), body in load.acknowledged.items():
                (view,) = store.read("Orders", queue_id, offset, 1).views
                assert decode_record(view).body == body, f"{directory} has lost {body!r}"
    longest = max(logs, key=len)
    assert all(longest.startswith(log) for log in logs)
