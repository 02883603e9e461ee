"""Pops survive a change of the master: what one handed out, the next one knows, hides and revives."""

from pathlib import Path

from tests.support.broker_cluster import BrokerClient
from tests.support.popped_messages import Popped, bodies, pop_over
from tests.support.replicas import broker_group, caught_up, until

from pyromq.protocol.pop_receipt import encode_pop_receipt
from pyromq.protocol.requests.popping import AckMessage, ChangeInvisibleTime

TOPIC, GROUP = "Orders", "billing"


async def pop(client: BrokerClient, invisible_ms: int, poll_ms: int = 0) -> list[Popped]:
    return await pop_over(client, 32, invisible_ms, poll_ms)


def about(popped: Popped) -> dict[str, object]:
    return {
        "consumer_group": GROUP,
        "topic": popped.stored_in,
        "queue_id": popped.receipt.queue_id,
        "extra_info": encode_pop_receipt(popped.receipt),
        "offset": popped.message.queue_offset,
    }


async def change(client: BrokerClient, popped: Popped, invisible_ms: int) -> None:
    await client.call(ChangeInvisibleTime(**about(popped), invisible_time=invisible_ms))  # type: ignore[arg-type]


async def test_a_replica_that_becomes_master_knows_the_pops_of_its_master(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with group.master() as master, group.replica() as replica:
            async with BrokerClient(master.address) as client:
                await client.create_topic(TOPIC, 1)
                for name in (b"acked", b"changed", b"left"):
                    await client.send(name, TOPIC)
                # Offsets reach a replica every few seconds, and the log at once.
                await until(lambda: replica._started.tables.topics.get(TOPIC) is not None)
                acked, changed, left = await pop(client, 30_000)
                await client.call(AckMessage(**about(acked)))  # type: ignore[arg-type]
                await change(client, changed, 25_000)
                await change(client, left, 500)
            await caught_up(replica, master)
        async with group.master(directory="replica1") as master, BrokerClient(master.address) as client:
            await change(client, changed, 100)  # by the receipt that was replaced on the old master
            again: list[Popped] = []
            while len(again) < 2:
                again += await pop(client, 60_000, poll_ms=20_000)
            assert sorted(bodies(again)) == [b"changed", b"left"]
            assert {each.message.reconsume_times for each in again} == {1}
            assert await pop(client, 1000, poll_ms=2500) == []
