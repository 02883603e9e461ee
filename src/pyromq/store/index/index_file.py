"""One index file: a hash table on disk from the hash of a key to log offsets.

    header, 40 bytes
           0     8  store time of the first entry
           8     8  store time of the last entry
          16     8  log offset of the first entry
          24     8  log offset of the last entry
          32     4  slots in use
          36     4  number of the next unit; the first is 1
    slots × 4 bytes  number of the newest unit of the chain, 0 for none
    units × 20 bytes
           0     4  hash of `topic#key`
           4     8  log offset
          12     4  seconds since the first entry's store time
          16     4  number of the previous unit of the chain, 0 for none

Units are only added and their log offsets never decrease; everything else can be rebuilt from them.
"""

import struct
import sys
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files, MappedFile
from pyromq.store.checkpoint import is_time

HEADER: Final = struct.Struct(">qqqqii")
SLOT: Final = struct.Struct(">i")
UNIT: Final = struct.Struct(">iqii")
_UNIT_BYTES: Final = 20
_SLOT_BYTES: Final = 4
_RESERVE_BYTES: Final = 256 * 1024
_UNITS_PER_READ: Final = 50_000
_MAX_SECONDS: Final = 0x7FFFFFFF

Entry = tuple[int, int, int]
"""Key hash, log offset, store time."""


def index_file_bytes(slots: int, units: int) -> int:
    return HEADER.size + slots * _SLOT_BYTES + units * _UNIT_BYTES


def read_header(files: Files, path: Path) -> tuple[int, ...]:
    """The six numbers of a header. Raises StoreError if they are impossible."""
    raw = files.read(path, 0, HEADER.size)
    if len(raw) < HEADER.size:
        raise StoreError(f"index/{path.name} is shorter than its header")
    begin_ms, end_ms, *others = numbers = HEADER.unpack(raw)
    if not is_time(begin_ms) or not is_time(end_ms) or min(others) < 0:
        raise StoreError(f"index/{path.name} has an invalid header")
    return numbers


def _swapped(numbers: "array[int]") -> "array[int]":
    """Between the machine's byte order and the file's, in place."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


class IndexFile:
    def __init__(self, files: Files, path: Path, slots: int, units: int) -> None:
        self._files = files
        self.slots = slots
        self.units = units
        self.units_start = HEADER.size + slots * _SLOT_BYTES
        self.reserved_units = 0
        self._mapped: MappedFile | None = None
        self.path = path
        size_bytes = files.size(path)
        if size_bytes != index_file_bytes(slots, units):
            raise StoreError(
                f"index/{path.name} has {size_bytes} bytes, expected {index_file_bytes(slots, units)}"
            )
        self.begin_timestamp: int
        self.end_timestamp: int
        self.begin_log_offset: int
        self.end_log_offset: int
        self.used_slots: int
        self.next_unit: int
        (
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_log_offset,
            self.end_log_offset,
            self.used_slots,
            self.next_unit,
        ) = read_header(files, path)
        if self.next_unit > units or self.used_slots > units:
            raise StoreError(f"index/{path.name} has an invalid header")
        # java: a file that was never written to counts from 1
        self.next_unit = max(self.next_unit, 1)

    @classmethod
    def create(
        cls, files: Files, path: Path, slots: int, units: int, before: "IndexFile | None"
    ) -> "IndexFile":
        """A new file; it starts from the last values of the one before it."""
        # The slots are hit at random from the start: their blocks are reserved at once, those of units in
        # steps.
        files.create(path, index_file_bytes(slots, units), HEADER.size + slots * _SLOT_BYTES)
        file = cls(files, path, slots, units)
        if before is not None:
            file.begin_timestamp = file.end_timestamp = before.end_timestamp
            file.begin_log_offset = file.end_log_offset = before.end_log_offset
        file._write_header()
        return file

    def __repr__(self) -> str:
        return f"<IndexFile {self.path.name} {self.entry_count} entries ..{self.end_log_offset}>"

    @property
    def entry_count(self) -> int:
        return self.next_unit - 1

    @property
    def is_full(self) -> bool:
        return self.next_unit >= self.units

    @property
    def mapped(self) -> MappedFile:
        if self._mapped is None:
            self._mapped = self._files.map_for_reading(self.path, in_small_pieces=True)
        return self._mapped

    def map_for_writing(self) -> None:
        """Raises OSError if the disk is read-only."""
        if self._mapped is None or not self._mapped.is_writable:
            self._mapped = self._files.map(self.path, in_small_pieces=True)

    # Writing

    def put(self, entries: list[Entry]) -> int:
        """Add entries until the file is full; how many were added."""
        number = self.next_unit
        entries = entries[: self.units - number]
        if not entries:
            return 0
        self.map_for_writing()
        if number + len(entries) > self.reserved_units:
            self._reserve(number + len(entries))
        hashes, log_offsets, timestamps = zip(*entries, strict=True)
        begin = self.begin_timestamp
        if number <= 1:
            self.begin_log_offset, self.begin_timestamp = log_offsets[0], timestamps[0]
        # Slots are big-endian on disk and seen here as the machine's own numbers: swapped in bulk.
        numbers = _swapped(array("I", range(number, number + len(entries))))
        slots = self._slot_numbers
        previous = array("I")
        for slot, new in zip([each % self.slots for each in hashes], numbers, strict=True):
            previous.append(slots[slot])
            slots[slot] = new
        _swapped(previous)
        if max(previous) >= number:
            # java: what cannot be the number of an earlier unit is garbage, and the slot counts as empty
            previous = array("I", [old if old < new else 0 for new, old in enumerate(previous, number)])
        units = b"".join(map(UNIT.pack, hashes, log_offsets, self._seconds(timestamps, begin), previous))
        start = self.units_start + number * _UNIT_BYTES
        self.mapped.buffer[start : start + len(units)] = units
        self.used_slots += previous.count(0)
        self.next_unit = number + len(entries)
        self.end_log_offset, self.end_timestamp = log_offsets[-1], timestamps[-1]
        self._write_header()
        return len(entries)

    @property
    def _slot_numbers(self) -> memoryview:
        return self.mapped.view[HEADER.size : self.units_start].cast("I")

    def _seconds(self, timestamps: Sequence[int], begin: int) -> list[int]:
        """java: since the first store time; the first unit's count from what the header said before."""
        first = self.begin_timestamp
        low, high = (timestamps[0] - first) // 1000, (timestamps[-1] - first) // 1000
        if 0 <= low == high <= _MAX_SECONDS:
            seconds = [low] * len(timestamps)  # store times never decrease
        else:
            seconds = [min(max((each - first) // 1000, 0), _MAX_SECONDS) for each in timestamps]
        if self.next_unit <= 1:
            seconds[0] = min(max((timestamps[0] - begin) // 1000, 0), _MAX_SECONDS) if begin > 0 else 0
        return seconds

    def _reserve(self, units: int) -> None:
        # The slots have their blocks since the file was made, unless Apache's broker made it.
        position = self.units_start + self.reserved_units * _UNIT_BYTES if self.reserved_units else 0
        end = self.units_start + units * _UNIT_BYTES + _RESERVE_BYTES
        end = min(end, index_file_bytes(self.slots, self.units))
        self._files.allocate(self.path, position, end - position)
        self.reserved_units = (end - self.units_start) // _UNIT_BYTES

    def _write_header(self) -> None:
        HEADER.pack_into(
            self.mapped.buffer,
            0,
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_log_offset,
            self.end_log_offset,
            self.used_slots,
            self.next_unit,
        )

    # Reading

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        return self.begin_timestamp <= end_ms and self.end_timestamp >= begin_ms

    def find(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets stored under a hash, newest first; other keys may share it, and the times are those of
        whole seconds."""
        buffer = self.mapped.buffer
        (number,) = SLOT.unpack_from(buffer, HEADER.size + key_hash % self.slots * _SLOT_BYTES)
        while 0 < number < self.next_unit:
            found_hash, log_offset, seconds, previous = UNIT.unpack_from(
                buffer, self.units_start + number * _UNIT_BYTES
            )
            if seconds < 0:
                return
            # java: the first unit has the seconds since the file before ended; its time is in the header
            first_ms = self.begin_timestamp + (seconds * 1000 if number > 1 else 0)
            last_ms = first_ms + 999
            if found_hash == key_hash and begin_ms <= last_ms and first_ms <= end_ms:
                yield log_offset
            # A chain leads to smaller numbers only; anything else is damage and would never end.
            if previous >= number or last_ms < begin_ms:
                return
            number = previous

    # Recovery

    def drop_from(self, log_offset: int) -> int:
        """Take back the units of messages from a log offset on, newest first; return how many are left."""
        self.map_for_writing()
        buffer = self.mapped.buffer
        while self.next_unit > 1:
            place = self.units_start + (self.next_unit - 1) * _UNIT_BYTES
            key_hash, found, seconds, previous = UNIT.unpack_from(buffer, place)
            if found < log_offset:
                self.end_log_offset = found
                self.end_timestamp = min(
                    self.end_timestamp, self.begin_timestamp + max(seconds, 0) * 1000 + 999
                )
                break
            SLOT.pack_into(buffer, HEADER.size + key_hash % self.slots * _SLOT_BYTES, previous)
            self.used_slots -= not previous
            buffer[place : place + _UNIT_BYTES] = bytes(_UNIT_BYTES)
            self.next_unit -= 1
        self._write_header()
        return self.entry_count

    def rebuild(self, before_log_offset: int) -> int:
        """Keep the units of messages before a log offset and rebuild the rest; return how many were kept.

        The new file replaces the old one once it is synced.
        """
        slots = array("I", bytes(self.slots * _SLOT_BYTES))
        kept, last_log_offset, last_seconds = bytearray(_UNIT_BYTES), 0, 0
        for unit in self._stored_units():
            key_hash, log_offset, seconds, _ = UNIT.unpack(unit)
            if key_hash < 0 or not last_log_offset <= log_offset < before_log_offset or not any(unit):
                break
            slots[key_hash % self.slots] = len(kept) // _UNIT_BYTES
            kept += unit
            last_log_offset, last_seconds = log_offset, seconds
        self.used_slots = sum(1 for each in slots if each)
        self.next_unit = len(kept) // _UNIT_BYTES
        self.end_log_offset = last_log_offset
        self.end_timestamp = min(self.end_timestamp, self.begin_timestamp + last_seconds * 1000 + 999)
        self._replace(_swapped(slots).tobytes(), kept)
        return self.entry_count

    def _stored_units(self) -> Iterator[bytes]:
        with self._files.open(self.path) as reader:
            for first in range(1, self.units, _UNITS_PER_READ):
                count = min(_UNITS_PER_READ, self.units - first)
                raw = reader.read(self.units_start + first * _UNIT_BYTES, count * _UNIT_BYTES)
                for position in range(0, len(raw), _UNIT_BYTES):
                    yield raw[position : position + _UNIT_BYTES]

    def _replace(self, slots: bytes, units: bytearray) -> None:
        self.close()
        final = self.path
        self.path = final.with_name(final.name + UNFINISHED_SUFFIX)
        self._files.remove(self.path)
        self._files.create(self.path, index_file_bytes(self.slots, self.units), self.units_start + len(units))
        buffer = self.mapped.buffer
        buffer[HEADER.size : self.units_start] = slots
        buffer[self.units_start : self.units_start + len(units)] = bytes(units)
        self._write_header()
        self._files.sync(self.path)
        self.close()
        self._files.rename(self.path, final)
        self._files.sync_directory(final.parent)
        self.path = final
        self.reserved_units = 0

    def close(self) -> None:
        if self._mapped is not None:
            self._mapped.try_close()
            self._mapped = None
