"""How many messages wait: in all, and up to a certain time from now.

One number is kept for each minute, not for each slot: a million slots cost nothing to sum up.
"""

from collections.abc import Callable


class SlotCounts:
    def __init__(self, slots_per_minute: int) -> None:
        self.slots_per_minute = self._per_minute = slots_per_minute
        self._minutes: dict[int, int] = {}
        self.total = 0

    def __repr__(self) -> str:
        return f"<SlotCounts total={self.total} minutes={len(self._minutes)}>"

    def add(self, number: int, change: int) -> None:
        minute = number // self._per_minute
        count = self._minutes.get(minute, 0) + change
        if count:
            self._minutes[minute] = count
        else:
            self._minutes.pop(minute, None)
        self.total += change

    def between(self, first: int, end: int, count_at: Callable[[int], int]) -> int:
        """How many wait in the slots from `first` up to `end`; `count_at` gives the count of one slot."""
        size = self._per_minute
        whole_from, whole_end = -(-first // size), end // size
        if whole_from >= whole_end:
            return sum(map(count_at, range(first, end)))
        inside = sum(count for minute, count in self._minutes.items() if whole_from <= minute < whole_end)
        edges = (range(first, whole_from * size), range(whole_end * size, end))
        return inside + sum(sum(map(count_at, edge)) for edge in edges)
