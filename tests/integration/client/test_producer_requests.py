"""Requests and replies between clients, through a real broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.client_cluster import ClientCluster, client_cluster, stored_messages

from pyromq import aio
from pyromq.broker.broker import Broker
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.clock import SystemClock
from pyromq.errors import AskerGone, BadMessage, NoReply, RequestFailed
from pyromq.protocol.record import StoredMessage


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        yield running


@pytest.fixture
async def broker(cluster: ClientCluster) -> Broker:
    return await cluster.add_broker("broker-a")


async def next_request(broker: Broker, seen: int = 0) -> ReceivedMessage:
    """What a consumer would be given."""
    while len(found := await stored_messages(broker.advertised_address, "Questions")) <= seen:
        pass
    return received(found[seen])


def received(stored: StoredMessage) -> ReceivedMessage:
    return ReceivedMessage(stored, MessageQueue(stored.topic, "broker-a", stored.queue_id))


async def test_a_request_gets_the_reply_of_its_consumer(cluster: ClientCluster, broker: Broker) -> None:
    async with (
        aio.Producer("askers", cluster.namesrv) as asker,
        aio.Producer("answerers", cluster.namesrv, instance_name="other") as answerer,
    ):
        await asker.send(Message("Questions", b"warm up"), sharding_key="k")
        asking = asyncio.create_task(asker.request(Message("Questions", b"6 * 7?"), 30, sharding_key="k"))
        request = await next_request(broker, seen=1)
        assert request.body == b"6 * 7?"
        result = await answerer.reply(request, b"42" * 5000, tags="Reply", properties={"unit": "none"})
        assert result.is_ok
        reply = await asking
    assert reply.body == b"42" * 5000
    assert (reply.tags, reply.get("unit")) == ("Reply", "none")
    assert reply.get("ARRIVE_TIME") is not None


async def test_a_request_that_nobody_answers_ends(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("askers", cluster.namesrv) as asker:
        with pytest.raises(NoReply, match="does a consumer of Questions reply"):
            await asker.request(Message("Questions", b"?"), timeout_s=0.2)
        assert len(asker._started().session.replies) == 0


async def test_a_caller_sees_the_error_of_the_handler(cluster: ClientCluster, broker: Broker) -> None:
    async with (
        aio.Producer("askers", cluster.namesrv) as asker,
        aio.Producer("answerers", cluster.namesrv, instance_name="other") as answerer,
    ):
        await asker.send(Message("Questions", b"warm up"), sharding_key="k")
        asking = asyncio.create_task(asker.request(Message("Questions", b"1 / 0?"), 30, sharding_key="k"))
        request = await next_request(broker, seen=1)
        await answerer.reply_error(request, ZeroDivisionError("division by zero"))
        with pytest.raises(RequestFailed, match="ZeroDivisionError: division by zero") as failed:
            await asking
    assert (failed.value.kind, failed.value.text) == ("ZeroDivisionError", "division by zero")


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_request_whose_asker_is_gone_is_handled_once(
    cluster: ClientCluster, broker: Broker, ordered: bool
) -> None:
    handled: list[bytes] = []
    asker = aio.Producer("askers", cluster.namesrv)
    answerer = aio.Producer("answerers", cluster.namesrv, instance_name="other")
    consumer = aio.PushConsumer(
        "answerers", cluster.namesrv, start_from="first", instance_name="other", ordered=ordered
    )

    @consumer.on("Questions")
    async def answer(message: ReceivedMessage) -> None:
        handled.append(message.body)
        asking.cancel()
        await asker.close()
        await answerer.reply(message, b"42")

    async with answerer:
        await asker.start()
        await asker.send(Message("Other", b"warm up"))
        async with consumer:
            asking = asyncio.create_task(asker.request(Message("Questions", b"?"), 60))
            with suppress(asyncio.CancelledError):
                await asking
            await consumer.drain()
            counts = consumer.statistics().counts
    assert handled == [b"?"]
    assert counts.failed == 0


async def test_expired_requests_are_dropped(
    cluster: ClientCluster, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[bytes] = []
    now_ms = SystemClock.now_ms
    async with aio.Producer("askers", cluster.namesrv) as asker:
        for _ in range(3):
            with pytest.raises(NoReply):
                await asker.request(Message("Questions", b"expired"), timeout_s=0.05)
        monkeypatch.setattr(SystemClock, "now_ms", lambda self: now_ms(self) + 5_000)
        request = await next_request(broker)
        with pytest.raises(AskerGone, match="has expired"):
            await asker.reply(request, b"too late")
        await asker.send(Message("Questions", b"plain"))
        async with aio.PushConsumer("answerers", cluster.namesrv, start_from="first") as consumer:
            async for message in consumer.subscribe("Questions"):
                handled.append(message.body)
                break
    assert handled == [b"plain"]


async def test_a_reply_to_one_who_is_gone_fails(cluster: ClientCluster, broker: Broker) -> None:
    async with (
        aio.Producer("askers", cluster.namesrv) as asker,
        aio.Producer("answerers", cluster.namesrv, instance_name="other", retries=0) as answerer,
    ):
        await asker.send(Message("Questions", b"warm up"), sharding_key="k")
        asking = asyncio.create_task(asker.request(Message("Questions", b"?"), 60, sharding_key="k"))
        request = await next_request(broker, seen=1)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asker.close()
        with pytest.raises(AskerGone, match="is not connected to this broker"):
            await answerer.reply(request, b"too late")


async def test_only_requests_can_be_replied_to(cluster: ClientCluster, broker: Broker) -> None:
    async with aio.Producer("askers", cluster.namesrv) as producer:
        await producer.send(Message("Questions", b"just saying"))
        message = await next_request(broker)
        with pytest.raises(BadMessage, match="is not a request"):
            await producer.reply(message, b"oh")
