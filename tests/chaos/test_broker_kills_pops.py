"""A broker is killed again and again while groups pop: nothing is lost, nothing acknowledged comes again."""

import asyncio
import random
import time
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.killable_broker import start_killable_broker
from tests.support.popped_messages import GROUP, TOPIC, Popped, pop_over
from tools import campaign

from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.pop_receipt import encode_pop_receipt, marked_topic
from pyromq.protocol.requests.popping import AckMessage

ROUNDS = campaign.rounds(5)
INVISIBLE_MS = 2000


class Ledger:
    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        """The broker said so while the message was invisible."""
        self.maybe: set[bytes] = set()
        """Acknowledgements without an answer, or late ones: these messages may come again, or not."""


async def pop(client: BrokerClient, wait_ms: int) -> list[Popped]:
    return await pop_over(client, 8, INVISIBLE_MS, wait_ms)


async def ack(client: BrokerClient, popped: Popped, ledger: Ledger) -> None:
    receipt = popped.receipt
    request = AckMessage(
        consumer_group=GROUP,
        topic=marked_topic(TOPIC, GROUP, receipt.retry_mark),
        queue_id=receipt.queue_id,
        extra_info=encode_pop_receipt(receipt),
        offset=popped.message.queue_offset,
    )
    ledger.maybe.add(popped.body)
    await client.call(request)
    end_ms = receipt.pop_time_ms + receipt.invisible_time_ms
    if time.time_ns() // 1_000_000 < end_ms - 500:
        ledger.acked.add(popped.body)
        ledger.maybe.discard(popped.body)


async def send(client: BrokerClient, name: str, ledger: Ledger) -> None:
    for number in range(1_000_000):
        body = f"{name}-{number}".encode()
        try:
            await client.send(body, queue_id=number % 2, properties={"UNIQ_KEY": body.decode()})
        except Refused as refusal:
            if refusal.code != ResponseCode.SYSTEM_BUSY:
                raise
        except TransportError:
            return
        else:
            ledger.sent.add(body)
        await asyncio.sleep(0.002)


async def consume(client: BrokerClient, ledger: Ledger, choice: random.Random) -> None:
    """Acknowledge two of three, until the broker is gone."""
    try:
        while True:
            for popped in await pop(client, 500):
                assert popped.body not in ledger.acked, "acknowledged, and delivered again"
                if choice.random() < 0.67:
                    await ack(client, popped, ledger)
    except TransportError:
        return


@pytest.mark.timeout(600)  # each round starts a process, which a busy machine makes wait
async def test_popped_messages_survive_kills(tmp_path: Path) -> None:
    choice = campaign.chance("pops")
    ledger = Ledger()
    for round_number in range(ROUNDS):
        process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
        try:
            async with BrokerClient(address) as client:
                await client.create_topic(queues=2)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(send(client, str(round_number), ledger))
                    for _ in range(3):
                        tasks.create_task(consume(client, ledger, choice))
                    await asyncio.sleep(choice.uniform(0.5, 3.0))
                    process.kill()
        finally:
            if process.returncode is None:
                process.kill()
        await process.wait()
    process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
    try:
        async with BrokerClient(address) as client:
            deadline = time.monotonic() + 60
            while missing := ledger.sent - ledger.acked - ledger.maybe:
                assert time.monotonic() < deadline, f"lost: {sorted(missing)[:5]}"
                for popped in await pop(client, 1000):
                    assert popped.body not in ledger.acked, "acknowledged, and delivered again"
                    await ack(client, popped, ledger)
    finally:
        process.kill()
        await process.wait()
    assert len(ledger.acked) > 100
