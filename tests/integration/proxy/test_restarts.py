"""Brokers and fronts that restart under load: what a producer was told to be stored reaches the consumers."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc.aio
from tests.support.front import Front, front, read_all, user
from tests.support.front_user import CODES, FrontUser, Resource, aged_id

from pyromq.clock import SystemClock
from pyromq.proxy.proxy import Proxy

TOPIC, GROUP, COUNT = "Restarts", "RestartsGroup", 60


async def _send_all(client: FrontUser, half_way: asyncio.Event) -> None:
    """Send every message until it is stored, as the official producers do."""
    for number in range(COUNT):
        sent = client.message(TOPIC, str(number).encode(), message_id=f"01{number:032X}")
        while True:
            try:
                if CODES[(await client.send(sent)).status.code] == "OK":
                    break
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.05)
        if number == COUNT // 2:
            half_way.set()


async def _receive_all(client: FrontUser) -> set[bytes]:
    found: set[bytes] = set()
    await client.subscribe(GROUP, TOPIC)
    while len(found) < COUNT:
        try:
            received = await client.receive(GROUP, TOPIC, wait_s=0.3, invisible_s=10)
            if received.messages:
                await client.ack(GROUP, TOPIC, *received.messages)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)
            continue
        found.update(received.bodies)
    return found


async def _prepare(running: Front) -> None:
    await running.create_topic(TOPIC)
    await running.create_group(GROUP)


async def test_nothing_is_lost_while_the_broker_restarts() -> None:
    async with front(settings={"min_polling_ms": 100}) as running, user(running.target) as client:
        await _prepare(running)
        half_way = asyncio.Event()
        sending = asyncio.create_task(_send_all(client, half_way))
        receiving = asyncio.create_task(_receive_all(client))
        await half_way.wait()
        await running.restart_broker()
        async with asyncio.timeout(60):
            await sending
            assert await receiving == {str(number).encode() for number in range(COUNT)}


async def test_nothing_is_lost_while_the_front_restarts() -> None:
    async with (
        front(settings={"min_polling_ms": 100}) as running,
        user(running.target, aged_id(60)) as client,
    ):
        await _prepare(running)
        half_way = asyncio.Event()
        sending = asyncio.create_task(_send_all(client, half_way))
        receiving = asyncio.create_task(_receive_all(client))
        await half_way.wait()
        await running.restart_proxy()
        async with asyncio.timeout(60):
            await sending
            assert await receiving == {str(number).encode() for number in range(COUNT)}


RENEWING = {
    "min_polling_ms": 100,
    "default_invisible_ms": 1500,
    "renew_ahead_ms": 1000,
    "renew_interval_ms": 100,
}


async def _over(received: Any) -> None:
    """Wait until the time of the handle that the client knows is over."""
    words = received.system_properties.receipt_handle.split(" ")
    left_ms = int(words[1]) + int(words[2]) - SystemClock().now_ms()
    await asyncio.sleep(left_ms / 1000 + 0.05)


async def test_a_message_that_one_front_renewed_is_acknowledged_at_another() -> None:
    async with front(settings=RENEWING) as running, user(running.target) as client:
        await _prepare(running)
        await client.subscribe(GROUP, TOPIC, kind="PUSH_CONSUMER")
        await client.send(client.message(TOPIC, b"slow"))
        [received] = (await client.receive(GROUP, TOPIC, auto_renew=True)).messages
        await _over(received)
        settings = replace(running.proxy.settings, listen_port=0)
        async with Proxy(settings) as other, user(f"127.0.0.1:{other.address[1]}", "elsewhere") as elsewhere:
            assert await elsewhere.ack(GROUP, TOPIC, received) == ["OK"]
            assert await elsewhere.ack(GROUP, "Missing", received) == ["INVALID_RECEIPT_HANDLE"]


async def test_messages_stay_hidden_when_the_front_that_renewed_them_stops() -> None:
    async with front(settings=RENEWING) as running, user(running.target) as client:
        await _prepare(running)
        await client.subscribe(GROUP, TOPIC, kind="PUSH_CONSUMER")
        await client.send(client.message(TOPIC, b"slow"))
        [received] = (await client.receive(GROUP, TOPIC, auto_renew=True)).messages
        await running.restart_proxy()
        await _over(received)
        async with user(running.target, "another") as another:
            await another.subscribe(GROUP, TOPIC)
            assert (await another.receive(GROUP, TOPIC, wait_s=1)).code == "MESSAGE_NOT_FOUND"
        assert await client.ack(GROUP, TOPIC, received) == ["OK"]


async def test_a_transaction_whose_broker_is_away_can_be_ended_when_it_is_back() -> None:
    async with front() as running, user(running.target) as client:
        await running.create_topic(TOPIC, "TRANSACTION")
        await client.publish(TOPIC)
        (entry,) = (await client.send(client.message(TOPIC, b"half", message_type=4))).entries
        ended = {
            "topic": Resource(name=TOPIC),
            "message_id": entry.message_id,
            "transaction_id": entry.transaction_id,
            "resolution": 1,
        }
        await running.cluster.stop_broker()
        assert await client.code("EndTransaction", **ended) == "HA_NOT_AVAILABLE"
        await running.cluster.start_broker()
        code = "HA_NOT_AVAILABLE"
        async with asyncio.timeout(30):
            while code == "HA_NOT_AVAILABLE":
                await asyncio.sleep(0.05)
                code = await client.code("EndTransaction", **ended)
        assert code == "OK"
        assert [each.body for each in await read_all(running.cluster.namesrv, TOPIC, 1)] == [b"half"]


async def test_a_consumer_is_served_first_where_brokers_create_no_topics() -> None:
    """As after a restart of the front: its streams and receives come before anyone asks for a route."""
    async with (
        front(settings={"min_polling_ms": 100}, auto_create_topics=False) as running,
        user(running.target) as client,
    ):
        await _prepare(running)
        assert (await client.subscribe(GROUP, TOPIC)).subscription.group.name == GROUP
        assert (await client.receive(GROUP, TOPIC, wait_s=0.1)).code == "MESSAGE_NOT_FOUND"
