"""A small cluster for tests of consumers, what operators do to it, and a handler that remembers."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from pyromq.client.producer import Producer
from pyromq.client.values import Message, ReceivedMessage, SendResult
from pyromq.clock import SystemClock
from pyromq.protocol import names
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

A = TypeVar("A", bound=Answer)

TIMEOUT_S = 60.0
AT_ONCE = " ".join(["0s"] * 18)
"""Delay levels that do not wait."""


class ShiftedClock(SystemClock):
    """The machine's own clock, until someone lets an hour pass."""

    def __init__(self) -> None:
        self._shift_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self._shift_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self._shift_s

    def advance(self, seconds: float) -> None:
        self._shift_s += seconds


class ConsumerCluster:
    """`clock` is the servers' alone."""

    def __init__(self, store: Path, *, brokers: int = 1, **broker: Any) -> None:
        self.clock = ShiftedClock()
        self._dialer = Dialer()
        self._producer: Producer | None = None
        settings = StandaloneSettings(
            store=store,
            brokers=brokers,
            broker=broker,
            store_settings={
                "log_segment_bytes": 4 * 1024 * 1024,
                "index_slots": 1000,
                "index_units": 4000,
                "message_delay_levels": AT_ONCE,
            },
        )
        self._ports = ExitStack()
        settled = self._ports.enter_context(on_held_ports(settings))
        self.standalone = Standalone(settled, clock=self.clock)

    @property
    def namesrv(self) -> str:
        return self.standalone.namesrv

    async def start(self) -> None:
        await self.standalone.start()

    async def stop(self) -> None:
        if self._producer is not None:
            await self._producer.close()
        await self._dialer.close()
        await self.standalone.stop()
        self._ports.close()

    async def call(self, request: Request[A], number: int = 0) -> A:
        """Ask a broker, as an operator's tool would."""
        address = self.standalone.brokers[number].advertised_address
        return await self._dialer.call(address, request, TIMEOUT_S)

    async def create_topic(self, topic: str, queues: int = 4) -> list[MessageQueue]:
        """So many queues on each broker."""
        for number in range(len(self.standalone.brokers)):
            request = CreateOrUpdateTopic(
                topic=topic,
                default_topic=names.AUTO_CREATE_TOPIC,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=names.READ_WRITE,
                topic_filter_type="SINGLE_TAG",
            )
            await self.call(request, number)
        return [
            MessageQueue(topic, broker.settings.broker_name, number)
            for broker in self.standalone.brokers
            for number in range(queues)
        ]

    async def producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer("tills", self.namesrv, send_timeout_s=TIMEOUT_S)
            await self._producer.start()
        return self._producer

    async def send(self, topic: str, count: int, *, first: int = 0, **fields: Any) -> list[str]:
        """Messages whose bodies are numbers; returns the bodies as texts."""
        producer = await self.producer()
        bodies = [str(number) for number in range(first, first + count)]
        for body in bodies:
            await producer.send(Message(topic, body.encode(), **fields))
        return bodies

    async def send_to(self, queue: MessageQueue, bodies: Sequence[str], **fields: Any) -> list[SendResult]:
        producer = await self.producer()
        return [
            await producer.send(Message(queue.topic, body.encode(), **fields), queue=queue) for body in bodies
        ]


@asynccontextmanager
async def consumer_cluster(store: Path, **options: Any) -> AsyncIterator[ConsumerCluster]:
    cluster = ConsumerCluster(store, **options)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


class Received:
    """Messages by the order in which they came; called as a handler, plain or `async`."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self.messages: list[ReceivedMessage] = []
        self._timeout_s = timeout_s
        self._changed = asyncio.Condition()
        self._loop = asyncio.get_running_loop()

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]

    async def take(self, message: ReceivedMessage) -> None:
        async with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def take_on_thread(self, message: ReceivedMessage) -> None:
        asyncio.run_coroutine_threadsafe(self.take(message), self._loop).result(self._timeout_s)

    async def wait(self, is_reached: Callable[["Received"], bool]) -> None:
        async with asyncio.timeout(self._timeout_s), self._changed:
            await self._changed.wait_for(lambda: is_reached(self))

    async def wait_for_all(self, bodies: Sequence[str]) -> None:
        """Wait until each of these has come at least once."""
        wanted = set(bodies)
        await self.wait(lambda received: wanted <= set(received.bodies))
