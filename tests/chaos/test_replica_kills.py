"""Master and replica are killed under load, again and again: what a SYNC_MASTER acknowledged is on both."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.test_broker_kills import Ledger, produce
from tests.support.broker_cluster import BrokerClient, configuration
from tests.support.killable_broker import start_killable_broker
from tests.support.name_servers import name_server
from tests.support.replicas import log_of
from tools import campaign

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.replication import GetHaStatus
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.remoting.addresses import format_address
from pyromq.store.message_store import MessageStore

ROUNDS = campaign.rounds(6)
QUEUES = 3
FILE_SIZES = {"log_segment_bytes": 128 * 1024, "queue_file_bytes": 4000}
"""Those of a killable broker."""


class SafeClient(BrokerClient):
    """A message that the replica did not confirm is stored, but not acknowledged for this test."""

    async def send(self, *words: Any, **fields: Any) -> SendMessageAnswer:
        answer = await super().send(*words, **fields)
        if answer.code != ResponseCode.SUCCESS:
            raise Refused(ResponseCode.SYSTEM_BUSY, f"code {answer.code}")
        return answer


async def wait_for_replica(client: BrokerClient) -> None:
    async with asyncio.timeout(60):
        while not (await client.call(GetHaStatus())).body.in_sync_slave_nums:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
async def test_what_a_sync_master_acknowledged_is_on_its_replica_whoever_is_killed(tmp_path: Path) -> None:
    chance = campaign.chance("replicas")
    ledger = Ledger()
    async with name_server(tmp_path / "names") as names:
        common = {"namesrv_addr": format_address(*names.address)}
        as_master = common | {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "replica_timeout_ms": 500}
        as_replica = common | {"broker_role": "SLAVE", "broker_id": 1}
        master, address = await start_killable_broker(tmp_path / "m", "ASYNC_FLUSH", **as_master)
        replica, _ = await start_killable_broker(tmp_path / "r", "ASYNC_FLUSH", **as_replica)
        try:
            for number in range(ROUNDS):
                async with SafeClient(address) as client:
                    if not number:
                        await client.create_topic(queues=QUEUES)
                    await wait_for_replica(client)
                    ledger.want(chance.randrange(50, 400))
                    load = asyncio.create_task(produce(client, f"round{number}", ledger))
                    await ledger.enough.wait()
                    if number % 2:
                        replica.kill()
                        await replica.wait()
                        load.cancel()
                        replica, _ = await start_killable_broker(tmp_path / "r", "ASYNC_FLUSH", **as_replica)
                    else:
                        master.kill()
                        await master.wait()
                    await asyncio.wait([load])
                if not number % 2:
                    master, address = await start_killable_broker(tmp_path / "m", "ASYNC_FLUSH", **as_master)
            async with BrokerClient(address) as client:
                await wait_for_replica(client)
        finally:
            for process in (master, replica):
                process.kill()
                await process.wait()
    logs = []
    for directory in ("m", "r"):
        settings = configuration(tmp_path / directory, store=FILE_SIZES).store
        with MessageStore.open(settings) as store:
            logs.append(log_of(store))
            for queue_id, acknowledged in ledger.acknowledged.items():
                for offset, body in acknowledged.items():
                    (view,) = store.read("Orders", queue_id, offset, 1).views
                    assert decode_record(view).body == body
    assert ledger.count > 50 * ROUNDS
    assert logs[0].startswith(logs[1])
