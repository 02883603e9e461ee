"""Reading: find the messages of a queue for one answer.

A read returns slices of the log; small messages that are apart may be copied together where that is cheaper.
It returns only messages whose units are sound. A damaged unit ends the answer, and is mended before anything
behind it is read. So does a damaged body that comes from the disk, if other brokers may have it.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection
from itertools import accumulate
from mmap import mmap
from typing import Final

import msgspec

from pyromq.compiled import twin
from pyromq.protocol.record import MIN_RECORD_SIZE, peek_log_offset, peek_queue_offset, peek_size
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.record_checks import first_damaged
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, UNIT, ConsumeQueue
from pyromq.store.queues.mending import Mending
from pyromq.store.queues.queue_files import UNIT_BYTES
from pyromq.store.queues.unit_checks import (
    FAR_STRIDE,
    MAX_CODE,
    MIN_CODE,
    NEAR_STRIDE,
    are_sound,
    is_sound,
    is_tag_code,
)
from pyromq.store.results import Boundary, ReadResult, ReadStatus
from pyromq.store.settings import StoreSettings

_native = twin("store.fast_reading")

RecordTest = Callable[[memoryview], bool]
IsOver = Callable[[], bool]
"""Says that a read has taken long enough: what it has found by then is its answer."""


class RecordFilter(msgspec.Struct, frozen=True):
    """`matches` sees each record. `is_over`, asked between two such tests, ends the read early."""

    matches: RecordTest
    is_over: IsOver | None = None


_FOUND: Final = ReadStatus.FOUND
_DAMAGED: Final = ReadStatus.QUEUE_IS_MENDED
_PLACE: Final = struct.Struct(">qi8x")
_MIN_BYTES: Final = 100
_MAX_BYTES: Final = 128 * 1024 * 1024
_MAX_SCANNED: Final = 8192


class StoreReader:
    def __init__(self, log: CommitLog, mending: Mending, settings: StoreSettings) -> None:
        self._log = log
        self._mending = mending
        self.apply_settings(settings)

    def apply_settings(self, settings: StoreSettings) -> None:
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
        only: RecordFilter | None,
    ) -> ReadResult:
        if queue is None:
            return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        log = self._log
        max_offset = queue.end_offset
        min_offset = queue.min_offset(log.source.start)
        if max_offset == 0:
            return ReadResult(ReadStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
        if offset < min_offset:
            return ReadResult(ReadStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        if offset == max_offset:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            return ReadResult(ReadStatus.OFFSET_OVERFLOW_BADLY, max_offset, min_offset, max_offset)
        settings = self._settings
        if max_messages < 1:
            max_messages = 1  # java: an answer has one message at least
        if not _MIN_BYTES <= max_bytes <= _MAX_BYTES:
            max_bytes = min(max(max_bytes, _MIN_BYTES), _MAX_BYTES)
        plain = tag_codes is None and only is None
        # java: at least 800 units, and not fewer than were asked for; here that has an end
        scan = max_messages
        if not plain:
            scan = max(settings.max_filter_bytes // UNIT_BYTES, min(max_messages, _MAX_SCANNED))
        count = min(scan, max_offset - offset)
        try:
            units, position = queue.place(offset)
        except FileNotFoundError:
            next_offset = queue.first_offset_after_file(offset)
            return ReadResult(ReadStatus.OFFSET_FOUND_NULL, next_offset, min_offset, max_offset)
        first_place = _PLACE.unpack_from(units, position)[0]
        is_far = log.end_offset - first_place > self._in_memory_bytes
        if is_far:
            limit_messages, limit_bytes = settings.max_batch_on_disk, settings.max_batch_bytes_on_disk
        else:
            limit_messages, limit_bytes = settings.max_batch_in_memory, settings.max_batch_bytes_in_memory
        if max_messages > limit_messages:
            max_messages = limit_messages
        if max_bytes > limit_bytes:
            max_bytes = limit_bytes
        # java: the tags code of a delayed message is a time, which says nothing about its tags
        codes = None if queue.is_schedule else tag_codes
        if only is None:
            found = self._compiled_slices(
                queue, offset, units, position, count, codes, max_messages, max_bytes, is_far
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
            views = self._slices(queue, offset, places, size_bytes)
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
        result = self._scan(queue, offset, raw, (max_messages, max_bytes), codes, only, is_far)
        if result.status is _DAMAGED and self._mending.mend(queue, offset):
            return self.read(queue, offset, max_messages, max_bytes, tag_codes, only)
        return result

    def without_damaged(self, result: ReadResult, offset: int) -> ReadResult:
        """The messages from `offset` on, up to the first message whose body does not match its checksum and
        for which other brokers are asked."""
        for index, view in enumerate(result.views):
            at = first_damaged(view)
            while at >= 0 and not self._mending.is_awaited(peek_log_offset(view, at)):
                at = first_damaged(view, at + peek_size(view, at))
            if at < 0:
                continue
            views = [*result.views[:index], view[:at]] if at else result.views[:index]
            if not views:
                return ReadResult(_DAMAGED, offset, result.min_offset, result.max_offset)
            return msgspec.structs.replace(
                result,
                next_offset=peek_queue_offset(view, at),
                views=views,
                message_count=sum(map(_count, views)),
                size_bytes=sum(map(len, views)),
            )
        return result

    def _compiled_slices(
        self,
        queue: ConsumeQueue,
        offset: int,
        units: mmap,
        position: int,
        count: int,
        codes: Collection[int] | None,
        max_messages: int,
        max_bytes: int,
        is_far: bool,
    ) -> tuple[int, int, int, list[memoryview]] | None:
        """Units examined, messages, their bytes and slices, from one file of the log after the other; None
        where there is no compiled twin, or where it declines.
        """
        if _native is None:
            return None
        log, stride = self._log, FAR_STRIDE if is_far else NEAR_STRIDE
        examined = messages = size_bytes = 0
        views: list[memoryview] = []
        end = min(position + count * UNIT_BYTES, len(units))
        while position < end:
            place, size = _PLACE.unpack_from(units, position)
            if messages and (messages >= max_messages or size_bytes + size > max_bytes):
                break
            segment = log.source.find(place)
            if segment is None:
                return None
            found = _native.slice_records(
                units,
                position,
                count - examined,
                codes,
                segment.view,
                segment.start,
                log.end_offset,
                max_messages - messages,
                max_bytes - size_bytes,
                queue.topic_bytes,
                queue.queue_id,
                offset + examined,
                stride,
            )
            if found is None:
                return None
            position += found[0] * UNIT_BYTES
            examined += found[0]
            messages += found[1]
            size_bytes += found[2]
            views += found[3]
        return examined, messages, size_bytes, views

    def _slices(
        self, queue: ConsumeQueue, offset: int, places: list[tuple[int, int]], size_bytes: int
    ) -> list[memoryview]:
        """Slices of the records at these log offsets; one slice if they are adjacent in one file."""
        log = self._log
        first = places[0][0]
        last, last_size = places[-1]
        segment = log.source.find(first)
        if segment is None or not are_sound(log, queue, offset, segment, places):
            return []
        view, start = segment.view, segment.start
        if last + last_size - first == size_bytes:
            return [view[first - start : last + last_size - start]]
        return [view[place - start : place - start + size] for place, size in places]

    def _scan(
        self,
        queue: ConsumeQueue,
        offset: int,
        raw: bytes,
        limits: tuple[int, int],
        tag_codes: Collection[int] | None,
        only: RecordFilter | None,
        is_far: bool,
    ) -> ReadResult:
        """`limits`: how many messages, and how many bytes."""
        log = self._log
        max_messages, max_bytes = limits
        matches, is_over = (only.matches, only.is_over) if only is not None else (None, None)
        views: list[memoryview] = []
        numbers: list[int] = []
        size_bytes = 0
        status = ReadStatus.NO_MATCHED_MESSAGE
        tested = 0
        first, after, log_end = offset, log.start_offset, log.end_offset
        stride = FAR_STRIDE if is_far else NEAR_STRIDE
        for place, size, code in UNIT.iter_unpack(raw):
            if views and (len(views) >= max_messages or size_bytes + size > max_bytes):
                break
            if tested and is_over is not None and is_over():
                break
            if size == PRE_BLANK_SIZE:
                # The log has lost this message.
                if not views:
                    status = ReadStatus.MESSAGE_WAS_REMOVING
            elif tag_codes is not None and code not in tag_codes:
                # A unit that is passed over must look like a good one; only some are compared with the log.
                is_good = (
                    after <= place <= log_end - size
                    and size >= MIN_RECORD_SIZE
                    and MIN_CODE <= code <= MAX_CODE
                    and (offset % stride or is_sound(log, queue, offset, place, size))
                )
                if not is_good and (fault := self._first_fault(queue, first, offset)) is not None:
                    kept = bisect_left(numbers, fault)
                    del views[kept:]
                    size_bytes = sum([len(view) for view in views])
                    offset = fault
                    if not views:
                        status = _DAMAGED if fault == first else ReadStatus.NO_MATCHED_MESSAGE
                    break
                after = place + size
            elif is_sound(log, queue, offset, place, size) and (view := log.view(place, size)) is not None:
                after = place + size
                tested += matches is not None
                if matches is None or matches(view):
                    views.append(view)
                    numbers.append(offset)
                    size_bytes += size
                    status = ReadStatus.FOUND
            else:
                if offset == first:
                    status = _DAMAGED
                break
            offset += 1
        min_offset = queue.min_offset(log.source.start)
        return ReadResult(status, offset, min_offset, queue.end_offset, views, len(views), size_bytes, is_far)

    def _first_fault(self, queue: ConsumeQueue, first: int, last: int) -> int | None:
        """The first unsound unit of several that contradict each other; None if the log confirms them all."""
        for offset in range(first, last + 1):
            place, size, code = queue.unit(offset)
            if size != PRE_BLANK_SIZE and not (
                is_tag_code(code) and is_sound(self._log, queue, offset, place, size)
            ):
                return offset
        return None

    def sound_units(self, queue: ConsumeQueue, offset: int, count: int) -> list[tuple[int | None, int]]:
        """Log offset and tags code of the messages from `offset` on, None for one that the log has lost.

        The list ends before a damaged unit; it is empty while the first one is mended.
        """
        found: list[tuple[int | None, int]] = []
        for number, (place, size, code) in enumerate(UNIT.iter_unpack(queue.units(offset, count)), offset):
            if size == PRE_BLANK_SIZE:
                found.append((None, code))
            elif is_sound(self._log, queue, number, place, size):
                found.append((place, code))
            else:
                if number == offset and self._mending.mend(queue, offset):
                    return self.sound_units(queue, offset, count)
                break
        return found

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
        """The store time of a message; -1 for one the log does not have."""
        place = self.place_of(queue, offset)
        stored_ms = None if place is None else self._log.store_timestamp(place)
        return -1 if stored_ms is None else stored_ms

    def is_awaited(self, place: int) -> bool:
        """Whether other brokers are asked for damage at a log offset."""
        return self._mending.is_awaited(place)

    def place_of(self, queue: ConsumeQueue, offset: int) -> int | None:
        """The log offset of a message; None for one that the log does not have."""
        if not queue.min_offset(self._log.start_offset) <= offset < queue.end_offset:
            return None
        found = self.sound_units(queue, offset, 1)
        return found[0][0] if found else None


def _count(view: memoryview) -> int:
    """How many records there are."""
    position = count = 0
    while position < len(view):
        position += peek_size(view, position)
        count += 1
    return count
