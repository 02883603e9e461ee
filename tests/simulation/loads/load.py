"""What all loads have in common: clients in processes of their own, and a history of what they saw.

A load begins before the first fault and sends until the last one is over. Then its consumers have time to get
everything, and `judge` compares what was promised with what the brokers hold.
"""

import asyncio
import itertools
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from random import Random
from typing import Any

from tests.campaign.checker import check
from tests.campaign.history import Delivered, History, Sent
from tests.simulation.cluster import Consumer, Server, SimulatedCluster
from tests.simulation.contents import Contents
from tests.simulation.plans import Load
from tests.simulation.processes import Process
from tests.simulation.recording import Recorder

from pyromq import Message, PyroError, ReceivedMessage, SendResult, aio
from pyromq.broker.broker import Broker

SEND_TIMEOUT_S = 1.5
_AFTER_FAILURE_S = 0.1
_LONGEST_UNCLEAN_S = 3.0
_WARM_S, _SOON_S = 10.0, 1.0
"""Consumers have found their queues then; so soon a message comes."""
_SPARSE_S, _AT_ONCE_S = 4.0, 0.02
"""With such pauses between messages nothing is in the way of one: it comes at once."""

Handle = Callable[[ReceivedMessage], Awaitable[None]]


class RunningLoad(ABC):
    def __init__(self, cluster: SimulatedCluster, recorder: Recorder, load: Load) -> None:
        self.cluster = cluster
        self.recorder = recorder
        self.load = load
        self.topic = f"{load.kind.title().replace(' ', '')}Topic"
        self.chance = Random(f"{cluster.plan.seed}/load {load.kind}")
        self.history = History()
        self._is_over = False
        self._sending: list[asyncio.Task[None]] = []
        self._got: dict[str, set[str]] = {}
        """By group: what its members have finished."""
        self._finished: dict[str, dict[int, set[int]]] = {}
        """The same for groups that commit, by queue and queue offset."""
        self._committed: dict[tuple[str, int], int] = {}
        """By group and queue: up to where it was looked at."""
        self._numbers = 0
        self._answered_s: dict[str, float] = {}
        """By producer: when it was answered last."""

    # For the run

    @abstractmethod
    def start(self) -> None:
        """Start the clients."""

    async def finish_sending(self) -> None:
        self._is_over = True
        if self._sending:
            await asyncio.wait(self._sending)
        self.history.ended = self.recorder.now_s

    @property
    def is_delivered(self) -> bool:
        """Whether the consumers have got everything that was acknowledged."""
        wanted = {sent.body for sent in self.history.sent if sent.offset is not None}
        return all(wanted <= got for got in self._got.values())

    def look(self) -> None:
        """Called every few moments: what must hold at any time."""
        broker = self.broker_of_master()
        if broker is None:
            return
        offsets = broker._started.tables.offsets
        for group, finished in self._finished.items():
            for queue, committed in offsets.queues(group, self.topic).items():
                self._check_committed(group, queue, committed, finished.get(queue, set()))

    def _check_committed(self, group: str, queue: int, committed: int, finished: set[int]) -> None:
        for offset in range(self._committed.get((group, queue), 0), committed):
            if offset not in finished:
                text = f"{group} is at {committed} of queue {queue}, and no member has finished {offset}"
                self.recorder.violation("committed, but not finished", text)
                break
        self._committed[group, queue] = max(committed, self._committed.get((group, queue), 0))

    async def clean_now_and_then(self) -> None:
        """An operator deletes files of the log that have expired, on some of the brokers."""
        while not self.is_over:
            await asyncio.sleep(self.chance.uniform(0.0, _LONGEST_UNCLEAN_S))
            for server in self.cluster.brokers:
                if server.process is not None and self.chance.random() < 0.7:
                    server.process.run(self._clean(server))

    async def _clean(self, server: Server) -> None:
        broker = self.cluster.broker(server)
        if broker is not None and self.cluster.is_whole and self.may_clean(broker):
            broker.store.clean(on_demand=True)

    def may_clean(self, broker: Broker) -> bool:
        """Whether no other broker lacks what a broker has; asked when all are in sync."""
        return len({each.store.flushes.offset for each in self.cluster.running()}) == 1

    def silent_since(self, at_s: float) -> list[str]:
        """The producers of which no send was acknowledged since then."""
        return [name for name, answered_s in self._answered_s.items() if answered_s < at_s]

    def judge(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        """The violations: their short names, and what is wrong."""
        yield from self._late()
        self.history.logs = {each.broker: each.bodies(self.topic) for each in contents}
        for invariant, sentences in check(self.history).violations.items():
            for sentence in sentences:
                yield invariant, f"{self.load.kind}: {sentence}"
        for group, got in self._got.items():
            for sent in self.history.sent:
                if sent.offset is not None and sent.body not in got:
                    place = f"acknowledged at {(sent.queue, sent.offset)}"
                    yield "not finished", f"{sent.body!r}, {place}, was finished by no member of {group}"

    def judge_what_is_left(self, contents: list[Contents]) -> Iterator[tuple[str, str]]:
        """The same if a fail-over may lose what was acknowledged: the groups get what it did not lose."""
        left = {body for bodies in contents[0].bodies(self.topic).values() for body in bodies.values()}
        for group, got in self._got.items():
            for sent in self.history.sent:
                if sent.offset is not None and sent.body in left - got:
                    yield "not finished", f"{sent.body!r} is in the log, and no member of {group} got it"

    def broker_of_master(self) -> Broker | None:
        master = self.cluster.master()
        return self.cluster.broker(master) if master is not None else None

    def _late(self) -> Iterator[tuple[str, str]]:
        """If nothing is broken, every message is acknowledged, and readers get it at once."""
        if self.cluster.plan.faults:
            return
        soon_s = _AT_ONCE_S if self.load.pause_s >= _SPARSE_S else _SOON_S
        got: dict[str, float] = {}
        for each in self.history.delivered:
            got.setdefault(each.body, each.at)
        for sent in self.history.sent:
            came_s = got.get(sent.body)
            if sent.began < _WARM_S:
                continue
            if sent.offset is None:
                yield (
                    "refused, and nothing is broken",
                    f"{self.load.kind}: {sent.body!r} at {sent.began:.3f} s",
                )
            elif came_s is not None and came_s - sent.ended > soon_s:
                late_s = came_s - sent.ended
                yield "delivered late", f"{self.load.kind}: {sent.body!r} after {late_s:.3f} s"

    # For its clients

    def sender(self, name: str, work: Coroutine[Any, Any, None]) -> Process:
        """Run something that sends in a process of its own, until the load is over."""
        process = self.cluster.client(f"{self.load.kind} {name}")
        self._sending.append(process.run(self._guarded(name, work)))
        return process

    def member(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a consumer in a process of its own; a fault may kill it, and start another one."""
        count = itertools.count(1)

        def start() -> Process:
            process = self.cluster.client(f"{self.load.kind} {name}.{next(count)}")
            process.run(self._guarded(name, work()))
            return process

        self.cluster.consumers.append(Consumer(start(), start))

    async def _guarded(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as problem:
            self.recorder.violation("a client failed", f"{self.load.kind} {name}: {problem!r}")

    @staticmethod
    def options() -> dict[str, Any]:
        """Options of every client: its host's address, and shorter intervals than people use."""
        loop = asyncio.get_running_loop()
        process: Process = loop.process  # type: ignore[attr-defined]
        return {
            "client_ip": process.host.address,
            "instance_name": process.host.name.replace(" ", "-"),
            "connect_timeout_s": 1.0,
            "heartbeat_interval_s": 5.0,
        }

    async def produce(self, name: str, **options: Any) -> None:
        """Send one message after the other to any queue, until the load is over."""
        async with self.producer(name, **options) as producer:
            while not self.is_over:
                body, began_s, result = self.next_body(name), self.recorder.now_s, None
                with suppress(PyroError):
                    result = await producer.send(Message(self.topic, body.encode()))
                self.sent(body, name, began_s, result)
                await self.pause(has_failed=result is None or not result.is_ok)

    def producer(self, name: str, **options: Any) -> aio.Producer:
        # For all sends, and not with each: those with a timeout of their own take a slower path.
        chosen = {"retries": 1, "send_timeout_s": SEND_TIMEOUT_S, **self.options(), **options}
        return aio.Producer(f"{self.load.kind}-{name}", self.cluster.name_server_address, **chosen)

    async def consume(self, group: str, handle: Handle | None = None, **options: Any) -> None:
        """Be a member of a group for ever."""

        async def take(message: ReceivedMessage) -> None:
            self.delivered(group, message)
            if handle is not None:
                await handle(message)
            self.finished(group, message)

        async with self.consumer(group, **options) as consumer:
            consumer.subscribe(self.topic, "*", take)
            await asyncio.Event().wait()

    def consumer(self, group: str, **options: Any) -> aio.PushConsumer:
        chosen = {"commit_interval_s": 1.0, "rebalance_interval_s": 2.0, **self.options(), **options}
        return aio.PushConsumer(group, self.cluster.name_server_address, start_from="first", **chosen)

    def next_body(self, producer: str) -> str:
        self._numbers += 1
        return f"{producer}-{self._numbers}"

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def pause(self, *, has_failed: bool = False) -> None:
        await asyncio.sleep(_AFTER_FAILURE_S if has_failed else self.load.pause_s)

    def sent(self, body: str, producer: str, began_s: float, result: SendResult | None) -> None:
        offset = result.queue_offset if result is not None and result.is_ok else None
        queue = result.queue.queue_id if result is not None else -1
        self.answered(body, producer, began_s, queue, offset)

    def answered(self, body: str, producer: str, began_s: float, queue: int, offset: int | None) -> None:
        self.history.sent.append(Sent(body, producer, queue, began_s, self.recorder.now_s, offset))
        if offset is None:
            self.recorder.totals.unacknowledged += 1
        else:
            self.acknowledged(producer)

    def acknowledged(self, producer: str) -> None:
        self._answered_s[producer.partition("-")[0]] = self.recorder.now_s
        self.recorder.acknowledged()

    def reads(self, group: str, *, in_order: bool = False, commits: bool = True) -> None:
        """A group that must finish everything. If it commits, then nothing before it is finished."""
        self.history.groups[group] = in_order
        self._got[group] = set()
        if commits:
            self._finished[group] = {}

    def delivered(self, group: str, message: ReceivedMessage) -> None:
        """A member begins with a message."""
        body, queue = message.body.decode(), message.queue
        is_retry = queue.topic != self.topic
        self.history.delivered.append(
            Delivered(body, group, queue.queue_id, message.queue_offset, self.recorder.now_s, is_retry)
        )
        self.recorder.totals.delivered += 1

    def finished(self, group: str, message: ReceivedMessage) -> None:
        self._got[group].add(message.body.decode())
        self.settled(group, message)

    def settled(self, group: str, message: ReceivedMessage) -> None:
        """The group may commit it: it is finished, or to come again from elsewhere."""
        if group in self._finished and message.queue.topic == self.topic:
            self._finished[group].setdefault(message.queue.queue_id, set()).add(message.queue_offset)
