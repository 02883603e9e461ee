"""Finds keys whose deadline has passed without scanning all of them.

Every key has one entry in a heap. A heartbeat only moves the key's deadline; the heap is updated when the
old entry reaches the top.
"""

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        self._in_heap: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._pushes = 0

    def __repr__(self) -> str:
        return f"<Deadlines keys={len(self._deadlines)} heap={len(self._heap)}>"

    def __len__(self) -> int:
        return len(self._deadlines)

    def set(self, key: K, deadline: float) -> None:
        self._deadlines[key] = deadline
        in_heap = self._in_heap.get(key)
        if in_heap is None or deadline < in_heap:
            self._push(key, deadline)

    def forget(self, key: K) -> None:
        """The heap's entry stays until it reaches the top, or is used again if the key returns."""
        self._deadlines.pop(key, None)

    def next_check(self) -> float | None:
        """No key is due before this time."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[K]:
        """Remove and return the keys whose deadline has passed, the oldest first."""
        due: list[K] = []
        while self._heap and self._heap[0][0] < now:
            at, _, key = heapq.heappop(self._heap)
            if self._in_heap.get(key) != at:
                continue
            del self._in_heap[key]
            deadline = self._deadlines.get(key)
            if deadline is None:
                continue
            if deadline < now:
                del self._deadlines[key]
                due.append(key)
            else:
                self._push(key, deadline)
        return due

    def _push(self, key: K, deadline: float) -> None:
        self._pushes += 1
        self._in_heap[key] = deadline
        heapq.heappush(self._heap, (deadline, self._pushes, key))

    def _drop_stale(self) -> None:
        while self._heap:
            at, _, key = self._heap[0]
            if self._in_heap.get(key) == at and key in self._deadlines:
                return
            heapq.heappop(self._heap)
            if self._in_heap.get(key) == at:
                del self._in_heap[key]
