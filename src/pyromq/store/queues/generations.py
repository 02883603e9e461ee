"""Generations: if queue offsets start at 0 again, the topic was deleted and created again.

The log shows unrecorded deletions in no other way; Apache's broker records none. No checksum covers a queue
offset, so a single 0 is not enough: the next record of the queue must not continue the old numbers.
"""

from array import array
from collections.abc import Callable

from pyromq.protocol.record import RecordOutline, SysFlag
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.consume_queue import ConsumeQueue


def is_new_generation(end_before: int, next_offset: int | None) -> bool:
    """Whether a record with offset 0 in a queue that had `end_before` messages begins a new generation.

    `next_offset` is that of the record behind it in the queue; None if there is none.
    """
    return next_offset is None or next_offset == 1 or next_offset < end_before


def newest_generation(rows: "array[int]", fields: int = 2) -> "array[int]":
    """Of every record of a queue, in log order, those that still count.

    The `fields` of a row are its queue offset, its log offset, and what else is known of it.
    """
    start = end = 0
    offsets = rows[::fields]
    for index, offset in enumerate(offsets):
        following = offsets[index + 1] if index + 1 < len(offsets) else None
        if not offset and end and is_new_generation(end, following):
            start, end = index, 1
        else:
            end = max(end, offset + 1)
    return rows[fields * start :]


class Generations:
    """Finds new generations while a walk over the log builds queues."""

    def __init__(
        self,
        queues: Queues,
        start_over: Callable[[ConsumeQueue, int], None],
        put_unit: Callable[[ReadableSegment, RecordOutline], bool],
    ) -> None:
        """`start_over` removes the units of a queue; the log offset is where the new generation begins."""
        self._queues = queues
        self._start_over = start_over
        self._put_unit = put_unit
        self._waiting: dict[tuple[str, int], tuple[ReadableSegment, RecordOutline]] = {}

    def must_wait(self, segment: ReadableSegment, outline: RecordOutline) -> bool:
        """Whether a record may start a new generation; its unit is added later, or never."""
        if (not self._waiting and outline.queue_offset) or outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
            return False
        key = (outline.topic, outline.queue_id)
        queue = self._queues.find(*key)
        if queue is None:
            return False
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            if waiting[1].log_offset >= outline.log_offset:
                self._waiting[key] = waiting  # the log is walked once more, and has not come to it yet
            elif is_new_generation(queue.end_offset, outline.queue_offset):
                self._accept(queue, *waiting)
        if not outline.queue_offset and -1 < queue.last_place < outline.log_offset:
            self._waiting[key] = segment, outline
            return True
        return False

    def finish(self) -> None:
        """The walk is over: accept the records that still wait."""
        for key, waiting in self._waiting.items():
            queue = self._queues.find(*key)
            if queue is not None:
                self._accept(queue, *waiting)
        self._waiting.clear()

    def _accept(self, queue: ConsumeQueue, segment: ReadableSegment, outline: RecordOutline) -> None:
        self._start_over(queue, outline.log_offset)
        self._put_unit(segment, outline)
