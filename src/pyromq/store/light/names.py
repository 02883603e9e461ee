"""The names of the light queues, in a file that is only appended to; a queue's number is its place there.

position  size  field
       0     4  checksum (CRC-32) of what follows
       4     4  number of the queue
       8     2  length of the name
      10     n  the name
"""

import struct
import zlib
from pathlib import Path
from typing import Final

from pyromq.filesystem import Files

_HEAD: Final = struct.Struct(">IIH")


def encode_name(number: int, name: bytes) -> bytes:
    rest = _HEAD.pack(0, number, len(name))[4:] + name
    return zlib.crc32(rest).to_bytes(4, "big") + rest


def decode_names(content: bytes) -> tuple[list[str], int]:
    """The names up to the first damage, and where that begins."""
    found: list[str] = []
    position, head, crc32, unpack = 0, _HEAD.size, zlib.crc32, _HEAD.unpack_from
    while position + head <= len(content):
        checksum, number, length = unpack(content, position)
        end = position + head + length
        if number != len(found) or end > len(content) or crc32(content[position + 4 : end]) != checksum:
            break
        try:
            found.append(content[position + head : end].decode())
        except UnicodeDecodeError:
            break
        position = end
    return found, position


class LightNames:
    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._path = path
        self._written_bytes = 0
        self._unwritten = bytearray()
        self.numbers: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<LightNames {len(self.numbers)}>"

    def add(self, name: str) -> int:
        number = self.numbers[name] = len(self.numbers)
        self._unwritten += encode_name(number, name.encode())
        return number

    def write(self) -> list[Path]:
        """Write the names that are new; the files to sync. Raises OSError."""
        if not self._unwritten:
            return []
        writer = self._files.open_for_writing(self._path)
        try:
            while self._unwritten:
                written = writer.write(self._written_bytes, memoryview(bytes(self._unwritten)))
                self._written_bytes += written
                del self._unwritten[:written]
        finally:
            writer.close()
        return [self._path]

    def load(self) -> bool:
        """Take over the file; False if there is none."""
        if self._files.size(self._path) is None:
            return False
        content = self._files.read(self._path)
        found, self._written_bytes = decode_names(content)
        if self._written_bytes < len(content):
            self._files.resize(self._path, self._written_bytes)
        self.numbers = {name: number for number, name in enumerate(found)}
        return len(self.numbers) == len(found)

    def drop(self) -> None:
        """Begin with nothing. Raises OSError."""
        self.numbers.clear()
        self._unwritten.clear()
        self._written_bytes = 0
        self._files.write(self._path, b"")
