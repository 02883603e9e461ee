"""Timers: messages with a time of delivery go into the timer wheel, and from there to their queues.

Time is the log's, which never runs back or leaps with the machine's clock. A replica puts messages into its
wheel, and delivers none. Progress is saved only after the delivered messages are safe on disk.
"""

import asyncio
import logging
from collections.abc import Callable

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.timer_delivery import TimerDelivery
from pyromq.broker.flow.timer_intake import TimerIntake
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import Role
from pyromq.clock import Clock
from pyromq.errors import StoreError
from pyromq.protocol import names
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.requests.upkeep import GetTimerCheckpoint, GetTimerMetrics, TimerMetricsTable
from pyromq.remoting.routing import Caller, handles
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.results import QueueAdvance
from pyromq.store.timers.timer_files import TimerSnapshot

_log = logging.getLogger(__name__)

_MAX_WAIT_S = 1.0
"""The clock may be set while the service waits; it notices after this time at most."""
_CLEAN_INTERVAL_S = 30.0
_MIN_RATE_S = 1.0
_MAX_CHECKPOINT_AGE_S = 60.0
"""A new master reads the log from the checkpoint on, so it does not grow old even if nothing happens."""


class Timers:
    def __init__(
        self, store: MessageStore, appending: Appending, tables: Tables, clock: Clock, slices: Slices
    ) -> None:
        self._store = store
        self._files = store.timers
        self._counts = tables.timer_counts
        self._role = tables.role
        self._clock = clock
        self._slices = slices
        self.delivery = TimerDelivery(store, appending, tables.timer_counts, tables.statistics)
        self.intake = TimerIntake(store, tables.timer_counts, self.delivery.scheduled)
        self._rates = (_Rate(clock), _Rate(clock))
        self._woken = asyncio.Event()
        self._trouble = ""
        self._saved: tuple[int, int] = (self._files.queue_offset, 0)
        """Queue offset and number of deliveries as they were saved last."""
        self._taken: tuple[TimerSnapshot, tuple[int, int], int] | None = None
        """The progress to save, and the end of the log then. All of it must be flushed first: a replica does
        not know where the deliveries are that it has followed."""
        self._next_save = self._next_cleaning = clock.monotonic()
        appending.on_advance(self._advanced, names.TIMER_TOPIC)
        if store.settings.timer_wheel:
            tables.role.on_change(self._role_changed)

    def __repr__(self) -> str:
        return f"<Timers {self._files!r}>"

    async def run(self) -> None:
        if not self._store.settings.timer_wheel:
            return
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            wait_s = self.step()
            await self._save_if_due()
            if wait_s == 0:
                await self._slices.wait_for_turn()
                continue
            # A deadline for each turn would cost more than the work of many turns.
            waking = loop.call_later(min(wait_s, _MAX_WAIT_S), self._woken.set)
            await self._woken.wait()
            waking.cancel()

    def step(self) -> float:
        """Take in and deliver for a slice of time; returns the seconds until there is more to do.

        After a disk error it tries again later; the broker keeps running.
        """
        is_over = self._slices.is_over_for_newcomer()
        try:
            is_all_taken = self.intake.step(is_over)
            wait_ms = self._deliver(is_over)
            self._clean()
        except (StoreError, OSError) as problem:
            self._complain(problem)
            return _MAX_WAIT_S
        for rate, count in zip(self._rates, (self.intake.messages, self.delivery.messages), strict=True):
            rate.sample(count)
        return wait_ms / 1000 if is_all_taken else 0

    def _deliver(self, is_over: Callable[[], bool]) -> int:
        if not self._role.now.is_master or self._store.settings.timer_stop_dequeue:
            return round(_MAX_WAIT_S * 1000)
        return self.delivery.step(is_over)

    def _clean(self) -> None:
        now = self._clock.monotonic()
        if now >= self._next_cleaning:
            self._next_cleaning = now + _CLEAN_INTERVAL_S
            removed = self._files.clean(self._store.statistics().log_start_offset)
            if removed:
                _log.info("timer-log files removed count=%d", removed)

    def wake(self) -> None:
        """Take in and deliver now what there is."""
        self._woken.set()

    def _advanced(self, _: QueueAdvance) -> None:
        self._woken.set()

    def _role_changed(self, role: Role) -> None:
        if role.is_master:
            self.delivery.begin()
        self._woken.set()

    def _complain(self, problem: Exception) -> None:
        if self._trouble != str(problem):
            self._trouble = str(problem)
            _log.error("the files of timed messages could not be written, trying again: %s", problem)

    # Saving

    async def _save_if_due(self) -> None:
        """Save when the interval has passed and the messages are flushed; a thread waits for the disk."""
        taken = self.take_if_due()
        if taken is None:
            return
        try:
            await asyncio.to_thread(self._files.save, taken[0])
        except OSError as problem:
            self._complain(problem)
        else:
            self._saved, self._trouble = taken[1], ""
        self._counts.save()

    def take_if_due(self) -> tuple[TimerSnapshot, tuple[int, int]] | None:
        """The progress to save now: there is something new, and the log has it on disk."""
        now = self._clock.monotonic()
        state = (self._files.queue_offset, self.delivery.messages)
        is_new = state != self._saved or now >= self._next_save + _MAX_CHECKPOINT_AGE_S
        if self._taken is None and is_new and now >= self._next_save:
            self._next_save = now + self._store.settings.timer_flush_interval_ms / 1000
            if self._files.wheel.is_made:
                self._taken = (self._files.take(self._store.time.now_ms()), state, self._store.log.end)
        if self._taken is None or self._store.flushes.offset < self._taken[2]:
            return None
        taken, self._taken = self._taken, None
        return taken[:2]

    def save_now(self) -> None:
        """Flush the log, then save; at the end of a broker."""
        if self._files.wheel.is_made:
            if self._store.flushes.flush_log() >= self._store.log.end:
                self._files.save(self._files.take(self._store.time.now_ms()))
            self._counts.save_now()

    # Telling

    @handles(GetTimerCheckpoint)
    def checkpoint(self, request: GetTimerCheckpoint, caller: Caller) -> BodyAnswer[bytes]:
        return BodyAnswer(body=self._files.checkpoint.encode())

    @handles(GetTimerMetrics)
    def metrics(self, request: GetTimerMetrics, caller: Caller) -> BodyAnswer[TimerMetricsTable]:
        return BodyAnswer(body=self._counts.table())

    @property
    def behind_ms(self) -> int:
        """How late deliveries are: the age of the slot that is being delivered."""
        if not self._store.settings.timer_wheel:
            return 0
        return max(self._store.time.now_ms() - self._files.read_number * self._files.precision_ms, 0)

    def figures(self) -> dict[str, str]:
        """For the runtime information. java: the names"""
        return {
            "timerReadBehind": str(self.behind_ms // 1000),
            "timerOffsetBehind": str(self.intake.behind),
            "timerCongestNum": str(self._files.counts.total),
            "timerEnqueueTps": f"{self._rates[0].per_second:.1f}",
            "timerDequeueTps": f"{self._rates[1].per_second:.1f}",
        }


class _Rate:
    """How fast a count grew in the last second or so."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._at = clock.monotonic()
        self._count = 0
        self.per_second = 0.0

    def sample(self, count: int) -> None:
        passed_s = self._clock.monotonic() - self._at
        if passed_s >= _MIN_RATE_S:
            self.per_second = (count - self._count) / passed_s
            self._at += passed_s
            self._count = count
