"""A gapless row of files of one size, each named by the offset it starts at."""

from pathlib import Path

from pyromq.errors import StoreError
from pyromq.store.filenames import offset_name, parse_offset_name
from pyromq.store.filesystem import Files
from pyromq.store.segment import Segment


class Segments:
    def __init__(self, files: Files, directory: Path, segment_bytes: int) -> None:
        self._files = files
        self._row: list[Segment] = []
        self.directory = directory
        self.segment_bytes = segment_bytes

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
        """Take in the directory; what had to be mended or left aside is said in words."""
        remarks: list[str] = []
        names, _ = self._files.names(self.directory)
        starts = []
        for name in names:
            start = parse_offset_name(name)
            if start is None or start % self.segment_bytes:
                remarks.append(f"{self.directory.name}/{name} is not a segment: left aside")
            else:
                starts.append(start)
        for start in starts:
            self._load_one(start, start == starts[-1], repair, remarks)
        self._keep_newest_run(remarks)
        return remarks

    def _load_one(self, start: int, is_last: bool, repair: bool, remarks: list[str]) -> None:
        path = self.directory / offset_name(start)
        size_bytes = self._files.size(path)
        label = f"{self.directory.name}/{path.name}"
        if size_bytes == self.segment_bytes:
            self._row.append(Segment(self._files, self.directory, start, self.segment_bytes))
            return
        if not is_last or size_bytes is None or size_bytes > self.segment_bytes:
            raise StoreError(f"{path} has {size_bytes} bytes, expected {self.segment_bytes}")
        if size_bytes == 0:
            # java: an empty last file is what a crash leaves of a file being made
            remarks.append(f"{label} is empty: removed")
            if repair:
                self._files.remove(path)
            return
        remarks.append(f"{label} has {size_bytes} of {self.segment_bytes} bytes: extended with zeros")
        if repair:
            self._files.resize(path, self.segment_bytes, self.segment_bytes)
            self._files.sync(path)
            self._row.append(Segment(self._files, self.directory, start, self.segment_bytes))

    def _keep_newest_run(self, remarks: list[str]) -> None:
        for position in range(len(self._row) - 1, 0, -1):
            before = self._row[position - 1]
            if before.end != self._row[position].start:
                remarks.append(
                    f"{self.directory.name}: nothing between {before.end} and {self._row[position].start}: "
                    f"{position} older files left aside"
                )
                del self._row[:position]
                return

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

    def remove_first(self) -> Segment:
        segment = self._row.pop(0)
        segment.remove()
        return segment

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
