"""The entries of all light queues, in the order of the log, in files that are only appended to.

    position  size  field
           0     8  log offset of the record
           8     8  offset of the message in its light queue
          16     8  tags code, as in a unit of a queue
          24     8  one more than the number of the queue's previous entry; 0 if there is none
          32     8  the same of an earlier entry, far back: see `LightQueues`
          40     4  size of the record; -1 for the removal of the queue
          44     4  number of the queue

Entries are numbered from 0 on, and a file is named after the number of its first one. What follows the last
entry is zeros.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import offset_name, parse_offset_name
from pyromq.store.light.light_end import EntriesEnd

ENTRY: Final = struct.Struct(">qqqqqiI")
REMOVAL: Final = -1

_pack = ENTRY.pack_into
_unpack = ENTRY.unpack_from


class Entry(NamedTuple):
    log_offset: int
    queue_offset: int
    tags_code: int
    previous: int
    jump: int
    size: int
    queue: int


class LightEntries(EntriesEnd):
    def __init__(self, files: Files, directory: Path, per_file: int) -> None:
        self._files = files
        self._directory = directory
        self.per_file = per_file
        self.mapped = {}
        self.dirty = set()
        self.first = self.end = 0
        self._close_for_writing()

    def __repr__(self) -> str:
        return f"<LightEntries {self.first}..{self.end}>"

    def __getitem__(self, number: int) -> Entry:
        """An entry that is kept."""
        start = number - number % self.per_file
        return Entry._make(_unpack(self.mapped[start].buffer, (number - start) * ENTRY.size))

    def last(self) -> Entry | None:
        return self[self.end - 1] if self.end > self.first else None

    def find(self, place: int) -> Entry | None:
        """The entry that another one names, if it is kept."""
        return self[place - 1] if place > self.first else None

    def make_room(self, count: int) -> None:
        """The next entries can be put. Raises OSError if there is no room on the disk."""
        for start in range(self.end - self.end % self.per_file, self.end + count, self.per_file):
            if start not in self.mapped:
                path, size_bytes = self._path(start), self.per_file * ENTRY.size
                if self._files.size(path) is not None:
                    self._files.remove(path)  # it has nothing but what was cut off
                self._files.create(path, size_bytes, size_bytes)
                self.mapped[start] = self._files.map(path, in_small_pieces=True)

    def put(self, entry: tuple[int, int, int, int, int, int, int]) -> None:
        """Add an entry, for which there must be room."""
        number = self.end
        if self.buffer is None or not self.buffer_start <= number < self.buffer_end:
            self.buffer_start = number - number % self.per_file
            self.buffer_end = self.buffer_start + self.per_file
            self.buffer, self.is_dirty = self.mapped[self.buffer_start].buffer, False
        _pack(self.buffer, (number - self.buffer_start) * ENTRY.size, *entry)
        if not self.is_dirty:
            self.dirty.add(self.buffer_start)
            self.is_dirty = True
        self.end = number + 1

    def _close_for_writing(self) -> None:
        self.buffer, self.buffer_start, self.buffer_end, self.is_dirty = None, 0, 0, False

    def since(self, number: int) -> Iterator[tuple[int, ...]]:
        """The entries from a number on, as plain tuples."""
        while number < self.end:
            start = number - number % self.per_file
            stop = min(self.end, start + self.per_file)
            begin, finish = (number - start) * ENTRY.size, (stop - start) * ENTRY.size
            yield from ENTRY.iter_unpack(self.mapped[start].buffer[begin:finish])
            number = stop

    def cut(self, end: int) -> None:
        """Drop the entries from a number on. Raises OSError."""
        self._close_for_writing()
        for start in [each for each in self.mapped if each + self.per_file > end]:
            if start >= end:
                self.mapped.pop(start).try_close()
                self._files.remove(self._path(start))
                self.dirty.discard(start)
            else:
                position = (end - start) * ENTRY.size
                with self._files.open(self._path(start)) as reader:
                    is_clean = reader.is_zero_after(position)
                if not is_clean:
                    self.mapped[start].view[position:] = bytes(self.per_file * ENTRY.size - position)
                    self.dirty.add(start)
        self.end = end

    def can_clean(self, log_start: int) -> bool:
        """Whether the records of the first file have all left the log; the last file stays."""
        after = self.first - self.first % self.per_file + self.per_file
        return after < self.end and self[after - 1].log_offset < log_start

    def clean(self, log_start: int, before: int) -> None:
        """Delete files whose records have all left the log, and whose entries are before a number."""
        while self.can_clean(log_start):
            start = self.first - self.first % self.per_file
            if start + self.per_file > before:
                return
            self.mapped.pop(start).try_close()
            self._files.remove(self._path(start))
            self.dirty.discard(start)
            self.first = start + self.per_file

    def take_dirty(self) -> list[Path]:
        """The files that were changed since the last call."""
        dirty, self.dirty, self.is_dirty = self.dirty, set(), False
        return [self._path(start) for start in sorted(dirty)]

    def load(self, before: int) -> None:
        """Take over the entries of records before a log offset, and drop the rest.

        Raises StoreError if a file is missing or has another size.
        """
        starts = sorted(
            start
            for each in self._files.names(self._directory)[0]
            if (start := parse_offset_name(each)) is not None
        )
        size_bytes = self.per_file * ENTRY.size
        for index, start in enumerate(starts):
            path = self._path(start)
            if start % self.per_file or start != starts[0] + index * self.per_file:
                raise StoreError(f"{path} does not follow the file before it")
            if self._files.size(path) != size_bytes:
                raise StoreError(f"{path} has {self._files.size(path)} bytes, expected {size_bytes}")
            self.mapped[start] = self._files.map(path, in_small_pieces=True)
        if not starts:
            return
        self.first, low, high = starts[0], starts[0], self.capacity
        while before and low < high and self[low].size and not self[low].log_offset:
            low += 1  # of the first record of the log
        while low < high:
            middle = (low + high) // 2
            entry = self[middle]
            # Without a log offset it is torn: of its two sectors, the first one was lost.
            if entry.size and 0 < entry.log_offset < before:
                low = middle + 1
            else:
                high = middle
        self.cut(self._behind_removals(low))

    def _behind_removals(self, end: int) -> int:
        """Where the entries end, if not before `end`: a power failure may leave removals behind others that
        are lost, for they are of no record, whose log offset would show whether they are safe."""
        number = end
        while number > self.first and self[number - 1].size <= 0:
            number -= 1
        while number < end and self[number].size == REMOVAL:
            number += 1
        return number

    @property
    def capacity(self) -> int:
        """The number behind the last entry for which there is a file; 0 without files."""
        return max(self.mapped, default=-self.per_file) + self.per_file

    def drop(self) -> None:
        """Begin with nothing. Raises OSError."""
        self.close()
        for name in self._files.names(self._directory)[0]:
            if parse_offset_name(name) is not None:
                self._files.remove(self._directory / name)
        self.dirty.clear()
        self.first = self.end = 0

    def close(self) -> None:
        self._close_for_writing()
        for mapped in self.mapped.values():
            mapped.try_close()
        self.mapped.clear()

    def _path(self, start: int) -> Path:
        return self._directory / offset_name(start)
