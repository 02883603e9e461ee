"""Reading a compacted queue: first its snapshot, and behind that what the log has.

Messages keep their queue offsets, so there are gaps: a read continues with the next message that is there.
"""

from collections.abc import Collection
from typing import Final

from msgspec.structs import replace

from pyromq.store.compacted.snapshot import QueueSnapshot
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.reading import RecordFilter, StoreReader
from pyromq.store.results import Boundary, ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings

_MIN_BYTES: Final = 100
_MAX_SCANNED: Final = 2048


class CompactedReader:
    def __init__(self, log: CommitLog, reader: StoreReader, settings: StoreSettings) -> None:
        self._log = log
        self._reader = reader
        self._settings = settings

    def apply_settings(self, settings: StoreSettings) -> None:
        self._settings = settings

    def read(
        self,
        queue: ConsumeQueue,
        snapshot: QueueSnapshot,
        offset: int,
        limits: tuple[int, int],
        tag_codes: Collection[int] | None,
        only: RecordFilter | None,
    ) -> ReadResult:
        """`limits`: how many messages, and how many bytes."""
        max_messages, max_bytes = limits
        least, shown = self.min_offset(queue, snapshot), _shown(queue, snapshot)
        if not 0 <= offset < shown:
            result = self._reader.read(queue, offset, max_messages, max_bytes, tag_codes, only)
            next_offset = least if offset < 0 else result.next_offset
            return replace(result, next_offset=next_offset, min_offset=least)
        max_messages = min(max(max_messages, 1), self._settings.max_batch_in_memory)
        max_bytes = min(max(max_bytes, _MIN_BYTES), self._settings.max_batch_bytes_in_memory)
        views, size_bytes, tested = list[memoryview](), 0, 0
        first = snapshot.first_at(offset)
        last = min(first + _MAX_SCANNED, snapshot.count)
        next_offset = snapshot[last].queue_offset if last < snapshot.count else shown
        for entry in snapshot.entries(first, last):
            if entry.queue_offset >= shown:
                next_offset = shown
                break
            is_full = len(views) >= max_messages or size_bytes + entry.size > max_bytes
            is_over = only is not None and tested and only.is_over is not None and only.is_over()
            if (views and is_full) or is_over:
                next_offset = entry.queue_offset
                break
            if tag_codes is not None and entry.tags_code not in tag_codes:
                continue
            if (view := snapshot.record(entry)) is None:
                continue  # it is damaged
            tested += only is not None
            if only is None or only.matches(view):
                views.append(view)
                size_bytes += entry.size
        # Without messages, readers ask again at once, behind the gap.
        status = ReadStatus.FOUND if views else ReadStatus.NO_MATCHED_MESSAGE
        end = queue.end_offset
        return ReadResult(status, min(next_offset, end), least, end, views, len(views), size_bytes)

    def min_offset(self, queue: ConsumeQueue, snapshot: QueueSnapshot) -> int:
        """The first message that readers get."""
        shown = _shown(queue, snapshot)
        offset = snapshot[0].queue_offset if snapshot.count else shown
        return offset if offset < shown else max(shown, queue.min_offset(self._log.start_offset))

    def covers(self, queue: ConsumeQueue, snapshot: QueueSnapshot, offset: int) -> bool:
        return offset < _shown(queue, snapshot)

    def stored_at(self, queue: ConsumeQueue, snapshot: QueueSnapshot, offset: int) -> int:
        """The store time of a message that the snapshot covers; -1 for one that is not there."""
        number = snapshot.first_at(offset)
        if number >= snapshot.count or snapshot[number].queue_offset != offset:
            return -1
        return snapshot[number].stored_ms

    def offset_at(
        self, queue: ConsumeQueue, snapshot: QueueSnapshot, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """LOWER: the first message stored at or after a time. UPPER: the last one stored at or before it."""
        shown = _shown(queue, snapshot)
        low, high = 0, snapshot.first_at(shown)
        end = high
        while low < high:
            middle = (low + high) // 2
            stored_ms = snapshot[middle].stored_ms
            if stored_ms < timestamp_ms or (boundary is Boundary.UPPER and stored_ms == timestamp_ms):
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.LOWER and low < end:
            return snapshot[low].queue_offset
        if low == end and shown < queue.end_offset:
            found = self._reader.offset_at(queue, timestamp_ms, boundary)
            stored_ms = self._reader.stored_at(queue, found)
            if boundary is Boundary.LOWER or (found >= shown and 0 <= stored_ms <= timestamp_ms):
                return max(found, shown)
        if boundary is Boundary.LOWER or not end:
            return shown
        return snapshot[max(low - 1, 0)].queue_offset


def _shown(queue: ConsumeQueue, snapshot: QueueSnapshot) -> int:
    """Before this offset the snapshot is read. While the log is cut it may know more than the queue."""
    return min(snapshot.end.queue_offset, queue.end_offset)
