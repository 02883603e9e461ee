"""Reads one queue: pulls while the thresholds allow, delivers, and moves to another offset on request."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.in_flight import InFlight, Thresholds
from pyromq.client.consumer.reading.pop_starts import PopStarts
from pyromq.client.consumer.reading.quick_pulls import Pulled
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.troubles import Troubles
from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S, _MAX_PAUSE_S = 0.05, 1.0
_BROKER_IS_BUSY_S = 0.02
_UNLOCKED_PAUSE_S = 0.1
_AT_ONCE_S, _FREE_CIRCLES = 0.1, 3

_NOT_KNOWN_THERE = frozenset(
    (
        ResponseCode.SUBSCRIPTION_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        ResponseCode.FILTER_DATA_NOT_EXIST,
        ResponseCode.FILTER_DATA_NOT_LATEST,
    )
)
"""Refusals that an introduction cures: the server does not know this consumer, its latest subscription, or
its filter."""


class ReaderOwner(Protocol):
    """The part of a consumer that assigned the queue to a reader."""

    async def moved(self, reader: "QueueReader", offset: int) -> None:
        """The requested offset is not in the queue: continue at this one."""

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock the queue again; returns whether its messages may be handled now."""
        ...


@dataclass(frozen=True, kw_only=True)
class Source:
    """How a consumer reads its queues: it pulls each of them.

    `thresholds` are those of each of that many queues. `commits`: pulls carry the offset up to which all is
    done. `needs_lock`: a queue is pulled only while it is locked for us. `reads_retries`: the group's retry
    topic is subscribed to, as soon as any topic is. `starts`: brokers divide the queues, and know where the
    group is once it was placed; `by_queue`: each queue by itself.
    """

    thresholds: Callable[[int], Thresholds]
    interval_s: float = 0.0
    commits: bool = False
    needs_lock: bool = False
    reads_retries: bool = False
    starts: PopStarts | None = None
    by_queue: bool = False

    def open(
        self, queue: MessageQueue, offset: int, owner: ReaderOwner, reading: "ReadingContext"
    ) -> "QueueReader":
        return QueueReader(queue, offset, owner, reading)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingContext:
    """The parts that all readers of one consumer share.

    `deliver` gets the messages of a pull. `introduce` sends a heartbeat,
    and the filters for filter servers.
    """

    subscriptions: Mapping[str, Subscription]
    source: Source
    fetching: Fetching
    deliver: Callable[["QueueReader", list[ReceivedMessage]], None]
    introduce: Callable[[], Awaitable[None]]
    stats: ConsumerStats
    clock: Clock
    troubles: Troubles = field(default_factory=partial(Troubles, _log))


class QueueReader:
    def __init__(self, queue: MessageQueue, offset: int, owner: ReaderOwner, reading: ReadingContext) -> None:
        self.queue = queue
        self.subscription = reading.subscriptions[queue.topic]
        relock = partial(owner.lock, queue) if reading.source.needs_lock else None
        self.held: InFlight[ReceivedMessage] = InFlight(
            queue, offset, reading.source.thresholds(1), reading.clock, relock
        )
        self.stored_offset: int | None = None
        """The offset that was last stored."""
        self.confirmed_offset: int | None = None
        """The offset up to which the application confirmed its messages, if it does that."""
        self.min_offset = 0
        self.max_offset = 0
        self._owner = owner
        self._reading = reading
        self._clock = reading.clock
        self.is_paused = False
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        self._circles = 0
        self._pull_s = 0.0
        self.pulled_at: float | None = None
        """When a broker last answered."""
        self._broker_id = MASTER_ID

    def __repr__(self) -> str:
        state = "paused " if self.is_paused else ""
        return f"<QueueReader {state}{self.held!r} failures={self._failures}>"

    @property
    def is_failing(self) -> bool:
        """Whether the last pull failed."""
        return self._failures > 0

    @property
    def lag(self) -> int:
        """The number of messages that are not done."""
        return max(0, self.max_offset - self.held.committable)

    def pause(self) -> None:
        self.is_paused = True
        self._resumed.clear()

    def resume(self) -> None:
        self.is_paused = False
        self._resumed.set()

    @property
    def has_died(self) -> bool:
        """The task ended by a bug: the queue must be opened again."""
        return self._task is not None and self._task.done()

    def start(self) -> None:
        self._task = asyncio.create_task(self._read(), name=f"read {self.queue}")
        self._task.add_done_callback(_log_death)

    async def stop(self) -> None:
        """Stop pulling; held messages stay."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()
            await asyncio.wait([task])

    def begin_at(self, offset: int) -> None:
        """Forget held messages and continue at this offset with the next pull."""
        former = self.held
        former.drop()
        self.confirmed_offset = None
        self.held = InFlight(self.queue, offset, former.thresholds, self._clock, former.relock)
        self.held.lock_as(former)

    async def _read(self) -> None:
        deliver, interval_s = self._reading.deliver, self._reading.source.interval_s
        while True:
            if self.is_paused:
                await self._resumed.wait()
            held = self.held
            if not held.has_room:
                await held.wait_for_room()
            if not held.may_be_pulled:
                await asyncio.sleep(_UNLOCKED_PAUSE_S)
                continue
            try:
                pulled = await self._pull(held)
            except PyroError as problem:
                await self._pause_after(problem)
                continue
            if self._failures:
                self._failures = 0
                self._reading.troubles.broker_answered(self.queue)
            if self.is_paused or self.held is not held:
                continue  # these messages are pulled again later
            if pulled.is_moved:
                await self._pause_in_a_circle()
                _log.warning(
                    "offset is not in the queue queue=%s offset=%d min=%d max=%d, continuing at %d",
                    self.queue,
                    held.next_offset,
                    pulled.min_offset,
                    pulled.max_offset,
                    pulled.next_offset,
                )
                await self._owner.moved(self, pulled.next_offset)
                continue
            if pulled.next_offset != held.next_offset:
                self._circles = 0
            else:
                await self._pause_in_a_circle()
            held.put(pulled.messages, pulled.next_offset)
            if pulled.messages:
                deliver(self, pulled.messages)
                if interval_s:
                    await asyncio.sleep(interval_s)

    async def _pull(self, held: InFlight[ReceivedMessage]) -> Pulled:
        reading, started = self._reading, self._clock.monotonic()
        pulled = await reading.fetching.pull(
            self.queue,
            self.subscription,
            held.next_offset,
            held.committable if reading.source.commits and held.is_ours else 0,
            self._broker_id,
        )
        self._broker_id = pulled.next_broker_id
        self.min_offset, self.max_offset = pulled.min_offset, pulled.max_offset
        total = reading.stats.of(self.subscription.topic).total
        total.pulls += 1
        self.pulled_at = self._clock.monotonic()
        self._pull_s = self.pulled_at - started
        total.pull_ms += self._pull_s * 1000
        total.pulled += len(pulled.messages)
        return pulled

    async def _pause_in_a_circle(self) -> None:
        """Slow down if a broker keeps answering at once without progress."""
        self._circles = self._circles + 1 if self._pull_s < _AT_ONCE_S else 0
        if self._circles > _FREE_CIRCLES:
            await asyncio.sleep(self._pause_s(self._circles - _FREE_CIRCLES - 1))

    @staticmethod
    def _pause_s(turns: int) -> float:
        return min(_FIRST_PAUSE_S * 2.0 ** min(turns, 10), _MAX_PAUSE_S)

    async def _pause_after(self, problem: PyroError) -> None:
        self._broker_id = MASTER_ID
        if isinstance(problem, TransportError):
            # A broker that crashed may have lost the last committed offset.
            self.stored_offset = None
        code = problem.code if isinstance(problem, Refused) else None
        if code == ResponseCode.FLOW_CONTROL:
            await asyncio.sleep(_BROKER_IS_BUSY_S)
            return
        pause_s = self._pause_s(self._failures)
        self._failures += 1
        if code not in _NOT_KNOWN_THERE:
            self._reading.troubles.of_broker(self.queue, problem, "pull failed queue=%s", self.queue)
        else:
            _log.info("pull failed queue=%s, retry in %.2f s: %s", self.queue, pause_s, problem)
            await self._reading.introduce()
        await asyncio.sleep(pause_s)


def _log_death(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and task.exception() is not None:
        _log.error("queue reader failed task=%s", task.get_name(), exc_info=task.exception())
