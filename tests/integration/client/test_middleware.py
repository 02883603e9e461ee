"""Code around sends: the same for asyncio and plain programs."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

import pyromq
from pyromq import Message, TransactionState, aio
from pyromq.errors import StateError
from pyromq.testing import RunningCluster

tenant: ContextVar[str] = ContextVar("tenant")


class Steps:
    """Two middlewares: the outer one notes how sends end, the inner one adds the tenant."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self.threads: set[threading.Thread] = set()

    @contextmanager
    def noted(self, message: Message | list[Message]) -> Iterator[object]:
        self.threads.add(threading.current_thread())
        try:
            yield "what is not a message has no effect"
        except Exception as problem:
            self.steps.append(type(problem))
            raise
        self.steps.append(1 if isinstance(message, Message) else len(message))

    @contextmanager
    def of_tenant(self, message: Message | list[Message]) -> Iterator[Message | list[Message]]:
        if isinstance(message, Message):
            yield message.replace(properties={"tenant": tenant.get()})
        else:
            yield [each.replace(properties={"tenant": tenant.get()}) for each in message]


def stored(rocketmq: RunningCluster, count: int) -> dict[str, str | None]:
    """The tenants of the messages that were stored."""
    found: dict[str, str | None] = {}
    with pyromq.PullConsumer("readers", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        while len(found) < count:
            found |= {message.body.decode(): message.get("tenant") for message in consumer.poll(30.0)}
    return found


async def check(message: Any) -> TransactionState:
    return TransactionState.UNKNOWN


@pytest.mark.parametrize("options", [{}, {"linger_ms": 0}, {"otel": True}])
async def test_every_send_runs_inside_what_is_around_it(rocketmq: RunningCluster, options: Any) -> None:
    around = Steps()
    producer = aio.TransactionProducer("tills", rocketmq.namesrv, check=check, **options)
    producer.around(around.noted)
    producer.around(around.of_tenant)
    tenant.set("a")
    async with producer:
        await producer.send(Message("Orders", b"1"))
        await producer.send(Message("Orders", b"2"), sharding_key="k")
        await producer.send([Message("Orders", b"3"), Message("Orders", b"4")])
        await producer.send_oneway(Message("Orders", b"5"))
        async with producer.transaction(Message("Orders", b"6")):
            pass
        with pytest.raises(pyromq.BadMessage):
            await producer.send(Message("Orders", b""))
        with pytest.raises(pyromq.NoReply):
            await producer.request(Message("Orders", b"7"), timeout_s=0.5)
        with pytest.raises(StateError, match="has been started"):
            producer.around(around.noted)
    assert around.steps == [1, 1, 2, 1, 1, pyromq.BadMessage, pyromq.NoReply]
    assert await asyncio.to_thread(stored, rocketmq, 7) == {str(number): "a" for number in range(1, 8)}


def test_around_blocking_sends_it_runs_on_the_calling_thread(rocketmq: RunningCluster) -> None:
    around = Steps()
    producer = pyromq.TransactionProducer("tills", rocketmq.namesrv, check=check)
    producer.around(around.noted)
    producer.around(around.of_tenant)
    tenant.set("b")
    with producer:
        producer.send(Message("Orders", b"1"))
        producer.send(message=Message("Orders", b"2"), sharding_key="k")
        producer.send([Message("Orders", b"3"), Message("Orders", b"4")])
        producer.send_oneway(Message("Orders", b"5"))
        with producer.transaction(Message("Orders", b"6")):
            pass
        producer.send_in_transaction(Message("Orders", b"7"), lambda message: TransactionState.COMMIT)
        producer.submit(Message("Orders", b"8")).result(30)
        with pytest.raises(pyromq.BadMessage):
            producer.send(Message("Orders", b""))
        with pytest.raises(StateError, match="has been started"):
            producer.around(around.noted)
    assert around.steps == [1, 1, 2, 1, 1, 1, 1, pyromq.BadMessage]
    assert around.threads == {threading.current_thread()}
    assert stored(rocketmq, 8) == {str(number): "b" for number in range(1, 9)}
