"""The push consumer and a real cluster: every message comes, and what failed comes again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster

from pyromq.client.consumer.push import PushConsumer


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def test_an_async_handler_gets_every_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    sent = await cluster.send("Orders", 100)
    async with consumer:
        await received.wait_for_all(sent)
    assert sorted(received.bodies) == sorted(sent)


async def test_a_plain_handler_runs_on_threads(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.on("Orders")(received.take_on_thread)
    sent = await cluster.send("Orders", 50)
    async with consumer:
        await received.wait_for_all(sent)
    assert sorted(received.bodies) == sorted(sent)


async def test_a_loop_over_a_stream_gets_every_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    sent = await cluster.send("Orders", 50)
    bodies = []
    async with (
        asyncio.timeout(TIMEOUT_S),
        PushConsumer("billing", cluster.namesrv, start_from="first") as consumer,
    ):
        async for message in consumer.subscribe("Orders"):
            bodies.append(message.body.decode())
            if len(bodies) == len(sent):
                break
    assert sorted(bodies) == sorted(sent)


async def test_what_was_consumed_is_not_consumed_again_by_the_next_member(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    first = await cluster.send("Orders", 20)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    async with consumer:
        await received.wait_for_all(first)
    again = Received()
    second = await cluster.send("Orders", 20, first=100)
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", again.take)
    async with consumer:
        await again.wait_for_all(second)
    assert sorted(again.bodies) == sorted(second)
