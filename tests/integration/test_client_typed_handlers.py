"""Handlers of decoded bodies, with a broker."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.support.consumer_cluster import TIMEOUT_S, consumer_cluster
from tests.support.loop import turn_until

from pyromq import aio


class Order(msgspec.Struct):
    id: int


async def test_a_body_that_cannot_be_decoded_becomes_a_dead_letter_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with consumer_cluster(tmp_path) as cluster, asyncio.timeout(TIMEOUT_S):
        await cluster.create_topic("Orders", queues=1)
        async with aio.Producer("tills", cluster.namesrv) as producer:
            bad = await producer.send(aio.Message("Orders", b"not an order"))
            await producer.send(aio.Message.of("Orders", Order(7)))
        handled: list[int] = []
        consumer = aio.PushConsumer("billing", cluster.namesrv, start_from="first", max_retries=1)

        @consumer.on("Orders")
        @aio.typed(Order)
        async def take(order: Order, message: aio.ReceivedMessage) -> None:
            assert message.body == b'{"id":7}'
            handled.append(order.id)

        def dead_letters() -> list[str]:
            return [line for line in caplog.messages if line.startswith("message became a dead letter")]

        async with consumer:
            await turn_until(lambda: len(dead_letters()) == 1)
        assert handled == [7]
    failures = [record for record in caplog.records if record.getMessage().startswith("handler failed")]
    assert len(failures) == 1, "a retry would not help"
    (line,) = dead_letters()
    assert f"id={bad.message_id} group=billing times=1: BadBody" in line
    assert "does not fit Order: JSON is malformed" in line
    assert "it is b'not an order'" in line
