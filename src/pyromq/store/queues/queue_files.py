"""The files of all queues: mapped when used, up to a maximum number.

Queue files are sparse. Blocks are reserved ahead of the writer, a few KiB in a short file and more in a long
one, so that a full disk is an error here and not a crash in the middle of a write.
"""

import resource
from collections import OrderedDict
from mmap import mmap
from pathlib import Path
from typing import Final

from pyromq.filesystem import Files, MappedFile
from pyromq.store.filenames import offset_name
from pyromq.store.queues.queue_end import QueueEnd

UNIT_BYTES: Final = 20

_MIN_RESERVE_BYTES = 16 * 1024
_MAX_RESERVE_BYTES = 256 * 1024
_MIN_MAPPED = 64
_MAX_MAPPED = 30_000
_NOT_MAPPED: Final = bytearray()


class FiledQueue(QueueEnd):
    """A queue, as far as its files are concerned."""

    __slots__ = ("directory", "first_file")

    def __init__(self, directory: Path) -> None:
        self.close_for_writing()
        self.directory = directory
        self.first_file = 0
        """Start of the first file, in bytes."""
        self.end_offset = 0
        """Messages up to here can be read."""
        self.next_offset = 0
        """The offset of the next message to be appended; ahead of `end_offset` by what waits for dispatch."""
        self.is_dirty = False

    def close_for_writing(self) -> None:
        self.write_buffer = _NOT_MAPPED
        self.write_position = self.write_limit = 0

    def writes_to(self, buffer: mmap) -> bool:
        return self.write_buffer is buffer

    def path_of(self, start: int) -> Path:
        return self.directory / offset_name(start)


class QueueFiles:
    def __init__(self, files: Files, units_per_file: int, max_mapped: int = 0) -> None:
        self._files = files
        self._mapped: OrderedDict[tuple[FiledQueue, int], MappedFile] = OrderedDict()
        self._max_mapped = max_mapped or default_mapped_files()
        self._dirty: list[tuple[FiledQueue, int]] = []
        self.file_bytes = units_per_file * UNIT_BYTES

    def __repr__(self) -> str:
        return f"<QueueFiles {len(self._mapped)} of {self._max_mapped} mapped, {len(self._dirty)} dirty>"

    @property
    def mapped_count(self) -> int:
        return len(self._mapped)

    def get(self, queue: FiledQueue, start: int) -> MappedFile:
        key = (queue, start)
        mapped = self._mapped.get(key)
        if mapped is None:
            mapped = self._mapped[key] = self._files.map_for_reading(
                queue.path_of(start), in_small_pieces=True
            )
            self._evict()
        else:
            self._mapped.move_to_end(key)
        return mapped

    def open_for_writing(self, queue: FiledQueue, start: int, position: int) -> tuple[MappedFile, int]:
        """The file at `start`, made if need be, and how far it may be written from `position` on."""
        path = queue.path_of(start)
        reserve_bytes = min(max(position // 4, _MIN_RESERVE_BYTES), _MAX_RESERVE_BYTES)
        limit = min((position + reserve_bytes) // UNIT_BYTES * UNIT_BYTES, self.file_bytes)
        if (queue, start) not in self._mapped and self._files.size(path) is None:
            self._files.create(path, self.file_bytes, limit)
        else:
            self._files.allocate(path, position, limit - position)
        mapped = self.get(queue, start)
        if not mapped.is_writable:  # the disk was read-only when it was mapped
            self._close(queue, start)
            mapped = self.get(queue, start)
        # Every file written to since the last flush is named in the list, the one left behind as well.
        self._dirty.append((queue, start))
        queue.is_dirty = True
        return mapped, limit

    def mark_dirty(self, queue: FiledQueue) -> None:
        last_byte = queue.end_offset * UNIT_BYTES - 1
        self._dirty.append((queue, last_byte - last_byte % self.file_bytes))
        queue.is_dirty = True

    def take_dirty(self) -> list[tuple[FiledQueue, int]]:
        """The files written to since the last call."""
        dirty = list(dict.fromkeys(self._dirty))
        self._dirty.clear()
        for queue, _ in dirty:
            queue.is_dirty = False
        return dirty

    def remove_files(self, queue: FiledQueue, first: int, before: int | None = None) -> int:
        """Delete the files of a queue from `first` to `before` (or the last); how many there were."""
        removed = 0
        end = queue.end_offset * UNIT_BYTES if before is None else before
        for start in range(first, max(end, first), self.file_bytes):
            self._close(queue, start)
            self._files.remove(queue.path_of(start))
            removed += 1
        return removed

    def cut(self, queue: FiledQueue, end_unit: int) -> None:
        """Drop the units from `end_unit` on. Raises OSError."""
        position = end_unit * UNIT_BYTES % self.file_bytes
        start = end_unit * UNIT_BYTES - position
        if position or start == queue.first_file:
            self.zero_after(queue, start, position)
            self._dirty.append((queue, start))
            start += self.file_bytes
        self.remove_files(queue, start)
        self._dirty = [each for each in self._dirty if each[0] is not queue or each[1] < start]
        queue.close_for_writing()
        queue.end_offset = queue.next_offset = end_unit

    def path_of(self, queue: FiledQueue, unit: int) -> Path:
        """The file with a unit."""
        return queue.path_of(unit * UNIT_BYTES // self.file_bytes * self.file_bytes)

    def zero_after(self, queue: FiledQueue, start: int, position: int) -> None:
        self._close(queue, start)
        self._files.zero_after(queue.path_of(start), position)

    def forget(self, queue: FiledQueue) -> None:
        """Unmap the files of a queue."""
        for key in [key for key in self._mapped if key[0] is queue]:
            self._close(*key)
        self._dirty = [each for each in self._dirty if each[0] is not queue]

    def close(self) -> None:
        for key in list(self._mapped):
            self._close(*key)

    def _evict(self) -> None:
        while len(self._mapped) > self._max_mapped:
            self._close(*next(iter(self._mapped)))

    def _close(self, queue: FiledQueue, start: int) -> None:
        mapped = self._mapped.pop((queue, start), None)
        if mapped is not None:
            if queue.writes_to(mapped.buffer):
                queue.close_for_writing()
            mapped.try_close()


def default_mapped_files() -> int:
    """Half of the process's open-file limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _MAX_MAPPED
    return max(_MIN_MAPPED, min(soft // 2, _MAX_MAPPED))
