"""The messages of one slot of the timer wheel, in the order in which they are due.

Only their positions in the timer log are held, eight bytes or so each: messages are read when they are due.
"""

import heapq
import logging
from collections.abc import Callable, Iterator

from pyromq.broker.flow.timed_outline import TimedOutline, read_timed
from pyromq.store.message_store import MessageStore
from pyromq.store.timers.timer_log import RECALL, ROLLED, TimerUnit

_log = logging.getLogger(__name__)

_POSITION_BITS = 48
_POSITION_MASK = (1 << _POSITION_BITS) - 1
_LOOK_AT_TIME_EVERY = 64


class TimerSlot:
    def __init__(self, store: MessageStore, number: int) -> None:
        self._store = store
        self._timers = timers = store.timers
        self._start_ms = number * timers.precision_ms
        self._heap: list[int] = []
        """Due time within the slot and position in the timer log, as one number."""
        self.number = number
        self.recalled: set[str] = set()
        self._lost = 0
        has_units = timers.wheel.slot(number) is not None
        self._unread: Iterator[tuple[int, TimerUnit]] | None = timers.units(number) if has_units else None

    def __repr__(self) -> str:
        return f"<TimerSlot {self.number} waiting={len(self._heap)}{' unread' if self._unread else ''}>"

    def __len__(self) -> int:
        return len(self._heap)

    def load(self, is_over: Callable[[], bool]) -> bool:
        """Read the units that the slot had when this began; whether that is finished."""
        if self._unread is None:
            return True
        for count, (position, unit) in enumerate(self._unread, 1):
            outline = read_timed(self._store.log.record_at(unit.log_offset))
            if outline is not None:
                self.add(position, unit, outline)
            else:
                self._lost += 1
            if count % _LOOK_AT_TIME_EVERY == 0 and is_over():
                return False
        self._unread = None
        if self._lost:
            _log.error("timed messages lost, gone from the log slot=%d count=%d", self.number, self._lost)
        return True

    def add(self, position: int, unit: TimerUnit, outline: TimedOutline) -> None:
        if unit.kind & RECALL and not unit.kind & ROLLED:
            # Everyone who sends can set this property: it recalls messages of the sender's own topic only.
            if outline.recalls is not None and outline.recalls.startswith(f"{outline.topic}+"):
                self.recalled.add(outline.recalls)
            return
        wait_ms = 0
        if not unit.kind & ROLLED:
            slot_ms = self._start_ms if outline.slot_ms is None else outline.slot_ms
            wait_ms = outline.due_ms(slot_ms, self._timers.precision_ms) - self._start_ms
        self.put_back(position, max(wait_ms, 0))

    def first_due_ms(self) -> int | None:
        """When the first message is due."""
        return self._start_ms + (self._heap[0] >> _POSITION_BITS) if self._heap else None

    def pop(self) -> int:
        """The position of the first message."""
        return heapq.heappop(self._heap) & _POSITION_MASK

    def put_back(self, position: int, wait_ms: int = 0) -> None:
        heapq.heappush(self._heap, wait_ms << _POSITION_BITS | position)
