"""The timer log: one unit for each message that waits for its time, chained backwards within its slot.

    position  size  field of a unit
           0     4  52, the size of the unit
           4     8  position of the previous unit in the same slot; -1 for the first one
          12     4  kind: 1, plus 2 for a stage on a longer way (`ROLLED`), plus 4 for a recall (`RECALL`)
          16     8  when the unit was written, ms, rounded down to a slot
          24     4  its slot's time minus that, ms
          28     8  log offset of the message
          36     4  size of its record
          40     4  Java's hash code of the topic that the message is for
          44     8  zero

No unit crosses the end of a file. Its last bytes are a blank: their number, eight zeros and a magic number.
"""

import struct
from pathlib import Path
from typing import Final, NamedTuple

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import offset_name, parse_offset_name
from pyromq.store.log.segment import Segment

NOWHERE: Final = -1
PLAIN: Final = 1
ROLLED: Final = 2
RECALL: Final = 4

_UNIT: Final = struct.Struct(">iqiqiqii8x")
_BLANK: Final = struct.Struct(">iqI")
_BLANK_MAGIC: Final = 0xCBD43194
UNIT_BYTES: Final = _UNIT.size
_MAX_KIND: Final = 0xF


class TimerUnit(NamedTuple):
    previous: int
    kind: int
    write_ms: int
    delay_ms: int
    log_offset: int
    size_bytes: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        return self.write_ms + self.delay_ms

    def pack(self) -> bytes:
        return _UNIT.pack(UNIT_BYTES, *self)


class TimerLog:
    unit_bytes = UNIT_BYTES

    def __init__(self, files: Files, directory: Path, file_bytes: int) -> None:
        self._files = files
        self._directory = directory
        self._file_bytes = file_bytes
        self._row: list[Segment] = []
        self.end = 0
        """Where the next unit goes."""

    def __repr__(self) -> str:
        return f"<TimerLog {self.start}..{self.end}>"

    @property
    def start(self) -> int:
        return self._row[0].start if self._row else 0

    @property
    def starts(self) -> list[int]:
        """Where the files begin."""
        return [each.start for each in self._row]

    @property
    def file_bytes(self) -> int:
        return self._file_bytes

    # Opening

    def load(self) -> None:
        """Find the files; `end` is behind the last of them. Raises StoreError for files of another size."""
        names, _ = self._files.names(self._directory)
        starts = [start for name in names if (start := parse_offset_name(name)) is not None]
        for start in starts:
            path = self._directory / offset_name(start)
            size_bytes = self._files.size(path)
            if size_bytes == 0 and start == starts[-1]:
                self._files.remove(path)  # java: what a crash leaves of a file being made
                continue
            if size_bytes != self._file_bytes or (self._row and start != self._row[-1].end):
                raise StoreError(
                    f"{path} has {size_bytes} bytes, expected {self._file_bytes} and no gap before it: set"
                    " mappedFileSizeTimerLog to the size that this timer log was created with"
                )
            self._row.append(Segment(self._files, self._directory, start, self._file_bytes))
        self.end = self._row[-1].end if self._row else 0

    def aligned(self, position: int) -> int:
        """The nearest place at or before `position` where a unit can begin."""
        position = min(max(position, self.start), self.end)
        inside = position % self._file_bytes
        return position - inside % UNIT_BYTES

    def cut(self, end: int) -> Path | None:
        """Forget everything behind `end`; returns the file to sync, if there is one."""
        changed = None
        while self._row and self._row[-1].start >= end and len(self._row) > 1:
            self._row.pop().remove()
        segment = self._find(end)
        if segment is not None:
            with self._files.open(segment.path) as reader:
                is_empty = reader.is_zero_after(end - segment.start)
            if not is_empty:
                segment.try_unmap()
                self._files.zero_after(segment.path, end - segment.start)
                changed = segment.path
        self.end = end
        return changed

    # Units

    def append(self, unit: TimerUnit) -> int:
        """The position of the new unit. Raises OSError if it needs a file that cannot be made."""
        position = self.end
        segment = self._find(position) or self._create(position)
        room = segment.end - position
        if room < UNIT_BYTES + _BLANK.size:
            following = self._find(segment.end) or self._create(segment.end)
            _BLANK.pack_into(segment.mapped.buffer, position - segment.start, room, 0, _BLANK_MAGIC)
            segment, position = following, following.start
        _UNIT.pack_into(segment.mapped.buffer, position - segment.start, UNIT_BYTES, *unit)
        self.end = position + UNIT_BYTES
        return position

    def unit(self, position: int) -> TimerUnit | None:
        """The unit at a position; None if there is none, or only its begin has reached the disk."""
        segment = self._find(position)
        if segment is None or position + UNIT_BYTES > segment.end:
            return None
        size_bytes, *fields = _UNIT.unpack_from(segment.mapped.buffer, position - segment.start)
        unit = TimerUnit(*fields)
        is_unit = size_bytes == UNIT_BYTES and 0 < unit.kind <= _MAX_KIND and unit.previous < position
        return unit if is_unit and unit.size_bytes > 0 else None

    def following(self, position: int) -> int:
        """Where the unit at or behind `position` begins: there, or in the next file behind a blank."""
        segment = self._find(position)
        if segment is None:
            return position
        room = segment.end - position
        if room < UNIT_BYTES + _BLANK.size:
            if room < _BLANK.size:
                return segment.end
            _, _, magic = _BLANK.unpack_from(segment.mapped.buffer, position - segment.start)
            return segment.end if magic == _BLANK_MAGIC else position
        return position

    def _find(self, position: int) -> Segment | None:
        if not self._row:
            return None
        index = (position - self._row[0].start) // self._file_bytes
        return self._row[index] if 0 <= index < len(self._row) else None

    def _create(self, start: int) -> Segment:
        path = self._directory / offset_name(start)
        try:
            # With real blocks: a write to a mapped hole of a full disk would kill the process.
            self._files.create(path, self._file_bytes, self._file_bytes)
            self._files.sync(path)
            self._files.sync_all_directories()
        except OSError:
            self._files.remove(path)
            raise
        segment = Segment(self._files, self._directory, start, self._file_bytes)
        self._row.append(segment)
        return segment

    # The rest

    def reserve(self) -> None:
        """Give the last file real blocks: Apache's files have holes. Raises OSError."""
        if self._row:
            self._files.allocate(self._row[-1].path, 0, self._file_bytes)

    def covering(self, start: int, end: int) -> list[Path]:
        """The files that hold units of [start, end)."""
        return [each.path for each in self._row if each.start < end and each.end > start]

    def clean(self, log_start: int) -> int:
        """Remove files whose messages the log no longer has; returns how many."""
        removed = 0
        while len(self._row) > 1:
            last_unit = self._file_bytes - _BLANK.size
            last_unit -= last_unit % UNIT_BYTES + UNIT_BYTES
            unit = self.unit(self._row[0].start + last_unit)
            if unit is None or unit.log_offset >= log_start:
                break
            self._row.pop(0).remove()
            removed += 1
        return removed

    def close(self) -> None:
        for segment in self._row:
            segment.try_unmap()
