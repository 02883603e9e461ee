"""The messages of one slot of the timer wheel, in the order in which they are due.

Only their positions in the timer log are held, eight bytes or so each: messages are read when they are due.
"""

import heapq
import logging
from collections.abc import Callable, Iterator

from pyromq.broker.flow.timing import due_ms, number_in
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import RecordOutline, scan_record
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
            found = outline_of(self._store, unit.log_offset)
            if found is not None:
                self.add(position, unit, *found)
            else:
                self._lost += 1
            if count % _LOOK_AT_TIME_EVERY == 0 and is_over():
                return False
        self._unread = None
        if self._lost:
            _log.error("timed messages lost, gone from the log slot=%d count=%d", self.number, self._lost)
        return True

    def add(self, position: int, unit: TimerUnit, outline: RecordOutline, properties: bytes) -> None:
        if unit.kind & RECALL and not unit.kind & ROLLED:
            key = get_property(properties, props.TIMER_DEL_UNIQKEY)
            if key is not None:
                self.recalled.add(key)
            return
        wait_ms = 0
        if not unit.kind & ROLLED:
            wait_ms = self._due_ms(outline, properties) - self._start_ms
        self.put_back(position, max(wait_ms, 0))

    def _due_ms(self, outline: RecordOutline, properties: bytes) -> int:
        out_ms = get_property(properties, props.TIMER_OUT_MS)
        try:
            slot_ms = self._start_ms if out_ms is None else number_in(props.TIMER_OUT_MS, out_ms)
        except ValueError:
            slot_ms = self._start_ms
        return due_ms(properties, outline.store_timestamp, slot_ms, self._timers.precision_ms)

    def first_due_ms(self) -> int | None:
        """When the first message is due."""
        return self._start_ms + (self._heap[0] >> _POSITION_BITS) if self._heap else None

    def pop(self) -> int:
        """The position of the first message."""
        return heapq.heappop(self._heap) & _POSITION_MASK

    def put_back(self, position: int, wait_ms: int = 0) -> None:
        heapq.heappush(self._heap, wait_ms << _POSITION_BITS | position)


def outline_of(store: MessageStore, log_offset: int) -> tuple[RecordOutline, bytes] | None:
    """A message without its body; None if the log no longer has it, or has it damaged."""
    record = store.record_at(log_offset)
    if record is None:
        return None
    try:
        outline = scan_record(record)
    except RemoteProtocolError:
        return None
    if outline is None:
        return None
    return outline, bytes(record[outline.properties_start : outline.properties_end])
