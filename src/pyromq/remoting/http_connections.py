"""The open connections of a status port; at the limit an old connection is dropped, never the new one.

An orchestrator kills a healthy server whose probes are refused, so a new connection is always accepted. The
dropped one comes from the address with the most connections; among those, connections that wait for no
answer go first, then the one that has been inactive for longest.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyromq.clock import Clock


class HttpConnection:
    def __init__(self, address: str, transport: asyncio.WriteTransport, deadline: float) -> None:
        self.address = address
        self.deadline = deadline
        self.transport = transport
        self.task: asyncio.Task[Any] | None = None
        self.is_answered = False
        """Whether an answer is being sent."""
        self.unwritten_bytes = 0
        """The part of the answer that the transport does not have yet."""
        self.last_active = 0.0
        """When it last sent a request or read a part of its answer."""
        self._last_unsent_bytes = 0

    @property
    def unsent_bytes(self) -> int:
        return self.unwritten_bytes + self.transport.get_write_buffer_size()

    def begin_answer(self, size_bytes: int, now: float, stall_s: float) -> None:
        self.is_answered = True
        self.unwritten_bytes = size_bytes
        self._last_unsent_bytes = self.unsent_bytes
        self.last_active = now
        self.deadline = now + stall_s

    def notice_progress(self, now: float, stall_s: float) -> None:
        """Extend the deadline if the peer has read something of its answer."""
        unsent_bytes = self.unsent_bytes
        if unsent_bytes < self._last_unsent_bytes:
            self.last_active = now
            self.deadline = now + stall_s
        self._last_unsent_bytes = unsent_bytes

    def end(self) -> None:
        self.transport.abort()
        if self.task is not None:
            self.task.cancel()


class HttpConnections:
    def __init__(
        self, clock: Clock, *, max_connections: int, max_unsent_bytes: int, request_s: float, stall_s: float
    ) -> None:
        self._clock = clock
        self._max_connections = max_connections
        self._max_unsent_bytes = max_unsent_bytes
        self._request_s = request_s
        self._stall_s = stall_s
        self._open: dict[HttpConnection, None] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[HttpConnection]:
        return iter(list(self._open))

    def open(self, address: str, transport: asyncio.WriteTransport) -> HttpConnection:
        """Add a connection, dropping another one if there are too many."""
        while len(self._open) >= self._max_connections:
            self._drop(self._first_to_drop(list(self._open)))
        now = self._clock.monotonic()
        connection = HttpConnection(address, transport, now + self._request_s)
        connection.last_active = now
        self._open[connection] = None
        return connection

    def remove(self, connection: HttpConnection) -> None:
        self._open.pop(connection, None)

    def await_request(self, connection: HttpConnection) -> None:
        """The whole next request must arrive within `request_s`."""
        connection.last_active = self._clock.monotonic()
        connection.deadline = connection.last_active + self._request_s

    @contextmanager
    def answering(self, connection: HttpConnection, size_bytes: int) -> Iterator[None]:
        """While an answer is sent. If all answers exceed the limit, drop other connections that read one."""
        self._notice_progress()
        while True:
            readers = [each for each in self._open if each.is_answered and each is not connection]
            if not readers or _unsent_bytes(readers) + size_bytes <= self._max_unsent_bytes:
                break
            self._drop(self._first_to_drop(readers))
        connection.begin_answer(size_bytes, self._clock.monotonic(), self._stall_s)
        try:
            yield
        finally:
            connection.is_answered = False

    def close_overdue(self) -> None:
        """Drop connections that take too long; called regularly."""
        self._notice_progress()
        now = self._clock.monotonic()
        for connection in self:
            if now >= connection.deadline:
                self._drop(connection)

    def _notice_progress(self) -> None:
        now = self._clock.monotonic()
        for connection in self._open:
            if connection.is_answered:
                connection.notice_progress(now, self._stall_s)

    def _first_to_drop(self, candidates: list[HttpConnection]) -> HttpConnection:
        per_address = Counter(each.address for each in candidates)
        return min(
            candidates, key=lambda each: (-per_address[each.address], each.is_answered, each.last_active)
        )

    def _drop(self, connection: HttpConnection) -> None:
        self.dropped += 1
        self.remove(connection)
        connection.end()


def _unsent_bytes(connections: list[HttpConnection]) -> int:
    return sum(each.unsent_bytes for each in connections)
