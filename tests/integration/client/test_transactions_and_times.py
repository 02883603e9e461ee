"""Our producers at our brokers: transactions at several of them, killed ones, and messages taken back."""

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.support.client_cluster import client_cluster

from pyromq import Message, ReceivedMessage, TransactionState, aio
from pyromq.admin import topics
from pyromq.admin.cluster import Cluster
from pyromq.errors import Refused
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.testing import aio_cluster

COMMIT, UNKNOWN = TransactionState.COMMIT, TransactionState.UNKNOWN
AT_ONCE: dict[str, Any] = {"transaction_timeout_ms": 0, "transaction_check_interval_ms": 20}
TOPIC = "Payments"


async def consumed(namesrv: str, count: int) -> list[bytes]:
    async with aio.PullConsumer("books", namesrv, start_from="first") as consumer:
        consumer.subscribe(TOPIC)
        found: list[bytes] = []
        while len(found) < count:
            found += [message.body for message in await consumer.poll(timeout_s=60)]
    return sorted(found)


async def test_each_transaction_ends_at_the_broker_that_has_it(tmp_path: Path) -> None:
    async def check(message: ReceivedMessage) -> TransactionState:
        return COMMIT

    async def work(message: Message) -> TransactionState:
        return TransactionState[message.tags or ""]

    async with client_cluster(tmp_path) as running:
        brokers = [await running.add_broker(name, **AT_ONCE) for name in ("broker-a", "broker-b")]
        addresses = [broker.advertised_address for broker in brokers]
        async with Cluster(running.namesrv) as admin:
            await topics.put(
                admin, addresses, TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
            )
        async with aio.TransactionProducer("payers", running.namesrv, check=check) as producer:
            results = []
            for number in range(16):
                message = Message(TOPIC, b"%d" % number, tags=("COMMIT", "UNKNOWN")[number % 2])
                results.append(await producer.send_in_transaction(message, work))
            assert {result.send_result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
            assert await consumed(running.namesrv, 16) == sorted(b"%d" % number for number in range(16))


async def test_a_killed_broker_asks_when_it_is_back() -> None:
    asked: asyncio.Queue[bytes] = asyncio.Queue()
    is_known = False

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.put_nowait(message.body)
        return COMMIT if is_known else UNKNOWN

    async with (
        aio_cluster(transaction_check_max=10**6, **AT_ONCE) as running,
        aio.TransactionProducer(
            "payers", running.namesrv, check=check, heartbeat_interval_s=0.05
        ) as producer,
    ):
        await producer.send_in_transaction(Message(TOPIC, b"9.99"), lambda _: UNKNOWN)
        assert await asked.get() == b"9.99"
        await running.kill_broker()
        is_known = True
        while not asked.empty():
            asked.get_nowait()
        await running.start_broker()
        assert await asked.get() == b"9.99"
        assert await consumed(running.namesrv, 1) == [b"9.99"]


async def test_a_message_is_taken_back_until_it_is_due() -> None:
    async with (
        aio_cluster(recalls=True) as running,
        aio.Producer("orders", running.namesrv) as producer,
    ):
        recalled = await producer.send(Message(TOPIC, b"later"), delay=timedelta(hours=1))
        assert await producer.recall(recalled) == recalled.message_id
        due = await producer.send(Message(TOPIC, b"soon"), delay=timedelta(seconds=1))
        assert await consumed(running.namesrv, 1) == [b"soon"]
        with pytest.raises(Refused, match=r"code 604: .*; the message .* was due at"):
            await producer.recall(due)


async def test_a_broker_that_takes_nothing_back_says_how_to_change_that() -> None:
    async with aio_cluster() as running, aio.Producer("orders", running.namesrv) as producer:
        result = await producer.send(Message(TOPIC, b"later"), delay=timedelta(hours=1))
        with pytest.raises(Refused, match="does the broker broker-a have recallMessageEnable=true"):
            await producer.recall(result)
