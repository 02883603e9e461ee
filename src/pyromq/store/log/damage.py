"""Damage in the log: bytes that are not sound records are set aside and replaced.

Damaged bytes are first copied to a file under `damaged/`. Behind the last sound record they are then
overwritten with zeros, elsewhere with fillers, so that the log stays a continuous sequence of records for
every reader, Apache's broker included. A filler is the record of a rolled-back message, which is in no queue
and no index; a blank record stands for a whole file, and for less than a record at the end of one.

After a crash in between, the next start finds the damage and repeats this.

Fillers also stand for messages that were removed on purpose, here or from the tier. No copy of these is
looked for.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyromq.filesystem import Files
from pyromq.protocol.record import (
    BLANK_SIZE,
    MIN_RECORD_SIZE,
    ReadBuffer,
    RecordOutline,
    StoredMessage,
    SysFlag,
    encode_record,
    pack_blank_into,
    peek_store_timestamp,
)
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.record_checks import MIN_GAP_BYTES, count_record_starts
from pyromq.store.log.segment import Segment

FILLER_TOPIC: Final = "DAMAGED"
_REMOVED: Final = b"removed from the tier"
_REMOVED_QUEUE: Final = 1
"""The queue id of such a filler: its text may be cut short. Older ones have only the text."""
_MAX_FILLER_BYTES: Final = 4 * 1024 * 1024
_BLOCK_BYTES: Final = 4 * 1024 * 1024


@dataclass(slots=True)
class Damage:
    """A range of the log without sound records."""

    start: int
    end: int
    reason: str
    is_tail: bool = False
    """Whether the log ends at `start`: no sound record follows, or other brokers have what does."""
    is_left_in_place: bool = False
    """Whether it is in the trusted part of the log: it was only skipped."""
    records: int = 0
    """How many records seem to begin in it."""
    kept_as: tuple[Path, ...] = ()
    """The files with its bytes; empty if they were all zero or left in place."""

    def __str__(self) -> str:
        text = f"damage in the log from offset {self.start} to {self.end}, {self.end - self.start} bytes"
        if self.is_left_in_place:
            return f"{text} ({self.reason}): skipped and left in place"
        outcome = "the log ends before it" if self.is_tail else "skipped"
        if not self.kept_as:
            return f"{text} ({self.reason}): {outcome}; all bytes are zero"
        begun = f"{self.records} record{'s' if self.records != 1 else ''} began there"
        kept = ", ".join(map(str, self.kept_as))
        return f"{text} ({self.reason}): {outcome}; {begun}; the bytes are kept in {kept}"


def is_filler(outline: RecordOutline) -> bool:
    return (
        outline.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK
        and outline.topic == FILLER_TOPIC[: len(outline.topic)]
        and outline.queue_id in (0, _REMOVED_QUEUE)
        and outline.queue_offset == 0
    )


def is_removed(outline: RecordOutline) -> bool:
    """Whether it is a filler for what was removed on purpose."""
    return is_filler(outline) and outline.queue_id == _REMOVED_QUEUE


def is_loss(outline: RecordOutline, buffer: ReadBuffer) -> bool:
    """Whether it is a filler for what was damaged. `buffer`: the bytes that the outline is of."""
    if not is_filler(outline) or is_removed(outline):
        return False
    text = bytes(buffer[outline.body_start : min(outline.body_end, outline.body_start + len(_REMOVED))])
    return not text or not _REMOVED.startswith(text)


class DamagedBytes:
    """Sets damaged ranges of a log aside and replaces them."""

    def __init__(self, files: Files, log: CommitLog, directory: Path) -> None:
        self._files = files
        self._log = log
        self._directory = directory

    def set_aside(self, damage: Damage) -> None:
        """Copy the damaged bytes without trailing zeros to files, one per log file, and sync them."""
        kept = []
        last = damage.start
        for segment in self._log.segments.covering(damage.start, damage.end):
            start = max(damage.start - segment.start, 0)
            end = min(damage.end - segment.start, segment.size_bytes)
            end = self._end_of_data(segment, start, end)
            if end > start:
                kept.append(self._copy(segment, start, end, damage))
                last = segment.start + end
        if kept:
            self._files.sync_directory(self._directory)
            self._files.sync_directory(self._directory.parent)
        damage.kept_as = tuple(kept)
        if damage.is_tail:
            damage.end = last  # zeros behind the end of the log are not damage

    def _end_of_data(self, segment: Segment, start: int, end: int) -> int:
        """Where the last byte that is not zero ends."""
        with self._files.open(segment.path) as reader:
            for first, last in reversed(reader.data_after(start)):
                block_end = min(last, end)
                while block_end > first:
                    block = max(first, block_end - _BLOCK_BYTES)
                    content = reader.read(block, block_end - block).rstrip(b"\0")
                    if content:
                        return block + len(content)
                    block_end = block
        return start

    def _copy(self, segment: Segment, start: int, end: int, damage: Damage) -> Path:
        target = self._free_name(f"{segment.start + start:020d}-{end - start}")
        self._files.write(target, b"")
        with self._files.open(segment.path) as reader:
            for block in range(start, end, _BLOCK_BYTES):
                content = reader.read(block, min(_BLOCK_BYTES, end - block))
                damage.records += count_record_starts(content)
                self._files.overwrite(target, block - start, content)
        return target

    def _free_name(self, name: str) -> Path:
        """An interrupted start may have left a file of this name, which is kept."""
        number = 1
        path = self._directory / f"{name}.bin"
        while self._files.size(path) is not None:
            number += 1
            path = self._directory / f"{name}.{number}.bin"
        return path

    def fill(self, damage: Damage) -> None:
        """Replace a range that ends where a sound record begins with fillers."""
        following = self._log.segments.find(damage.end)
        assert following is not None
        store_timestamp = peek_store_timestamp(following.mapped.buffer, damage.end - following.start)
        for segment in self._log.segments.covering(damage.start, damage.end):
            start = max(damage.start, segment.start)
            if damage.end < segment.end:
                self._fill_with_records(segment, start, damage.end, store_timestamp, damage.reason)
                continue
            blank_at = segment.end - BLANK_SIZE
            if start > segment.start and blank_at - start >= MIN_GAP_BYTES:
                # A blank would not show that a message was there.
                self._fill_with_records(segment, start, blank_at, store_timestamp, damage.reason)
                start = blank_at
            if segment.end - start >= BLANK_SIZE:
                blank = bytearray(BLANK_SIZE)
                pack_blank_into(blank, 0, segment.end - start)
                self._files.overwrite(segment.path, start - segment.start, bytes(blank))

    def _fill_with_records(
        self, segment: Segment, start: int, end: int, store_timestamp: int, reason: str
    ) -> None:
        while start < end:
            size_bytes = min(end - start, _MAX_FILLER_BYTES)
            if 0 < end - start - size_bytes < MIN_GAP_BYTES:
                size_bytes -= MIN_GAP_BYTES
            record = filler(start, size_bytes, store_timestamp, reason)
            self._files.overwrite(segment.path, start - segment.start, record)
            start += size_bytes


def filler(log_offset: int, size_bytes: int, store_timestamp: int, reason: str) -> bytes:
    """A record of exactly `size_bytes` that every reader of the log skips."""
    text = f"damaged bytes were here: {reason}".encode(errors="replace")
    return _filler(log_offset, size_bytes, store_timestamp, text, 0)


def filler_for_removed(log_offset: int, size_bytes: int, store_timestamp: int) -> bytes:
    """The same in the place of what was removed on purpose."""
    return _filler(log_offset, size_bytes, store_timestamp, _REMOVED, _REMOVED_QUEUE)


def _filler(log_offset: int, size_bytes: int, store_timestamp: int, text: bytes, queue_id: int) -> bytes:
    topic = FILLER_TOPIC[: size_bytes - MIN_RECORD_SIZE]
    body_bytes = size_bytes - MIN_RECORD_SIZE - len(topic)
    return encode_record(
        StoredMessage(
            topic,
            text[:body_bytes].ljust(body_bytes, b"\0"),
            queue_id=queue_id,
            log_offset=log_offset,
            sys_flag=SysFlag.TRANSACTION_ROLLBACK,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
        )
    )
