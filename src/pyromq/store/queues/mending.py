"""Mending: rebuild units that do not point to their messages from the log.

The messages between two sound units lie between their records in the log, so mending reads only that part of
the log. It works in pieces to keep other requests fast: the first piece at once, which is enough for small
damage, the others with each step of the dispatch. If the log does not have a message either, other brokers
are asked for it, and readers wait. If they do not have it, its unit becomes a gap, which readers skip.
Afterwards each unit is sound or a gap, so none is mended twice.
"""

from array import array
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from pyromq.errors import RemoteProtocolError
from pyromq.filesystem import Files
from pyromq.protocol.record import RecordOutline, SysFlag
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.record_checks import next_sound_record
from pyromq.store.queues.all_queues import Queues
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, UNIT, ConsumeQueue
from pyromq.store.queues.queue_files import UNIT_BYTES
from pyromq.store.queues.tags_codes import TagsCodes
from pyromq.store.queues.unit_checks import is_sound, why_unsound
from pyromq.store.results import QueueAdvance

_PIECE: Final = 1000
"""Units or records read in one piece: a few milliseconds."""
_RETRY_SECONDS: Final = 1.0
_MAX_REMARKS: Final = 1000


class Mending:
    def __init__(
        self,
        files: Files,
        log: CommitLog,
        queues: Queues,
        tags_codes: TagsCodes,
        dispatched_offset: Callable[[], int],
    ) -> None:
        """`dispatched_offset` returns the log offset before which every message has a unit."""
        self._files = files
        self._log = log
        self._queues = queues
        self._tags_codes = tags_codes
        self._dispatched_offset = dispatched_offset
        self._work: dict[ConsumeQueue, Iterator[None]] = {}
        self._failed: dict[ConsumeQueue, str] = {}
        self._resting: set[ConsumeQueue] = set()
        self._next_retry = 0.0
        self._mended: list[ConsumeQueue] = []
        self.has_work = False
        """Whether `step` has something to do."""
        self._remarks: deque[str] = deque(maxlen=_MAX_REMARKS)
        self.is_awaited: Callable[[int], bool] = lambda _: False
        """Whether other brokers are asked for what the log has lost at an offset."""

    def __repr__(self) -> str:
        return f"<Mending {len(self._work)} queues>"

    def mend(self, queue: ConsumeQueue, offset: int) -> bool:
        """Start mending a queue around a damaged unit; True if it is already mended."""
        if queue in self._work or queue in self._resting:
            return False
        why = why_unsound(self._log, queue, offset, *queue.unit(offset)[:2])
        self._work[queue] = self._mend(queue, offset, why)
        self.has_work = True
        if self._advance(queue):
            return queue not in self._resting
        self._remarks.append(f"queue {_name(queue)}: {why}; searching the log for its messages")
        return False

    def step(self) -> list[QueueAdvance]:
        """Continue with the first unfinished queue; return the mended queues."""
        for queue in self._work:
            self._advance(queue)
            break
        mended, self._mended = self._mended, []
        self.has_work = bool(self._work)
        return [QueueAdvance(queue.topic, queue.queue_id, queue.end_offset) for queue in mended]

    def retry(self, now: float) -> None:
        """Allow another attempt for queues that could not be written."""
        if now >= self._next_retry:
            self._next_retry = now + _RETRY_SECONDS
            self._resting.clear()

    def take_remarks(self) -> list[str]:
        """Log texts about damage and mending since the last call."""
        remarks = list(self._remarks)
        self._remarks.clear()
        return remarks

    def close(self) -> None:
        self._work.clear()
        self.has_work = False

    def _advance(self, queue: ConsumeQueue) -> bool:
        """Do a piece of the work on a queue; True if the work has ended, with or without success."""
        work = self._work[queue]
        try:
            for _ in range(_PIECE):
                if next(work, self) is self:
                    break
            else:
                return False
            self._failed.pop(queue, None)
        except OSError as error:
            self._resting.add(queue)
            if self._failed.get(queue) != str(error):
                self._failed[queue] = str(error)
                self._remarks.append(f"queue {_name(queue)} is damaged and cannot be mended yet: {error}")
        del self._work[queue]
        return True

    def _mend(self, queue: ConsumeQueue, offset: int, why: str) -> Iterator[None]:
        """The whole work on a queue; yields after each unit or record read."""
        log = self._log
        first, end = offset, offset + 1
        queue_end, walk_end = queue.end_offset, self._dispatched_offset()
        min_offset = queue.min_offset(log.start_offset)
        walk_start = gap_place = 0
        while first > min_offset:
            place, size = self._place(queue, first - 1)
            if is_sound(log, queue, first - 1, place, size):
                walk_start, gap_place = place + size, place + 1
                break
            first -= 1
            yield
        while end < queue_end:
            place, size = self._place(queue, end)
            if is_sound(log, queue, end, place, size):
                walk_end = place
                break
            end += 1
            yield
        # Written only after the whole search: if a topic was deleted and created again, the log may have
        # older messages with the same numbers, and the last one counts.
        found = array("q", bytes(3 * 8 * (end - first)))
        holes: list[int] = []
        for _ in self._find(queue, first, end, walk_start, walk_end, found, holes):
            yield
        if 0 in found[1::3] and any(map(self.is_awaited, holes)):
            self._resting.add(queue)
            return
        lost = 0
        for number in range(first, end):
            place, size, code = found[3 * (number - first) : 3 * (number - first) + 3]
            if is_sound(log, queue, number, place, size):
                self._put(queue, number, place, size, code)
                gap_place = place + 1
            elif self._place(queue, number)[1] != PRE_BLANK_SIZE:
                self._put(queue, number, gap_place, PRE_BLANK_SIZE, 0)
                lost += 1
            yield
        if self._queues.find(queue.topic, queue.queue_id) is not queue:
            return
        queue.forget_min_offset()
        self._mended.append(queue)
        which = f"units {first} to {end - 1} were" if end - first > 1 else f"unit {first} was"
        fate = f", but the log has lost {lost} of these messages" if lost else ""
        self._remarks.append(f"queue {_name(queue)}: {why}; {which} rebuilt from the log{fate}")

    def _find(
        self,
        queue: ConsumeQueue,
        first: int,
        end: int,
        walk_start: int,
        walk_end: int,
        found: "array[int]",
        holes: list[int],
    ) -> Iterator[None]:
        """Search a part of the log for the messages `first` to `end` and put their units into `found`; the
        log offsets of damage on the way go to `holes`."""
        log = self._log
        place = walk_start
        while place < walk_end:
            place = max(place, log.start_offset)  # files may be removed meanwhile
            try:
                there = log.outline(place)
            except RemoteProtocolError:
                holes.append(place)
                following = next_sound_record(self._files, log, place, walk_end)
                if following is None:
                    return
                place = following
                continue
            if there is None:
                return
            segment, outline = there
            if outline is None:
                place = segment.end
                continue
            if (
                outline.queue_id == queue.queue_id
                and first <= outline.queue_offset < end
                and outline.topic == queue.topic
                and not outline.sys_flag & SysFlag.TRANSACTION_PREPARED
            ):
                at = 3 * (outline.queue_offset - first)
                found[at], found[at + 1] = place, outline.size
                found[at + 2] = self._tags_codes.of_record(queue, segment, outline)
            place += outline.size
            yield

    def restore(self, outline: RecordOutline) -> None:
        """Give a message that is back in the log its unit. Raises OSError."""
        segment = self._log.source.find(outline.log_offset)
        queue, number = self._queues.find(outline.topic, outline.queue_id), outline.queue_offset
        if (
            queue is None
            or segment is None
            or outline.sys_flag & SysFlag.TRANSACTION_PREPARED
            or not queue.first_unit <= number < queue.end_offset
            or is_sound(self._log, queue, number, *self._place(queue, number))
        ):
            return
        code = self._tags_codes.of_record(queue, segment, outline)
        self._put(queue, number, outline.log_offset, outline.size, code)
        queue.forget_min_offset()
        self._mended.append(queue)
        self.has_work = True

    def lose(self, outline: RecordOutline) -> None:
        """A message leaves the log: its unit becomes a gap. Raises OSError."""
        queue, number = self._queues.find(outline.topic, outline.queue_id), outline.queue_offset
        if (
            queue is not None
            and queue.first_unit <= number < queue.end_offset
            and self._place(queue, number)[0] == outline.log_offset
        ):
            self._put(queue, number, outline.log_offset, PRE_BLANK_SIZE, 0)
            queue.forget_min_offset()

    def _place(self, queue: ConsumeQueue, offset: int) -> tuple[int, int]:
        """Log offset and size of a unit; a pre-blank one if its file is gone."""
        try:
            return queue.unit(offset)[:2]
        except FileNotFoundError:
            return 0, PRE_BLANK_SIZE

    def _put(self, queue: ConsumeQueue, offset: int, place: int, size: int, code: int) -> None:
        if self._queues.find(queue.topic, queue.queue_id) is not queue or offset < queue.first_unit:
            return  # deleted or cleaned meanwhile
        files = self._queues.queue_files
        byte_offset = offset * UNIT_BYTES
        position = byte_offset % files.file_bytes
        mapped, _ = files.open_for_writing(queue, byte_offset - position, position)
        UNIT.pack_into(mapped.buffer, position, place, size, code)


def _name(queue: ConsumeQueue) -> str:
    return f"{queue.topic}/{queue.queue_id}"
