"""Messages by key: the index files, of which the newest is written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pyromq.clock import Clock
from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.store.filenames import index_name, is_index_name, next_index_name
from pyromq.store.index.index_file import HEADER, Entry, IndexFile, index_file_bytes
from pyromq.store.index.key_hash import index_key_hash

_ALWAYS_MS: Final = (1 << 63) - 1


class Index:
    def __init__(self, files: Files, directory: Path, clock: Clock, slots: int, units: int) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._slots = slots
        self._units = units
        self._row: list[IndexFile] = []
        self._dirty: list[IndexFile] = []
        self._left_alone = ""
        """The last name among the files of other settings."""

    def __repr__(self) -> str:
        return f"<Index {len(self._row)} files {self.entry_count} entries ..{self.end_log_offset}>"

    @property
    def file_count(self) -> int:
        return len(self._row)

    @property
    def entry_count(self) -> int:
        return sum(each.entry_count for each in self._row)

    @property
    def end_log_offset(self) -> int:
        """Messages up to and including this log offset are in the index; -1 if there is none."""
        for file in reversed(self._row):
            if file.entry_count:
                return file.end_log_offset
        return -1

    @property
    def end_timestamp(self) -> int:
        return self._row[-1].end_timestamp if self._row else 0

    def load(self) -> list[str]:
        """Load the index files; return remarks about removed and ignored ones."""
        remarks = []
        for name in self._files.names(self._directory)[0]:
            path = self._directory / name
            if name.endswith(UNFINISHED_SUFFIX):
                self._files.remove(path)
            elif not is_index_name(name):
                remarks.append(f"index/{name} is not an index file: ignored")
            elif self._is_of_other_settings(path):
                self._left_alone = name
                remarks.append(
                    f"index/{name} was written with another maxHashSlotNum or maxIndexNum: left alone, its"
                    " messages are not found by key until these settings are as they were"
                )
            else:
                try:
                    self._row.append(IndexFile(self._files, path, self._slots, self._units))
                except StoreError as error:
                    self._files.remove(path)
                    remarks.append(f"{error}: removed")
        return remarks

    def _is_of_other_settings(self, path: Path) -> bool:
        size_bytes = self._files.size(path) or 0
        return size_bytes > HEADER.size and size_bytes != index_file_bytes(self._slots, self._units)

    # Writing

    def put(self, entries: list[Entry]) -> None:
        """Add entries in log order and take them off the list; an OSError leaves the unwritten ones on it."""
        while entries:
            file = self._writable_file()
            added = file.put(entries)
            self.mark_dirty(file)
            del entries[:added]

    def _writable_file(self) -> IndexFile:
        last = self._row[-1] if self._row else None
        if last is not None and not last.is_full:
            return last
        name = index_name(self._clock.now_ms())
        last_name = max(self._left_alone, last.path.name if last is not None else "")
        if name <= last_name:
            name = next_index_name(last_name)  # the clock was put back, or summer time ended
        path = self._directory / name
        self._row.append(IndexFile.create(self._files, path, self._slots, self._units, last))
        return self._row[-1]

    @property
    def open_file(self) -> IndexFile | None:
        """The file that is written, once it has an entry and while it has room."""
        last = self._row[-1] if self._row else None
        if last is None or not 1 < last.next_unit < last.units:
            return None
        last.map_for_writing()
        return last

    def mark_dirty(self, file: IndexFile) -> None:
        if not self._dirty or self._dirty[-1] is not file:
            self._dirty.append(file)

    def take_dirty(self) -> list[IndexFile]:
        """The files written to since the last call."""
        dirty, self._dirty = self._dirty, []
        return dirty

    # Reading

    def candidates(self, topic: str, key: str, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Log offsets of messages that may have the key, newest first; the caller compares keys and times."""
        key_hash = index_key_hash(f"{topic}#{key}")
        for file in reversed(self._row):
            if file.overlaps(begin_ms, end_ms):
                yield from file.find(key_hash, begin_ms, end_ms)
            if file.begin_timestamp < begin_ms:
                return

    def latest(self, topic: str, key: str) -> Iterator[int]:
        """The same without times, in the two newest files: at least as many keys as one file has units."""
        key_hash = index_key_hash(f"{topic}#{key}")
        for file in reversed(self._row[-2:]):
            yield from file.find(key_hash, 0, _ALWAYS_MS)

    # Recovery and cleaning

    def keep_before(self, log_offset: int) -> int:
        """Drop the entries from `log_offset` on and rebuild the last file; how many files were dropped."""
        dropped = 0
        while self._row and not self._row[-1].rebuild(log_offset):
            self._remove(self._row.pop())
            dropped += 1
        return dropped

    def drop_from(self, log_offset: int) -> None:
        """Drop the entries from `log_offset` on, without reading the others. Raises OSError."""
        while self._row and self._row[-1].end_log_offset >= log_offset:
            if self._row[-1].drop_from(log_offset):
                self.mark_dirty(self._row[-1])
                return
            self._remove(self._row.pop())

    def keep_until_timestamp(self, timestamp_ms: int) -> int:
        """java: after a crash, files that end later than the checkpoint says are deleted; how many were."""
        late = [each for each in self._row if each.end_timestamp > timestamp_ms]
        for file in late:
            self._row.remove(file)
            self._remove(file)
        return len(late)

    def clean(self, log_start: int) -> int:
        """Delete files whose messages have all left the log, except the last file."""
        removed = 0
        while len(self._row) > 1 and self._row[0].end_log_offset < log_start:
            self._remove(self._row.pop(0))
            removed += 1
        return removed

    def _remove(self, file: IndexFile) -> None:
        file.close()
        self._files.remove(file.path)
        self._dirty = [each for each in self._dirty if each is not file]

    def close(self) -> None:
        for file in self._row:
            file.close()
        self._row.clear()
