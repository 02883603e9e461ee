"""Handlers of decoded bodies, with a broker."""

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest
from tests.support.consumer_cluster import TIMEOUT_S, consumer_cluster
from tests.support.loop import turn_until

import pyromq
from pyromq import aio
from pyromq.testing import RunningCluster


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


async def test_of_a_batch_only_the_body_that_cannot_be_decoded_becomes_a_dead_letter(
    rocketmq: RunningCluster,
) -> None:
    handled: list[int] = []
    async with aio.Producer("tills", rocketmq.namesrv, codec=aio.MSGPACK) as producer:
        for number in range(10):
            message = producer.message("Orders", Order(number), keys=[str(number)])
            await producer.send(message if number != 3 else message.replace(body=b"?"))
    consumer = aio.PushConsumer(
        "billing", rocketmq.namesrv, start_from="first", codec=aio.MSGPACK, batch_size=4
    )

    @consumer.on("Orders")
    @aio.typed(list[Order])
    async def take(orders: list[Order]) -> None:
        handled.extend(order.id for order in orders)

    async with consumer, aio.DeadLetters("billing", rocketmq.namesrv) as letters:
        while not (found := await letters.list()):
            pass
        await turn_until(lambda: len(handled) == 9)
    assert [letter.message.keys for letter in found] == [("3",)]
    assert "does not fit Order" in (found[0].error or "")
    assert sorted(handled) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_plain_programs_have_codecs_too(rocketmq: RunningCluster) -> None:
    handled, is_handled = list[Order](), threading.Event()
    with pyromq.Producer("tills", rocketmq.namesrv, codec=pyromq.MSGPACK) as producer:
        producer.send(producer.message("Orders", Order(7)))
    router = pyromq.Router(codec=pyromq.MSGPACK)

    @router.on("Orders")
    @pyromq.typed(Order)
    def take(order: Order) -> None:
        handled.append(order)
        is_handled.set()

    consumer = pyromq.PushConsumer("billing", rocketmq.namesrv, start_from="first")
    consumer.include(router)
    with consumer:
        assert is_handled.wait(TIMEOUT_S)
    assert handled == [Order(7)]
