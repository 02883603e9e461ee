"""Intake: messages of the timers' topic are put into the timer wheel, each once, in the order of the queue.

A message for a time beyond the window of the wheel waits there for a stage of its way only.
"""

import logging
from collections.abc import Callable
from functools import lru_cache

from pyromq.broker.flow.delivered_timers import deliveries_begin
from pyromq.broker.flow.timed_outline import TimedOutline, read_timed
from pyromq.broker.tables.timer_counts import TimerCounts
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.java_hash import java_string_hash
from pyromq.store.message_store import MessageStore
from pyromq.store.timers.timer_log import NOWHERE, PLAIN, RECALL, ROLLED, TimerUnit

_log = logging.getLogger(__name__)

_BATCH = 64
_MAX_DELAY_MS = 1 << 31

_hash_of = lru_cache(maxsize=1024)(java_string_hash)

OnScheduled = Callable[[int, TimerUnit, TimedOutline], None]
"""Called with the position of a new unit, the unit, and its message."""


class TimerIntake:
    def __init__(self, store: MessageStore, counts: TimerCounts, on_scheduled: OnScheduled) -> None:
        self._store = store
        self._timers = store.timers
        self._counts = counts
        self._on_scheduled = on_scheduled
        self._window_slots = store.settings.timer_window_slots
        self.messages = 0

    @property
    def behind(self) -> int:
        """How many messages of the topic are not in the wheel yet."""
        return max(self._store.queues.max_offset(names.TIMER_TOPIC, 0) - self._timers.queue_offset, 0)

    def step(self, is_over: Callable[[], bool]) -> bool:
        """Take messages until all are taken or the time is over; whether all are. Raises OSError."""
        if self._store.settings.timer_stop_enqueue:
            return True
        queue = self._store.queues.find(names.TIMER_TOPIC, 0)
        if queue is None:
            return True
        self._move_into_queue()
        while self._timers.queue_offset < queue.end_offset:
            units = self._store.queues.sound_units(queue, self._timers.queue_offset, _BATCH)
            if not units:
                return True  # being mended; it advances then
            now_ms = self._store.time.now_ms()
            for log_offset, _ in units:
                if log_offset is not None and not self._take(log_offset, now_ms):
                    return True
                self._timers.queue_offset += 1
            if is_over():
                return self._timers.queue_offset >= queue.end_offset
        return True

    def _move_into_queue(self) -> None:
        """Apache's rule for messages that have expired, and for a queue that was cut."""
        first = self._store.queues.min_offset(names.TIMER_TOPIC, 0)
        end = self._store.queues.max_offset(names.TIMER_TOPIC, 0)
        wanted = self._timers.queue_offset
        offset = min(max(wanted, first), end)
        if offset != wanted:
            _log.warning("intake of timed messages moved from=%d to=%d", wanted, offset)
            self._timers.queue_offset = offset

    def _take(self, log_offset: int, now_ms: int) -> bool:
        """Whether the message is finished; False if the wheel has no place for it yet."""
        timers = self._timers
        outline = read_timed(self._store.log.record_at(log_offset))
        if outline is None:
            return True
        topic, out_ms = outline.topic, outline.slot_ms
        if topic is None or out_ms is None:
            _log.error(
                "timed message dropped offset=%d: the property %s is missing or wrong",
                timers.queue_offset,
                props.REAL_TOPIC if topic is None else props.TIMER_OUT_MS,
            )
            return True
        if not timers.wheel.is_made:
            timers.make(now_ms, self._store.log.end)
        precision_ms = timers.precision_ms
        write_ms = now_ms // precision_ms * precision_ms
        kind, slot_ms = self._place(out_ms, write_ms)
        if outline.recalls is not None:
            kind |= RECALL
        read_ms = timers.read_number * precision_ms
        if slot_ms < read_ms:
            # It comes too late for its slot, and goes into the one that is being delivered. On a replica it
            # may have left the master's wheel already: then its delivery lies somewhere behind the message.
            slot_ms = read_ms
            timers.delivered_from = min(log_offset, deliveries_begin(self._store))
        if slot_ms // precision_ms - timers.read_number >= timers.wheel.slots:
            return False  # after two weeks without deliveries: these come first
        if slot_ms - write_ms < -_MAX_DELAY_MS:
            write_ms = slot_ms  # the broker was off for weeks; the unit has 32 bits for the difference
        unit = TimerUnit(
            NOWHERE, kind, write_ms, slot_ms - write_ms, log_offset, outline.size_bytes, _hash_of(topic)
        )
        position = timers.schedule(unit)
        self._counts.add(topic, -1 if kind & RECALL else 1)
        self.messages += 1
        self._counts.taken[topic] += 1
        self._counts.delays.observe((out_ms - outline.stored_ms) / 1000, (topic, "local", "disk"))
        self._on_scheduled(position, unit, outline)
        return True

    def _place(self, out_ms: int, write_ms: int) -> tuple[int, int]:
        """The kind and the slot for a time."""
        precision_ms, window_slots = self._timers.precision_ms, self._window_slots
        window_ms = window_slots * precision_ms
        excess_ms = out_ms - write_ms - window_ms
        if excess_ms < 0:
            return PLAIN, out_ms
        # java: half of the way if the rest would be short
        is_short = excess_ms < window_slots // 3 * precision_ms
        stage_ms = window_slots // 2 * precision_ms if is_short else window_ms
        return PLAIN | ROLLED, write_ms + stage_ms
