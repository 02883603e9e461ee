"""Reading the log itself: by place, by time, or by the keys in the index."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import FileReader
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import SysFlag, scan_record
from pyromq.store.log.segment import MissingSegment
from pyromq.store.parts import StoreParts

_MAX_EXAMINED: Final = 4096
"""Number of messages that a query by key looks at; the index knows only hashes of keys."""


class LogReading:
    def __init__(self, parts: StoreParts, max_query_messages: int) -> None:
        self._log = log = parts.log
        self._index = parts.index
        self._deletions = parts.deletions
        self.max_query_messages = max_query_messages
        # Bound here: a method in between would cost a call.
        self.record_at = log.record
        """The record that begins at a log offset."""
        self.records_from = log.records_from
        """The records of the log from a record on, each with its properties; ends at damage."""
        self.bytes_at = log.view_from
        """The log from an offset on as it is, at most to the end of a file; none at its end."""
        self.store_time = log.store_timestamp
        """When the record at a log offset was stored; None if there is none."""
        self.load = log.load
        """Read a part of the log from the disk, in a thread: `bytes_at` of it do not wait then."""

    @property
    def start(self) -> int:
        return self._log.start_offset

    @property
    def end(self) -> int:
        return self._log.end_offset

    def closed_files(self, end: int) -> list[tuple[Path, int, int]]:
        """The files that nothing is appended to any more, up to a log offset: path, start and end."""
        files = [each for each in self._log.segments.row if not isinstance(each, MissingSegment)]
        end = min(end, self._log.end_offset)
        return [(each.path, each.start, each.end) for each in files if each.end <= end]

    def open_file(self, offset: int) -> tuple[FileReader, int, int] | None:
        """The file of a log offset, where in it that is, and where in the log it ends; None without one."""
        try:
            return self._log.open_file(offset)
        except OSError:
            return None

    def committed_records(self, begin: int) -> Iterator[int | None]:
        """The log offsets of messages that a transaction committed, from the log offset `begin` to the end of
        the log as it is now. From time to time it yields None, so that the caller can pause."""
        mask, bits = SysFlag.TRANSACTION_MASK, SysFlag.TRANSACTION_COMMIT
        return self._log.flagged(begin, self._log.end_offset, mask, bits)

    def offset_at(self, timestamp_ms: int) -> int:
        """Where the first record is that was stored at or after a time; reads a file of the log at most."""
        offset = self._log.start_offset
        for segment in self._log.segments.row:
            if 0 < self._log.first_store_timestamp(segment) < timestamp_ms:
                offset = segment.start
        for outline, _ in self.records_from(offset):
            if outline.store_timestamp >= timestamp_ms:
                return outline.log_offset
        return self._log.end_offset

    def earliest_time(self) -> int:
        """The store time of the oldest message; -1 if there is none."""
        stored_ms = self._log.store_timestamp(self._log.start_offset)
        return -1 if stored_ms is None else stored_ms

    def query(
        self, topic: str, key: str, max_messages: int, begin_ms: int = 0, end_ms: int = (1 << 63) - 1
    ) -> list[memoryview]:
        """The newest messages of a topic with a key, in the order of the log. Raises StoreError if too many
        other messages have keys with the same hash."""
        if self._index is None:
            return []
        limit = min(max_messages, self.max_query_messages)
        first = self._deletions.offset_of(topic)
        found: dict[int, memoryview] = {}
        for examined, offset in enumerate(self._index.candidates(topic, key, begin_ms, end_ms)):
            if len(found) >= limit:
                break
            if examined >= _MAX_EXAMINED:
                raise StoreError(
                    f"over {_MAX_EXAMINED} messages have keys with the hash of {key}: choose a shorter time"
                )
            record = self._log.record(offset) if offset >= first else None
            if record is not None and has_key(record, topic, key, begin_ms, end_ms):
                found[offset] = record
        return [record for _, record in sorted(found.items())]

    def latest_with_key(self, topic: str, key: str) -> Iterator[int]:
        """The log offsets of the latest messages of a topic that may have a key, newest first. The caller
        compares keys: the index knows only their hashes."""
        if self._index is not None:
            first = self._deletions.offset_of(topic)
            for offset in islice(self._index.latest(topic, key), _MAX_EXAMINED):
                if offset >= first:
                    yield offset


def has_key(record: memoryview, topic: str, key: str, begin_ms: int, end_ms: int) -> bool:
    """Whether a message has the key, not only its hash, and was stored in that time."""
    outline = scan_record(record)
    if outline is None or outline.topic != topic or not begin_ms <= outline.store_timestamp <= end_ms:
        return False
    properties = bytes(record[outline.properties_start : outline.properties_end])
    return key == get_property(properties, props.UNIQ_KEY) or key in (
        get_property(properties, props.KEYS) or ""
    ).split(" ")
