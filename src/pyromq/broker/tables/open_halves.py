"""The half messages whose transactions are open: their offsets in the half queue, and a key for each.

All copies of a half message have the same key; only the last copy is listed. An entry takes 17 bytes: a
million of open transactions fit in memory. Entries are in blocks, and no operation touches more than one,
except the search by key, which is a search for bytes.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

KEY_BYTES: Final = 8
_BLOCK: Final = 4096
_MIN_TO_SHRINK: Final = 64


class _Block:
    """`is_open` has a 1 for each entry that is open still."""

    __slots__ = ("is_open", "keys", "offsets", "open_count")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.keys = bytearray()
        self.is_open = bytearray()
        self.open_count = 0

    def add(self, offset: int, key: bytes) -> None:
        self.offsets.append(offset)
        self.keys += key
        self.is_open.append(1)
        self.open_count += 1

    def position(self, offset: int) -> int | None:
        """The entry of an open half message."""
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset and self.is_open[at]:
            return at
        return None

    def find(self, key: bytes) -> int | None:
        at = self.keys.find(key)
        while at >= 0:
            if at % KEY_BYTES == 0 and self.is_open[at // KEY_BYTES]:
                return self.offsets[at // KEY_BYTES]
            at = self.keys.find(key, at + 1)
        return None

    def shrunk(self) -> "_Block":
        """The open entries alone."""
        block = _Block()
        for at, is_open in enumerate(self.is_open):
            if is_open:
                block.add(self.offsets[at], bytes(self.keys[at * KEY_BYTES : (at + 1) * KEY_BYTES]))
        return block


class OpenHalves:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        """The offset with which each block began."""
        self._count = 0

    def __repr__(self) -> str:
        return f"<OpenHalves {self._count} in {len(self._blocks)} blocks>"

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, key: bytes) -> None:
        """List a half message; its offset is above all others."""
        if not self._blocks or len(self._blocks[-1].offsets) >= _BLOCK:
            self._blocks.append(_Block())
            self._firsts.append(offset)
        self._blocks[-1].add(offset, key)
        self._count += 1

    def is_open(self, offset: int) -> bool:
        number = bisect_right(self._firsts, offset) - 1
        return number >= 0 and self._blocks[number].position(offset) is not None

    def close(self, offset: int) -> bool:
        """Remove a half message; False if it is not listed."""
        number = bisect_right(self._firsts, offset) - 1
        block = self._blocks[number] if number >= 0 else None
        if block is None or (at := block.position(offset)) is None:
            return False
        block.is_open[at] = 0
        block.open_count -= 1
        self._count -= 1
        if not block.open_count:
            del self._blocks[number], self._firsts[number]
        elif block.open_count < len(block.offsets) // 2 > _MIN_TO_SHRINK:
            self._blocks[number] = block.shrunk()
        return True

    def find(self, key: bytes) -> int | None:
        """The offset of the half message with a key."""
        for block in self._blocks:
            if (offset := block.find(key)) is not None:
                return offset
        return None

    def from_offset(self, offset: int) -> int | None:
        """The first half message at or behind an offset."""
        for number in range(max(bisect_right(self._firsts, offset) - 1, 0), len(self._blocks)):
            block = self._blocks[number]
            at = block.is_open.find(1, bisect_left(block.offsets, offset))
            if at >= 0:
                return block.offsets[at]
        return None
