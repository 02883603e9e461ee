"""The commit log: every message of every topic, one record after the other, in files of one size.

A record never crosses a file: if it does not fit with 8 bytes to spare, a blank record fills the file and the
record goes to the next one. Only zeros follow the end of the log. Store times never decrease.
"""

import errno
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from pyromq.disk_steps import DiskSteps, Steps
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.filesystem import FileReader, Files, Writer
from pyromq.protocol.record import (
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    RecordOutline,
    pack_blank_into,
    peek_size_and_magic,
    peek_store_timestamp,
    scan_record,
)
from pyromq.store.filenames import can_be_directory, offset_name
from pyromq.store.log.log_end import LogEnd
from pyromq.store.log.segment import MissingSegment, Segment
from pyromq.store.log.segment_source import ReadableSegment, SegmentSource
from pyromq.store.log.segments import Segments

_SIZE_MAGIC_FLAG: Final = struct.Struct(">ii28xi")
_SIZE_MAGIC_OFFSET = struct.Struct(">ii20xq")
_STRIDE: Final = 256
_LARGE_BYTES: Final = 32 * 1024


class CommitLog(LogEnd):
    def __init__(
        self, files: Files, directory: Path, segment_bytes: int, *, preallocate: bool, warm_up: bool
    ) -> None:
        self._files = files
        self._preallocate = preallocate
        self._warm_up = warm_up
        self._creating = threading.Lock()
        self._made: set[int] = set()
        self._current: Segment | None = None
        self._writer: Writer | None = None
        self.segments = Segments(files, directory, segment_bytes)
        self.source: SegmentSource = self.segments
        """The files that readers read."""
        self.end_offset = 0
        """Where the next record goes."""
        self.buffer = bytearray()
        """The current file, which starts at log offset `buffer_start`; records may end at `room_end`."""
        self.buffer_start = 0
        self.room_end = 0
        self.last_store_timestamp = 0
        self.wall_from_ms = self.wall_until_ms = 0
        """While the machine's clock is between these, it is the log's time; otherwise ask `LogTime`."""
        self.appended_messages = 0
        self.lacks_room = False
        """Whether the disk had no room for a whole new file."""
        self.wanted_segment: int | None = None
        """Start of the file that the flusher is to create ahead of its use."""

    def __repr__(self) -> str:
        return f"<CommitLog {self.start_offset}..{self.end_offset} in {len(self.segments)} files>"

    @property
    def start_offset(self) -> int:
        return self.segments.start

    @property
    def segment_bytes(self) -> int:
        return self.segments.segment_bytes

    @property
    def needs_room(self) -> bool:
        """Whether the disk had no room for the next file, and it is needed soon."""
        return self.lacks_room and self.room_end - self.end_offset < self.segment_bytes // 2

    # Writing

    def make_room(self, size_bytes: int) -> int:
        """The log offset where the next `size_bytes` go, all of them into `buffer`.

        Raises OSError if a file is needed and cannot be created, StoreError if no file is large enough; then
        nothing has changed.
        """
        offset = self.end_offset
        current = self._current
        if size_bytes + BLANK_SIZE > self.segments.segment_bytes:
            raise StoreError(
                f"{size_bytes} bytes do not fit in a log file of {self.segments.segment_bytes} bytes"
            )
        if current is None:
            current = self._enter(offset - offset % self.segments.segment_bytes)
        if offset - current.start + size_bytes + BLANK_SIZE > current.size_bytes:
            blank_bytes = current.end - offset
            following = self._enter(current.end)
            if blank_bytes:
                pack_blank_into(current.mapped.buffer, offset - current.start, blank_bytes)
            offset = self.end_offset = following.start
        return offset

    def begin_at(self, offset: int) -> None:
        """Begin an empty log at a later log offset: a replica may not have its master's oldest files."""
        self.end_offset = offset
        self._leave()

    def enter(self, offset: int) -> int:
        """Make the file of a log offset the current one; returns where it ends. Raises OSError."""
        current = self._current
        if current is None or not current.start <= offset < current.end:
            current = self._enter(offset - offset % self.segments.segment_bytes)
        return current.end

    def write(self, offset: int, content: memoryview) -> int:
        """Put bytes into the current file, behind the end of the log; how many, at least one.

        Raises OSError.
        """
        position = offset - self.buffer_start
        if len(content) < _LARGE_BYTES:
            self.buffer[position : position + len(content)] = content
            return len(content)
        if self._writer is None:
            assert self._current is not None
            self._writer = self._files.open_for_writing(self._current.path)
            # Or the system would fill with zeros what is written next.
            self._current.set_read_ahead(False)
        return self._writer.write(position, content)

    @property
    def buffer_end(self) -> int:
        return self.buffer_start + self.segments.segment_bytes

    def wipe(self, offset: int, size_bytes: int) -> None:
        """Overwrite bytes behind the end of the log with zeros."""
        position = offset - self.buffer_start
        end = min(position + size_bytes, len(self.buffer))
        self.buffer[position:end] = bytes(end - position)

    def _enter(self, start: int) -> Segment:
        with self._creating:
            segment = self.segments.find(start)
            if segment is None:
                self._create(start)
                segment = self.segments.adopt(start)
            elif self._preallocate:
                self._files.allocate(segment.path, 0, segment.size_bytes)  # Apache's files have holes
        buffer = segment.map_for_writing().buffer
        self._files.hold(segment.path)
        self._leave()
        self.buffer = buffer
        self.buffer_start = segment.start
        self.room_end = segment.end - BLANK_SIZE
        self._current = segment
        self.wanted_segment = segment.end
        return segment

    def _create(self, start: int) -> None:
        path = self.segments.directory / offset_name(start)
        size_bytes = self.segments.segment_bytes
        if start in self._made and self._files.size(path) == size_bytes:
            return
        self._set_aside_stray(path)
        try:
            self._files.create(path, size_bytes, size_bytes if self._preallocate else 0)
            if self._warm_up:
                self._files.fill(path)
            # A file's size and name are synced before it is used: a crash leaves no gap between files.
            self._files.sync(path)
            self._files.sync_directory(self.segments.directory)
        except OSError as error:
            self._files.remove(path)
            self.lacks_room = error.errno == errno.ENOSPC
            raise
        self.lacks_room = False
        self._made = {start}

    def _set_aside_stray(self, path: Path) -> None:
        """Rename a file that lay behind a gap: its bytes must not reappear as records."""
        size_bytes = self._files.size(path)
        if size_bytes is None:
            return
        with self._files.open(path) as reader:
            is_empty = reader.is_zero_after(0)
        if is_empty:
            self._files.remove(path)
        else:
            self._files.rename(path, path.with_name(f"{path.name}.stray"))

    def create_wanted_segment(self) -> None:
        """Create the next file ahead of its use; called by the flusher. Raises OSError."""
        with self._creating:
            start, self.wanted_segment = self.wanted_segment, None
            if start is not None and self.segments.find(start) is None:
                self._create(start)

    # Reading

    def view(self, offset: int, size_bytes: int) -> memoryview | None:
        """A slice of the log, None if the log does not have all of it in one file."""
        segment = self.source.find(offset)
        if segment is None or size_bytes < 1 or offset + size_bytes > self.end_offset:
            return None
        position = offset - segment.start
        if position + size_bytes > segment.size_bytes:
            return None
        return segment.view[position : position + size_bytes]

    def view_from(self, offset: int, max_bytes: int) -> memoryview:
        """The bytes of the log from an offset on, at most to the end of their file; none at the log's end."""
        segment = self.source.find(offset)
        end = min(offset + max_bytes, self.end_offset)
        if segment is None or end <= offset:
            return memoryview(b"")
        position = offset - segment.start
        return segment.view[position : min(position + end - offset, segment.size_bytes)]

    def open_file(self, offset: int) -> tuple[FileReader, int, int] | None:
        """The file of a log offset, where in it that is, and where in the log it ends. Raises OSError."""
        segment = self.segments.find(offset)
        if segment is None or isinstance(segment, MissingSegment):
            return None
        return self._files.open(segment.path), offset - segment.start, segment.end

    def load(self, offset: int, size_bytes: int) -> None:
        """Read bytes of one file from the disk, so that an access to them does not wait; for a thread."""
        for segment in self.segments.covering(offset, offset + 1):
            if not isinstance(segment, MissingSegment):
                self._files.read(segment.path, offset - segment.start, size_bytes)

    def record(self, offset: int) -> memoryview | None:
        """The record at an offset, None if none begins there."""
        segment = self.source.find(offset)
        if segment is None or offset < 0:
            return None
        position = offset - segment.start
        room = min(segment.size_bytes - position, self.end_offset - offset)
        if room < MIN_RECORD_SIZE:
            return None
        view = segment.view
        size_bytes, magic, own_offset = _SIZE_MAGIC_OFFSET.unpack_from(view, position)
        if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != offset:
            return None
        return view[position : position + size_bytes] if MIN_RECORD_SIZE <= size_bytes <= room else None

    def store_timestamp(self, offset: int) -> int | None:
        """The store time of the record at an offset."""
        record = self.record(offset)
        return None if record is None else peek_store_timestamp(record)

    def outline(self, offset: int) -> tuple[ReadableSegment, RecordOutline | None] | None:
        """The outline of the record at an offset (None for a blank); None where the log's files end.

        Raises RemoteProtocolError if there is no record.
        """
        segment = self.source.find(offset)
        if segment is None:
            return None
        buffer = segment.buffer
        outline = scan_record(buffer, offset - segment.start, segment.size_bytes)
        if outline is not None:
            verify_place(outline, offset)
        return segment, outline

    def outlines(self, offset: int, end: int) -> Iterator[tuple[ReadableSegment, RecordOutline]]:
        """The records from `offset` up to `end`, blanks left out."""
        while offset < end:
            found = self.outline(offset)
            if found is None:
                return
            segment, outline = found
            if outline is None:
                offset = segment.end
            else:
                if offset + outline.size > end:
                    return
                yield segment, outline
                offset += outline.size

    def records_from(self, offset: int) -> Iterator[tuple[RecordOutline, bytes]]:
        """The records from a record on, each with its properties; ends at damage."""
        with suppress(RemoteProtocolError):
            for segment, outline in self.outlines(offset, self.end_offset):
                yield outline, bytes(segment.view[outline.properties_start : outline.properties_end])

    def flagged(self, offset: int, end: int, mask: int, bits: int) -> Iterator[int | None]:
        """The log offsets of the records from `offset` to `end` whose system flag has these `bits` in `mask`.

        Only heads of records are read. From time to time it yields None, so that the caller can pause.
        """
        while offset < end and (segment := self.source.find(offset)) is not None:
            buffer, start = segment.buffer, segment.start
            last = min(end, segment.end) - MIN_RECORD_SIZE
            found: list[int] = []
            for _ in range(_STRIDE):
                if offset > last:
                    offset = segment.end
                    break
                size_bytes, magic, sys_flag = _SIZE_MAGIC_FLAG.unpack_from(buffer, offset - start)
                if magic not in (MAGIC_V1, MAGIC_V2) or size_bytes < MIN_RECORD_SIZE:
                    offset = segment.end  # a blank, or damage that was left in place
                    break
                if sys_flag & mask == bits:
                    found.append(offset)
                offset += size_bytes
            yield from found
            yield None

    def end_of_blanks(self, offset: int) -> int:
        """Where the next record would begin: here, or in the first file behind blanks that begin here."""
        while True:
            try:
                found = self.outline(offset)
            except RemoteProtocolError:
                return offset
            if found is None or found[1] is not None:
                return offset
            offset = found[0].end

    def first_store_timestamp(self, segment: Segment) -> int:
        """The store time of a file's first record; 0 if it does not begin with one."""
        if isinstance(segment, MissingSegment):
            return 0
        head = self._files.read(segment.path, 0, 128)
        if len(head) < MIN_RECORD_SIZE or peek_size_and_magic(head)[1] not in (MAGIC_V1, MAGIC_V2):
            return 0
        return peek_store_timestamp(head)

    # Recovery, cleaning, end

    def cut(self, end_offset: int) -> tuple[int, bool]:
        """Make `end_offset` the end: later files are removed, what follows in its file becomes zeros.

        Returns how many files were removed and whether there was anything but zeros.
        """
        found = DiskSteps(self.cut_steps(end_offset)).finish()
        assert found is not None
        return found

    def cut_steps(self, end_offset: int) -> Steps[tuple[int, bool]]:
        """The same, step by step; the log ends there after the first one."""
        self.end_offset = end_offset
        self._leave()
        segment_bytes = self.segments.segment_bytes
        first_unused = -(-end_offset // segment_bytes) * segment_bytes
        removed = self.segments.remove_from(first_unused)
        # Before the last one may be short for a moment.
        yield partial(self._files.sync_directory, self.segments.directory)
        wiped = False
        segment = self.segments.find(end_offset)
        if segment is not None:
            position = end_offset - segment.start
            with self._files.open(segment.path) as reader:
                wiped = not reader.is_zero_after(position)
            if wiped:
                segment.try_unmap()
                self._files.zero_after(segment.path, position, segment_bytes if self._preallocate else 0)
                yield partial(self._files.sync, segment.path)
        return len(removed), wiped

    def _leave(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            if self._current is not None:
                self._current.set_read_ahead(self.segments.reads_ahead)
        self._current = None
        self.buffer = bytearray()
        self.buffer_start = self.room_end = 0

    def sync(self, start: int, end: int) -> None:
        """Sync the files of [start, end) and the names of new files."""
        for segment in self.segments.covering(start, end):
            try:
                self._files.sync(segment.path)
                if segment.end <= end:
                    self._files.release(segment.path)
            except FileNotFoundError:
                if segment in self.segments.row:
                    raise
        self._files.sync_directory(self.segments.directory)

    def close(self) -> None:
        self._leave()
        self.segments.close()


def verify_place(outline: RecordOutline, offset: int) -> None:
    """Raise RemoteProtocolError unless a record can be at this log offset."""
    if outline.log_offset != offset:
        raise RemoteProtocolError(f"record at {offset} gives {outline.log_offset} as its own log offset")
    if not can_be_directory(outline.topic):
        raise RemoteProtocolError(f"record at {offset} has an impossible topic: {outline.topic!r}")
