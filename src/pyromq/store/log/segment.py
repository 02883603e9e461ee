"""One file of the log, mapped at its first use. Slices that readers hold outlive its deletion."""

import mmap
from pathlib import Path

from pyromq.filesystem import Files, MappedFile
from pyromq.protocol.record import pack_blank_into
from pyromq.store.filenames import offset_name


class Segment:
    __slots__ = ("_files", "_mapped", "_reads_ahead", "path", "size_bytes", "start")

    def __init__(self, files: Files, directory: Path, start: int, size_bytes: int) -> None:
        self._files = files
        self._mapped: MappedFile | None = None
        self._reads_ahead = True
        self.start = start
        self.size_bytes = size_bytes
        self.path = directory / offset_name(start)

    def __repr__(self) -> str:
        return f"<Segment {self.start}..{self.end}{' mapped' if self._mapped else ''}>"

    @property
    def end(self) -> int:
        return self.start + self.size_bytes

    @property
    def mapped(self) -> MappedFile:
        mapped = self._mapped
        if mapped is None:
            mapped = self._mapped = self._files.map_for_reading(
                self.path, in_small_pieces=not self._reads_ahead
            )
        return mapped

    @property
    def buffer(self) -> mmap.mmap:
        mapped = self._mapped
        return (mapped if mapped is not None else self.mapped).buffer

    @property
    def view(self) -> memoryview:
        mapped = self._mapped
        return (mapped if mapped is not None else self.mapped).view

    @property
    def is_mapped(self) -> bool:
        return self._mapped is not None

    def bytes_cut_off(self) -> int:
        """How many bytes the file lost while it was mapped: an access to them kills the process."""
        found = self._files.size(self.path)
        return 0 if found is None else max(self.size_bytes - found, 0)

    def restore_size(self) -> None:
        """Extend a truncated file with zeros, so that an access to the lost bytes is harmless."""
        self._files.resize(self.path, self.size_bytes, self.size_bytes)

    def map_for_writing(self) -> MappedFile:
        """Raises OSError if the disk is read-only."""
        mapped = self._mapped
        if mapped is None or not mapped.is_writable:
            mapped = self._mapped = self._files.map(self.path, in_small_pieces=not self._reads_ahead)
        return mapped

    def set_read_ahead(self, is_on: bool) -> None:
        self._reads_ahead = is_on
        if self._mapped is not None:
            self._mapped.set_read_ahead(is_on)

    def try_unmap(self) -> bool:
        """Unmap the file; False if a reader still holds a slice of it."""
        if self._mapped is None:
            return True
        if not self._mapped.try_close():
            return False
        self._mapped = None
        return True

    def remove(self) -> None:
        """Delete the file; slices that readers hold stay valid."""
        self._files.release(self.path)
        self._files.remove(self.path)
        self.try_unmap()
        self._mapped = None


class MissingSegment(Segment):
    """Replaces a missing file: one blank record of the size of a file, in memory."""

    __slots__ = ()

    @property
    def mapped(self) -> MappedFile:
        mapped = self._mapped
        if mapped is None:
            blank = mmap.mmap(-1, self.size_bytes)
            pack_blank_into(blank, 0, self.size_bytes)
            mapped = self._mapped = MappedFile(self.path, blank)
        return mapped
