"""Consumers whose filters are Python functions, which filter servers run."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster
from tests.support.filter_server import confined, filter_server, module_filter
from tests.support.loop import turn_until

from pyromq.client.consumer import blocking
from pyromq.client.consumer.handling.routers import Router
from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError, Refused, StateError
from pyromq.filterserver.filter_server import FilterServer

pytestmark = confined

ROUND = 10


def is_round(message: ReceivedMessage, context: object) -> bool:
    return int(message.body) % ROUND == 0


def is_even(message: ReceivedMessage) -> bool:
    return int(message.body) % 2 == 0


def is_broken(message: ReceivedMessage) -> bool:
    return message.body < []  # type: ignore[operator,no-any-return]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path, brokers=2) as running:
        yield running


@pytest.fixture
async def servers(cluster: ConsumerCluster) -> AsyncIterator[list[FilterServer]]:
    """A filter server next to each broker."""
    async with AsyncExitStack() as running:
        yield [
            await running.enter_async_context(filter_server(broker)) for broker in cluster.standalone.brokers
        ]


async def test_only_what_matches_reaches_the_handler(
    cluster: ConsumerCluster, servers: list[FilterServer]
) -> None:
    await cluster.create_topic("Numbers")
    await cluster.send("Numbers", 100)
    received = Received()
    consumer = PushConsumer("rounders", cluster.namesrv, start_from="first")
    consumer.subscribe("Numbers", handler=received.take, filter=is_round)
    async with consumer:
        await received.wait_for_all([str(number) for number in range(0, 100, 10)])
        await consumer.drain()
    assert len(received.bodies) == 10


async def test_a_module_in_webassembly_is_a_filter_too(
    cluster: ConsumerCluster, servers: list[FilterServer], tmp_path: Path
) -> None:
    file = tmp_path / "is_long.wasm"
    file.write_bytes(module_filter("(i32.gt_u (local.get $body) (i32.const 1))"))
    await cluster.create_topic("Numbers")
    await cluster.send("Numbers", 13)
    received = Received()
    consumer = PushConsumer("modular", cluster.namesrv, start_from="first")
    consumer.subscribe("Numbers", handler=received.take, filter=file)
    async with consumer:
        await received.wait_for_all(["10", "11", "12"])
        await consumer.drain()
    assert len(received.bodies) == 3


async def test_retries_of_what_matched_come_back(
    cluster: ConsumerCluster, servers: list[FilterServer]
) -> None:
    await cluster.create_topic("Retried", queues=1)
    await cluster.send("Retried", 20)
    received = Received()

    async def fail_once(message: ReceivedMessage) -> None:
        await received.take(message)
        if message.reconsume_times == 0:
            raise ValueError("not this time")

    async with PushConsumer("retriers", cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe("Retried", handler=fail_once, filter=is_round)
        await received.wait(lambda received: len(received.bodies) == 4)
    assert sorted(received.bodies) == ["0", "0", "10", "10"]


async def test_streams_routers_and_pull_consumers_take_filters(
    cluster: ConsumerCluster, servers: list[FilterServer]
) -> None:
    await cluster.create_topic("Numbers")
    await cluster.send("Numbers", 20)
    async with PushConsumer("streams", cluster.namesrv, start_from="first") as consumer:
        stream = consumer.subscribe("Numbers", filter=is_round)
        assert {(await anext(stream)).body for _ in range(2)} == {b"0", b"10"}
    received, router = Received(), Router()
    router.on("Numbers", filter=is_round)(received.take)
    consumer = PushConsumer("routers", cluster.namesrv, start_from="first")
    consumer.include(router)
    async with consumer:
        await received.wait_for_all(["0", "10"])
    puller = PullConsumer("pullers", cluster.namesrv, start_from="first")
    puller.subscribe("Numbers", filter=is_even)
    bodies: set[bytes] = set()
    async with puller:
        while len(bodies) < 10:
            bodies |= {message.body for message in await puller.poll(timeout_s=TIMEOUT_S)}
    assert bodies == {str(number).encode() for number in range(0, 20, 2)}


async def test_a_blocking_consumer_takes_a_filter(
    cluster: ConsumerCluster, servers: list[FilterServer]
) -> None:
    await cluster.create_topic("Numbers")
    await cluster.send("Numbers", 20)
    got: SimpleQueue[bytes] = SimpleQueue()

    def consume() -> set[bytes]:
        consumer = blocking.PushConsumer("blockers", cluster.namesrv, start_from="first")

        @consumer.on("Numbers", filter=is_round)
        def handle(message: ReceivedMessage) -> None:
            got.put(message.body)

        with consumer:
            return {got.get(timeout=TIMEOUT_S) for _ in range(2)}

    assert await asyncio.to_thread(consume) == {b"0", b"10"}


async def test_a_filter_server_that_starts_again_gets_the_filter_again(
    cluster: ConsumerCluster, servers: list[FilterServer]
) -> None:
    await cluster.create_topic("Numbers")
    await cluster.send("Numbers", 20)
    received = Received()
    consumer = PushConsumer("stayers", cluster.namesrv, start_from="first")
    consumer.subscribe("Numbers", handler=received.take, filter=is_round)
    async with consumer:
        await received.wait_for_all(["0", "10"])
        for server in servers:
            await server.filters.close()  # all are forgotten
        await cluster.send("Numbers", 20, first=20)
        await received.wait_for_all(["20", "30"])
    assert len(received.bodies) == 4


async def test_a_broken_filter_is_told_and_loses_nothing(
    cluster: ConsumerCluster, servers: list[FilterServer], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await cluster.create_topic("Numbers", queues=1)
    await cluster.send("Numbers", 20)
    received = Received()
    broken = PushConsumer("menders", cluster.namesrv, start_from="first")
    broken.subscribe("Numbers", handler=received.take, filter=is_broken)
    async with broken:
        await turn_until(lambda: "pull failed" in caplog.text)
    assert "filter is_broken of menders for Numbers: line 3: TypeError" in caplog.text
    assert not received.bodies
    mended = PushConsumer("menders", cluster.namesrv, start_from="first")
    mended.subscribe("Numbers", handler=received.take, filter=is_round)
    async with mended:
        await received.wait_for_all(["0", "10"])


async def test_without_a_filter_server_a_consumer_does_not_start(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Numbers")
    consumer = PushConsumer("nobodies", cluster.namesrv)
    consumer.subscribe("Numbers", handler=print, filter=is_round)
    with pytest.raises(ConfigError, match=r"filter=is_round: expected .* the route has none of"):
        await consumer.start()


async def test_a_filter_server_that_takes_no_filters_stops_the_start(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Numbers")
    first, second = cluster.standalone.brokers
    async with filter_server(first, takes_filters=False), filter_server(second, takes_filters=False):
        consumer = PushConsumer("nobodies", cluster.namesrv)
        consumer.subscribe("Numbers", handler=print, filter=is_round)
        with pytest.raises(Refused, match="clientUploadFilterClassEnable=true"):
            await consumer.start()


async def test_a_consumer_that_pops_takes_no_filter() -> None:
    consumer = PushConsumer("poppers", "127.0.0.1:9", mode="pop")
    with pytest.raises(StateError, match='needs mode="pull"'):
        consumer.subscribe("Numbers", handler=print, filter=is_round)
