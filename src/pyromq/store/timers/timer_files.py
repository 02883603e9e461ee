"""The files of timed messages as one: a unit goes into the timer log first, then into its slot of the wheel.

Every message of the timers' topic gets exactly one unit, in the order of its queue. So the last unit tells
how far the queue was read, and nothing is scheduled twice or not at all. Files are made with the first
message; a broker without timed messages has none.
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import nlargest
from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import StorePaths
from pyromq.store.flushing import TEMPORARY_ERRORS
from pyromq.store.timers.slot_counts import SlotCounts
from pyromq.store.timers.timer_checkpoint import (
    UNKNOWN,
    TimerCheckpoint,
    read_timer_checkpoint,
    write_timer_checkpoint,
)
from pyromq.store.timers.timer_log import NOWHERE, RECALL, TimerLog, TimerUnit
from pyromq.store.timers.wheel import Slot, Wheel

QueueOffsetOf = Callable[[TimerUnit], int | None]
"""The queue offset of a unit's message; None if the log has no such message in the timers' topic."""

_MINUTE_MS: Final = 60_000
PRECISIONS_MS: Final = (100, 200, 500, 1000)
"""java: how wide a slot can be."""
_LAST_USED: Final = 1000


@dataclass(frozen=True, slots=True)
class TimerSnapshot:
    """A checkpoint, and the files to sync before it is written."""

    checkpoint: TimerCheckpoint
    paths: tuple[Path, ...]
    cuts: int
    """How often the files had been cut."""
    wheel_version: int


class TimerFiles:
    def __init__(
        self, files: Files, paths: StorePaths, precision_ms: int, log_file_bytes: int, slots: int
    ) -> None:
        self._files = files
        self._path = paths.timer_checkpoint
        self.precision_ms = precision_ms
        self.log = TimerLog(files, paths.timer_log, log_file_bytes)
        self.wheel = Wheel(files, paths.timer_wheel, slots)
        self.counts = SlotCounts(max(_MINUTE_MS // precision_ms, 1))
        """How many messages wait in the slots from `read_number` on."""
        self.checkpoint = TimerCheckpoint()
        """As it was saved last."""
        self.queue_offset = 0
        """The next message of the timers' topic to schedule."""
        self.read_number = 0
        """The slot whose messages are being delivered; earlier slots are done."""
        self.delivered_from = 0
        """The end of the log when that slot's turn came."""
        self.replayed_units = 0
        """Units that were put into their slots when the files were opened."""
        self._synced_end = 0
        self._wheel_version = self._synced_wheel = 0
        """Of the slots as they were taken and synced last. A snapshot may never be saved: until one is, each
        has the wheel to sync."""
        self._failure: OSError | None = None
        self._saving = threading.Lock()
        self._cuts = 0

    def __repr__(self) -> str:
        return f"<TimerFiles slot={self.read_number} waiting={self.counts.total} {self.log!r}>"

    # Opening

    def recover(self, now_ms: int, queue_offset_of: QueueOffsetOf) -> None:
        """Load the files and bring them in line with each other and with the log.

        1. Slots are taken back to the checkpoint. A slot that was written later may be torn.
        2. Units behind the checkpoint whose messages the log has are put into their slots.
        3. Units behind those are forgotten. The last unit says where in the queue to continue.

        If files of the timer log are gone, all slots are made from the units that are left, and the other
        messages are taken from the queue again.

        Raises StoreError if a file has an unexpected size, or if messages wait in slots of another width;
        OSError if a file cannot be read.
        """
        self.checkpoint = checkpoint = read_timer_checkpoint(self._files, self._path)
        self.log.load()
        has_wheel = self.wheel.load()
        is_short = self.log.end < checkpoint.log_position
        self.queue_offset = 0 if is_short else checkpoint.queue_offset
        is_elsewhere = checkpoint.delivered_from == UNKNOWN and self._is_wheel_elsewhere()
        has_slots = has_wheel and not is_short and not is_elsewhere
        begin = self.log.aligned(checkpoint.log_position if has_slots else 0)
        self._check_precision(checkpoint.read_ms, begin)
        if self.log.end or is_short:
            self.wheel.make()
            self._mend_slots(begin)
            end = self._replay(begin, queue_offset_of)
            if (changed := self.log.cut(end)) is not None:
                self._files.sync(changed)
            self.log.reserve()
            self._synced_end = begin
        self.read_number = self._first_slot(checkpoint.read_ms // self.precision_ms, now_ms)
        self.delivered_from = checkpoint.delivered_from
        self._count_waiting()

    def _is_wheel_elsewhere(self) -> bool:
        """java: with timerWheelSnapshotFlush the slots are in files `timerwheel.<position>`."""
        prefix = f"{self.wheel.path.name}."
        return any(name.startswith(prefix) for name in self._files.names(self.wheel.path.parent)[0])

    def _check_precision(self, read_ms: int, begin: int) -> None:
        """Slots are found by numbers, which depend on their width: of another width none would be found."""
        used_ms = self._used_precision_ms()
        if used_ms is None or used_ms == self.precision_ms:
            return
        is_any_left = self.log.unit(self.log.following(begin)) is not None
        if is_any_left or any(
            slot.messages and slot.number * used_ms >= read_ms for slot in self.wheel.all()
        ):
            raise StoreError(
                f"{self.wheel.path} has slots of {used_ms} ms in which messages wait, and timerPrecisionMs is"
                f" {self.precision_ms}: set it to {used_ms}; it can be changed when no timed message waits"
            )
        for slot in self.wheel.all():
            self.wheel.clear(slot.number)

    def _used_precision_ms(self) -> int | None:
        """The width of the slots that were used last, None if there are none."""
        # A crash may have taken the units of the very last ones.
        for slot in nlargest(_LAST_USED, self.wheel.all(), key=lambda slot: slot.last):
            unit = self.log.unit(slot.last)
            if unit is None:
                continue
            for each in PRECISIONS_MS:
                if unit.slot_ms // each == slot.number:
                    return each
        return None

    def _count_waiting(self) -> None:
        for slot in self.wheel.all():
            if slot.number >= self.read_number:
                self.counts.add(slot.number, slot.messages)

    def _replay(self, position: int, queue_offset_of: QueueOffsetOf) -> int:
        """Put units into their slots; returns where sound units end."""
        while True:
            position = self.log.following(position)
            unit = self.log.unit(position)
            queue_offset = None if unit is None else queue_offset_of(unit)
            if unit is None or queue_offset is None:
                return position
            number = unit.slot_ms // self.precision_ms
            self.wheel.put(_linked(self.wheel.slot(number), number, position, unit.kind))
            self.replayed_units += 1
            self.queue_offset = max(self.queue_offset, queue_offset + 1)
            position += self.log.unit_bytes

    def _mend_slots(self, end: int) -> None:
        """Take units at or behind `end` out of their slots. The units before are sound."""
        broken = {slot.number: slot for slot in self.wheel.all() if slot.last >= end or self._is_torn(slot)}
        if not broken:
            return
        kept: dict[int, Slot] = {}
        position = self.log.following(self.log.aligned(min(slot.first for slot in broken.values())))
        while position < end and (unit := self.log.unit(position)) is not None:
            number = unit.slot_ms // self.precision_ms
            if number in broken:
                before = kept.get(number)
                kept[number] = _linked(before, number, position, unit.kind)
            position = self.log.following(position + self.log.unit_bytes)
        for number in broken:
            if number in kept:
                self.wheel.put(kept[number])
            else:
                self.wheel.clear(number)

    def _is_torn(self, slot: Slot) -> bool:
        """Whether the slot leads to no unit that belongs to it. The units of old slots may be gone."""
        unit = self.log.unit(slot.last)
        number = None if unit is None else unit.slot_ms // self.precision_ms
        return slot.last >= self.log.start and number != slot.number

    def _first_slot(self, number: int, now_ms: int) -> int:
        if not number:  # there is no checkpoint yet
            number = min((slot.number for slot in self.wheel.all()), default=now_ms // self.precision_ms)
        return number

    @property
    def is_unused_by_apache(self) -> bool:
        """Whether Apache's broker wrote the checkpoint and never scheduled a message here."""
        return self.checkpoint.delivered_from == UNKNOWN and not self.queue_offset and not self.log.end

    # Scheduling

    def make(self, now_ms: int, log_end: int) -> None:
        """Create the files before the first message is scheduled. Raises OSError."""
        if self._files.size(self._path) is None:
            self.read_number, self.delivered_from = now_ms // self.precision_ms, log_end
            # Before any unit: a crash right after it must not start with the slots of long ago.
            self.save(self.take(now_ms))
        self.wheel.make()

    def schedule(self, unit: TimerUnit) -> int:
        """Append a unit without a previous one and put it into its slot; returns its position.

        Raises OSError.
        """
        number = unit.slot_ms // self.precision_ms
        slot = self.wheel.slot(number)
        if slot is not None:
            unit = TimerUnit(slot.last, *unit[1:])
        position = self.log.append(unit)
        self.wheel.put(_linked(slot, number, position, unit.kind))
        self.counts.add(number, -1 if unit.kind & RECALL else 1)
        return position

    # Reading

    def units(self, number: int) -> Iterator[tuple[int, TimerUnit]]:
        """The units of a slot and their positions, the last one first."""
        slot = self.wheel.slot(number)
        position = NOWHERE if slot is None else slot.last
        while position != NOWHERE and (unit := self.log.unit(position)) is not None:
            if unit.slot_ms // self.precision_ms != number:
                return  # the slot is damaged: the messages of another one must not leave with it
            yield position, unit
            position = unit.previous

    def count_at(self, number: int) -> int:
        slot = self.wheel.slot(number)
        return 0 if slot is None else slot.messages

    def finish_slot(self, log_end: int) -> None:
        """Every message of the slot is delivered: the next one is up."""
        slot = self.wheel.slot(self.read_number)
        if slot is not None:
            self.counts.add(slot.number, -slot.messages)
        self.read_number += 1
        self.delivered_from = log_end

    def skip_empty_slots(self, end: int, log_end: int) -> None:
        """Continue to the next slot with messages, but not beyond `end`."""
        self.read_number = self.wheel.next_used(self.read_number, end)
        self.delivered_from = log_end

    def follow(self, read_ms: int) -> None:
        """On a replica: the master has delivered every slot before this time."""
        end = read_ms // self.precision_ms
        while self.read_number < end:
            self.skip_empty_slots(end, UNKNOWN)
            if self.read_number < end:
                self.finish_slot(UNKNOWN)

    # Saving

    def take(self, now_ms: int) -> TimerSnapshot:
        """The state as it is now, for `save`."""
        checkpoint = replace(
            self.checkpoint,
            read_ms=self.read_number * self.precision_ms,
            log_position=self.log.end,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            version_ms=now_ms,
            version_counter=self.checkpoint.version_counter + 1,
            delivered_from=self.delivered_from,
        )
        paths = self.log.covering(self._synced_end, self.log.end)
        if self.wheel.is_unsynced:
            self.wheel.is_unsynced = False
            self._wheel_version += 1
        if self._wheel_version > self._synced_wheel:
            paths.append(self.wheel.path)
        return TimerSnapshot(checkpoint, tuple(paths), self._cuts, self._wheel_version)

    def save(self, taken: TimerSnapshot) -> None:
        """Sync the files, then write the checkpoint; any thread may do so. Raises OSError.

        The log must be on disk already, as far as `taken` speaks of messages. A failed sync is final: it
        leaves open which pages reached the disk, so the last good checkpoint stays.
        """
        with self._saving:
            if taken.cuts == self._cuts:
                self._save(taken)

    def _save(self, taken: TimerSnapshot) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            for path in taken.paths:
                self._files.sync(path)
        except OSError as error:
            if error.errno not in TEMPORARY_ERRORS:
                self._failure = error
            raise
        write_timer_checkpoint(self._files, self._path, taken.checkpoint)
        self._synced_end = taken.checkpoint.log_position
        self._synced_wheel = max(self._synced_wheel, taken.wheel_version)
        self.checkpoint = taken.checkpoint

    def cut(
        self, log_offset: int, queue_offset: int, first_ms: int, now_ms: int
    ) -> Callable[[], None] | None:
        """The log is about to be cut at `log_offset`, the timers' queue at `queue_offset`. Deliveries of the
        slots from `first_ms` on may be gone with it: these slots are up again.

        Returns what saves this before; any thread may do so. Raises OSError.
        """
        if not self.wheel.is_made:
            return None
        self._cuts += 1
        end, changed = self._first_from(log_offset), None
        if end < self.log.end:
            self._mend_slots(end)
            changed = self.log.cut(end)
        self._synced_end = min(self._synced_end, end)
        self.queue_offset = min(self.queue_offset, queue_offset)
        self.read_number = min(self.read_number, first_ms // self.precision_ms or self.read_number)
        self.delivered_from = UNKNOWN
        self.counts = SlotCounts(self.counts.slots_per_minute)
        self._count_waiting()
        taken = self.take(now_ms)
        if changed is not None:
            taken = replace(taken, paths=(*taken.paths, changed))
        return lambda: self._save_cut(taken)

    def _save_cut(self, taken: TimerSnapshot) -> None:
        with self._saving:
            self._save(taken)

    def _first_from(self, log_offset: int) -> int:
        """The position of the first unit whose message is at or behind a log offset, or the end."""
        found = end = self.log.end
        for start in reversed(self.log.starts):
            first = self.log.unit(start)
            if start < end and first is not None and first.log_offset >= log_offset:
                found = start
                continue
            low, high = 0, max(min(found, start + self.log.file_bytes, end) - start, 0) // self.log.unit_bytes
            while low < high:
                middle = (low + high) // 2
                unit = self.log.unit(start + middle * self.log.unit_bytes)
                if unit is not None and unit.log_offset < log_offset:
                    low = middle + 1
                else:
                    high = middle
            position = start + low * self.log.unit_bytes
            return found if self.log.following(position) >= found else position
        return found

    def clean(self, log_start: int) -> int:
        return self.log.clean(log_start)

    def close(self) -> None:
        self.log.close()
        self.wheel.close()


def _linked(slot: Slot | None, number: int, position: int, kind: int) -> Slot:
    """The slot with one unit more."""
    change = -1 if kind & RECALL else 1
    if slot is None:
        return Slot(number, position, position, change)
    return Slot(number, slot.first, position, slot.messages + change, slot.reserved)
