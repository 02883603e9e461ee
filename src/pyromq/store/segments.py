"""A gapless row of files of one size, each named by the offset it starts at."""

from pathlib import Path

from pyromq.errors import StoreError
from pyromq.store.filenames import offset_name, parse_offset_name
from pyromq.store.filesystem import Files
from pyromq.store.segment import Segment

_HEAD_BYTES = 8


class Segments:
    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self._row: list[Segment] = []
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.loaded_end = 0
        """Where the files ended that were loaded; what a short one was extended with lies behind it."""

    def __repr__(self) -> str:
        return f"<Segments {self.directory.name} {len(self._row)} files {self.start}..{self.end}>"

    def __len__(self) -> int:
        return len(self._row)

    @property
    def row(self) -> tuple[Segment, ...]:
        """A picture of the row that does not change while others work on it."""
        return tuple(self._row)

    @property
    def start(self) -> int:
        return self._row[0].start if self._row else 0

    @property
    def end(self) -> int:
        return self._row[-1].end if self._row else 0

    def load(self, *, repair: bool) -> list[str]:
        """Take in the directory; what had to be mended or left aside is said in words.

        With `repair` a short last file is mended, and a wrong size elsewhere raises StoreError; without it
        nothing is touched and such files are left aside.
        """
        remarks: list[str] = []
        names, directories = self._files.names(self.directory)
        starts = []
        for name in names + directories:
            start = parse_offset_name(name)
            if start is None or start % self.segment_bytes or name in directories:
                remarks.append(f"{self.directory.name}/{name} is not a segment: left aside")
            else:
                starts.append(start)
        for start in starts:
            self._load_one(start, start == starts[-1], repair, remarks)
        self._keep_newest_run(remarks)
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
            remarks.append(f"{label} has {size_bytes} of {self.segment_bytes} bytes: left aside")
            return
        if not is_last or size_bytes is None or size_bytes > self.segment_bytes:
            raise StoreError(f"{path} has {size_bytes} bytes, expected {self.segment_bytes}")
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

    def _keep_newest_run(self, remarks: list[str]) -> None:
        """Of files with gaps between them keep the newest that have anything in them."""
        for position in range(len(self._row) - 1, 0, -1):
            before, first = self._row[position - 1], self._row[position]
            if before.end == first.start:
                continue
            gap = f"{self.directory.name}: nothing between {before.end} and {first.start}"
            if any(self._files.read(first.path, 0, _HEAD_BYTES)):
                remarks.append(f"{gap}: {position} older files left aside")
                del self._row[:position]
                return
            remarks.append(f"{gap}: {len(self._row) - position} unused files left aside")
            del self._row[position:]

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
        self._row.append(segment)
        return segment

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
        self._row.clear()
