"""Who is visiting a status port, and who leaves when room is needed: a newcomer is never the one.

A probe that finds no room makes an orchestrator end a healthy server, so the door stays open whatever others
do. The visitor who leaves is one from the address that has the most, first one who waits for nothing, and of
those the one who has done nothing for longest.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyromq.clock import Clock


class Visit:
    """One connection."""

    def __init__(self, address: str, transport: asyncio.WriteTransport, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self.transport = transport
        self.task: asyncio.Task[Any] | None = None
        self.is_answered = False
        """An answer is on its way to it."""
        self.unwritten_bytes = 0
        """Of an answer, what has not been handed to the transport."""
        self.moved = 0.0
        """When it last did what it came for."""
        self._seen_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return self.unwritten_bytes + self.transport.get_write_buffer_size()

    def begin_answer(self, size_bytes: int, now: float, stall_s: float) -> None:
        self.is_answered = True
        self.unwritten_bytes = size_bytes
        self._seen_bytes = self.unsent_bytes
        self.moved = now
        self.deadline = now + stall_s

    def notice_reading(self, now: float, stall_s: float) -> None:
        """Whoever has taken something of an answer may go on."""
        unsent_bytes = self.unsent_bytes
        if unsent_bytes < self._seen_bytes:
            self.moved = now
            self.deadline = now + stall_s
        self._seen_bytes = unsent_bytes

    def end(self) -> None:
        self.transport.abort()
        if self.task is not None:
            self.task.cancel()


class Visits:
    def __init__(
        self, clock: Clock, *, most: int, most_unsent_bytes: int, request_s: float, stall_s: float
    ) -> None:
        self._clock = clock
        self._most = most
        self._most_unsent_bytes = most_unsent_bytes
        self._request_s = request_s
        self._stall_s = stall_s
        self._present: dict[Visit, None] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._present)

    def __iter__(self) -> Iterator[Visit]:
        return iter(list(self._present))

    def enter(self, address: str, transport: asyncio.WriteTransport) -> Visit:
        """Let a visitor in, whoever has to leave for that."""
        while len(self._present) >= self._most:
            self._drop(self._least_missed(list(self._present)))
        now = self._clock.monotonic()
        visit = Visit(address, transport, now + self._request_s)
        visit.moved = now
        self._present[visit] = None
        return visit

    def leave(self, visit: Visit) -> None:
        self._present.pop(visit, None)

    def await_request(self, visit: Visit) -> None:
        """Its next request has to be here, all of it, after `request_s`."""
        visit.moved = self._clock.monotonic()
        visit.deadline = visit.moved + self._request_s

    @contextmanager
    def answering(self, visit: Visit, size_bytes: int) -> Iterator[None]:
        """While an answer goes out. Should all answers be too many bytes, other readers have to leave."""
        self._look_at_readers()
        while True:
            readers = [each for each in self._present if each.is_answered and each is not visit]
            if not readers or _unsent_bytes(readers) + size_bytes <= self._most_unsent_bytes:
                break
            self._drop(self._least_missed(readers))
        visit.begin_answer(size_bytes, self._clock.monotonic(), self._stall_s)
        try:
            yield
        finally:
            visit.is_answered = False

    def close_late(self) -> None:
        """Close those who take too long; to be called regularly."""
        self._look_at_readers()
        now = self._clock.monotonic()
        for visit in self:
            if now >= visit.deadline:
                self._drop(visit)

    def _look_at_readers(self) -> None:
        now = self._clock.monotonic()
        for visit in self._present:
            if visit.is_answered:
                visit.notice_reading(now, self._stall_s)

    def _least_missed(self, candidates: list[Visit]) -> Visit:
        crowds = Counter(each.address for each in candidates)
        return min(candidates, key=lambda each: (-crowds[each.address], each.is_answered, each.moved))

    def _drop(self, visit: Visit) -> None:
        self.dropped += 1
        self.leave(visit)
        visit.end()


def _unsent_bytes(visits: list[Visit]) -> int:
    return sum(each.unsent_bytes for each in visits)
