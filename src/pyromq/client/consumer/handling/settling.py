"""Settles messages after their handler: done, given back, or kept if no broker accepts them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol

import msgspec

from pyromq.client.application_log import application_log
from pyromq.client.consumer.handling.handlers import Handler, MessageStream
from pyromq.client.consumer.handling.outcomes import (
    BROKER_DECIDES,
    TO_DEAD_LETTERS,
    Backoff,
    Delay,
    RetryLater,
)
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.troubles import Troubles
from pyromq.client.values import ReceivedMessage
from pyromq.errors import AskerGone, BadBody, PyroError, StateError

_log = logging.getLogger(__name__)

HeldQueue = InFlight[ReceivedMessage]

_LOCAL_RETRY_S = 5.0
FOLD_S = 60.0
_MAX_PLACES = 1000


class GiveBack(Protocol):
    async def __call__(self, message: ReceivedMessage, delay: Delay, reason: str) -> None: ...


Acknowledge = Callable[[ReceivedMessage], Awaitable[None]]
"""Returns when the broker knows that a message is done, or when reporting it no longer makes sense."""


class TellIfDead(Protocol):
    async def __call__(self, message: ReceivedMessage, delay: Delay, reason: str) -> None: ...


class NoHandler(PyroError):
    """A message arrived whose topic, or tag, has no handler any more."""

    @classmethod
    def of(cls, message: ReceivedMessage) -> "NoHandler":
        return cls(f"the topic {message.topic} has no handler for the tag {message.tags!r}")


class Work(msgspec.Struct, eq=False):
    """Messages of one queue for one call of a handler, or for several that ended together."""

    held: HeldQueue
    messages: list[ReceivedMessage]
    handler: Handler | MessageStream | None
    counts: Counts
    started: float = 0.0
    ended: float = 0.0
    trace_id: str = ""
    is_settled: bool = False
    calls: int = 1


class Settling:
    """`give_back` is None for broadcasting consumers, which have no retries. `tell_if_dead` hears of every
    message that a broker took back. `acknowledge` is for messages that brokers want acknowledged one by one.
    """

    def __init__(
        self,
        give_back: GiveBack | None,
        tell_if_dead: TellIfDead | None = None,
        acknowledge: Acknowledge | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        self._give_back = give_back
        self._backoff = backoff
        self._acknowledge = acknowledge
        self._tell_if_dead = tell_if_dead
        self.troubles = Troubles(_log)
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Settling unfinished={len(self._tasks)}>"

    def done(self, work: Work, now: float) -> None:
        held = work.held
        if self._acknowledge is None:
            held.done_all(work.messages)
        else:
            for message in work.messages:
                self.succeeded(held, message)
        self._count(work, now)

    async def finish(self, work: Work, now: float) -> None:
        """The same; returns when brokers know it."""
        if self._acknowledge is None:
            self.done(work, now)
            return
        self._count(work, now)
        await asyncio.gather(*(self.end(work.held, each) for each in work.messages))

    def _count(self, work: Work, now: float) -> None:
        held, counts = work.held, work.counts
        held.last_done = now
        counts.handled += work.calls
        counts.handle_ms += (now - work.started) * 1000
        counts.succeeded += len(work.messages)

    @property
    def settles_at_once(self) -> bool:
        """Whether messages need not be acknowledged one by one."""
        return self._acknowledge is None

    def failed(self, work: Work, problem: BaseException, now: float) -> None:
        """Give back the failed messages; the rest of a batch is done."""
        if isinstance(problem, AskerGone):
            log_failure(problem, work.messages)
            self.done(work, now)
            return
        problem, failed = what_failed(problem, work.messages)
        log_failure(problem, failed)
        delay = self.delay_after(problem)
        work.held.last_done = now
        counts = work.counts
        counts.handled += 1
        counts.handle_ms += (now - work.started) * 1000
        again = set(failed)
        for message in work.messages:
            if message in again:
                counts.failed += 1
                self.give_back(work.held, message, delay, reason_of(problem))
            else:
                counts.succeeded += 1
                self.succeeded(work.held, message)

    def give_back(self, held: HeldQueue, message: ReceivedMessage, delay: Delay, reason: str) -> None:
        if self._give_back is None:
            held.done(message)
            return
        if delay == BROKER_DECIDES and self._backoff is not None:
            delay = self._backoff.after(message.reconsume_times)
        self._begin(self._return(self._give_back, held, message, delay, reason))

    @staticmethod
    def delay_after(problem: BaseException) -> Delay:
        if isinstance(problem, BadBody):
            return TO_DEAD_LETTERS  # it would fail again
        return problem.wanted if isinstance(problem, RetryLater) else BROKER_DECIDES

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def succeeded(self, held: HeldQueue, message: ReceivedMessage) -> None:
        if self._acknowledge is None:
            held.done(message)
        else:
            self._begin(self.end(held, message))

    async def end(self, held: HeldQueue, message: ReceivedMessage) -> None:
        """A message is done; returns when its broker knows it, if it must."""
        if self._acknowledge is not None:
            await self._acknowledge(message)
        held.done(message)

    async def _return(
        self, give_back: GiveBack, held: HeldQueue, message: ReceivedMessage, delay: Delay, reason: str
    ) -> None:
        while not held.is_dropped:
            try:
                await give_back(message, delay, reason)
            except PyroError as problem:
                # The offset is not committed past the message until a broker has it, so nothing is lost.
                self.troubles.of_broker(
                    message.queue, problem, "message not given back yet id=%s", message.message_id
                )
                try:
                    async with asyncio.timeout(_LOCAL_RETRY_S):
                        await self._ending.wait()
                    return
                except TimeoutError:
                    continue
            self.troubles.broker_answered(message.queue)
            held.done(message)
            if self._tell_if_dead is not None:
                await self._tell_if_dead(message, delay, reason)
            return

    async def stop(self) -> None:
        """Wait for messages that are being given back; one that no broker takes is not tried again."""
        self._ending.set()
        if self._tasks:
            await asyncio.wait(set(self._tasks))


def what_failed(
    problem: BaseException, messages: list[ReceivedMessage]
) -> tuple[BaseException, list[ReceivedMessage]]:
    """The messages that a handler failed with, and why: all of them, unless it named some."""
    if not isinstance(problem, RetryLater) or problem.only is None:
        return problem, messages
    # Not by identity: a process pool returns copies.
    named = set(map(_identity, problem.only))
    failed = [message for message in messages if _identity(message) in named]
    if len(failed) < len(named):
        wrong = StateError(f"{type(problem).__name__}(only=…) names a message that is not in the batch")
        wrong.__cause__ = problem
        return wrong, messages
    return problem, failed


def _identity(message: object) -> object:
    if isinstance(message, ReceivedMessage):
        return message.queue, message.queue_offset, message.message_id
    return id(message)


def log_failure(problem: BaseException, messages: list[ReceivedMessage]) -> None:
    first = messages[0]
    if isinstance(problem, AskerGone):
        application_log.info("request done topic=%s id=%s: %s", first.topic, first.message_id, problem)
    elif isinstance(problem, RetryLater):
        asked = "gave up" if problem.delay_level < 0 else "asked for a retry"
        application_log.info("handler %s topic=%s id=%s: %s", asked, first.topic, first.message_id, problem)
    else:
        is_new, others = _folded.note(problem)
        application_log.warning(
            "handler failed topic=%s id=%s messages=%d%s%s",
            first.topic,
            first.message_id,
            len(messages),
            "" if is_new else f": {problem!r}, as before",
            f"; {others} like it since its last traceback" if is_new and others else "",
            exc_info=problem if is_new else None,
        )


class Folded:
    """A failure at the same place has a traceback once in a minute; the others are one line each."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._shown: dict[tuple[object, ...], tuple[float, int]] = {}

    def note(self, problem: BaseException) -> tuple[bool, int]:
        """Whether it is to be shown in full, and how many were not since the last one was."""
        trace = problem.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        key = type(problem), trace and (trace.tb_frame.f_code, trace.tb_lineno)
        now = self._monotonic()
        shown_at, others = self._shown.get(key, (-FOLD_S, 0))
        if now - shown_at < FOLD_S:
            self._shown[key] = shown_at, others + 1
            return False, 0
        if len(self._shown) >= _MAX_PLACES:
            self._shown.clear()
        self._shown[key] = now, 0
        return True, others


_folded = Folded()


def log_late(messages: list[ReceivedMessage], group: str, timeout_s: float, *, on_thread: bool) -> None:
    """A handler that ignores its time is loud: it holds on to what it uses, perhaps for ever."""
    what = "its thread is lost, another one takes its place" if on_thread else "it was cancelled"
    for message in messages:
        application_log.log(
            logging.ERROR if on_thread else logging.WARNING,
            "handler ran for over %g s, %s topic=%s group=%s queue=%s offset=%d id=%s",
            timeout_s,
            what,
            message.topic,
            group,
            message.queue,
            message.queue_offset,
            message.message_id,
        )


def log_cut_off(messages: Iterable[ReceivedMessage]) -> None:
    for message in messages:
        application_log.warning(
            "handler cut off by the stop, its message comes again topic=%s id=%s queue=%s offset=%d",
            message.topic,
            message.message_id,
            message.queue,
            message.queue_offset,
        )


def reason_of(problem: BaseException) -> str:
    """For a line of the log, which shows no traceback."""
    return str(problem) if isinstance(problem, RetryLater) else repr(problem)
