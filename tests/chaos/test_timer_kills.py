"""A broker with timed messages is killed again and again: each message comes once, recalled ones never."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.support.broker_cluster import PRODUCERS, TOPIC, BrokerClient
from tests.support.killable_broker import start_killable_broker
from tools import campaign

from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.sending import RecallMessage
from pyromq.protocol.requests.settings import UpdateBrokerConfig

ROUNDS = campaign.rounds(8)
SENDERS = 6


class Ledger:
    def __init__(self) -> None:
        self.due: dict[bytes, int] = {}
        """The times of messages that were acknowledged."""
        self.maybe: set[bytes] = set()
        """Messages whose send or recall was not answered: they may come, but once."""
        self.recalled: set[bytes] = set()

    def forget(self, body: bytes) -> None:
        self.due.pop(body, None)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def work(client: BrokerClient, name: str, ledger: Ledger, choice: random.Random) -> None:
    """Send, and sometimes recall, until the broker is gone."""
    for number in range(1_000_000):
        body = f"{name}-{number}".encode()
        due_ms = now_ms() + choice.choice([choice.randrange(1, 1500), choice.randrange(1500, 9000)])
        properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode()}
        ledger.maybe.add(body)
        try:
            sent = await client.send(body, properties=properties)
            ledger.due[body] = due_ms
            ledger.maybe.discard(body)
            if sent.recall_handle is not None and choice.random() < 0.3:
                ledger.forget(body)
                ledger.maybe.add(body)
                await client.call(
                    RecallMessage(producer_group=PRODUCERS, topic=TOPIC, recall_handle=sent.recall_handle)
                )
                ledger.maybe.discard(body)
                ledger.recalled.add(body)
        except Refused as refusal:
            # Too late for a recall: the message comes. A busy machine: it does not.
            if refusal.code == ResponseCode.ILLEGAL_OPERATION:
                ledger.due[body] = due_ms
            elif refusal.code != ResponseCode.SYSTEM_BUSY:
                raise
        except TransportError:
            return


async def delivered(client: BrokerClient) -> Counter[bytes]:
    found: list[bytes] = []
    while more := (await client.pull(len(found))).bodies:
        found += more
    return Counter(found)


@pytest.mark.timeout(600)  # each round starts a process, which a busy machine makes wait
async def test_each_timed_message_comes_once_although_the_broker_is_killed(tmp_path: Path) -> None:
    choice = campaign.chance("timers")
    ledger = Ledger()
    for round_number in range(ROUNDS):
        process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
        async with BrokerClient(address) as client:
            await client.create_topic(queues=1)
            await client.call(UpdateBrokerConfig(body="recallMessageEnable=true"))
            async with asyncio.TaskGroup() as tasks:
                for sender in range(SENDERS):
                    tasks.create_task(work(client, f"{round_number}-{sender}", ledger, choice))
                await asyncio.sleep(choice.uniform(0.2, 2.5))
                process.kill()
        await process.wait()
    process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
    try:
        async with BrokerClient(address) as client:
            while not ledger.due.keys() <= (await delivered(client)).keys():
                assert now_ms() < max(ledger.due.values()) + 60_000, "lost"
                await asyncio.sleep(0.2)
            counts = await delivered(client)
    finally:
        process.kill()
        await process.wait()
    assert [body for body, count in counts.items() if count > 1] == [], "twice"
    assert not counts.keys() & ledger.recalled, "recalled, and delivered"
    assert counts.keys() <= ledger.due.keys() | ledger.maybe
    assert len(ledger.due) > 100
    assert ledger.recalled
