"""The names of the light queues, in a file that is only appended to.

position  size  field
       0     4  checksum (CRC-32) of what follows
       4     4  number of the queue
       8     8  number of the first entry that may belong to it
      16     2  length of the name
      18     n  the name

The number of a queue that was removed is used again: the last record with a number counts. Earlier entries
with that number belonged to the queue that was removed.
"""

import struct
import zlib
from array import array
from pathlib import Path
from typing import Final, NamedTuple

from pyromq.errors import StoreError
from pyromq.filesystem import UNFINISHED_SUFFIX, Files
from pyromq.store.light.light_end import NamesEnd

HEAD: Final = struct.Struct(">IIqH")
_UNUSED: Final = ""
"""The name of a number that no queue has."""
_COMPACT_BYTES: Final = 1 << 20
"""A file with less than this in vain is left as it is."""


class NamedQueue(NamedTuple):
    name: str
    first: int


def encode_name(number: int, name: bytes, first: int) -> bytes:
    rest = HEAD.pack(0, number, first, len(name))[4:] + name
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def decode_names(content: bytes) -> tuple[list[NamedQueue], int]:
    """The queues by their numbers, up to the first damage, and where that begins."""
    found: list[NamedQueue] = []
    position, head, crc32, unpack = 0, HEAD.size, zlib.crc32, HEAD.unpack_from
    while position + head <= len(content):
        checksum, number, first, length = unpack(content, position)
        end = position + head + length
        if number > len(found) or end > len(content) or crc32(content[position + 4 : end]) != checksum:
            break
        try:
            queue = NamedQueue(content[position + head : end].decode(), first)
        except UnicodeDecodeError:
            break
        if number == len(found):
            found.append(queue)
        else:
            found[number] = queue
        position = end
    return found, position


class LightNames(NamesEnd):
    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._written_bytes = 0
        self.unwritten = bytearray()
        self.unused = []
        self.numbers = {}
        self.firsts = array("q")

    def __repr__(self) -> str:
        return f"<LightNames {len(self.numbers)} unused={len(self.unused)}>"

    def add(self, name: str, first: int) -> int:
        """Give a queue a number; its entries come from `first` on."""
        if self.unused:
            number = self.unused.pop()
            self.firsts[number] = first
        else:
            number = len(self.firsts)
            self.firsts.append(first)
        self.numbers[name] = number
        self.note(number, name)
        self.unwritten += encode_name(number, name.encode(), first)
        return number

    def remove(self, name: str) -> None:
        """The queue is gone; another one gets its number."""
        number = self.numbers.pop(name)
        self.note(number, None)
        self.unused.append(number)

    def write(self) -> list[Path]:
        """Write the names that are new; the files to sync. Raises OSError."""
        if not self.unwritten:
            return []
        writer = self._files.open_for_writing(self._path)
        try:
            while self.unwritten:
                written = writer.write(self._written_bytes, memoryview(bytes(self.unwritten)))
                self._written_bytes += written
                del self.unwritten[:written]
        finally:
            writer.close()
        return [self._path]

    def load(self) -> list[NamedQueue] | None:
        """The queues in the file; None without a file. `take_over` must follow. Raises OSError."""
        if self._files.size(self._path) is None:
            return None
        content = self._files.read(self._path)
        found, self._written_bytes = decode_names(content)
        if self._written_bytes < len(content):
            self._files.resize(self._path, self._written_bytes)
        self.firsts = array("q", (queue.first for queue in found))
        return found

    def take_over(self, found: list[NamedQueue], ends: "array[int]") -> None:
        """Keep the queues that have an end; the numbers of the others are unused.

        Raises StoreError if two queues have the same name, and OSError.
        """
        self.numbers.clear()
        self.unused.clear()
        self.forget()
        kept_bytes = 0
        for number, (name, _) in enumerate(found):
            if not ends[number]:
                self.unused.append(number)
                kept_bytes += HEAD.size
            elif self.numbers.setdefault(name, number) == number:
                self.note(number, name)
                kept_bytes += HEAD.size + len(name)
            else:
                raise StoreError(f"{self._path} names two queues {name}")
        if self._written_bytes > 2 * kept_bytes + _COMPACT_BYTES:
            self._compact(found, ends)

    def _compact(self, found: list[NamedQueue], ends: "array[int]") -> None:
        records = (
            encode_name(number, (name if ends[number] else _UNUSED).encode(), first)
            for number, (name, first) in enumerate(found)
        )
        content = b"".join(records)
        unfinished = self._path.with_suffix(UNFINISHED_SUFFIX)
        self._files.write(unfinished, content)
        self._files.rename(unfinished, self._path)
        self._files.sync_directory(self._path.parent)
        self._written_bytes = len(content)

    def drop(self) -> None:
        """Begin with nothing. Raises OSError."""
        self.numbers.clear()
        self.unused.clear()
        self.forget()
        self.unwritten.clear()
        self.firsts = array("q")
        self._written_bytes = 0
        self._files.write(self._path, b"")
