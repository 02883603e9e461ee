from array import array
from mmap import mmap
from typing import Any

class EntriesEnd:
    first: int
    end: int
    per_file: int
    buffer_start: int
    buffer_end: int
    buffer: mmap | None
    is_dirty: bool
    dirty: set[int]
    mapped: dict[int, Any]

class NamesEnd:
    numbers: dict[str, int]
    firsts: array[int]
    unused: list[int]
    unwritten: bytearray

    def note(self, number: int, name: str | None) -> None: ...
    def forget(self) -> None: ...

class LightEnd:
    names_end: Any
    numbers: dict[str, int]
    ends: array[int]
    nexts: array[int]
    lasts: array[int]
    epochs: array[int]
    count: int
    after: int
    usual_from: int
    chain: Any
