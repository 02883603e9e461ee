"""A snapshot: the newest message of each key of one queue, up to a queue offset. Its file never changes.

    records   as in the log, one after the other, by queue offset
    index     one entry of 64 bytes for each record
    trailer   64 bytes

The next snapshot is written to another file, which takes its name when it is whole and synced. So there is a
good one at any time. docs/formats/compacted.md has the fields.
"""

import errno
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

import msgspec

from pyromq.errors import StoreError
from pyromq.filesystem import Files, MappedFile, Writer
from pyromq.protocol.record import peek_log_offset, peek_queue_offset, peek_size

MAGIC: Final = b"PMQCOMP1"
ENTRY: Final = struct.Struct(">qqqiiqq16s")
_TRAILER: Final = struct.Struct(">8sqqqq8x4xIII")
_TRAILER_CRC: Final = struct.Struct(">I")
_INCOMPLETE: Final = 1
_QUEUE_OFFSET: Final = struct.Struct(">q")
_LOG_OFFSET: Final = struct.Struct(">8xq")


class SnapshotEntry(NamedTuple):
    """One record of a snapshot."""

    queue_offset: int
    log_offset: int
    position: int
    size: int
    body_size: int
    """0 for a removal: a message without a body says that its key has no value any more."""
    tags_code: int
    stored_ms: int
    key: bytes
    """A digest of the message's keys."""


class SnapshotEnd(msgspec.Struct, frozen=True):
    """The part of a queue that a snapshot covers."""

    queue_offset: int
    """It has the newest message of each key among those before this queue offset."""
    log_offset: int
    """All of these messages are before this log offset."""
    is_complete: bool = True
    """Whether it has the values of all keys; not if the log has lost its end, and newer values with it."""


class QueueSnapshot:
    """A snapshot that is in place, mapped for reading."""

    def __init__(self, files: Files, path: Path) -> None:
        """Raises StoreError if the file is damaged, OSError if it cannot be read."""
        self.path = path
        size_bytes = files.size(path) or 0
        if size_bytes < _TRAILER.size:
            raise StoreError(f"{path} has {size_bytes} bytes, too few for a snapshot")
        self._mapped: MappedFile = files.map(path, writable=False)
        try:
            self._take_trailer()
        except BaseException:
            self.close()
            raise

    def _take_trailer(self) -> None:
        view, path = self._mapped.view, self.path
        begin = len(view) - _TRAILER.size
        magic, queue_end, log_end, index, count, flags, index_crc, crc = _TRAILER.unpack_from(view, begin)
        if magic != MAGIC:
            raise StoreError(f"{path} does not end like a snapshot: {magic!r}, expected {MAGIC!r}")
        if zlib.crc32(view[begin : begin + _TRAILER.size - _TRAILER_CRC.size]) != crc:
            raise StoreError(f"{path}: the trailer does not match its checksum")
        if count < 0 or index < 0 or index + count * ENTRY.size != begin:
            raise StoreError(f"{path}: an index of {count} entries at {index} does not end at {begin}")
        if zlib.crc32(view[index:begin]) != index_crc:
            raise StoreError(f"{path}: the index does not match its checksum")
        self.end = SnapshotEnd(queue_end, log_end, not flags & _INCOMPLETE)
        self.count: int = count
        self._index: int = index

    def __repr__(self) -> str:
        return f"<QueueSnapshot {self.path.parent.name}/{self.path.name} {self.count} up to {self.end}>"

    @property
    def size_bytes(self) -> int:
        return self._mapped.size_bytes

    def __getitem__(self, number: int) -> SnapshotEntry:
        return SnapshotEntry._make(ENTRY.unpack_from(self._mapped.view, self._index + number * ENTRY.size))

    def entries(self, first: int, end: int) -> Iterator[SnapshotEntry]:
        start = self._index + first * ENTRY.size
        content = self._mapped.view[start : self._index + min(end, self.count) * ENTRY.size]
        return map(SnapshotEntry._make, ENTRY.iter_unpack(content))

    def first_at(self, queue_offset: int) -> int:
        """The number of the first record at or behind a queue offset."""
        return self._bisect(_QUEUE_OFFSET, queue_offset)

    def first_behind(self, log_offset: int) -> int:
        """The number of the first record at or behind a log offset."""
        return self._bisect(_LOG_OFFSET, log_offset)

    def _bisect(self, field: struct.Struct, wanted: int) -> int:
        low, high, view = 0, self.count, self._mapped.view
        while low < high:
            middle = (low + high) // 2
            if field.unpack_from(view, self._index + middle * ENTRY.size)[0] < wanted:
                low = middle + 1
            else:
                high = middle
        return low

    def record(self, entry: SnapshotEntry) -> memoryview | None:
        """The bytes of a record; None if they are damaged."""
        view = self._mapped.view[entry.position : entry.position + entry.size]
        if len(view) != entry.size or peek_size(view) != entry.size:
            return None
        is_it = (peek_queue_offset(view), peek_log_offset(view)) == (entry.queue_offset, entry.log_offset)
        return view if is_it else None

    def bytes_at(self, position: int, size_bytes: int) -> memoryview:
        return self._mapped.view[position : position + size_bytes]

    def close(self) -> None:
        """Closes the files; messages that were read stay readable."""
        self._mapped.try_close()


class SnapshotWriter:
    """Writes a new snapshot while the old one stays in place. Its methods wait for the disk and raise
    OSError; any thread may call them."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._index = bytearray()
        self._position = 0
        self._writer: Writer | None = None
        self._writing = Lock()
        """Another thread may close it meanwhile."""

    def begin(self) -> None:
        self._files.make_directories(self._path.parent)
        self._files.write(self._path, b"")
        self._writer = self._files.open_for_writing(self._path)

    def add(self, entries: list[SnapshotEntry], records: list[memoryview]) -> None:
        """Add records, with entries whose positions do not count; a slice may hold several records."""
        with self._writing:
            position = self._position
            for each in entries:
                self._index += ENTRY.pack(*each[:2], position, *each[3:])
                position += each.size
            for record in records:
                self._write(record)

    def finish(self, end: SnapshotEnd) -> None:
        """Make it whole and safe. It takes its place when it is renamed."""
        index, index_crc = self._position, zlib.crc32(self._index)
        flags = 0 if end.is_complete else _INCOMPLETE
        count = len(self._index) // ENTRY.size
        trailer = _TRAILER.pack(MAGIC, end.queue_offset, end.log_offset, index, count, flags, index_crc, 0)[
            : -_TRAILER_CRC.size
        ]
        with self._writing:
            self._write(memoryview(self._index))
            self._write(memoryview(trailer + _TRAILER_CRC.pack(zlib.crc32(trailer))))
        self.close()
        self._files.sync(self._path)

    def close(self) -> None:
        with self._writing:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def discard(self) -> None:
        self.close()
        self._files.remove(self._path)

    def _write(self, content: memoryview) -> None:
        if self._writer is None:
            raise OSError(errno.EBADF, f"{self._path} was closed meanwhile")
        while content:
            written = self._writer.write(self._position, content)
            self._position += written
            content = content[written:]
