"""The half messages whose transactions are open: their offsets in the half queue, and the keys of copies.

All copies of a half message have the same key; only the last copy is listed. An entry takes 9 bytes, that of
a copy 16 more: millions of open transactions fit in memory. Entries are in blocks, keys in rows, and no
operation touches more than one of each.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

_BLOCK: Final = 4096
_MIN_TO_SHRINK: Final = 64
_ROWS: Final = 4096


class _Block:
    """`is_open` has a 1 for each entry that is open still."""

    __slots__ = ("is_open", "offsets", "open_count")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.is_open = bytearray()
        self.open_count = 0

    def add(self, offset: int) -> None:
        self.offsets.append(offset)
        self.is_open.append(1)
        self.open_count += 1

    def position(self, offset: int) -> int | None:
        """The entry of an open half message."""
        at = bisect_left(self.offsets, offset)
        if at < len(self.offsets) and self.offsets[at] == offset and self.is_open[at]:
            return at
        return None

    def shrunk(self) -> "_Block":
        """The open entries alone."""
        block = _Block()
        for at, is_open in enumerate(self.is_open):
            if is_open:
                block.add(self.offsets[at])
        return block


class _Copies:
    """Offsets by key, in pairs: each key belongs to one of many rows, which stay short."""

    def __init__(self) -> None:
        self._rows: dict[int, array[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._rows)

    def _place(self, row: "array[int]", key: int) -> int | None:
        at = -1
        while True:
            try:
                at = row.index(key, at + 1)
            except ValueError:
                return None
            if at % 2 == 0:
                return at

    def find(self, key: int) -> int | None:
        row = self._rows.get(key % _ROWS)
        at = None if row is None else self._place(row, key)
        return None if row is None or at is None else row[at + 1]

    def put(self, key: int, offset: int) -> None:
        self.remove(key)
        self._rows.setdefault(key % _ROWS, array("q")).extend((key, offset))

    def remove(self, key: int) -> None:
        row = self._rows.get(key % _ROWS)
        if row is None or (at := self._place(row, key)) is None:
            return
        del row[at : at + 2]
        if not row:
            del self._rows[key % _ROWS]


class OpenHalves:
    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._firsts: list[int] = []
        """The offset with which each block began."""
        self._copies = _Copies()
        self._count = 0

    def __repr__(self) -> str:
        return f"<OpenHalves {self._count} in {len(self._blocks)} blocks>"

    def __len__(self) -> int:
        return self._count

    def add(self, offset: int, key_of_copy: int | None = None) -> None:
        """List a half message; its offset is above all others. A copy replaces those of the same key."""
        if not self._blocks or len(self._blocks[-1].offsets) >= _BLOCK:
            self._blocks.append(_Block())
            self._firsts.append(offset)
        self._blocks[-1].add(offset)
        self._count += 1
        if key_of_copy is not None:
            self._copies.put(key_of_copy, offset)

    def is_open(self, offset: int) -> bool:
        number = bisect_right(self._firsts, offset) - 1
        return number >= 0 and self._blocks[number].position(offset) is not None

    def close(self, offset: int, key: int | None = None) -> bool:
        """Remove a half message, and the key of its copies; False if it is not listed."""
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
        if self._copies and key is not None:
            self._copies.remove(key)
        return True

    def find_copy(self, key: int) -> int | None:
        """The offset of the last copy with a key, if it is open."""
        offset = self._copies.find(key) if self._copies else None
        return offset if offset is not None and self.is_open(offset) else None

    def from_offset(self, offset: int) -> int | None:
        """The first half message at or behind an offset."""
        for number in range(max(bisect_right(self._firsts, offset) - 1, 0), len(self._blocks)):
            block = self._blocks[number]
            at = block.is_open.find(1, bisect_left(block.offsets, offset))
            if at >= 0:
                return block.offsets[at]
        return None
