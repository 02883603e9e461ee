"""The loads: each sends or reads for a while, and notes how long every message took.

With a rate the loop is open: messages are due at fixed moments, whether or not earlier ones were answered.
The time of a message runs from the moment it was due, so a cluster that stalls cannot hide it by being asked
less. Without a rate, a fixed number of messages is under way at any time.
"""

import asyncio
import secrets
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import NoReturn

from pyromq import aio
from pyromq.cli.bench.latencies import Latencies
from pyromq.cli.cluster_options import ClusterOptions
from pyromq.cli.rate_line import RateLine
from pyromq.client.settings import ClientOptions
from pyromq.client.values import Message, ReceivedMessage
from pyromq.clock import SystemClock
from pyromq.errors import PyroError, StateError

GROUP = "pyromq-bench"
DUE = struct.Struct(">d")
"""In front of the bodies of `latency`: when the message was due."""

_now = SystemClock().monotonic  # the loop's own time moves in milliseconds
_MOST_WAITING = 100_000
_SPIN_S = 0.002
_FILL_IN_FLIGHT = 1024
_READ_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    topic: str
    size: int
    rate: float | None
    in_flight: int
    connections: int
    seconds: float
    warm_up_s: float
    messages: int
    group: str = field(default_factory=lambda: f"{GROUP}-{secrets.token_hex(4)}")
    """Of the consumers; its own for each run, so that it reads from the start."""


@dataclass(slots=True)
class LoadResult:
    rate_line: RateLine
    times: Latencies = field(default_factory=Latencies)
    messages: int = 0
    size_bytes: int = 0
    failed: int = 0
    first_failure: str = ""
    began: float = 0.0
    ended: float = 0.0
    is_measuring: bool = False
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    """Everything is read."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def done(self, size_bytes: int, seconds: float | None = None) -> None:
        if self.is_measuring:
            self.messages += 1
            self.size_bytes += size_bytes
            if seconds is not None:
                self.times.add(seconds * 1000)
            self.rate_line.add(1, size_bytes)

    def not_done(self, problem: PyroError) -> None:
        self.failed += 1
        self.first_failure = self.first_failure or str(problem)

    def start(self) -> None:
        self.began, self.is_measuring = _now(), True
        self.rate_line.begin()

    def stop(self) -> None:
        self.ended, self.is_measuring = _now(), False


Send = Callable[[float], Awaitable[object]]
"""Sends one message, which was due at that time."""
SendOne = Callable[[Send, float], Coroutine[None, None, None]]
Load = Callable[[ClusterOptions, LoadPlan, LoadResult], Awaitable[None]]


# ------------------------------------------------------------------------------------------- driving


async def _drive(
    sends: list[Send], plan: LoadPlan, result: LoadResult, *, counts_answers: bool = True
) -> None:
    started = asyncio.get_running_loop().call_later(plan.warm_up_s, result.start)
    until = _now() + plan.warm_up_s + plan.seconds

    async def one(send: Send, due: float) -> None:
        try:
            await send(due)
        except PyroError as problem:
            result.not_done(problem)
        else:
            if counts_answers:
                result.done(plan.size, _now() - due)

    try:
        if plan.rate is None:
            await _closed(one, sends, plan.in_flight, until)
        else:
            await _open(one, sends, plan.rate, until)
    finally:
        started.cancel()


async def _closed(one: SendOne, sends: list[Send], in_flight: int, until: float) -> None:

    async def keep_sending(send: Send) -> None:
        while (due := _now()) < until:
            await one(send, due)

    async with asyncio.TaskGroup() as tasks:
        for number in range(max(in_flight, len(sends))):
            tasks.create_task(keep_sending(sends[number % len(sends)]))


async def _open(one: SendOne, sends: list[Send], rate: float, until: float) -> None:
    first, number = _now(), 0
    waiting: set[asyncio.Task[None]] = set()
    async with asyncio.TaskGroup() as tasks:
        while (due := first + number / rate) < until:
            # Timers are a millisecond late: the last part is waited for without one.
            if (left_s := due - _now()) > _SPIN_S:
                await asyncio.sleep(left_s - _SPIN_S)
            while _now() < due:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if len(waiting) >= _MOST_WAITING:
                raise StateError(f"{len(waiting):,} messages wait for their answers: the rate is too high")
            task = tasks.create_task(one(sends[number % len(sends)], due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)
            number += 1
            if not number & 63:
                await asyncio.sleep(0)


# ------------------------------------------------------------------------------------------- loads


def _options(cluster: ClusterOptions, number: int) -> ClientOptions:
    """Clients of one process share connections, unless they have other names."""
    options = cluster.options.copy()
    options["instance_name"] = f"bench-{number}"
    return options


@asynccontextmanager
async def _producers(
    cluster: ClusterOptions, plan: LoadPlan, linger_ms: float | None = None
) -> AsyncIterator[list[aio.Producer]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                aio.Producer(
                    GROUP,
                    cluster.namesrv,
                    linger_ms=linger_ms,
                    max_in_flight=_MOST_WAITING,
                    retries=0,
                    **_options(cluster, number),
                )
            )
            for number in range(plan.connections)
        ]


async def send(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    message = Message(plan.topic, bytes(plan.size))

    def sender(producer: aio.Producer) -> Send:
        return lambda _: producer.send(message)

    async with _producers(cluster, plan) as producers:
        await _drive([sender(each) for each in producers], plan, result)
        result.stop()


async def transaction(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    """A half message, an empty local transaction, and the commit."""
    message = Message(plan.topic, bytes(plan.size))

    async def commit(_: object) -> aio.TransactionState:
        return aio.TransactionState.COMMIT

    def sender(producer: aio.TransactionProducer) -> Send:
        return lambda _: producer.send_in_transaction(message, commit)

    async with AsyncExitStack() as stack:
        producers = [
            await stack.enter_async_context(
                aio.TransactionProducer(
                    GROUP,
                    cluster.namesrv,
                    check=commit,
                    retries=0,
                    **_options(cluster, number),
                )
            )
            for number in range(plan.connections)
        ]
        await _drive([sender(each) for each in producers], plan, result)
        result.stop()


async def latency(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    """From the moment a message is due until a push consumer of this process has it."""
    filling = bytes(max(0, plan.size - DUE.size))
    under_way, changed = 0, asyncio.Event()

    async def take(message: ReceivedMessage) -> None:
        nonlocal under_way
        [due] = DUE.unpack_from(message.body)
        result.done(len(message.body), _now() - due)
        under_way -= 1
        changed.set()

    def sender(producer: aio.Producer) -> Send:
        async def send_one(due: float) -> None:
            nonlocal under_way
            under_way += 1
            try:
                await producer.send(Message(plan.topic, DUE.pack(due) + filling))
            except PyroError:
                under_way -= 1
                raise

        return send_one

    consumer = aio.PushConsumer(plan.group, cluster.namesrv, start_from="first", **cluster.options)
    consumer.subscribe(plan.topic, "*", take)
    async with consumer, _producers(cluster, plan) as producers:
        await _drive([sender(each) for each in producers], plan, result, counts_answers=False)
        while under_way > 0:
            changed.clear()
            try:
                async with asyncio.timeout(_READ_PATIENCE_S):
                    await changed.wait()
            except TimeoutError:
                _give_up(f"{under_way:,} messages that were sent did not arrive")
        result.stop()


async def consume(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    """Push consumers, with an empty handler."""

    async def take(message: ReceivedMessage) -> None:
        _took(result, [message], plan)

    async def keep_consuming(options: ClientOptions) -> None:
        consumer = aio.PushConsumer(plan.group, cluster.namesrv, start_from="first", **options)
        consumer.subscribe(plan.topic, "*", take)
        async with consumer:
            await result.enough.wait()

    await _read(keep_consuming, cluster, plan, result)


async def pull(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    """Pull consumers that poll as fast as they can."""

    async def keep_polling(options: ClientOptions) -> None:
        async with aio.PullConsumer(plan.group, cluster.namesrv, start_from="first", **options) as consumer:
            consumer.subscribe(plan.topic)
            while not result.enough.is_set():
                _took(result, await consumer.poll(timeout_s=1), plan)

    await _read(keep_polling, cluster, plan, result)


async def pop(cluster: ClusterOptions, plan: LoadPlan, result: LoadResult) -> None:
    """Simple consumers that receive and acknowledge."""

    async def keep_receiving(options: ClientOptions) -> None:
        async with aio.SimpleConsumer(plan.group, cluster.namesrv, start_from="first", **options) as consumer:
            consumer.subscribe(plan.topic)
            while not result.enough.is_set():
                messages = await consumer.receive(32, wait_s=1)
                if messages:
                    await consumer.ack_many(messages)
                _took(result, messages, plan)

    await _read(keep_receiving, cluster, plan, result)


LOADS: dict[str, Load] = {
    "send": send,
    "transaction": transaction,
    "latency": latency,
    "consume": consume,
    "pull": pull,
    "pop": pop,
}
READS = {"consume", "pull", "pop"}
CONSUMERS = {*READS, "latency"}


# ------------------------------------------------------------------------------------------- reading


async def _read(
    reader: Callable[[ClientOptions], Coroutine[None, None, None]],
    cluster: ClusterOptions,
    plan: LoadPlan,
    result: LoadResult,
) -> None:
    """Fill the topic, then read it with as many readers as there are connections."""
    await _fill(cluster, plan)
    async with asyncio.TaskGroup() as tasks:
        for number in range(plan.connections):
            tasks.create_task(reader(_options(cluster, number)))
        while not result.enough.is_set():
            before = result.messages
            try:
                async with asyncio.timeout(_READ_PATIENCE_S):
                    await result.enough.wait()
            except TimeoutError:
                if result.messages == before:
                    _give_up(f"{before:,} of {plan.messages:,} messages arrived, and no other")


def _took(result: LoadResult, messages: Sequence[ReceivedMessage], plan: LoadPlan) -> None:
    """The time runs from the first message: joining a group is not part of it."""
    if messages and not result.began:
        result.start()
    for message in messages:
        result.done(len(message.body))
    if result.messages >= plan.messages and not result.enough.is_set():
        result.stop()
        result.enough.set()


def _give_up(what: str) -> NoReturn:
    raise StateError(f"{what} within {_READ_PATIENCE_S:.0f} s")


async def _fill(cluster: ClusterOptions, plan: LoadPlan) -> None:
    message = Message(plan.topic, bytes(plan.size))
    numbers = iter(range(plan.messages))

    async with _producers(cluster, plan, linger_ms=1.0) as [producer, *_]:

        async def keep_sending() -> None:
            for _ in numbers:
                await producer.send(message)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(_FILL_IN_FLIGHT):
                tasks.create_task(keep_sending())
