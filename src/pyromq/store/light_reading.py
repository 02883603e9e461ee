"""Reading a light queue: as `pyromq.store.reading`, but its entries lead to records of other topics."""

from collections.abc import Collection
from typing import Final

from pyromq.protocol.record import SysFlag, peek_log_offset, peek_size, peek_sys_flag
from pyromq.store.light.entries import Entry
from pyromq.store.light.light_queues import LightQueues
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.reading import RecordFilter
from pyromq.store.results import Boundary, ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings

_MIN_BYTES: Final = 100
_MAX_SCANNED: Final = 800


class LightReader:
    def __init__(self, log: CommitLog, queues: LightQueues) -> None:
        self._log = log
        self._queues = queues

    def read(
        self,
        name: str,
        offset: int,
        max_messages: int,
        max_bytes: int,
        settings: StoreSettings,
        tag_codes: Collection[int] | None,
        only: RecordFilter | None,
    ) -> ReadResult:
        least, end = self.min_offset(name), self._queues.max_offset(name)
        if offset < least:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, least, least, end)
        if offset >= end:
            is_next = offset == end
            status = ReadStatus.OFFSET_OVERFLOW_ONE if is_next else ReadStatus.OFFSET_OVERFLOW_BADLY
            return ReadResult(status, end, least, end)
        max_messages = min(max(max_messages, 1), settings.max_batch_in_memory)
        max_bytes = min(max(max_bytes, _MIN_BYTES), settings.max_batch_bytes_in_memory)
        scanned = max_messages if tag_codes is None and only is None else _MAX_SCANNED
        entries = self._queues.entries(name, offset, scanned)
        next_offset = min(offset + scanned, end)
        status, views, size_bytes, tested = ReadStatus.NO_MATCHED_MESSAGE, list[memoryview](), 0, 0
        if not entries:
            # Its messages were damaged: readers continue behind them.
            return ReadResult(ReadStatus.MESSAGE_WAS_REMOVING, next_offset, least, end)
        for entry in entries:
            is_full = len(views) >= max_messages or size_bytes + entry.size > max_bytes
            is_over = only is not None and tested and only.is_over is not None and only.is_over()
            if (views and is_full) or is_over:
                next_offset = entry.queue_offset
                break
            if tag_codes is not None and entry.tags_code not in tag_codes:
                continue
            view = self._record(entry)
            if view is None:
                continue  # the log has lost it
            tested += only is not None
            if only is None or only.matches(view):
                views.append(view)
                size_bytes += entry.size
                status = ReadStatus.FOUND
        return ReadResult(status, next_offset, least, end, views, len(views), size_bytes)

    def _record(self, entry: Entry) -> memoryview | None:
        view = self._log.view(entry.log_offset, entry.size)
        if view is None or peek_size(view) != entry.size or peek_log_offset(view) != entry.log_offset:
            return None
        # Only a filler in its place is in no queue.
        return None if peek_sys_flag(view) & SysFlag.TRANSACTION_PREPARED else view

    def has(self, name: str, queue_id: int) -> bool:
        return queue_id == 0 and name in self._queues

    def max_offset(self, name: str) -> int:
        return self._queues.max_offset(name)

    def next_offset(self, name: str) -> int:
        return self._queues.next_offset(name)

    def min_offset(self, name: str) -> int:
        return self._queues.min_offset(name, self._log.start_offset)

    def place_of(self, name: str, offset: int) -> int | None:
        """The log offset of a message; None for one that the log does not have."""
        found = self._queues.entries(name, offset, 1)
        return found[0].log_offset if found and self._record(found[0]) is not None else None

    def stored_at(self, name: str, offset: int) -> int:
        """The store time of a message; -1 for one that the log does not have."""
        place = self.place_of(name, offset)
        stored_ms = None if place is None else self._log.store_timestamp(place)
        return -1 if stored_ms is None else stored_ms

    def offset_at(self, name: str, timestamp_ms: int, boundary: Boundary) -> int:
        """LOWER: the first message stored at or after a time. UPPER: the last one stored at or before it."""
        low = first = self.min_offset(name)
        high = self._queues.max_offset(name)
        while low < high:
            middle = (low + high) // 2
            stored_ms = self.stored_at(name, middle)
            if stored_ms < timestamp_ms or (boundary is Boundary.UPPER and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        return low if boundary is Boundary.LOWER else max(low - 1, first)
