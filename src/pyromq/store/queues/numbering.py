"""Numbering: which queue offsets to trust when recovery rebuilds queues from the log.

No checksum covers a record's queue offset, queue id and topic, and one wrong offset could hide all later
messages of a queue. Offsets in a queue increase by one. A record whose offset jumps ahead therefore waits for
the next records of its queue: if they continue from it, the jump is real, because messages in between were
damaged or have expired; if they continue from before it, its offset is damaged, and the record is kept
out of its queue. It stays in the log.
"""

from collections.abc import Callable
from typing import Final

from pyromq.protocol.record import MIN_RECORD_SIZE, RecordOutline, SysFlag
from pyromq.store.log.segment_source import ReadableSegment
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.consume_queue import ConsumeQueue

_Waiting = list[tuple[ReadableSegment, RecordOutline]]

_MAX_NAMED: Final = 20


class Numbering:
    def __init__(self, queues: Queues, put_unit: Callable[[ReadableSegment, RecordOutline], bool]) -> None:
        self._queues = queues
        self._put_unit = put_unit
        self._waiting: dict[tuple[str, int], _Waiting] = {}
        self.log_start = 0
        self.missing = 0
        """Queue offsets that no record of the log has."""
        self.left_out = 0
        self.places_left_out: list[int] = []
        """Log offsets of the first records that were kept out of their queues."""

    def must_wait(self, segment: ReadableSegment, outline: RecordOutline) -> bool:
        """Whether a record cannot be added to its queue now; its unit is added later, or never."""
        if outline.sys_flag & SysFlag.TRANSACTION_PREPARED:
            return False
        offset = outline.queue_offset
        queue = self._queues.find(outline.topic, outline.queue_id)
        expected = queue.end_offset if queue is not None else 0
        if offset <= expected and not self._waiting:
            return False
        key = (outline.topic, outline.queue_id)
        waiting = self._waiting.get(key)
        if offset < expected or (offset == expected and waiting is None):
            return False
        if offset * MIN_RECORD_SIZE > outline.log_offset:
            self.leave_out(outline)  # the log never had room for that many messages
            return True
        if waiting is not None and self._judge(key, waiting, offset):
            expected = self._end_of(key)
        if offset == expected and key not in self._waiting:
            return False
        self._waiting.setdefault(key, []).append((segment, outline))
        return True

    def _judge(self, key: tuple[str, int], waiting: _Waiting, offset: int) -> bool:
        """Decide about waiting records if a new offset allows it; at most two wait."""
        believed: tuple[ReadableSegment, RecordOutline] | None = None
        for distance, each in enumerate(reversed(waiting), 1):
            if each[1].queue_offset + distance == offset:
                believed = each  # and everything between them follows it
                break
            if each[1].queue_offset < offset and (
                believed is None or believed[1].queue_offset < each[1].queue_offset
            ):
                believed = each
        if believed is None:
            if len(waiting) > 1:
                self.leave_out(waiting.pop(0)[1])
            return False
        for each in waiting:
            if each is not believed:
                self.leave_out(each[1])
        del self._waiting[key]
        self._accept(*believed)
        return True

    def forget(self, queue: ConsumeQueue) -> None:
        """The queue starts over: forget its waiting records."""
        self._waiting.pop((queue.topic, queue.queue_id), None)

    def finish(self) -> None:
        """The walk is over: accept the records that still wait."""
        for waiting in self._waiting.values():
            # Of two with the same offset the first one is wrong: otherwise more than one record was damaged.
            waiting.reverse()
            for segment, outline in sorted(waiting, key=_offset_of):
                if outline.queue_offset >= self._end_of((outline.topic, outline.queue_id)):
                    self._accept(segment, outline)
                else:
                    self.leave_out(outline)
        self._waiting.clear()

    def _end_of(self, key: tuple[str, int]) -> int:
        queue = self._queues.find(*key)
        return queue.end_offset if queue is not None else 0

    def _accept(self, segment: ReadableSegment, outline: RecordOutline) -> None:
        queue = self._queues.get(outline.topic, outline.queue_id)
        end = queue.end_offset
        # Where the log no longer has what a queue leads to, the jump was made by cleaning.
        if end > queue.first_unit and queue.unit(end - 1)[0] >= self.log_start:
            self.missing += outline.queue_offset - end
            queue.fill_gap(outline.queue_offset)
        elif not self.log_start:
            self.missing += outline.queue_offset - end
        self._put_unit(segment, outline)

    def leave_out(self, outline: RecordOutline) -> None:
        """A record stays in the log without a unit."""
        self.left_out += 1
        if len(self.places_left_out) < _MAX_NAMED:
            self.places_left_out.append(outline.log_offset)


def _offset_of(each: tuple[ReadableSegment, RecordOutline]) -> int:
    return each[1].queue_offset
