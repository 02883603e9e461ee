"""Members and brokers die while messages flow: nothing that was acknowledged is lost, order is kept."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import pytest
from tests.support.consumer_cluster import ConsumerCluster, Received, consumer_cluster
from tests.support.killable_consumer import start_killable_consumer
from tests.support.tcp_proxy import TcpProxy

from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.in_flight import LOCK_EXPIRES_S
from pyromq.client.values import Message, ReceivedMessage
from pyromq.errors import PyroError
from pyromq.protocol.body import MessageQueue

TIMEOUT_S = 100.0
Ordered = bool | Literal["key"]
EVERY_ORDER = pytest.mark.parametrize(
    "ordered", [False, True, "key"], ids=["concurrent", "ordered", "by key"]
)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def keep_sending(
    cluster: ConsumerCluster, queues: list[MessageQueue], is_over: asyncio.Event
) -> dict[MessageQueue, list[str]]:
    """Send to every queue in turn until told to stop; returns what was acknowledged, in order."""
    producer = await cluster.producer()
    acknowledged: dict[MessageQueue, list[str]] = {queue: [] for queue in queues}
    number = 0
    while not is_over.is_set():
        for queue in queues:
            body = f"{queue.broker_name}/{queue.queue_id}/{number}"
            try:
                message = Message("Orders", body.encode(), keys=[str(number % 7)])
                await producer.send(message, queue=queue, timeout_s=0.2)
            except PyroError:
                continue  # perhaps stored, but nobody said so
            acknowledged[queue].append(body)
        number += 1
    return acknowledged


def member(cluster: ConsumerCluster, received: Received, *, ordered: Ordered = False) -> PushConsumer:
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=ordered)
    consumer.subscribe("Orders", "*", received.take)
    return consumer


@EVERY_ORDER
async def test_a_killed_member_is_replaced_and_nothing_is_lost(
    cluster: ConsumerCluster, ordered: Ordered
) -> None:
    queues = await cluster.create_topic("Orders")
    received, is_over = Received(), asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S):
        victim = await start_killable_consumer(cluster.namesrv, ordered=ordered)
        try:
            sending = asyncio.create_task(keep_sending(cluster, queues, is_over))
            assert victim.stdout is not None
            seen_by_victim = [(await victim.stdout.readline()).decode().strip() for _ in range(20)]
            async with member(cluster, received, ordered=ordered):
                victim.kill()
                rest = (await victim.stdout.read()).decode()
                # What it was writing when it died was not done.
                seen_by_victim += rest.splitlines()
                # A minute later its broker gives its locks to others.
                cluster.clock.advance(LOCK_EXPIRES_S)
                await received.wait(lambda received: {m.queue for m in received.messages} == set(queues))
                is_over.set()
                acknowledged = await sending
                wanted = {body for bodies in acknowledged.values() for body in bodies}
                await received.wait(lambda received: wanted <= {*received.bodies, *seen_by_victim})
        finally:
            if victim.returncode is None:
                victim.kill()
            await victim.wait()
    assert len(set(received.bodies)) > 0
    if ordered:
        assert_in_order(received.messages, by_key=ordered == "key")


async def test_consuming_survives_brokers_that_crash(tmp_path: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S), consumer_cluster(tmp_path, brokers=2) as cluster:
        queues = await cluster.create_topic("Orders", queues=2)
        received, is_over = Received(), asyncio.Event()
        async with member(cluster, received), member(cluster, received):
            sending = asyncio.create_task(keep_sending(cluster, queues, is_over))
            await received.wait(lambda received: {m.queue for m in received.messages} == set(queues))
            for number in (0, 1):
                await cluster.standalone.kill_broker(number)
                count = len(received.messages)
                await received.wait(lambda received, count=count: len(received.messages) > count + 2)  # type: ignore[misc]
                await cluster.standalone.start_broker(number)
                name = cluster.standalone.settings.broker_names()[number]
                count = len(received.messages)
                await received.wait(
                    lambda received, count=count, name=name: any(  # type: ignore[misc]
                        message.queue.broker_name == name for message in received.messages[count:]
                    )
                )
            is_over.set()
            acknowledged = await sending
            await received.wait_for_all([body for bodies in acknowledged.values() for body in bodies])


async def test_consuming_goes_on_without_a_name_server(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    async with asyncio.timeout(TIMEOUT_S), member(cluster, received):
        sent = await cluster.send("Orders", 10)
        await cluster.standalone.name_server.stop()
        sent += await cluster.send("Orders", 10, first=10)
        await received.wait_for_all(sent)


@EVERY_ORDER
async def test_consuming_goes_on_when_a_cut_network_heals(tmp_path: Path, ordered: Ordered) -> None:
    far_side = "127.0.0.2"
    async with (
        asyncio.timeout(TIMEOUT_S),
        consumer_cluster(tmp_path, broker_ip1=far_side) as cluster,
        TcpProxy(cluster.standalone.broker.address, far_side, cluster.standalone.broker.address[1]) as proxy,
    ):
        queues = await cluster.create_topic("Orders", queues=2)
        received, is_over = Received(), asyncio.Event()
        async with member(cluster, received, ordered=ordered):
            sending = asyncio.create_task(keep_sending(cluster, queues, is_over))
            for _ in range(3):
                count = len(received.messages)
                await received.wait(lambda received, count=count: len(received.messages) > count + 5)  # type: ignore[misc]
                await proxy.cut()
                await proxy.start()
            is_over.set()
            acknowledged = await sending
            await received.wait_for_all([body for bodies in acknowledged.values() for body in bodies])
    if ordered:
        assert_in_order(received.messages, by_key=ordered == "key")


def assert_in_order(messages: list[ReceivedMessage], *, by_key: bool) -> None:
    lines: dict[object, list[int]] = {}
    for message in messages:
        line = (message.queue, message.keys) if by_key else message.queue
        lines.setdefault(line, []).append(message.queue_offset)
    for offsets in lines.values():
        first_seen = list(dict.fromkeys(offsets))
        assert first_seen == sorted(first_seen)
