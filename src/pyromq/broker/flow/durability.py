"""Durability of messages: when a sender gets its answer, and up to where consumers may read.

The log has two watermarks: up to the first it is flushed to this broker's disk, up to the second it is copied
to enough replicas. The settings decide which of them a sender waits for. Consumers do not see a message while
its sender still waits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar

from pyromq.broker.flow.message_properties import is_true
from pyromq.clock import Clock
from pyromq.errors import Refused
from pyromq.protocol import properties as props
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.properties import get_property
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

T = TypeVar("T")
Settle = Callable[[AppendStatus], None]

_CONFIRMED_S: Final = 2.0
"""So long a question waits at a new master; clients wait three seconds and more."""


class Durability:
    """`on_progress` listeners are called when more of the log may be readable."""

    def __init__(self, store: MessageStore, clock: Clock, *, replica_timeout_ms: int = 5_000) -> None:
        self._store = store
        self._is_sync_flush = store.settings.flush_policy.is_sync
        self.is_immediate = not self._is_sync_flush
        """Whether senders are answered as soon as their message is in the log."""
        self._replicated = _Replicated(clock, replica_timeout_ms / 1000)
        self.is_readable = True
        """Whether everything in the queues is confirmed. Then nothing else gets there until this broker is
        made master."""
        self._confirmed = asyncio.Event()
        self._is_flush_due = False
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[], None]] = []
        store.flushes.on_progress(self._flush_progressed)

    def __repr__(self) -> str:
        return f"<Durability flushed={self._store.flushes.offset} replicated={self.replicated_offset}>"

    @property
    def replicated_offset(self) -> int | None:
        """Enough replicas have the log before it; None if senders do not wait for replicas."""
        return self._replicated.offset

    @property
    def readable_offset(self) -> int:
        """Consumers see the log up to here."""
        limit = self._store.dispatch_limit
        if self._replicated.offset is None:
            return limit
        waited_for = self._replicated.readable_offset
        return limit if waited_for is None else min(limit, waited_for)

    def keeps(self, log_end: int) -> bool:
        """Whether the log before an offset survives a crash, and the next master has it."""
        return min(self._store.flushes.offset, self.readable_offset) >= log_end

    def on_progress(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def replicated(self, offset: int | None, *, is_reachable: bool = True) -> None:
        """Enough replicas have the log up to `offset`. From the first call on senders wait for replicas; None
        ends that and answers the waiting senders.

        Unless enough replicas are reachable, new messages do not wait: their senders get an error at once.
        """
        if offset is not None and offset >= self._store.queues.dispatched_offset:
            self.is_readable = True
            self._confirmed.set()
        self._replicated.move(offset, is_reachable)
        self.is_immediate = not self._is_sync_flush and offset is None
        self._tell()

    def hide_unconfirmed(self) -> None:
        """From now on readers see only what replicas have, even if its sender does not wait any more. What is
        in the queues of a broker that starts or becomes master may still be cut off: they see none of it
        until all of it is confirmed."""
        self._replicated.shows_given_up = False
        self.is_readable = not self._store.queues.dispatched_offset
        self._confirmed.clear()

    def when_readable(self, answer: Callable[[], T]) -> "T | asyncio.Future[T]":
        """The result of `answer`, called when everything in the queues is confirmed. The future raises
        Refused if that takes long."""
        return answer() if self.is_readable else self._loop.create_task(self._answer_when_readable(answer))

    async def _answer_when_readable(self, answer: Callable[[], T]) -> T:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONFIRMED_S):
                while not self.is_readable:
                    await self._confirmed.wait()
        if not self.is_readable:
            raise Refused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "the brokers in sync have not confirmed all messages of this broker yet: try again",
            )
        return answer()

    def give_up(self) -> None:
        """This broker is no longer the master. The messages of waiting senders may or may not stay in the
        log, so their sends time out."""
        self._store.flushes.fail_waiters()
        self._replicated.give_up()

    async def drained(self, timeout_s: float) -> None:
        """Return when no sender waits for replicas, at the latest after the time-out."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._replicated.drained()

    def is_safe_enough(self, result: AppendResult, properties: str | bytes) -> bool:
        """Whether the sender can be answered now."""
        if self.is_immediate or not result.is_ok:
            return True
        return get_property(properties, props.WAIT) is not None and not is_true(properties, props.WAIT)

    def when_safe(self, result: AppendResult, settle: Settle) -> None:
        """Call `settle` with PUT_OK once an append is as safe as the settings demand, or with the time-out's
        status."""
        if not self._is_sync_flush:
            self._replicated.wait(result.end_offset, settle)
            return

        def flushed(status: AppendStatus) -> None:
            if status is AppendStatus.PUT_OK:
                self._replicated.wait(result.end_offset, settle)
            else:
                settle(status)

        self._store.flushes.when_flushed(result, settle if self._replicated.offset is None else flushed)
        if not self._is_flush_due:
            # At the end of the turn: until then the flusher's thread would only compete for the interpreter.
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def when_all_safe(self, results: Sequence[AppendResult], settle: Settle) -> None:
        """Call `settle` once all appends are safe (PUT_OK), or once the time of one is up (its status)."""
        unsafe, worst = len(results), AppendStatus.PUT_OK

        def settled(status: AppendStatus) -> None:
            nonlocal unsafe, worst
            unsafe -= 1
            if status is not AppendStatus.PUT_OK:
                worst = status
            if not unsafe:
                settle(worst)

        for result in results:
            self.when_safe(result, settled)

    def expire(self) -> None:
        """Answer senders that have waited too long for replicas; called regularly."""
        if self._replicated.expire():
            self._tell()

    def _flush(self) -> None:
        self._is_flush_due = False
        self._store.flushes.request()

    def _flush_progressed(self) -> None:
        """Called on the flusher's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            # The loop has ended: no sender waits any more.
            return

    def _settle(self) -> None:
        self._store.flushes.settle()
        if self._is_sync_flush:
            self._tell()

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()


class _Replicated:
    """The second watermark, and the senders that wait for it, in log order."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.offset: int | None = None
        self.shows_given_up = True
        self._is_reachable = True
        self._given_up = 0
        """Senders of messages before this log offset do not wait any more, replicated or not."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._waiting: deque[tuple[int, float, Settle]] = deque()
        self._drained: list[asyncio.Future[None]] = []

    @property
    def readable_offset(self) -> int | None:
        """No sender waits for messages before it; None if no sender waits at all."""
        if self.offset is None or (not self._is_reachable and not self._waiting):
            return None
        return max(self.offset, self._given_up) if self.shows_given_up else self.offset

    def wait(self, end_offset: int, settle: Settle) -> None:
        if self.offset is None or end_offset <= self.offset:
            settle(AppendStatus.PUT_OK)
        elif not self._is_reachable:
            self._given_up = max(self._given_up, end_offset)
            settle(AppendStatus.SLAVE_NOT_AVAILABLE)
        else:
            self._waiting.append((end_offset, self._clock.monotonic() + self._timeout_s, settle))

    def move(self, offset: int | None, is_reachable: bool) -> None:
        self.offset = offset
        self._is_reachable = is_reachable
        while self._waiting and (offset is None or self._waiting[0][0] <= offset):
            self._waiting.popleft()[2](AppendStatus.PUT_OK)
        self._tell_drained()

    def give_up(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, _, settle in waiting:
            settle(AppendStatus.FLUSH_SLAVE_TIMEOUT)
        self._tell_drained()

    async def drained(self) -> None:
        if self._waiting:
            drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._drained.append(drained)
            await drained

    def _tell_drained(self) -> None:
        while self._drained and not self._waiting:
            drained = self._drained.pop()
            if not drained.done():
                drained.set_result(None)

    def expire(self) -> bool:
        """Whether there were any."""
        now = self._clock.monotonic()
        waiting = len(self._waiting)
        while self._waiting and self._waiting[0][1] <= now:
            end_offset, _, settle = self._waiting.popleft()
            self._given_up = max(self._given_up, end_offset)
            settle(AppendStatus.FLUSH_SLAVE_TIMEOUT)
        self._tell_drained()
        return len(self._waiting) < waiting
