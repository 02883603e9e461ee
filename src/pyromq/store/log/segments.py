"""The files of the log: all of one size, without gaps, each named by its start offset.

Files with a single blank record replace missing ones, so that every walk over the log continues behind them
and all other messages stay readable.
"""

from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.protocol.record import BLANK_SIZE, pack_blank_into
from pyromq.store.filenames import offset_name, parse_offset_name
from pyromq.store.log.segment import MissingSegment, Segment

_MAX_MISSING: Final = 1024
"""The files on the two sides of a wider gap probably belong to different logs."""


class Segments:
    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self._row: list[Segment] = []
        self.reads_ahead = True
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.loaded_end = 0
        """Where the loaded files ended, without the zeros that extended a short one."""

    def __repr__(self) -> str:
        return f"<Segments {self.directory.name} {len(self._row)} files {self.start}..{self.end}>"

    def __len__(self) -> int:
        return len(self._row)

    @property
    def row(self) -> tuple[Segment, ...]:
        """A copy, which does not change while another thread works on it."""
        return tuple(self._row)

    @property
    def start(self) -> int:
        return self._row[0].start if self._row else 0

    @property
    def end(self) -> int:
        return self._row[-1].end if self._row else 0

    def load(self, *, repair: bool) -> list[str]:
        """Load the files of the directory; return remarks about repaired and ignored files.

        With `repair`, a short last file is extended, missing files are created, and a wrong size elsewhere
        raises StoreError. Without it nothing is changed, and files of a wrong size are ignored.
        """
        remarks: list[str] = []
        names, directories = self._files.names(self.directory)
        starts = []
        for name in names + directories:
            start = parse_offset_name(name)
            if start is None or start % self.segment_bytes or name in directories:
                remarks.append(f"{self.directory.name}/{name} is not a log file: ignored")
            else:
                starts.append(start)
        for start in starts:
            self._load_one(start, start == starts[-1], repair, remarks)
        self._close_gaps(repair, remarks)
        self.loaded_end = min(self.loaded_end, self.end)
        return remarks

    def _load_one(self, start: int, is_last: bool, repair: bool, remarks: list[str]) -> None:
        path = self.directory / offset_name(start)
        size_bytes = self._files.size(path)
        label = f"{self.directory.name}/{path.name}"
        if size_bytes == self.segment_bytes:
            self.loaded_end = self.adopt(start).end
            return
        if not repair:
            remarks.append(f"{label} has {size_bytes} of {self.segment_bytes} bytes: ignored")
            return
        if not is_last or size_bytes is None or size_bytes > self.segment_bytes:
            raise StoreError(_wrong_size(path, size_bytes, self.segment_bytes))
        if size_bytes == 0:
            # java: an empty last file is what a crash leaves of a file being made
            remarks.append(f"{label} is empty: removed")
            self._files.remove(path)
            return
        remarks.append(f"{label} has {size_bytes} of {self.segment_bytes} bytes: extended with zeros")
        self._files.resize(path, self.segment_bytes, self.segment_bytes)
        self._files.sync(path)
        self.adopt(start)
        self.loaded_end = start + size_bytes

    def _close_gaps(self, repair: bool, remarks: list[str]) -> None:
        """Close gaps: ignore unused files behind a gap, replace missing ones."""
        for position in range(len(self._row) - 1, 0, -1):
            before, first = self._row[position - 1], self._row[position]
            if before.end == first.start:
                continue
            if not any(map(self._has_content, self._row[position:])):
                unused = len(self._row) - position
                remarks.append(
                    f"{self.directory.name}: no files between {before.end} and {first.start}:"
                    f" the {unused} unused files behind the gap are ignored"
                )
                del self._row[position:]
                continue
            starts = range(before.end, first.start, self.segment_bytes)
            if len(starts) > _MAX_MISSING:
                raise StoreError(
                    f"{self.directory}: {len(starts)} files are missing between {before.path.name} and"
                    f" {first.path.name}; if the older or the newer ones do not belong to this log,"
                    " move them to another directory"
                )
            replace = self._make_blank if repair else self._stand_in
            self._row[position:position] = [replace(start, first) for start in starts]
            remarks.append(
                f"{self.directory.name}: {len(starts)} files from {before.end} to {first.start} are missing:"
                " their messages are skipped"
                + ("; blank files replace them until you put them back" if repair else "")
            )

    def _has_content(self, segment: Segment) -> bool:
        with self._files.open(segment.path) as reader:
            return not reader.is_zero_after(0)

    def _stand_in(self, start: int, following: Segment) -> Segment:
        return MissingSegment(self._files, self.directory, start, self.segment_bytes)

    def _make_blank(self, start: int, following: Segment) -> Segment:
        """A file with one blank record, as old as the next file, so that it does not delay cleaning."""
        segment = Segment(self._files, self.directory, start, self.segment_bytes)
        blank = bytearray(BLANK_SIZE)
        pack_blank_into(blank, 0, self.segment_bytes)
        self._files.create(segment.path, self.segment_bytes)
        self._files.overwrite(segment.path, 0, bytes(blank))
        self._files.copy_times(following.path, segment.path)
        self._files.sync_directory(self.directory)
        return segment

    def find(self, offset: int) -> Segment | None:
        """The segment that holds `offset`."""
        row = self._row
        if not row:
            return None
        index = (offset - row[0].start) // self.segment_bytes
        return row[index] if 0 <= index < len(row) else None

    def adopt(self, start: int) -> Segment:
        """Append a file that exists already to the row."""
        segment = Segment(self._files, self.directory, start, self.segment_bytes)
        segment.set_read_ahead(self.reads_ahead)
        self._row.append(segment)
        return segment

    def set_read_ahead(self, is_on: bool) -> None:
        """Whether the system loads neighbouring pages of the log; acts at once on every file."""
        self.reads_ahead = is_on
        for segment in self._row:
            segment.set_read_ahead(is_on)

    def covering(self, start: int, end: int) -> list[Segment]:
        """The segments that hold any byte of [start, end); safe to ask from another thread."""
        return [each for each in self.row if each.start < end and each.end > start]

    def remove_first(self) -> None:
        self._row[0].remove()
        del self._row[0]

    def remove_from(self, start: int) -> list[Segment]:
        """Remove the files that start at `start` or later, the last one first."""
        removed = []
        while self._row and self._row[-1].start >= start:
            segment = self._row.pop()
            segment.remove()
            removed.append(segment)
        return removed

    def close(self) -> None:
        for segment in self._row:
            segment.try_unmap()
            self._files.release(segment.path)
        self._row.clear()


def _wrong_size(path: Path, size_bytes: int | None, expected: int) -> str:
    text = (
        f"{path} has {size_bytes} bytes, expected {expected}:"
        " set mappedFileSizeCommitLog to the size that this log was created with"
    )
    if size_bytes is None or size_bytes > expected:
        return text
    return (
        f"{text}, or replace the file with a whole copy;"
        f" to continue without its last {expected - size_bytes} bytes: truncate -s {expected} {path}"
    )
