"""The timer wheel: for each slot of time the first and the last of its units in the timer log.

    position  size  field of a slot
           0     8  the slot's number: its time in ms divided by the precision
           8     8  position of its first unit in the timer log
          16     8  position of its last unit
          24     4  number of messages, less those recalled
          28     4  zero

Slot number n is at place n modulo the number of slots. A place with another number counts as empty. A slot
lies in one disk sector, so it is always whole.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyromq.errors import StoreError
from pyromq.filesystem import Files, MappedFile

_SLOT: Final = struct.Struct(">qqqii")
_NUMBER: Final = struct.Struct(">q")
SLOT_BYTES: Final = _SLOT.size
_NOTHING: Final = bytes(SLOT_BYTES)
_SLOTS_AT_ONCE: Final = 128
_PIECE_BYTES: Final = _SLOTS_AT_ONCE * SLOT_BYTES
_ZEROS: Final = bytes(_PIECE_BYTES)


class Slot(NamedTuple):
    number: int
    first: int
    last: int
    messages: int
    reserved: int = 0


class Wheel:
    def __init__(self, files: Files, path: Path, slots: int) -> None:
        self._files = files
        self.path = path
        self._slots = slots
        self._file: MappedFile | None = None
        self.is_unsynced = False

    def __repr__(self) -> str:
        return f"<Wheel {self._slots} slots{' unmade' if self._file is None else ''}>"

    @property
    def is_made(self) -> bool:
        return self._file is not None

    @property
    def slots(self) -> int:
        return self._slots

    def load(self) -> bool:
        """Map the file; whether there is one. Raises StoreError if it has another size."""
        size_bytes = self._files.size(self.path)
        if not size_bytes:
            return False
        if size_bytes != self._slots * SLOT_BYTES:
            raise StoreError(
                f"{self.path} has {size_bytes} bytes, expected {self._slots * SLOT_BYTES}:"
                " restore it, or delete it to have it rebuilt from the timer log"
            )
        # Apache's file has holes; a write to one on a full disk would kill the process.
        self._files.allocate(self.path, 0, size_bytes)
        self._file = self._files.map(self.path, in_small_pieces=True)
        self.is_unsynced = True  # what a killed process wrote last is there, but perhaps not on disk
        return True

    def make(self) -> None:
        """Create the file if there is none. Raises OSError."""
        if self._file is None:
            size_bytes = self._slots * SLOT_BYTES
            if self._files.size(self.path) == 0:
                self._files.remove(self.path)
            self._files.create(self.path, size_bytes, size_bytes)
            self._files.sync(self.path)
            self._files.sync_all_directories()
            self._file = self._files.map(self.path, in_small_pieces=True)

    def slot(self, number: int) -> Slot | None:
        if self._file is None:
            return None
        slot = Slot(*_SLOT.unpack_from(self._file.buffer, number % self._slots * SLOT_BYTES))
        return slot if slot.number == number else None

    def next_used(self, number: int, end: int) -> int:
        """The first slot from `number` on that has units, or `end`."""
        if self._file is None or number >= end:
            return end
        buffer, slots, unpack = self._file.buffer, self._slots, _NUMBER.unpack_from
        end_of_turn = min(end, number + slots)
        while number < end_of_turn:
            first = number % slots
            count = min(_SLOTS_AT_ONCE, end_of_turn - number, slots - first)
            # Most of a wheel is empty: look at many slots at once for anything but zeros.
            if buffer[first * SLOT_BYTES : (first + count) * SLOT_BYTES] != _ZEROS[: count * SLOT_BYTES]:
                for each in range(number, number + count):
                    if unpack(buffer, each % slots * SLOT_BYTES)[0] == each:
                        return each
            number += count
        return end

    def put(self, slot: Slot) -> None:
        assert self._file is not None
        _SLOT.pack_into(self._file.buffer, slot.number % self._slots * SLOT_BYTES, *slot)
        self.is_unsynced = True

    def clear(self, number: int) -> None:
        assert self._file is not None
        place = number % self._slots * SLOT_BYTES
        self._file.buffer[place : place + SLOT_BYTES] = _NOTHING
        self.is_unsynced = True

    def all(self) -> Iterator[Slot]:
        """Every slot that has a number; parts of the file that were never written are not read."""
        if self._file is None:
            return
        with self._files.open(self.path) as reader:
            for start, end in reader.data_after(0):
                start -= start % SLOT_BYTES
                end = min(-(-end // SLOT_BYTES) * SLOT_BYTES, self._file.size_bytes)
                for place in range(start, end, _PIECE_BYTES):
                    piece = self._file.buffer[place : min(place + _PIECE_BYTES, end)]
                    if piece != _ZEROS[: len(piece)]:
                        yield from (Slot(*each) for each in _SLOT.iter_unpack(piece) if each[0])

    def close(self) -> None:
        if self._file is not None:
            self._file.try_close()
            self._file = None
