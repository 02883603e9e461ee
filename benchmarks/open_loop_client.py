"""One side of an open loop, in a process of its own: messages due at a fixed rate, or their consumer.

python -m benchmarks.open_loop_client SYSTEM prepare PLACE TOPICS PREFIX
python -m benchmarks.open_loop_client SYSTEM send PLACE TOPICS PREFIX BODY_BYTES RATE WARM_UP_S SECONDS
python -m benchmarks.open_loop_client SYSTEM receive PLACE TOPICS PREFIX

A message is due whether or not earlier ones were answered, and its latency counts from then. Its body begins
with that time and with one byte that says whether it is measured. `RATE 0` is a closed loop instead: as fast
as the client can with `IN_FLIGHT` messages on the way. A receiver says "ready", counts until standard input
has a line with the number of messages to wait for, and tells its figures then. OpenLoop.java is the same for
Apache's client.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import struct
import sys
import threading
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from typing import Any, Final

HEAD: Final = struct.Struct(">qB")
IN_FLIGHT: Final = 256
SHARES: Final = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "p9999": 0.9999}
_DRAIN_S: Final = 30.0
_PREFETCH: Final = 500
_CONNECTIONS: Final = 64

Publish = Callable[[str, bytes], Awaitable[object]]
Take = Callable[[bytes], None]


class Latencies:
    """From the time that messages were due, in nanoseconds."""

    def __init__(self) -> None:
        self.count = 0
        """Of all messages, measured or not."""
        self._measured = array("q")
        self._first_ns = self._last_ns = 0

    def take(self, head: bytes) -> None:
        now_ns = time.monotonic_ns()
        due_ns, is_measured = HEAD.unpack_from(head)
        self.count += 1
        if is_measured:
            self._measured.append(now_ns - due_ns)
            self._first_ns = self._first_ns or now_ns
            self._last_ns = now_ns

    def report(self) -> dict[str, float]:
        """In milliseconds; `rate` is that of the measured ones."""
        found = sorted(self._measured)
        seconds = (self._last_ns - self._first_ns) / 1e9
        figures = {
            "count": self.count,
            "measured": len(found),
            "rate": len(found) / seconds if seconds else 0.0,
        }
        if found:
            figures |= {name: found[int(share * (len(found) - 1))] / 1e6 for name, share in SHARES.items()}
            figures["max"] = found[-1] / 1e6
        return figures


# ---------------------------------------------------------------------- when messages are due


class Pace:
    """Numbers of messages and the times at which they are due."""

    def __init__(self, rate: float, warm_up_s: float, seconds: float) -> None:
        self.every_ns = 1e9 / rate
        self.total = round(rate * (warm_up_s + seconds))
        self._unmeasured = round(rate * warm_up_s)
        self._begin_ns = time.monotonic_ns() + 100_000_000
        self._next = 0

    @property
    def is_over(self) -> bool:
        return self._next >= self.total

    @property
    def next_due_ns(self) -> int:
        return self._begin_ns + round(self._next * self.every_ns)

    def due(self) -> list[tuple[int, bytes]]:
        """What is due by now: numbers, and heads of bodies."""
        found = []
        now_ns = time.monotonic_ns()
        while not self.is_over and self.next_due_ns <= now_ns:
            found.append((self._next, HEAD.pack(self.next_due_ns, self._next >= self._unmeasured)))
            self._next += 1
        return found


class Ticks:
    """A timer of the kernel that wakes the loop. The loop's own are up to a millisecond late."""

    def __init__(self, every_ns: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._file = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        parts = divmod(every_ns, 1_000_000_000)
        libc.timerfd_settime(self._file, 0, (ctypes.c_long * 4)(*parts, *parts), None)

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        ticked = loop.create_future()
        loop.add_reader(self._file, self._tick, ticked)
        await ticked

    def _tick(self, ticked: asyncio.Future[None]) -> None:
        os.read(self._file, 8)
        if not ticked.done():
            ticked.set_result(None)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._file)
        os.close(self._file)


# ---------------------------------------------------------------------- loads on an event loop


class Sending:
    def __init__(self, publish: Publish, topics: Sequence[str], body_bytes: int) -> None:
        self._publish = publish
        self._topics = topics
        self._filling = bytes(body_bytes - HEAD.size)
        self._running: set[asyncio.Task[None]] = set()
        self.answers = Latencies()
        self.sent = self.failed = 0

    async def _send(self, number: int, head: bytes) -> None:
        try:
            await self._publish(self._topics[number % len(self._topics)], head + self._filling)
        except Exception as problem:
            if not self.failed:
                print(f"the first send that failed: {problem!r}", file=sys.stderr)
            self.failed += 1
        else:
            self.answers.take(head)

    async def at_rate(self, rate: float, warm_up_s: float, seconds: float) -> None:
        pace = Pace(rate, warm_up_s, seconds)
        ticks = Ticks(max(100_000, min(1_000_000, round(pace.every_ns))))
        while not pace.is_over:
            await ticks.wait()
            for number, head in pace.due():
                self.sent += 1
                task = asyncio.create_task(self._send(number, head))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        ticks.close()
        if self._running:
            await asyncio.wait(self._running, timeout=_DRAIN_S)
        self.failed += len(self._running)

    async def as_fast_as_possible(self, warm_up_s: float, seconds: float) -> None:
        begin_s = time.monotonic()

        async def keep_sending() -> None:
            while (now_s := time.monotonic()) < begin_s + warm_up_s + seconds:
                self.sent += 1
                await self._send(self.sent, HEAD.pack(time.monotonic_ns(), now_s >= begin_s + warm_up_s))

        await asyncio.gather(*(keep_sending() for _ in range(IN_FLIGHT)))

    def report(self) -> dict[str, float]:
        return self.answers.report() | {"sent": self.sent, "failed": self.failed}


async def wanted_by_parent() -> int:
    """The number on a line of standard input."""
    return int(await asyncio.to_thread(sys.stdin.readline))


async def receive(latencies: Latencies) -> dict[str, float]:
    print("ready", flush=True)
    wanted = await wanted_by_parent()
    until = time.monotonic() + _DRAIN_S
    # An event for each message would be measured, too.
    while latencies.count < wanted and time.monotonic() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return latencies.report() | {"missing": wanted - latencies.count}


# ---------------------------------------------------------------------- PyroMQ


@asynccontextmanager
async def pyromq_sender(place: str) -> AsyncIterator[Publish]:
    from pyromq import Message, aio

    async with aio.Producer("open-loop", place, send_timeout_s=10) as producer:
        yield lambda topic, body: producer.send(Message(topic, body))


@asynccontextmanager
async def pyromq_receiver(place: str, topics: Sequence[str], take: Take) -> AsyncIterator[None]:
    from pyromq import ReceivedMessage, aio

    async def handle(message: ReceivedMessage) -> None:
        take(message.body)

    consumer = aio.PushConsumer(f"group-{topics[0]}", place, start_from="first")
    for topic in topics:
        consumer.subscribe(topic, "*", handle)
    async with consumer:
        yield


# ---------------------------------------------------------------------- RabbitMQ


async def rabbitmq_channel(stack: AsyncExitStack, place: str) -> Any:
    aio_pika: Any = import_module("aio_pika")
    connection = await stack.enter_async_context(await aio_pika.connect(place))
    return await connection.channel(publisher_confirms=True)


async def rabbitmq_prepare(place: str, topics: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        channel = await rabbitmq_channel(stack, place)
        for topic in topics:
            await channel.declare_queue(topic, durable=True, arguments={"x-queue-type": "quorum"})


@asynccontextmanager
async def rabbitmq_sender(place: str) -> AsyncIterator[Publish]:
    aio_pika: Any = import_module("aio_pika")
    async with AsyncExitStack() as stack:
        exchange = (await rabbitmq_channel(stack, place)).default_exchange
        lasting = aio_pika.DeliveryMode.PERSISTENT
        yield lambda topic, body: exchange.publish(aio_pika.Message(body, delivery_mode=lasting), topic)


@asynccontextmanager
async def rabbitmq_receiver(place: str, topics: Sequence[str], take: Take) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        channel = await rabbitmq_channel(stack, place)
        await channel.set_qos(_PREFETCH)

        async def handle(message: Any) -> None:
            take(message.body)
            await message.ack()

        for topic in topics:
            await (await channel.get_queue(topic)).consume(handle)
        yield


# ---------------------------------------------------------------------- Redis Streams

_REDIS_GROUP: Final = "open-loop"


def redis_client(place: str) -> Any:
    redis: Any = import_module("redis.asyncio")
    return redis.Redis(
        connection_pool=redis.BlockingConnectionPool.from_url(place, max_connections=_CONNECTIONS)
    )


async def redis_prepare(place: str, topics: Sequence[str]) -> None:
    async with redis_client(place) as client:
        for topic in topics:
            await client.xgroup_create(topic, _REDIS_GROUP, mkstream=True)


@asynccontextmanager
async def redis_sender(place: str) -> AsyncIterator[Publish]:
    async with redis_client(place) as client:
        yield lambda topic, body: client.xadd(topic, {"body": body})


@asynccontextmanager
async def redis_receiver(place: str, topics: Sequence[str], take: Take) -> AsyncIterator[None]:
    async with redis_client(place) as client:

        async def read() -> None:
            streams = dict.fromkeys(topics, ">")
            while True:
                found = await client.xreadgroup(_REDIS_GROUP, "one", streams, count=100, block=1000)
                for topic, entries in found:
                    for _, fields in entries:
                        take(fields[b"body"])
                    await client.xack(topic, _REDIS_GROUP, *(number for number, _ in entries))

        reading = asyncio.create_task(read())
        yield
        reading.cancel()


# ---------------------------------------------------------------------- NATS JetStream


async def nats_context(stack: AsyncExitStack, place: str) -> Any:
    nats: Any = import_module("nats")
    connection = await nats.connect(place)
    stack.push_async_callback(connection.close)
    return connection.jetstream(timeout=10, publish_async_max_pending=100_000)


async def nats_prepare(place: str, topics: Sequence[str]) -> None:
    async with AsyncExitStack() as stack:
        jetstream = await nats_context(stack, place)
        for topic in topics:
            await jetstream.add_stream(name=topic, subjects=[topic], storage="file")


@asynccontextmanager
async def nats_sender(place: str) -> AsyncIterator[Publish]:
    async with AsyncExitStack() as stack:
        yield (await nats_context(stack, place)).publish


@asynccontextmanager
async def nats_receiver(place: str, topics: Sequence[str], take: Take) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        jetstream = await nats_context(stack, place)

        async def handle(message: Any) -> None:
            take(message.data)
            await message.ack()

        for topic in topics:
            await jetstream.subscribe(topic, cb=handle, durable="open-loop", manual_ack=True)
        yield


PREPARE: Final[dict[str, Any]] = {"rabbitmq": rabbitmq_prepare, "redis": redis_prepare, "nats": nats_prepare}
SENDERS: Final[dict[str, Any]] = {
    "pyromq": pyromq_sender,
    "rabbitmq": rabbitmq_sender,
    "redis": redis_sender,
    "nats": nats_sender,
}
RECEIVERS: Final[dict[str, Any]] = {
    "pyromq": pyromq_receiver,
    "rabbitmq": rabbitmq_receiver,
    "redis": redis_receiver,
    "nats": nats_receiver,
}


async def on_loop(system: str, mode: str, place: str, topics: Sequence[str], *words: str) -> dict[str, float]:
    if mode == "prepare":
        await PREPARE[system](place, topics)
        return {}
    if mode == "receive":
        latencies = Latencies()
        async with RECEIVERS[system](place, topics, latencies.take):
            return await receive(latencies)
    body_bytes, rate, warm_up_s, seconds = int(words[0]), *map(float, words[1:])
    async with SENDERS[system](place) as publish:
        sending = Sending(publish, topics, body_bytes)
        if rate:
            await sending.at_rate(rate, warm_up_s, seconds)
        else:
            await sending.as_fast_as_possible(warm_up_s, seconds)
        return sending.report()


# ---------------------------------------------------------------------- Kafka, with threads of its own


class KafkaSending:
    def __init__(self, place: str, topics: Sequence[str], body_bytes: int) -> None:
        confluent: Any = import_module("confluent_kafka")
        # One millisecond, as the OpenMessaging Benchmark has it; five are the default.
        self._producer = confluent.Producer({"bootstrap.servers": place, "acks": "all", "linger.ms": 1})
        self._topics = topics
        self._filling = bytes(body_bytes - HEAD.size)
        self._room = threading.Semaphore(IN_FLIGHT)
        self._is_over = False
        self.answers = Latencies()
        self.sent = self.failed = 0
        self._polling = threading.Thread(target=self._poll)
        self._polling.start()

    def _poll(self) -> None:
        while not self._is_over:
            self._producer.poll(0.1)

    def _send(self, number: int, head: bytes) -> None:
        def answered(problem: object, _: object) -> None:
            self._room.release()
            if problem is None:
                self.answers.take(head)
            else:
                self.failed += 1

        self.sent += 1
        topic = self._topics[number % len(self._topics)]
        self._producer.produce(topic, head + self._filling, on_delivery=answered)

    def at_rate(self, rate: float, warm_up_s: float, seconds: float) -> None:
        pace = Pace(rate, warm_up_s, seconds)
        while not pace.is_over:
            time.sleep(max(pace.next_due_ns - time.monotonic_ns(), 0) / 1e9)
            for number, head in pace.due():
                self._send(number, head)

    def as_fast_as_possible(self, warm_up_s: float, seconds: float) -> None:
        begin_s = time.monotonic()
        while (now_s := time.monotonic()) < begin_s + warm_up_s + seconds:
            self._room.acquire()
            self._send(self.sent, HEAD.pack(time.monotonic_ns(), now_s >= begin_s + warm_up_s))

    def close(self) -> dict[str, float]:
        self.failed += self._producer.flush(_DRAIN_S)
        self._is_over = True
        self._polling.join()
        return self.answers.report() | {"sent": self.sent, "failed": self.failed}


def kafka_receive(place: str, topics: Sequence[str]) -> dict[str, float]:
    confluent: Any = import_module("confluent_kafka")
    consumer = confluent.Consumer(
        {"bootstrap.servers": place, "group.id": f"group-{topics[0]}", "auto.offset.reset": "earliest"}
    )
    latencies = Latencies()
    assigned = threading.Event()
    is_over = threading.Event()
    consumer.subscribe(list(topics), on_assign=lambda *_: assigned.set())

    def read() -> None:
        while not is_over.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                latencies.take(message.value())

    reading = threading.Thread(target=read)
    reading.start()
    assigned.wait(60)
    figures = asyncio.run(receive(latencies))
    is_over.set()
    reading.join()
    consumer.close()
    return figures


def kafka(mode: str, place: str, topics: Sequence[str], *words: str) -> dict[str, float]:
    if mode == "prepare":
        admin: Any = import_module("confluent_kafka.admin")
        wanted = [admin.NewTopic(topic, num_partitions=4, replication_factor=1) for topic in topics]
        client = admin.AdminClient({"bootstrap.servers": place})
        for made in client.create_topics(wanted).values():
            made.result(60)
        return {}
    if mode == "receive":
        return kafka_receive(place, topics)
    body_bytes, rate, warm_up_s, seconds = int(words[0]), *map(float, words[1:])
    sending = KafkaSending(place, topics, body_bytes)
    if rate:
        sending.at_rate(rate, warm_up_s, seconds)
    else:
        sending.as_fast_as_possible(warm_up_s, seconds)
    return sending.close()


def main(system: str, mode: str, place: str, count: str, prefix: str, *words: str) -> None:
    topics = [f"{prefix}-{number}" for number in range(int(count))]
    if system == "kafka":
        figures = kafka(mode, place, topics, *words)
    else:
        uvloop: Any = import_module("uvloop")
        figures = uvloop.run(on_loop(system, mode, place, topics, *words))
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
