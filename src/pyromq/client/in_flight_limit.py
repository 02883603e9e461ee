"""A limit on the messages and bytes in flight; callers over the limit wait in FIFO order."""

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from pyromq.compiled import twin


class InterpretedCounts:
    def __init__(self, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.count = 0
        self.size_bytes = 0

    def try_enter(self, size_bytes: int) -> bool:
        # Called for every message: this is `_has_room`, inlined.
        count, total_bytes = self.count, self.size_bytes + size_bytes
        if self._waiting or (count and (count >= self._max_count or total_bytes > self._max_bytes)):
            return False
        self.count = count + 1
        self.size_bytes = total_bytes
        return True


_twin = twin("client.twin_in_flight_limit")

if TYPE_CHECKING:
    InFlightCounts = InterpretedCounts
else:
    InFlightCounts = InterpretedCounts if _twin is None else _twin.InFlightCounts


class InFlightLimit(InFlightCounts):
    """A message larger than `max_bytes` is admitted when nothing else is in flight."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        super().__init__(max_count, max_bytes)
        self._empty: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        return f"<InFlightLimit count={self.count} bytes={self.size_bytes} waiting={len(self._waiting)}>"

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def enter(self, size_bytes: int) -> None:
        if self.try_enter(size_bytes):
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size_bytes, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(size_bytes)
            else:
                self._admit()
            raise

    def leave(self, size_bytes: int) -> None:
        # Called for every message: this is `leave_together`, inlined.
        self.count -= 1
        self.size_bytes -= size_bytes
        if self._waiting or not self.count:
            self._has_room_again()

    def leave_together(self, count: int, size_bytes: int) -> None:
        self.count -= count
        self.size_bytes -= size_bytes
        self._has_room_again()

    def _has_room_again(self) -> None:
        if self._waiting:
            self._admit()
        if self.count == 0 and self._empty is not None:
            self._empty.set_result(None)
            self._empty = None

    async def wait_empty(self) -> None:
        """Return when nothing is in flight and no caller waits."""
        while self.count or self._waiting:
            if self._empty is None:
                self._empty = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._empty)

    def _has_room(self, size_bytes: int) -> bool:
        if self.count == 0:
            return True
        return self.count < self._max_count and self.size_bytes + size_bytes <= self._max_bytes

    def _admit(self) -> None:
        while self._waiting:
            size_bytes, admitted = self._waiting[0]
            if admitted.done():
                self._waiting.popleft()
                continue
            if not self._has_room(size_bytes):
                return
            self._waiting.popleft()
            self.count += 1
            self.size_bytes += size_bytes
            admitted.set_result(None)
