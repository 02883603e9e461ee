"""Delays: messages of a delay level are delivered to their own queues when they are due.

Time is measured on the log's clock, which never runs back or leaps with the machine's clock. All messages of
a level wait equally long, so the messages of a queue become due in order, and only the first one is watched.
Progress is saved only after the delivered messages are on disk and confirmed: a crash, or a new master that
has less of the log, may deliver a message twice, but loses none.
"""

import asyncio
import logging
from contextlib import suppress
from math import inf

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.parking import unpark
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.role import Role
from pyromq.clock import Clock
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import names
from pyromq.protocol.record import decode_record
from pyromq.protocol.requests.offsets import DelayOffsetSerializeWrapper
from pyromq.store.message_store import MessageStore
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.results import QueueAdvance

_log = logging.getLogger(__name__)

_GROUP = "SCHEDULE_CONSUMER"
"""java: deliveries count as consumption by this group."""
_ROUND = 256
"""Messages of one level that are delivered before the next level has its turn."""
_RETRY_MS = 1000
_MENDING_MS = 100
"""When to look again at a queue that is being mended."""
_MAX_SLEEP_S = 1.0
"""The clock may be set while the service sleeps; it notices after this time at most."""


class Delays:
    def __init__(
        self,
        store: MessageStore,
        appending: Appending,
        tables: Tables,
        clock: Clock,
        *,
        save_interval_ms: int = 10_000,
    ) -> None:
        self._store = store
        self._appending = appending
        self._offsets = tables.delay_offsets
        self._statistics = tables.statistics
        self._role = tables.role
        self._clock = clock
        self._time = store.time
        self._leap_count = 0
        self._delays_ms = dict(enumerate(store.settings.delays_ms))
        self._due_ms: dict[int, float] = {}
        """When the first message of a queue is due, for known queues; `inf` if the queue is empty."""
        self._woken = asyncio.Event()
        self._complaints: dict[int, str] = {}
        self._trouble = ""
        self._taken: tuple[DelayOffsetSerializeWrapper, int, int] | None = None
        """Offsets to save, the log offset that must be safe first, and the cuts of the log before."""
        self._save_interval_s = save_interval_ms / 1000
        self._next_save = clock.monotonic() + self._save_interval_s
        appending.on_advance(self._advanced, names.SCHEDULE_TOPIC)
        tables.role.on_change(self._role_changed)

    def __repr__(self) -> str:
        waiting = sum(due_ms != inf for due_ms in self._due_ms.values())
        return f"<Delays queues={len(self._due_ms)} waiting={waiting}>"

    def progress(self) -> dict[int, tuple[int, int]]:
        """For each level the next offset to deliver, and the end of its queue."""
        return {
            level: (offset, self._store.queues.max_offset(names.SCHEDULE_TOPIC, level - 1))
            for level, offset in sorted(self._offsets.all().items())
        }

    def figures(self) -> dict[str, str]:
        """The same for the runtime information. java: the names"""
        return {
            f"scheduleMessageOffset_{level}": f"{offset},{end}"
            for level, (offset, end) in self.progress().items()
        }

    async def run(self) -> None:
        while True:
            self._woken.clear()
            wait_s = self.step()
            if wait_s == 0:
                await asyncio.sleep(0)
                continue
            if wait_s is None and (self._has_unsaved or not self._role.now.is_master):
                wait_s = _MAX_SLEEP_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._woken.wait()

    def step(self) -> float | None:
        """Deliver what is due, and save; see `deliver_due`.

        After a disk error it tries again later; the broker keeps running.
        """
        try:
            wait_s = self.deliver_due()
            self.save_if_due()
        except (StoreError, OSError) as problem:
            if self._trouble != str(problem):
                self._trouble = str(problem)
                _log.error(
                    "delayed messages or their progress could not be written, trying again: %s", problem
                )
            return _MAX_SLEEP_S
        self._trouble = ""
        return wait_s

    def _advanced(self, advance: QueueAdvance) -> None:
        # Messages behind one that is not due are not due either.
        if self._due_ms.get(advance.queue_id, inf) == inf:
            self._due_ms.pop(advance.queue_id, None)
            self._woken.set()

    def _role_changed(self, _: Role) -> None:
        # A replica has its master's progress, so the known due times are out of date.
        self._due_ms.clear()
        self._woken.set()

    # Delivering

    def deliver_due(self) -> float | None:
        """Deliver the due messages. Returns the seconds until the next one; None if none waits.

        A replica delivers nothing: its master does.
        """
        if not self._role.now.is_master:
            return None
        now_ms = self._time.now_ms()
        if self._leap_count != self._time.leap_count:
            self._leap_count = self._time.leap_count
            self._due_ms.clear()  # a leap of the clock does not shorten the delay
        for queue_id in self._store.queues.ids(names.SCHEDULE_TOPIC):
            due_ms = self._due_ms.get(queue_id)
            if due_ms is None or due_ms <= now_ms:
                self._due_ms[queue_id] = self._deliver_from(queue_id, now_ms)
        first_due_ms = min(self._due_ms.values(), default=inf)
        if first_due_ms == inf:
            return None
        return min(max(first_due_ms - now_ms, 0) / 1000, _MAX_SLEEP_S)

    def _due_at(self, queue_id: int, due_ms: int, now_ms: int) -> float:
        """The due time of a message after correcting for leaps of the clock."""
        delay_ms = self._delays_ms.get(queue_id)
        if delay_ms is None:
            return due_ms  # the settings no longer have this level; its delay is unknown
        if due_ms > now_ms + delay_ms:
            return now_ms  # java: no message waits longer than its level; the level was made shorter
        return due_ms + self._time.leapt_since(due_ms - delay_ms)

    def _deliver_from(self, queue_id: int, now_ms: int) -> float:
        """Deliver the due messages of a queue; returns when the next one is due."""
        queue = self._store.queues.find(names.SCHEDULE_TOPIC, queue_id)
        if queue is None:
            return inf
        offset = self._corrected_offset(queue)
        units = self._store.queues.sound_units(queue, offset, _ROUND)
        if not units and offset < queue.end_offset:
            return now_ms + _MENDING_MS
        for log_offset, due_ms in units:
            if log_offset is not None:
                due_at_ms = self._due_at(queue_id, due_ms, now_ms)
                if due_at_ms > now_ms:
                    return due_at_ms
                if not self._deliver(queue_id, offset, log_offset):
                    return now_ms + _RETRY_MS
            offset += 1
            self._offsets.advance(queue_id + 1, offset)
        return inf if offset >= queue.end_offset else now_ms

    def levels(self) -> list[int]:
        return [queue_id + 1 for queue_id in self._store.queues.ids(names.SCHEDULE_TOPIC)]

    def first_due(self, level: int) -> tuple[int, Draft | None] | None:
        """The offset of the next message of a level if it is due, and the message unless it is gone."""
        queue = self._store.queues.find(names.SCHEDULE_TOPIC, level - 1)
        if queue is None:
            return None
        offset, now_ms = self._corrected_offset(queue), self._time.now_ms()
        for log_offset, due_ms in self._store.queues.sound_units(queue, offset, 1):
            if log_offset is None:
                return offset, None
            if self._due_at(level - 1, due_ms, now_ms) <= now_ms:
                return offset, self._unparked(level, offset, log_offset)
        return None

    def passed(self, level: int, offset: int) -> None:
        """The message at an offset is delivered."""
        self._offsets.advance(level, offset + 1)

    def _corrected_offset(self, queue: ConsumeQueue) -> int:
        """The next offset to deliver, moved into the range that the queue still has."""
        level = queue.queue_id + 1
        wanted = self._offsets.get(level)
        first = self._store.queues.min_offset(queue.topic, queue.queue_id)
        offset = min(max(wanted, first), queue.end_offset)
        if offset != wanted:
            _log.warning("delivery of delayed messages moved level=%d from=%d to=%d", level, wanted, offset)
            self._offsets.advance(level, offset)
        return offset

    def _deliver(self, queue_id: int, offset: int, log_offset: int) -> bool:
        """Whether this message is finished: delivered, or gone."""
        draft = self._unparked(queue_id + 1, offset, log_offset)
        if draft is None:
            return True
        result = self._appending.append(draft)
        if not result.is_ok:
            self._statistics.put_failures += 1
            self._complain(queue_id, f"{result.status.value}: {result.reason}")
            return False
        self._complaints.pop(queue_id, None)
        self._statistics.got(_GROUP, names.SCHEDULE_TOPIC, queue_id, 1, result.size_bytes)
        self._statistics.put(draft.topic, draft.queue_id, 1, result.size_bytes)
        return True

    def _unparked(self, level: int, offset: int, log_offset: int) -> Draft | None:
        """The message for its own queue; None if it is gone."""
        record = self._store.log.record_at(log_offset)
        if record is None:
            return None  # java: deleted while it waited
        try:
            draft = unpark(decode_record(record))
            if draft.topic == names.HALF_TOPIC:
                raise ValueError("a transactional message cannot be delayed")
        except (RemoteProtocolError, ValueError) as problem:
            _log.error("delayed message dropped level=%d offset=%d: %s", level, offset, problem)
            return None
        # java: it is delivered into a topic that was deleted, or made again
        return None if self._store.topics.is_deleted(draft.topic, log_offset) else draft

    def _complain(self, queue_id: int, why: str) -> None:
        if self._complaints.get(queue_id) != why:
            self._complaints[queue_id] = why
            _log.warning("delayed messages not delivered level=%d: %s", queue_id + 1, why)

    # Saving

    @property
    def _has_unsaved(self) -> bool:
        return self._offsets.is_dirty or self._offsets.is_unsaved or self._taken is not None

    def save_if_due(self) -> None:
        """Save the offsets when the interval has passed and the log is as safe as they need it."""
        now = self._clock.monotonic()
        if self._taken is not None and self._taken[2] != self._store.cutting.cuts:
            self._taken = None
        if self._taken is None and self._offsets.is_dirty and now >= self._next_save:
            self._taken = (self._offsets.take(), self._store.log.end, self._store.cutting.cuts)
            self._next_save = now + self._save_interval_s
        if self._taken is not None and self._appending.durability.keeps(self._taken[1]):
            self._offsets.save(self._taken[0])
            self._taken = None
        elif self._offsets.is_unsaved and now >= self._next_save:
            self._next_save = now + self._save_interval_s
            self._offsets.retry()

    def save_now(self) -> None:
        """Flush the delivered messages, then save the offsets; not if a new master may cut them off."""
        log_end = self._store.log.end
        self._store.flushes.flush_log()
        if self._appending.durability.keeps(log_end):
            self._offsets.save_now(self._offsets.take())
            self._taken = None
