"""Where readers find the bytes of the log: they ask for a segment, and do not know where it lies."""

from mmap import mmap
from typing import Protocol


class ReadableSegment(Protocol):
    @property
    def start(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def buffer(self) -> mmap | bytes:
        """The bytes, to unpack and to compare; slices are copies."""
        ...

    @property
    def view(self) -> memoryview:
        """The same bytes, for answers. Slices stay valid as long as they are held."""
        ...


class SegmentSource(Protocol):
    @property
    def start(self) -> int:
        """The first log offset that readers find."""
        ...

    def find(self, offset: int) -> ReadableSegment | None:
        """The segment that holds a log offset."""
        ...
