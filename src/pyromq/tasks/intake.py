"""The messages that one worker takes from its queues.

It has no more messages than its limit, apart from pops that already wait at a broker. What is taken is held,
and renewed, until it is settled.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from pyromq.client.consumer.reading.offsets import StartFrom
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.reading.subscriptions import Expression
from pyromq.client.consumer.settings import MAX_POPPED_AT_ONCE
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.errors import ConfigError, PyroError
from pyromq.tasks.held import HeldMessages, show
from pyromq.tasks.link import DUE, ETA, TaskLink, number_in

_log = logging.getLogger(__name__)

_WAIT_S = 15.0
_AFTER_FAILURE_S = 1.0
_PURGE_WAIT_S = 0.1
EARLY_MS = 1000
"""A task that comes this much before its time waits here."""

IsWanted = Callable[[PoppedMessage], Awaitable[bool]]


class TakenTask(NamedTuple):
    queue: str
    message: PoppedMessage

    @property
    def key(self) -> int:
        return id(self.message)


class TaskReading(NamedTuple):
    """The queue that a group reads; `group`: None has the name of the topic."""

    group: str | None = None
    expression: Expression = "*"
    start_from: StartFrom = "first"


TASKS = TaskReading()


class Intake:
    """`limit`: how many messages it has, those that are worked on included, unless not `counts_running`.

    `is_wanted` may refuse a message, which is then done; `own` are properties that a copy keeps.
    """

    def __init__(
        self,
        link: TaskLink,
        queues: Iterable[str],
        limit: int,
        *,
        counts_running: bool = True,
        is_wanted: IsWanted | None = None,
        own: Sequence[str] = (),
        reading: TaskReading = TASKS,
    ) -> None:
        if limit < 1:
            raise ConfigError("prefetch", limit, "at least 1")
        self._link = link
        self._queues = list(dict.fromkeys(queues))
        self._limit = limit
        self._counts_running = counts_running
        self._is_wanted = is_wanted
        self._own = own
        self._reading = reading
        self._held = HeldMessages(link.options.invisible_s)
        self._ready: asyncio.Queue[TakenTask | None] = asyncio.Queue()
        self._early: dict[int, asyncio.TimerHandle] = {}
        self._has_room = asyncio.Event()
        self._consumers: dict[str, SimpleConsumer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._is_stopped = False

    def __repr__(self) -> str:
        return f"<Intake {','.join(self._queues)} held={len(self._held)} ready={self._ready.qsize()}>"

    def __len__(self) -> int:
        """The number of messages held: waiting or worked on."""
        return len(self._held)

    @property
    def is_started(self) -> bool:
        return bool(self._tasks)

    async def join(self) -> None:
        """Have the groups begin, before anything is taken."""
        for queue in self._queues:
            await self._consumer(queue)

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._pop(queue), name=f"take {queue}") for queue in self._queues]

    async def next(self, wait_s: float | None = None) -> TakenTask | None:
        """The next task; None when the time is over or the intake has stopped."""
        try:
            async with asyncio.timeout(wait_s):
                taken = await self._ready.get()
        except TimeoutError:
            return None
        if taken is None:
            self._ready.put_nowait(None)  # for others that wait
        self._has_room.set()
        return taken

    def next_at_once(self) -> TakenTask | None:
        return None if self._ready.empty() else self._ready.get_nowait()

    # Settling

    def ack(self, taken: TakenTask) -> None:
        self._held.ack(taken.key)
        self._has_room.set()

    def reject(self, taken: TakenTask, reason: str) -> None:
        """Make it a dead letter of the queue's group."""
        self._held.reject(taken.key, reason)
        self._has_room.set()

    def retry(self, taken: TakenTask, after_s: float) -> None:
        """It is delivered again after a while, to any worker."""
        self._held.show(taken.key, after_s)
        self._has_room.set()

    def give_back(self, taken: TakenTask) -> None:
        """It is delivered again, to any worker; with its priority."""
        held = self._held.take(taken.key)
        if held is not None and taken.message.priority is not None:
            self._held.start(self._send_again(taken.queue, held.consumer, held.message))
        elif held is not None:
            self._held.start(show(*held))
        self._has_room.set()

    # Beginning and end

    async def stop(self) -> None:
        """Take nothing more, and give back messages that were not handed out."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for key, timer in self._early.items():
            timer.cancel()
            self._held.show(key)
        self._early.clear()
        while (taken := self.next_at_once()) is not None:
            self.give_back(taken)
        self._ready.put_nowait(None)

    async def close(self) -> None:
        """Give back everything that is not settled, and leave."""
        await self.stop()
        await self._held.close()
        for consumer in self._consumers.values():
            await consumer.close()

    async def purge(self) -> int:
        """Throw away what waits in the queues; returns the number. For an intake that was not started."""
        count = 0
        for queue in self._queues:
            consumer = await self._consumer(queue)
            while messages := await consumer.receive(MAX_POPPED_AT_ONCE, wait_s=_PURGE_WAIT_S):
                await consumer.ack_many(messages)
                count += len(messages)
        return count

    # Taking

    async def _consumer(self, queue: str) -> SimpleConsumer:
        if queue not in self._consumers:
            topic, options = await self._link.declare(queue), self._link.options
            consumer = SimpleConsumer(
                self._reading.group or topic,
                start_from=self._reading.start_from,
                max_retries=options.max_redeliveries,
                invisible_s=options.invisible_s,
                **self._link.client,
            )
            consumer.subscribe(topic, self._reading.expression)
            try:
                await consumer.start()
            except BaseException:
                await consumer.close()
                raise
            self._consumers[queue] = consumer
        return self._consumers[queue]

    def _room(self) -> int:
        """How many more messages a queue may bring: its part of what is left."""
        here = len(self._held) if self._counts_running else self._ready.qsize() + len(self._early)
        left = self._limit - here
        return min(max(left // len(self._queues), 1), MAX_POPPED_AT_ONCE) if left > 0 else 0

    async def _pop(self, queue: str) -> None:
        is_failing = False
        while True:
            while (room := self._room()) == 0:
                self._has_room.clear()
                await self._has_room.wait()
            try:
                consumer = await self._consumer(queue)
                messages = await consumer.receive(room, wait_s=_WAIT_S)
            except PyroError as problem:
                if not is_failing:
                    _log.warning("cannot take tasks queue=%s: %s", queue, problem)
                is_failing = True
                await asyncio.sleep(_AFTER_FAILURE_S)
                continue
            is_failing = False
            for message in messages:
                self._held.add(id(message), consumer, message)
            for message in messages:
                await self._sort(TakenTask(queue, message), consumer)

    async def _sort(self, taken: TakenTask, consumer: SimpleConsumer) -> None:
        """Hand it out, now or at its time, or send it again."""
        message, now_ms = taken.message, self._link.clock.now_ms()
        try:
            is_wanted = self._is_wanted is None or await self._is_wanted(message)
        except PyroError as problem:
            _log.warning("task comes again, is it wanted? id=%s: %s", message.message_id, problem)
            self._held.show(taken.key)
            return
        if not is_wanted:
            self.ack(taken)
            return
        eta_ms, due_ms = number_in(message, ETA), number_in(message, DUE)
        early_ms = 0 if eta_ms is None else eta_ms - now_ms
        # A message that comes before it is due comes from a broker that knows no times.
        is_untimed = due_ms is not None and now_ms < due_ms - EARLY_MS
        if early_ms <= 0:
            self._ready.put_nowait(taken)
        elif early_ms <= EARLY_MS or is_untimed:
            loop = asyncio.get_running_loop()
            self._early[taken.key] = loop.call_later(early_ms / 1000, self._ripen, taken)
        else:
            self._held.take(taken.key)
            await self._send_again(taken.queue, consumer, message)

    def _ripen(self, taken: TakenTask) -> None:
        self._early.pop(taken.key, None)
        self._ready.put_nowait(taken)

    async def _send_again(self, queue: str, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        """Send a copy first: if that fails, the message itself is delivered again."""
        try:
            await self._link.send_again(queue, message, self._own)
        except PyroError as problem:
            _log.warning("task not sent again, it comes again id=%s: %s", message.message_id, problem)
        else:
            consumer.ack_soon(message)
