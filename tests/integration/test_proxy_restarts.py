"""Brokers and fronts that restart under load: what a producer was told to be stored reaches the consumers."""

import asyncio

import grpc.aio
from tests.support.front import CODES, Front, FrontUser, front, user

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
    async with front(settings={"min_polling_ms": 100}) as running, user(running.target) as client:
        await _prepare(running)
        half_way = asyncio.Event()
        sending = asyncio.create_task(_send_all(client, half_way))
        receiving = asyncio.create_task(_receive_all(client))
        await half_way.wait()
        await running.restart_proxy()
        async with asyncio.timeout(60):
            await sending
            assert await receiving == {str(number).encode() for number in range(COUNT)}
