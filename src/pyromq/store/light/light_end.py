"""Where light queues and their entries are written next: plain values, which compiled code reads directly."""

from array import array
from mmap import mmap
from typing import TYPE_CHECKING

from pyromq.compiled import twin
from pyromq.filesystem import MappedFile

_native = twin("store.fast_light")

if TYPE_CHECKING or _native is None:

    class EntriesEnd:
        first: int
        end: int
        """The numbers of the first entry that is kept, and of the next one."""
        per_file: int
        buffer: mmap | None
        """The file of the entries from `buffer_start` to `buffer_end`, which is written."""
        buffer_start: int
        buffer_end: int
        is_dirty: bool
        """Whether `dirty` has this file."""
        dirty: set[int]
        mapped: dict[int, MappedFile]

    class NamesEnd:
        numbers: dict[str, int]
        firsts: "array[int]"
        """By number: the first entry that may belong to the queue."""
        unused: list[int]
        """Numbers of queues that were removed."""
        unwritten: bytearray

        def note(self, number: int, name: str | None) -> None:
            """A number has this name, which `numbers` has, or none: compiled code finds it by its bytes."""

        def forget(self) -> None:
            """No number has a name."""

    class LightEnd:
        names_end: NamesEnd
        numbers: dict[str, int]
        ends: "array[int]"
        """By number, as all columns: behind the last message that can be read."""
        nexts: "array[int]"
        """The offset of the next message."""
        lasts: "array[int]"
        """One more than the number of the last entry; 0 if there is none."""
        epochs: "array[int]"
        """The epoch of the last message; -1 if it is not known."""
        count: int
        """How many light queues have messages, or had."""
        after: int
        """Records before this log offset are in."""
        usual_from: int
        """No light queue was deleted at this log offset, or later."""

else:
    EntriesEnd, NamesEnd, LightEnd = _native.EntriesEnd, _native.NamesEnd, _native.LightEnd
