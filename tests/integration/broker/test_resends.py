"""A send whose answer is lost is repeated, and stored once: also after a kill, and by the next master."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.client_cluster import ClientCluster, client_cluster, stored_messages
from tests.support.killable_broker import start_killable_broker
from tests.support.tcp_proxy import TcpProxy

from pyromq import Message, Producer, SendResult, aio
from pyromq.broker.broker import Broker
from pyromq.remoting.addresses import format_address
from pyromq.standalone import Standalone
from pyromq.testing import aio_cluster

TOPIC = "Orders"
SETTINGS: dict[str, Any] = {"send_timeout_s": 60.0, "retries": 1000}
SAME: dict[str, Any] = {
    "properties": {"UNIQ_KEY": "7F0000010001000000000001"},
    "born_timestamp": 1_700_000_000_000,
}

Send = Callable[[Message], Awaitable[SendResult]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


async def lose_an_answer(broker: Broker, proxy: TcpProxy, send: Send) -> None:
    """The broker stores a message, and the connection ends before its answer comes."""
    await send(Message(TOPIC, b"first"))
    end = broker.store.log.end
    proxy.stall_answers()
    sending = asyncio.ensure_future(send(Message(TOPIC, b"hello")))
    while broker.store.log.end == end:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    await proxy.cut()
    proxy.flow()
    await proxy.start()
    result = await sending
    stored = await stored_messages(format_address(*broker.address), TOPIC)
    (found,) = [message for message in stored if message.body == b"hello"]
    assert (found.queue_id, found.queue_offset) == (result.queue.queue_id, result.queue_offset)
    assert found.get("UNIQ_KEY") == result.message_id


@pytest.mark.parametrize(
    "options", [{}, {"linger_ms": 0}, {"trace": True}], ids=["alone", "gathered", "general"]
)
async def test_an_asyncio_producer_repeats_a_send(cluster: ClientCluster, options: dict[str, Any]) -> None:
    broker, proxy = await cluster.add_broker_behind_proxy("broker-a")
    async with aio.Producer("tills", cluster.namesrv, **SETTINGS | options) as producer:
        await lose_an_answer(broker, proxy, producer.send)


async def test_a_blocking_producer_repeats_a_send(cluster: ClientCluster) -> None:
    broker, proxy = await cluster.add_broker_behind_proxy("broker-a")
    producer = Producer("tills", cluster.namesrv, **SETTINGS)
    await asyncio.to_thread(producer.start)
    try:
        await lose_an_answer(broker, proxy, lambda message: asyncio.to_thread(producer.send, message))
    finally:
        await asyncio.to_thread(producer.close)


async def test_a_batch_is_repeated(cluster: ClientCluster) -> None:
    broker, proxy = await cluster.add_broker_behind_proxy("broker-a")

    async def send(message: Message) -> SendResult:
        return (await producer.send([message, Message(TOPIC, b"and more")]))[0]

    async with aio.Producer("tills", cluster.namesrv, **SETTINGS) as producer:
        await lose_an_answer(broker, proxy, send)


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_a_killed_broker_recognizes_what_it_stored_before(tmp_path: Path, flush: str) -> None:
    process, address = await start_killable_broker(tmp_path, flush)
    async with BrokerClient(address) as client:
        await client.create_topic(TOPIC)
        first = await client.send(b"hello", TOPIC, 1, **SAME)
        process.kill()
        await process.wait()
    process, address = await start_killable_broker(tmp_path, flush)
    try:
        async with BrokerClient(address) as client:
            again = await client.send(b"hello", TOPIC, 1, **SAME, resent=True)
            assert (again.queue_id, again.queue_offset) == (first.queue_id, first.queue_offset)
            assert again.msg_id[-16:] == first.msg_id[-16:]
        assert len(await stored_messages(format_address(*address), TOPIC)) == 1
    finally:
        process.kill()
        await process.wait()


def _master(cluster: Standalone) -> tuple[str, int]:
    masters = [broker for broker in cluster.brokers if broker.role.now.is_master]
    return max(masters, key=lambda broker: broker.role.now.epoch).address


@pytest.mark.timeout(300)
async def test_the_next_master_recognizes_what_the_one_before_has_stored() -> None:
    async with aio_cluster(replicas=3, default_topic_queues=1) as running:
        async with aio.Producer("tills", running.namesrv, **SETTINGS) as producer:
            await producer.send(Message(TOPIC, b"first"))
            async with BrokerClient(_master(running)) as client:
                first = await client.send(b"hello", TOPIC, **SAME)
            await running.kill_master()
            await producer.send(Message(TOPIC, b"last"))
        async with BrokerClient(_master(running)) as client:
            again = await client.send(b"hello", TOPIC, **SAME, resent=True)
        assert (again.msg_id, again.queue_offset) == (first.msg_id, first.queue_offset)
