"""A broker is killed under load, again and again: what was acknowledged is there, and no queue has a gap."""

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.killable_broker import start_killable_broker
from tools import campaign

from pyromq.errors import Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm

ROUNDS = campaign.rounds(8)
QUEUES = 3
PRODUCERS = 4
MOST_ACKNOWLEDGED = 800
GROUP = "auditor"


class Ledger:
    """What producers were told, and what a consumer saw, by queue."""

    def __init__(self) -> None:
        self.acknowledged: dict[int, dict[int, bytes]] = defaultdict(dict)
        self.seen: dict[int, list[bytes]] = defaultdict(list)
        self.count = 0
        self.enough = asyncio.Event()
        self._wanted = 0

    def want(self, more: int) -> None:
        """`enough` is set once so many more are acknowledged."""
        self.enough.clear()
        self._wanted = self.count + more

    def acknowledge(self, queue_id: int, offset: int, body: bytes) -> None:
        assert offset not in self.acknowledged[queue_id], f"offset {offset} was given twice"
        self.acknowledged[queue_id][offset] = body
        self.count += 1
        if self.count >= self._wanted:
            self.enough.set()


async def produce(client: BrokerClient, name: str, ledger: Ledger) -> None:
    """Send until the broker is gone, eight at a time."""

    async def one_of_eight(sender: int) -> None:
        for number in range(1_000_000):
            body = f"{name}-{sender}-{number}-".encode() + b"x" * (number * 37 % 700)
            try:
                sent = await client.send(body, queue_id=(sender + number) % QUEUES)
            except Refused as refusal:
                # A machine that stalls makes sends wait too long; nothing was stored then.
                if refusal.code == ResponseCode.SYSTEM_BUSY:
                    continue
                raise
            ledger.acknowledge(sent.queue_id, sent.queue_offset, body)

    try:
        async with asyncio.TaskGroup() as tasks:
            for sender in range(8):
                tasks.create_task(one_of_eight(sender))
    except* TransportError:
        pass


async def consume(client: BrokerClient, queue_id: int, ledger: Ledger, *, hold_ms: int) -> None:
    """Go on where it stopped, until there is nothing more or the broker is gone; offsets leave no gap."""
    seen = ledger.seen[queue_id]
    try:
        while True:
            pulled = await client.pull(len(seen), queue_id=queue_id, group=GROUP, hold_ms=hold_ms)
            if pulled.answer.code == ResponseCode.PULL_NOT_FOUND and not hold_ms:
                return
            for message in pulled.messages:
                assert message.queue_offset == len(seen)
                seen.append(message.body)
    except TransportError:
        if not hold_ms:
            raise


async def audit(client: BrokerClient, ledger: Ledger) -> None:
    """Everything acknowledged is where its producer was told, and what was seen once is still the same."""
    fresh = Ledger()
    for queue_id in range(QUEUES):
        await consume(client, queue_id, ledger, hold_ms=0)
        await consume(client, queue_id, fresh, hold_ms=0)
        assert fresh.seen[queue_id] == ledger.seen[queue_id]
        assert len(set(ledger.seen[queue_id])) == len(ledger.seen[queue_id])
        for offset, body in ledger.acknowledged[queue_id].items():
            assert ledger.seen[queue_id][offset] == body


@pytest.mark.timeout(600)  # each round starts a process, which a busy machine makes wait
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path, flush: str) -> None:
    # A killed process leaves its written pages to the system, so not even the unflushed tail is lost.
    choice = campaign.chance(flush)
    ledger = Ledger()
    for round_number in range(ROUNDS):
        process, address = await start_killable_broker(tmp_path, flush)
        form = HeaderForm(round_number % 2)
        clients = [BrokerClient(address, form, f"p{index}") for index in range(PRODUCERS)]
        auditor = BrokerClient(address, form)
        try:
            await auditor.create_topic(queues=QUEUES)
            await audit(auditor, ledger)
            ledger.want(choice.randrange(MOST_ACKNOWLEDGED))
            async with asyncio.TaskGroup() as tasks:
                for index, client in enumerate(clients):
                    tasks.create_task(produce(client, f"{round_number}-{index}", ledger))
                for queue_id in range(QUEUES):
                    tasks.create_task(consume(auditor, queue_id, ledger, hold_ms=10_000))
                await ledger.enough.wait()
                process.kill()
        finally:
            for client in (*clients, auditor):
                await client.close()
            if process.returncode is None:
                process.kill()
            await process.wait()
    process, address = await start_killable_broker(tmp_path, flush)
    async with BrokerClient(address) as auditor:
        await audit(auditor, ledger)
    process.kill()
    await process.wait()
    assert sum(map(len, ledger.seen.values())) >= ledger.count > 0


async def test_a_broker_that_is_killed_keeps_its_topics_groups_and_offsets(tmp_path: Path) -> None:
    process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
    async with BrokerClient(address) as client:
        await client.create_topic("Kept", 7)
        await client.send(b"one", "Kept", 6)
        await client.pull(0, "Kept", 6, group="kept")
    process.kill()
    await process.wait()
    process, address = await start_killable_broker(tmp_path, "ASYNC_FLUSH")
    async with BrokerClient(address) as client:
        assert (await client.pull(0, "Kept", 6, group="kept")).bodies == [b"one"]
        with pytest.raises(Refused, match="queue 7"):
            await client.pull(0, "Kept", 7, group="kept")
    process.kill()
    await process.wait()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_what_a_kill_left_open_is_stored_once_when_it_is_sent_again(tmp_path: Path, flush: str) -> None:
    choice = campaign.chance(flush)
    sent: set[bytes] = set()
    unanswered: dict[bytes, tuple[str, int]] = {}
    """Key and queue of what must be sent again."""

    async def send(client: BrokerClient, body: bytes, *, resent: bool = False) -> None:
        key, queue_id = unanswered[body]
        properties = {"UNIQ_KEY": key}
        await client.send(
            body, queue_id=queue_id, properties=properties, born_timestamp=1, resent=resent or None
        )

    for round_number in range(ROUNDS + 1):
        process, address = await start_killable_broker(tmp_path, flush)
        async with BrokerClient(address) as client:
            await client.create_topic(queues=QUEUES)
            for body in unanswered:
                await send(client, body, resent=True)
            unanswered.clear()
            if round_number < ROUNDS:
                count = choice.randrange(1, 300)
                for number in range(count):
                    body = f"{round_number}-{number}".encode()
                    sent.add(body)
                    unanswered[body] = f"{round_number:08}{number:08}", number % QUEUES
                sending = [asyncio.create_task(send(client, body)) for body in unanswered]
                # Some are answered, some stored, and some have not come.
                await asyncio.wait(sending[: choice.randrange(1, count + 1)], return_when="FIRST_COMPLETED")
                process.kill()
                await asyncio.wait(sending)
                for body, task in zip(list(unanswered), sending, strict=True):
                    if task.exception() is None:
                        del unanswered[body]
            else:
                ledger = Ledger()
                for queue_id in range(QUEUES):
                    await consume(client, queue_id, ledger, hold_ms=0)
                process.kill()
        await process.wait()
    seen = [body for bodies in ledger.seen.values() for body in bodies]
    assert sorted(seen) == sorted(sent)
