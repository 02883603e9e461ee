"""Where a new group starts, whatever the broker guesses: it has the first message of each queue at hand."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster
from tests.support.loop import turn_until

from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.values import ReceivedMessage

KINDS = pytest.mark.parametrize("kind", ["push", "pull", "simple", "pop", "pop in order"])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


@asynccontextmanager
async def consuming(
    cluster: ConsumerCluster, kind: str, group: str = "mailer", start_from: StartFrom = "last"
) -> AsyncIterator[Received]:
    """A consumer of any kind that has started, and what it receives."""
    received = Received()
    options: dict[str, Any] = {"start_from": start_from, "rebalance_interval_s": 0.2}
    if kind in ("simple", "pull"):
        consumer: SimpleConsumer | PullConsumer
        if kind == "simple":
            consumer = SimpleConsumer(group, cluster.namesrv, start_from=start_from)
        else:
            consumer = PullConsumer(group, cluster.namesrv, **options)
        consumer.subscribe("Orders")

        async def poll() -> None:
            while True:
                if isinstance(consumer, PullConsumer):
                    found: list[ReceivedMessage] = await consumer.poll()
                else:
                    found = [*await consumer.receive()]
                for message in found:
                    await received.take(message)

        async with consumer:
            polling = asyncio.create_task(poll())
            yield received
            polling.cancel()
            await asyncio.wait([polling])
        return
    mode: dict[str, Any] = {"mode": "pop", "ordered": "order" in kind} if "pop" in kind else {}
    handling = PushConsumer(group, cluster.namesrv, **options, **mode)
    handling.subscribe("Orders", "*", received.take)
    async with handling:
        yield received


async def starts_at(
    cluster: ConsumerCluster, kind: str, start_from: StartFrom, old: list[str], new: Callable[[], Any]
) -> list[str]:
    """What a new group receives of the old messages."""
    async with consuming(cluster, kind, start_from=start_from) as received:
        bodies = await new()
        await received.wait_for_all(bodies)
    return sorted({message.body.decode() for message in received.messages} & set(old))


@KINDS
async def test_a_group_that_starts_at_the_end_gets_nothing_old_and_everything_new(
    cluster: ConsumerCluster, kind: str
) -> None:
    await cluster.create_topic("Orders", 2)
    old = await cluster.send("Orders", 20)

    async def new() -> list[str]:
        return await cluster.send("Orders", 8, first=100)

    assert await starts_at(cluster, kind, "last", old, new) == []


@KINDS
async def test_a_group_that_starts_at_a_time_gets_what_was_stored_since_then(
    cluster: ConsumerCluster, kind: str
) -> None:
    await cluster.create_topic("Orders", 2)
    old = await cluster.send("Orders", 20)
    stored_ms = cluster.clock.now_ms()
    await turn_until(lambda: cluster.clock.now_ms() > stored_ms)
    moment = datetime.fromtimestamp((stored_ms + 1) / 1000, UTC)
    recent = await cluster.send("Orders", 8, first=100)

    async def new() -> list[str]:
        return recent

    assert await starts_at(cluster, kind, moment, old, new) == []


@KINDS
async def test_the_first_message_of_a_topic_that_comes_later_is_not_skipped(
    cluster: ConsumerCluster, kind: str
) -> None:
    async with consuming(cluster, kind) as received:
        await cluster.create_topic("Orders", 2)
        bodies = await cluster.send("Orders", 8)
        await received.wait_for_all(bodies)


@pytest.mark.parametrize("start_from", ["last", datetime(2024, 1, 1, tzinfo=UTC)])
async def test_the_first_retries_of_a_group_are_not_skipped(
    cluster: ConsumerCluster, start_from: StartFrom
) -> None:
    await cluster.create_topic("Orders", 1)
    tries = list[int]()
    succeeded = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        tries.append(message.reconsume_times)
        if not message.reconsume_times:
            raise ValueError
        succeeded.set()

    consumer = PushConsumer("mailer", cluster.namesrv, start_from=start_from, rebalance_interval_s=0.2)
    consumer.subscribe("Orders", "*", handle)
    async with consumer, asyncio.timeout(TIMEOUT_S):
        await cluster.send("Orders", 1)
        await succeeded.wait()
    assert tries == [0, 1]
