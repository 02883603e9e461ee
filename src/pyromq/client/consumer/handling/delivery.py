"""The parts that concurrent and ordered delivery share."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass

from pyromq.client.application_threads import ApplicationThreads
from pyromq.client.consumer.handling.handlers import Handlers
from pyromq.client.consumer.handling.settling import HeldQueue, Settling, log_cut_off
from pyromq.client.consumer.handling.tracing import ConsumeTracing
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.values import ReceivedMessage
from pyromq.clock import Clock

_CLEAN_UP_S = 1.0
"""How long an async handler that was cut off may clean up."""


@dataclass(frozen=True, slots=True)
class DeliveryParts:
    """The tools of a delivery: at most `concurrency` handlers at a time, plain functions on `threads`."""

    handlers: Handlers
    settling: Settling
    threads: ApplicationThreads
    stats: ConsumerStats
    clock: Clock
    concurrency: int
    group: str = ""
    batch_size: int = 1
    batch_wait_s: float = 0.0
    brake_after: int | None = None
    tracing: ConsumeTracing | None = None


class Delivery(ABC):
    """Has messages handled, and settles them."""

    def __init__(self, parts: DeliveryParts) -> None:
        self._handlers = parts.handlers
        self._settling = parts.settling
        self._stats = parts.stats
        self._tracing = parts.tracing
        self._threads = parts.threads
        self._clock = parts.clock
        self._group = parts.group
        self._batch_size = parts.batch_size
        self._loop = asyncio.get_running_loop()
        self._is_stopped = False

    @property
    @abstractmethod
    def running(self) -> int:
        """The number of running handlers."""

    @property
    @abstractmethod
    def lost(self) -> int:
        """The number of handlers that run although their time is up; others run in their place."""

    @abstractmethod
    def stop_late(self, timeout_s: float) -> int:
        """End the handlers that run for longer than this, or replace their threads; returns how many."""

    @abstractmethod
    def deliver(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Have these handled; returns at once."""

    @abstractmethod
    async def close(self, held: HeldQueue) -> None:
        """Start no more messages of this queue; return when its offset may be committed."""

    @abstractmethod
    def halt(self) -> None:
        """Start no more messages at all."""

    @abstractmethod
    def _tasks(self) -> Collection[asyncio.Task[None]]:
        """The tasks that run handlers."""

    @abstractmethod
    def _lost_tasks(self) -> Collection[asyncio.Task[None]]:
        """Those of the tasks whose handler is lost: a stop does not wait for them."""

    @abstractmethod
    def unfinished(self) -> Iterable[ReceivedMessage]:
        """The messages whose handler is running. May be called on another thread at exit."""

    def is_done_by(self, task: Hashable) -> bool:
        """Whether this task runs handlers."""
        return task in self._tasks()

    def begin_no_more(self) -> None:
        """Threads begin no other message. May be called on any thread."""
        self._is_stopped = True

    async def stop(self, grace_s: float) -> None:
        """Halt, and wait up to `grace_s` for running handlers."""
        self.halt()
        if tasks := set(self._tasks()):
            lost = set(self._lost_tasks())
            if awaited := tasks - lost:
                await asyncio.wait(awaited, timeout=grace_s)
            unfinished = {task for task in tasks if not task.done()}
            log_cut_off(self.unfinished())
            for task in unfinished:
                task.cancel()
            if unfinished:
                await asyncio.wait(unfinished, timeout=_CLEAN_UP_S)
        await self._settling.stop()


def pass_on(problem: BaseException, loop: asyncio.AbstractEventLoop) -> None:
    """An async handler raised what is not a failure: a cancellation of our task, or an exit, takes effect."""
    if not isinstance(problem, asyncio.CancelledError):
        loop.call_soon(_raise, problem)
    elif (task := asyncio.current_task()) is not None and task.cancelling():
        raise problem


def _raise(problem: BaseException) -> None:
    raise problem
