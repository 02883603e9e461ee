"""Handlers apart from consumers, and code around handlers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.loop import turn_until

import pyromq
from pyromq import Message, ReceivedMessage, Router, aio
from pyromq.errors import BadExpression, StateError
from pyromq.testing import RunningCluster


def test_a_closed_consumer_and_its_successor_share_handlers(rocketmq: RunningCluster) -> None:
    router, handled = Router(), list[str]()
    changed = threading.Condition()

    @router.on("Orders", "Created")
    def created(message: ReceivedMessage) -> None:
        with changed:
            handled.append(f"created {message.body.decode()}")
            changed.notify_all()

    @router.on("Orders", "Paid")
    async def paid(message: ReceivedMessage) -> None:
        with changed:
            handled.append(f"paid {message.body.decode()}")
            changed.notify_all()

    with pyromq.Producer("orders", rocketmq.namesrv) as producer:
        for number in range(2):
            for tag in ("Created", "Paid"):
                producer.send(Message("Orders", str(number).encode(), tags=tag))
            consumer = pyromq.PushConsumer("billing", rocketmq.namesrv, start_from="first")
            consumer.include(router)
            with consumer, changed:
                assert changed.wait_for(lambda: len(handled) == 2 * (number + 1), 60)  # noqa: B023
    assert sorted(handled) == ["created 0", "created 1", "paid 0", "paid 1"]


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("ordered", [True, False])
async def test_every_handler_runs_inside_what_is_around_it(
    rocketmq: RunningCluster, is_async: bool, ordered: bool
) -> None:
    steps: list[str] = []
    consumer = aio.PushConsumer(
        "billing", rocketmq.namesrv, start_from="first", ordered=ordered, suspend_s=0.01
    )

    @consumer.around
    @contextmanager
    def timed(message: ReceivedMessage) -> Iterator[None]:
        steps.append("begin")
        try:
            yield
        except ValueError:
            steps.append("failed")
            raise pyromq.GiveUp from None
        finally:
            steps.append("end")

    @consumer.around
    @contextmanager
    def counted(message: ReceivedMessage) -> Iterator[None]:
        steps.append("inner")
        yield

    def handle(message: ReceivedMessage) -> None:
        steps.append("handle")
        raise ValueError("no")

    async def handle_async(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        handle(message)

    consumer.subscribe("Orders", "*", handle_async if is_async else handle)
    async with aio.Producer("orders", rocketmq.namesrv) as producer, consumer:
        await producer.send(Message("Orders", b"x"))
        await turn_until(lambda: steps[-1:] == ["end"])
    assert steps == ["begin", "inner", "handle", "failed", "end"]


def test_wrong_use_is_found_at_once() -> None:
    router, wrong = Router(), list[Any]()
    with pytest.raises(BadExpression):
        router.on("Orders", "a | b")
    with pytest.raises(TypeError, match="a handler must be a function"):
        router.on("Orders")(5)  # type: ignore[type-var]
    consumer = aio.PushConsumer("billing", "a:1")
    consumer.subscribe("Orders", "*", wrong.append)
    with pytest.raises(StateError, match="add what is around them first"):
        consumer.around(lambda message: contextmanager(lambda: iter(()))())
