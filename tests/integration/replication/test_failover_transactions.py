"""A master dies with open transactions and waiting timed messages: the next one knows them all."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from pyromq import Message, ReceivedMessage, TransactionState, aio
from pyromq.testing import aio_cluster

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
TOPIC, REMINDERS = "Payments", "Reminders"


async def read_until(namesrv: str, topic: str, wanted: set[bytes]) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    async with aio.PullConsumer(f"books-of-{topic}", namesrv, start_from="first") as consumer:
        consumer.subscribe(topic)
        while not wanted <= found.keys():
            found.update([message.body for message in await consumer.poll(timeout_s=60)])
    return found


@pytest.mark.timeout(300)
async def test_transactions_and_timed_messages_survive_their_master() -> None:
    is_over = asyncio.Event()
    asked: set[bytes] = set()

    async def check(message: ReceivedMessage) -> TransactionState:
        if not is_over.is_set():
            return UNKNOWN
        asked.add(message.body)
        return COMMIT if message.tags == "later" else ROLLBACK

    async with (
        aio_cluster(
            replicas=3,
            default_topic_queues=1,
            transaction_timeout_ms=200,
            transaction_check_interval_ms=100,
            transaction_check_max=10**6,
        ) as running,
        aio.TransactionProducer(
            "payers",
            running.namesrv,
            check=check,
            heartbeat_interval_s=0.2,
            send_timeout_s=30,
            retries=1000,
        ) as producer,
    ):
        await producer.send_in_transaction(Message(TOPIC, b"at once"), lambda _: COMMIT)
        await producer.send_in_transaction(Message(TOPIC, b"never"), lambda _: ROLLBACK)
        await producer.send_in_transaction(Message(TOPIC, b"later", tags="later"), lambda _: UNKNOWN)
        await producer.send_in_transaction(Message(TOPIC, b"never, either"), lambda _: UNKNOWN)
        timed = {b"reminder %d" % number for number in range(20)}
        for body in timed:
            await producer.send(Message(REMINDERS, body), delay=timedelta(seconds=3))
        first = await running.kill_master()
        is_over.set()
        while not asked >= {b"later", b"never, either"}:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        await producer.send(Message(TOPIC, b"last"))
        payments = await read_until(running.namesrv, TOPIC, {b"at once", b"later", b"last"})
        assert payments == {b"at once": 1, b"later": 1, b"last": 1}
        # Nobody answers a rollback: the replicas may not have had it when the master died.
        assert asked <= {b"later", b"never, either", b"never"}
        assert running.master_number() != first
        assert (await read_until(running.namesrv, REMINDERS, timed)).keys() == timed
