"""One queue of a topic: a sequence of 20-byte units that point to its messages in the log.

    position  size  field
           0     8  log offset of the record
           8     4  size of the record
          12     8  tags code: Java hash of the tag, 0 without one; for delayed messages their delivery time

Unit number n of a queue is its message with queue offset n. A unit is either all there or all zero: what
follows the last unit is zeros. Units before the first message of a queue whose start is lost are *pre-blank*:
offset 0, size 0x7FFFFFFF. Units of messages that were damaged are *gaps*: one more than the log offset of the
message before them, so that log offsets never decrease, and the same size, which no record has.
"""

import struct
from mmap import mmap
from pathlib import Path
from typing import Final

from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.protocol.record import MIN_RECORD_SIZE, record_size
from pyromq.store.queues.property_probe import PropertyProbe
from pyromq.store.queues.queue_files import UNIT_BYTES, FiledQueue, QueueFiles

UNIT: Final = struct.Struct(">qiq")
PRE_BLANK_SIZE: Final = 0x7FFFFFFF

_pack_unit = UNIT.pack_into


class ConsumeQueue(FiledQueue):
    __slots__ = ("_files", "_min_offset", "_min_offset_log_start", "floor", "probe", "topic")

    def __init__(self, files: QueueFiles, directory: Path, topic: str, queue_id: int) -> None:
        super().__init__(directory)
        self._files = files
        self._min_offset = 0
        self._min_offset_log_start = -1
        self.floor = 0
        """Messages before this log offset are gone for readers, although the log may have them."""
        self.topic = topic
        self.topic_bytes = topic.encode()
        # Two hosts are omitted: their 16 bytes or more are counted with the message.
        self.fixed_bytes = record_size(0, len(self.topic_bytes), 0) - 16
        """The bytes of a record of this queue besides its body, properties and hosts."""
        self.index_prefix = self.topic_bytes + b"#"
        self.queue_id = queue_id
        self.is_schedule = topic == SCHEDULE_TOPIC
        self.probe = PropertyProbe()

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}/{self.queue_id} ..{self.end_offset}, next {self.next_offset}>"

    @property
    def first_unit(self) -> int:
        return self.first_file // UNIT_BYTES

    # Writing

    def put(self, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        """Add the unit of one message; one that is there already is passed over."""
        if queue_offset != self.end_offset:
            if queue_offset < self.end_offset:
                return
            self.fill_up_to(queue_offset)
        position = self.write_position
        if position == self.write_limit:
            self._make_room()
            position = self.write_position
        _pack_unit(self.write_buffer, position, log_offset, size, tags_code)
        self.write_position = position + UNIT_BYTES
        self.end_offset = queue_offset + 1
        if not self.is_dirty:
            self._files.mark_dirty(self)

    def _make_room(self) -> None:
        byte_offset = self.end_offset * UNIT_BYTES
        start = byte_offset - byte_offset % self._files.file_bytes
        mapped, limit = self._files.open_for_writing(self, start, byte_offset - start)
        self.write_buffer = mapped.buffer
        self.write_position = byte_offset - start
        self.write_limit = limit

    def fill_up_to(self, queue_offset: int) -> None:
        """The log no longer has the messages before `queue_offset`: write pre-blank units for them."""
        per_file = self._files.file_bytes // UNIT_BYTES
        start_unit = queue_offset - queue_offset % per_file
        if start_unit > self.end_offset:
            # Whole files of nothing are not made, as if they had been cleaned.
            self._files.remove_files(self, self.first_file)
            self.close_for_writing()
            self.first_file = start_unit * UNIT_BYTES
            self.end_offset = start_unit
        while self.end_offset < queue_offset:
            if self.write_position == self.write_limit:
                self._make_room()
            _pack_unit(self.write_buffer, self.write_position, 0, PRE_BLANK_SIZE, 0)
            self.write_position += UNIT_BYTES
            self.end_offset += 1
        self._files.mark_dirty(self)

    def fill_gap(self, queue_offset: int) -> None:
        """The messages between the last one and `queue_offset` are damaged: write gaps for them."""
        log_offset, size, _ = self.unit(self.end_offset - 1)
        if size != PRE_BLANK_SIZE:
            log_offset += 1
        while self.end_offset < queue_offset:
            if self.write_position == self.write_limit:
                self._make_room()
            _pack_unit(self.write_buffer, self.write_position, log_offset, PRE_BLANK_SIZE, 0)
            self.write_position += UNIT_BYTES
            self.end_offset += 1
        self._files.mark_dirty(self)

    def cut(self, end_unit: int) -> None:
        """Drop the units from `end_unit` on. Raises OSError."""
        self._files.cut(self, end_unit)
        self.forget_min_offset()

    # Reading

    def units(self, offset: int, count: int) -> bytes:
        """The units from `offset` on, at most `count` and at most to the end of that file."""
        count = min(count, self.end_offset - offset)
        if count <= 0 or offset < self.first_unit:
            return b""
        buffer, position = self.place(offset)
        return buffer[position : position + count * UNIT_BYTES]

    def place(self, offset: int) -> tuple[mmap, int]:
        """The file that has the unit of a message, and where in it."""
        byte_offset = offset * UNIT_BYTES
        position = byte_offset % self._files.file_bytes
        return self._files.get(self, byte_offset - position).buffer, position

    def unit(self, offset: int) -> tuple[int, int, int]:
        """Log offset, size and tags code of one message; it must exist."""
        return UNIT.unpack(self.units(offset, 1))

    @property
    def last_place(self) -> int:
        """Where in the log the last message is; -1 if the files have none."""
        return self.unit(self.end_offset - 1)[0] if self.end_offset > self.first_unit else -1

    def units_before(self, log_offset: int) -> int:
        """The first message at or behind a log offset."""
        low, high = self.first_unit, self.end_offset
        while low < high:
            middle = (low + high) // 2
            if self.unit(middle)[0] < log_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def last_place_before(self, log_offset: int) -> int:
        """Where in the log the last message before a log offset is; -1 if the files have none."""
        if self.last_place < log_offset:
            return self.last_place
        found = self.units_before(log_offset)
        return self.unit(found - 1)[0] if found > self.first_unit else -1

    def first_offset_after_file(self, offset: int) -> int:
        """The first message whose unit is in the next file."""
        per_file = self._files.file_bytes // UNIT_BYTES
        return offset - offset % per_file + per_file

    def min_offset(self, log_start: int) -> int:
        """The first message that the log still has, and readers get."""
        if self.floor > log_start:
            log_start = self.floor
        if self._min_offset_log_start != log_start:
            low, high = self.first_unit, self.end_offset
            while low < high:
                middle = (low + high) // 2
                try:
                    log_offset, size, _ = self.unit(middle)
                except FileNotFoundError:
                    low = self.first_offset_after_file(middle)
                    continue
                if log_offset < log_start or (size == PRE_BLANK_SIZE and not log_offset):
                    low = middle + 1
                else:
                    high = middle
            if not self.is_gone_before(low, log_start):
                low = self._first_not_gone(log_start)
            self._min_offset = low
            # Only an answer that points at a message lasts; an empty queue is asked again.
            self._min_offset_log_start = log_start if low < self.end_offset else -1
        return self._min_offset

    def forget_min_offset(self) -> None:
        """Units have changed: look again."""
        self._min_offset_log_start = -1

    def is_gone_before(self, offset: int, log_start: int) -> bool:
        """Whether the messages before `offset` have left the log, as far as some units before it show.

        A damaged unit can pretend that for itself and its neighbours; those further back contradict it.
        """
        after, step = log_start, 1
        while offset - step >= self.first_unit:
            try:
                place, size, _ = self.unit(offset - step)
            except FileNotFoundError:
                return True
            step *= 2
            if size == PRE_BLANK_SIZE:
                continue
            if not MIN_RECORD_SIZE <= size <= after - place or place < 0:
                return False
            after = place
        return True

    def _first_not_gone(self, log_start: int) -> int:
        """As `min_offset`, but unit by unit. One that cannot be right counts as a message: reading shows."""
        offset = self.first_unit
        while offset < self.end_offset:
            try:
                raw = self.units(offset, self.end_offset)
            except FileNotFoundError:
                offset = self.first_offset_after_file(offset)
                continue
            last_end = 0
            for place, size, _ in UNIT.iter_unpack(raw):
                if size != PRE_BLANK_SIZE:
                    if size < MIN_RECORD_SIZE or not last_end <= place <= log_start - size:
                        return offset
                    last_end = place + size
                offset += 1
        return offset
