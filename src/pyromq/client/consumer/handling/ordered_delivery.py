"""Ordered delivery: messages stand in lines, and each line is handled in its order, one call at a time.

A line has the messages of a queue or, ordered by key, those of one key in a queue. A message that fails holds
up its line until it succeeds, or has failed so often that it is put aside. Messages are handled only with a
valid lock on the queue: while we hold it, no other member handles them. The offset of a queue stays at its
first message that is not done: after a crash, what other lines have done since is delivered again.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import islice, takewhile
from typing import cast

import msgspec

from pyromq.client.consumer.handling.delivery import Delivery, DeliveryParts, pass_on
from pyromq.client.consumer.handling.handlers import Handler, MessageStream
from pyromq.client.consumer.handling.outcomes import Backoff, is_given_up
from pyromq.client.consumer.handling.settling import (
    HeldQueue,
    NoHandler,
    Work,
    log_failure,
    log_late,
    reason_of,
    what_failed,
)
from pyromq.client.values import ReceivedMessage
from pyromq.errors import AskerGone, PyroError
from pyromq.protocol import properties as props

_MAX_FOR_A_THREAD = 32
_RELOCK_PAUSE_S = 3.0
_MIN_PAUSE_S, _MAX_PAUSE_S = 0.01, 30.0
_TURN_S = 0.005


KeyOf = Callable[[ReceivedMessage], Hashable]
"""Messages of a queue with the same key are handled in order; None has no order."""

Limit = Callable[[ReceivedMessage], Awaitable[int | None]]
"""How often a message is tried again; None: for ever."""


class Line(msgspec.Struct, eq=False):
    """Messages that are handled one after another, and the task that does it."""

    held: HeldQueue
    task: "asyncio.Task[None] | None" = None
    waiting: deque[ReceivedMessage] = msgspec.field(default_factory=deque)
    """Those that are not done."""
    problem: Exception | None = None
    """Why the key of its message is not known."""

    @property
    def has_more(self) -> bool:
        return len(self.waiting) > 0 and not self.held.is_closing


class RunningHandler(msgspec.Struct, eq=False):
    """The handler that runs for a line."""

    task: "asyncio.Task[None]"
    handled: list[ReceivedMessage] = []
    """The messages handled so far."""
    since: float | None = None
    """When it was called with the message it has now."""
    thread: threading.Thread | None = None
    is_late: bool = False


def key_of_message(message: ReceivedMessage) -> str | None:
    """The sharding key, else the first key."""
    return message.get(props.SHARDING_KEY) or next(iter(message.keys), None)


async def no_limit(_: ReceivedMessage) -> int | None:
    return None


class OrderedDelivery(Delivery):
    """`put_aside` takes a message that was tried often enough, and why. Before another try a line pauses for
    `suspend_s` or, if there is one, as long as `backoff` says."""

    def __init__(
        self,
        parts: DeliveryParts,
        *,
        put_aside: Callable[[ReceivedMessage, str], Awaitable[None]],
        limit: Limit = no_limit,
        suspend_s: float = 1.0,
        backoff: Backoff | None = None,
        key_of: KeyOf | None = None,
    ) -> None:
        super().__init__(parts)
        self._put_aside = put_aside
        self._free = asyncio.Semaphore(parts.concurrency)
        self._limit = limit
        self._suspend_s = min(max(suspend_s, _MIN_PAUSE_S), _MAX_PAUSE_S)
        self._backoff = backoff
        self._key_of = key_of
        self._lines: dict[Hashable, Line] = {}
        self._is_cut_off = False
        self._running: dict[Line, RunningHandler] = {}

    def __repr__(self) -> str:
        return f"<OrderedDelivery lines={len(self._lines)} running={self.running}>"

    @property
    def running(self) -> int:
        return len(self._running)

    def unfinished(self) -> Iterable[ReceivedMessage]:
        for line, running in list(self._running.items()):
            if not running.is_late:
                yield from self._current(line, running)

    def _current(self, line: Line, running: RunningHandler) -> list[ReceivedMessage]:
        """The messages that the handler of a line has now."""
        done = len(running.handled)
        return list(islice(line.waiting, done, done + self._batch_size))

    @property
    def lost(self) -> int:
        return sum(running.is_late for running in self._running.values())

    def _lost_tasks(self) -> Collection[asyncio.Task[None]]:
        return [running.task for running in self._running.values() if running.is_late]

    def stop_late(self, timeout_s: float) -> int:
        """A cancelled handler has failed. A thread cannot be stopped: its line waits, other lines
        continue."""
        begun_before, late = self._clock.monotonic() - timeout_s, 0
        for line, running in self._running.items():
            if running.is_late or running.since is None or running.since >= begun_before:
                continue
            late += 1
            running.is_late = True
            on_thread = running.thread is not None
            log_late(self._current(line, running), self._group, timeout_s, on_thread=on_thread)
            if running.thread is not None:
                self._threads.lose(running.thread)
                self._free.release()
            else:
                running.task.cancel()
        return late

    def _tasks(self) -> Collection[asyncio.Task[None]]:
        return [line.task for line in self._lines.values() if line.task is not None]

    def deliver(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        if held.is_closing or self._is_stopped:
            return
        if self._key_of is None:
            self._line(held, held).waiting.extend(messages)
            return
        for message in messages:
            key, problem = None, None
            try:
                key = self._key_of(message)
                hash(key)
            except Exception as failure:
                problem = failure  # as if its handler had failed
            line = self._line(held, (held, message if problem is not None or key is None else key))
            line.problem = problem
            line.waiting.append(message)

    def _line(self, held: HeldQueue, key: Hashable) -> Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(held)
            line.task = self._loop.create_task(self._work(line, key))
        return line

    async def _work(self, line: Line, key: Hashable) -> None:
        try:
            await self._go_through(line)
        finally:
            # At once: messages that arrive before the next turn of the loop must start another task.
            del self._lines[key]

    async def _go_through(self, line: Line) -> None:
        held = line.held
        turn_ends = self._clock.monotonic() + _TURN_S
        while line.has_more:
            if not held.is_ours and not await held.make_ours():
                await _pause(held, _RELOCK_PAUSE_S)
                continue
            messages = self._batch(line)
            handler = self._handlers.find(messages[0])
            await self._free.acquire()
            running = RunningHandler(cast("asyncio.Task[None]", asyncio.current_task()))
            try:
                if held.is_closing:
                    return
                if not held.is_ours:
                    continue  # the lock ran out during the wait
                started = self._clock.monotonic()
                trace_id = self._tracing.begin(messages) if self._tracing is not None else ""
                self._running[line] = running
                work = Work(held, running.handled, None, self._stats.of(messages[0].topic).total, started)
                try:
                    problem = await self._handle(line, handler, messages, running)
                except asyncio.CancelledError:
                    work.messages = list(running.handled)  # the thread may continue
                    self._settling.done(work, self._clock.monotonic())
                    raise
                finally:
                    del self._running[line]
            finally:
                if not (running.is_late and running.thread is not None):  # else another has its place
                    self._free.release()
            if held.is_dropped:
                return
            now = self._clock.monotonic()
            await self._settling.finish(work, now)
            for _ in running.handled:
                line.waiting.popleft()
            if self._tracing is not None:
                self._tracing.end(trace_id, messages, problem, now - started)
            if problem is not None:
                work.counts.failed += not isinstance(problem, AskerGone)
                await self._failed(line, problem, len(messages))
            if now > turn_ends:
                await asyncio.sleep(0)
                turn_ends = self._clock.monotonic() + _TURN_S

    def _batch(self, line: Line) -> list[ReceivedMessage]:
        """The messages of the next call."""
        messages = list(islice(line.waiting, self._batch_size))
        if len(messages) == 1:
            return messages
        handler = self._handlers.find(messages[0])
        return list(takewhile(lambda message: self._is_for(message, messages[0].topic, handler), messages))

    def _is_for(self, message: ReceivedMessage, topic: str, handler: Handler | MessageStream | None) -> bool:
        return message.topic == topic and self._handlers.find(message) is handler

    async def _handle(
        self,
        line: Line,
        handler: Handler | MessageStream | None,
        messages: list[ReceivedMessage],
        running: "RunningHandler",
    ) -> BaseException | None:
        """Adds the messages that were handled to `running`; returns the error of the next one."""
        held = line.held
        try:
            if line.problem is not None:
                return line.problem
            if isinstance(handler, MessageStream):
                if await handler.handle(messages[0], lambda: held.is_ours):
                    running.handled += messages[:1]
                return None
            if handler is None:
                return NoHandler.of(messages[0])
        except Exception as problem:
            return problem
        if handler.is_async:
            return await self._awaited(handler, messages, running)
        run: Callable[[], BaseException | None]
        if self._batch_size == 1:
            # Traces are about single messages.
            messages = list(islice(line.waiting, _MAX_FOR_A_THREAD if self._tracing is None else 1))
            run = partial(self._one_by_one, held, handler, messages, running)
        else:
            run = partial(self._all_at_once, handler, messages, running)
        try:
            ended = self._loop.run_in_executor(self._threads, run)
        except RuntimeError:  # the threads are gone, as at exit: unfinished messages are delivered again
            self.halt()
            return None
        return await ended

    async def _awaited(
        self, handler: Handler, messages: list[ReceivedMessage], running: "RunningHandler"
    ) -> BaseException | None:
        problem: BaseException | None = None
        running.since = self._clock.monotonic()
        try:
            await handler.run(messages)
            running.handled += messages
        except BaseException as failure:
            problem = failure
        running.since = None
        if running.is_late and not running.task.uncancel() and isinstance(problem, asyncio.CancelledError):
            return TimeoutError("the handler took longer than handler_timeout_s")
        if problem is not None and not isinstance(problem, Exception):
            pass_on(problem, self._loop)
        return problem

    def _one_by_one(
        self,
        held: HeldQueue,
        handler: Handler,
        messages: list[ReceivedMessage],
        running: "RunningHandler",
    ) -> BaseException | None:
        """Runs on a thread: handles messages until one fails or the queue is closing."""
        topic, monotonic = messages[0].topic, self._clock.monotonic
        running.thread = threading.current_thread()
        for message in messages:
            if running.is_late:
                return None
            may_go_on = not held.is_closing and not self._is_stopped and held.is_ours
            if not may_go_on or not self._is_for(message, topic, handler):
                return None
            running.since = monotonic()
            try:
                handler.run_plain([message], self._loop)
            except BaseException as problem:  # sys.exit() on a thread is only a failed handler
                return problem
            finally:
                running.since = None
            running.handled.append(message)
        return None

    def _all_at_once(
        self, handler: Handler, messages: list[ReceivedMessage], running: "RunningHandler"
    ) -> BaseException | None:
        running.thread, running.since = threading.current_thread(), self._clock.monotonic()
        try:
            handler.run_plain(messages, self._loop)
        except BaseException as problem:
            return problem
        running.handled += messages
        return None

    async def _failed(self, line: Line, problem: BaseException, count: int) -> None:
        """Put messages aside that were tried often enough; else wait before the line is tried again.

        The handler had `count` messages: those that came meanwhile are not among the failed.
        """
        held = line.held
        if not held.is_ours:
            return  # whoever has the queue now decides
        messages = self._batch(line)[:count]
        problem, failed = what_failed(problem, messages)
        log_failure(problem, failed)
        if isinstance(problem, AskerGone):
            failed = []
        delay = self._settling.delay_after(problem)
        may_go_on, pause_s = True, self._suspend_s
        for message in messages:
            if message not in failed:
                if may_go_on:  # else it is handled again, after the one that failed
                    await self._settling.end(held, message)
                    line.waiting.remove(message)
                continue
            times = message.reconsume_times
            limit = await self._limit(message)
            if is_given_up(delay) or (limit is not None and times >= limit):
                try:
                    await self._put_aside(message, reason_of(problem))
                except PyroError as trouble:
                    self._settling.troubles.of_broker(
                        message.queue, trouble, "message not put aside yet id=%s", message.message_id
                    )
                else:
                    self._settling.troubles.broker_answered(message.queue)
                    held.done(message)
                    line.waiting.remove(message)
                    continue
            if self._backoff is not None:
                pause_s = self._backoff.after(times).total_seconds()
            message.stored.reconsume_times = times + 1
            may_go_on = False
        if not may_go_on:
            await _pause(held, delay.total_seconds() if isinstance(delay, timedelta) else pause_s)

    async def close(self, held: HeldQueue) -> None:
        held.close()
        tasks = [line.task for line in self._lines.values() if line.held is held and line.task is not None]
        if tasks and not self._is_cut_off:
            await asyncio.wait(tasks)

    async def stop(self, grace_s: float) -> None:
        await super().stop(grace_s)
        self._is_cut_off = True

    def halt(self) -> None:
        self._is_stopped = True
        for line in self._lines.values():
            line.held.close()


async def _pause(held: HeldQueue, seconds: float) -> None:
    """Wait, but stop when the queue is closing."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await held.wait_until_closing()
