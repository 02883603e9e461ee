"""Reading a queue: which messages one answer holds, and where they are.

Messages are handed out as slices of the log; only small ones that lie apart may be copied together, where
that is cheaper than slices.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection
from itertools import accumulate
from typing import Final

from pyromq.compiled import twin
from pyromq.store.commit_log import CommitLog
from pyromq.store.consume_queue import UNIT, UNIT_BYTES, ConsumeQueue
from pyromq.store.results import Boundary, ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings

_native = twin("slicing")

RecordTest = Callable[[memoryview], bool]
IsOver = Callable[[], bool]
"""Says that a read has taken long enough: what it has found by then is its answer."""

_FOUND: Final = ReadStatus.FOUND
_PLACE: Final = struct.Struct(">qi8x")
_LEAST_BYTES: Final = 100
_MOST_BYTES: Final = 128 * 1024 * 1024
_MOST_SCANNED: Final = 8192


class QueueReader:
    def __init__(self, log: CommitLog, settings: StoreSettings) -> None:
        self._log = log
        self._settings = settings
        physical_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._in_memory_bytes = physical_bytes * settings.in_memory_ratio // 100

    def read(
        self,
        queue: ConsumeQueue | None,
        offset: int,
        max_messages: int,
        max_bytes: int,
        tag_codes: Collection[int] | None,
        matches: RecordTest | None,
        is_over: IsOver | None = None,
    ) -> ReadResult:
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        log = self._log
        max_offset = queue.end_offset
        min_offset = queue.min_offset(log.start_offset)
        if max_offset == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
        if offset < min_offset:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        if offset == max_offset:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)
        settings = self._settings
        max_messages = max(max_messages, 1)  # java: an answer has one message at least
        max_bytes = min(max(max_bytes, _LEAST_BYTES), _MOST_BYTES)
        plain = tag_codes is None and matches is None
        # java: at least 800 units, and not fewer than were asked for; here that has an end
        scan = max_messages
        if not plain:
            scan = max(settings.max_filter_bytes // UNIT_BYTES, min(max_messages, _MOST_SCANNED))
        count = min(scan, max_offset - offset)
        try:
            units, position = queue.place(offset)
        except FileNotFoundError:
            next_offset = queue.first_offset_after_file(offset)
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
        first_place = _PLACE.unpack_from(units, position)[0]
        is_far = log.end_offset - first_place > self._in_memory_bytes
        if is_far:
            most_messages, most_bytes = settings.max_batch_on_disk, settings.max_batch_bytes_on_disk
        else:
            most_messages, most_bytes = settings.max_batch_in_memory, settings.max_batch_bytes_in_memory
        if max_messages > most_messages:
            max_messages = most_messages
        if max_bytes > most_bytes:
            max_bytes = most_bytes
        # java: the tags code of a delayed message is a time, so tags cannot be told from it
        codes = None if queue.is_schedule else tag_codes
        if _native is not None and matches is None:
            segment = log.segments.find(first_place)
            if segment is not None:
                found = _native.slice_records(
                    units,
                    position,
                    count,
                    codes,
                    segment.mapped.view,
                    segment.start,
                    log.end_offset,
                    max_messages,
                    max_bytes,
                )
                if found is not None:
                    examined, messages, size_bytes, views = found
                    return ReadResult(
                        _FOUND if messages else ReadStatus.NO_MATCHED_MESSAGE,
                        offset + examined,
                        min_offset,
                        max_offset,
                        views,
                        messages,
                        size_bytes,
                        is_far,
                    )
        raw = units[position : position + count * UNIT_BYTES]
        if plain:
            places = list(_PLACE.iter_unpack(raw[: max_messages * UNIT_BYTES]))
            size_bytes = sum([size for _, size in places])
            if size_bytes > max_bytes:
                fitting = bisect_right(list(accumulate([size for _, size in places])), max_bytes)
                places = places[: max(fitting, 1)]
                size_bytes = sum([size for _, size in places])
            views = self._slices(places, size_bytes)
            if views:
                return ReadResult(
                    ReadStatus.FOUND,
                    offset + len(places),
                    min_offset,
                    max_offset,
                    views,
                    len(places),
                    size_bytes,
                    is_far,
                )
        return self._scan(
            queue, offset, raw, max_messages, max_bytes, codes, matches, is_over, min_offset, is_far
        )

    def _slices(self, places: list[tuple[int, int]], size_bytes: int) -> list[memoryview]:
        """The records at these places if one file has them all, in one slice if nothing lies between them."""
        log = self._log
        first = places[0][0]
        last, last_size = places[-1]
        segment = log.segments.find(first)
        if segment is None or last >= segment.end or last + last_size > log.end_offset:
            return []
        view, start = segment.mapped.view, segment.start
        if last + last_size - first == size_bytes:
            return [view[first - start : last + last_size - start]]
        if any(place < start or size < 1 or place > last for place, size in places):
            return []
        return [view[place - start : place - start + size] for place, size in places]

    def _scan(
        self,
        queue: ConsumeQueue,
        offset: int,
        raw: bytes,
        max_messages: int,
        max_bytes: int,
        tag_codes: Collection[int] | None,
        matches: RecordTest | None,
        is_over: IsOver | None,
        min_offset: int,
        is_far: bool,
    ) -> ReadResult:
        log = self._log
        views: list[memoryview] = []
        size_bytes = 0
        status = ReadStatus.NO_MATCHED_MESSAGE
        tested = 0
        for place, size, code in UNIT.iter_unpack(raw):
            if views and (len(views) >= max_messages or size_bytes + size > max_bytes):
                break
            if tested and is_over is not None and is_over():
                break
            offset += 1
            if tag_codes is not None and code not in tag_codes:
                continue
            view = log.view(place, size)
            if view is None:
                if not views:
                    status = ReadStatus.MESSAGE_WAS_REMOVING
                continue
            if matches is not None:
                tested += 1
                if not matches(view):
                    continue
            views.append(view)
            size_bytes += size
            status = ReadStatus.FOUND
        return ReadResult(status, offset, min_offset, queue.end_offset, views, len(views), size_bytes, is_far)

    def offset_at(self, queue: ConsumeQueue, timestamp_ms: int, boundary: Boundary) -> int:
        """LOWER: the first message stored at or after a time. UPPER: the last one stored at or before it."""
        low = first = queue.min_offset(self._log.start_offset)
        high = queue.end_offset
        while low < high:
            middle = readable = (low + high) // 2
            stored_ms = self.stored_at(queue, middle)
            while stored_ms < 0 and readable + 1 < high:  # a gap says no time: the next message does
                readable += 1
                stored_ms = self.stored_at(queue, readable)
            if stored_ms < 0:
                high = middle
            elif stored_ms < timestamp_ms or (boundary is Boundary.UPPER and stored_ms == timestamp_ms):
                low = readable + 1
            else:
                high = middle
        if boundary is Boundary.LOWER:
            while low < queue.end_offset and self.stored_at(queue, low) < 0:
                low += 1
            return low
        low = max(low - 1, first)
        while low > first and self.stored_at(queue, low) < 0:
            low -= 1
        return low

    def stored_at(self, queue: ConsumeQueue, offset: int) -> int:
        """The store time of a message; -1 for one the log no longer has."""
        stored_ms = self._log.store_timestamp(queue.unit(offset)[0])
        return -1 if stored_ms is None else stored_ms
