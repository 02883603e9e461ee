"""A checksum of everything that happened. Two runs of one plan are equal if their traces are.

The network adds every delivery and the disk every sync, each with its virtual time.
"""

import struct
from zlib import crc32

_STAMP = struct.Struct("<dqq")


class Trace:
    def __init__(self) -> None:
        self.crc = 0
        self.entries = 0

    def __repr__(self) -> str:
        return f"<Trace {self.crc:08x} of {self.entries}>"

    def add(self, at_s: float, what: int, size: int, data: bytes | bytearray | memoryview) -> None:
        """`what` and `size` tell entries with equal bytes apart."""
        self.entries += 1
        self.crc = crc32(data, crc32(_STAMP.pack(at_s, what, size), self.crc))
