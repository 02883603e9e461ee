"""Reads a topic in the order of time, newest or oldest first, over all its queues, within limits.

The result says how many messages it looked at and why it stopped, and where to continue: it never looks
complete when it is not.
"""

import heapq
from enum import StrEnum

import msgspec

from pyromq.admin import messages, offsets
from pyromq.admin.cluster import Cluster
from pyromq.admin.matching import BodyFilter
from pyromq.filtering.tags import ALL
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.record import StoredMessage

_CHUNK = 32


class Stop(StrEnum):
    """Why a look ended."""

    END = "end"
    ROWS = "rows"
    TIME = "time"
    BYTES = "bytes"


class Limits(msgspec.Struct, frozen=True):
    rows: int = 50
    seconds: float = 10.0
    bytes: int = 64 * 1024 * 1024


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which messages of a topic: those stored from `from_ms` on and before `until_ms`. `from_offset` or
    `positions` say where to start; without them that is the newest message, or the oldest."""

    newest_first: bool = True
    broker_name: str | None = None
    queue_id: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    from_offset: int | None = None
    positions: dict[MessageQueue, int] = {}
    tags: str = ALL
    sql: str = ""
    only: BodyFilter = BodyFilter()
    limits: Limits = Limits()

    def is_in_time(self, message: StoredMessage) -> bool:
        at_ms = message.store_timestamp
        return (self.from_ms is None or at_ms >= self.from_ms) and (
            self.until_ms is None or at_ms < self.until_ms
        )


class Place(msgspec.Struct, frozen=True, rename="camel"):
    """A message and the broker it was read from."""

    broker_name: str
    message: StoredMessage


class Look(msgspec.Struct, frozen=True):
    """The messages found. `positions` is where to continue, by queue: the next offset, or backwards the last
    one read."""

    found: list[Place]
    seen: int
    stop: Stop
    positions: dict[MessageQueue, int]


class _Cursor:
    """One queue: what was read of it and not yet given out, and what is left to read."""

    def __init__(
        self, queue: MessageQueue, address: str, first: int, end: int, at: int, backwards: bool
    ) -> None:
        self.queue, self.address = queue, address
        self.backwards = backwards
        self.first, self.end = first, end
        self.at = at
        """Up to here the messages are given out."""
        self._read_to = at
        self._held: list[StoredMessage] = []
        self._chunk = 1

    @property
    def is_done(self) -> bool:
        return not self._held and (
            self._read_to <= self.first if self.backwards else self._read_to >= self.end
        )

    async def head(self, cluster: Cluster, expression: str, max_bytes: int) -> StoredMessage | None:
        """The next message, read if needed; None if a chunk had none. About `max_bytes` are held."""
        if not self._held:
            if self.backwards:
                begin, end = max(self.first, self._read_to - self._chunk), self._read_to
                self._read_to = begin
            else:
                begin, end = self._read_to, min(self.end, self._read_to + self._chunk)
                self._read_to = end
            read = messages.read(cluster, self.address, self.queue, begin, end, expression)
            self._held = [message async for message in read]
            # The first message suggests how large the next ones may be.
            largest = max((len(message.body) for message in self._held), default=1)
            self._chunk = max(1, min(_CHUNK, max_bytes // max(1, largest)))
            if not self.backwards:
                self._held.reverse()
            if not self._held:
                self.at = self._read_to
        return self._held[-1] if self._held else None

    def take(self) -> StoredMessage:
        message = self._held.pop()
        self.at = message.queue_offset if self.backwards else message.queue_offset + 1
        if not self._held:
            self.at = self._read_to
        return message


async def look(cluster: Cluster, topic: str, wanted: Wanted) -> Look:
    """Messages of a topic that match. `NotFound` if the topic has no such queue."""
    limits, newest_first = wanted.limits, wanted.newest_first
    cursors = await _cursors(cluster, topic, wanted)
    expression = messages.SqlText(wanted.sql) if wanted.sql else wanted.tags or ALL
    deadline = cluster.clock.monotonic() + limits.seconds
    found: list[Place] = []
    seen = read_bytes = 0
    stop = Stop.END
    waiting = list(range(len(cursors)))
    ready: list[tuple[int, int, int]] = []
    while waiting or ready:
        if cluster.clock.monotonic() > deadline:
            stop = Stop.TIME
            break
        if waiting:
            number = waiting[-1]
            head = await cursors[number].head(cluster, expression, limits.bytes // len(cursors))
            if head is not None:
                waiting.pop()
                order = -head.store_timestamp if newest_first else head.store_timestamp
                heapq.heappush(ready, (order, number, head.queue_offset))
            elif cursors[number].is_done:
                waiting.pop()
            continue
        if len(found) == limits.rows:
            stop = Stop.ROWS
            break
        if read_bytes > limits.bytes:
            stop = Stop.BYTES
            break
        _, number, _ = heapq.heappop(ready)
        cursor = cursors[number]
        message = cursor.take()
        read_bytes += len(message.body)
        if wanted.is_in_time(message):
            seen += 1
            if wanted.only.matches(message.body):
                found.append(Place(cursor.queue.broker_name, message))
        if not cursor.is_done:
            waiting.append(number)
    return Look(found, seen, stop, {cursor.queue: cursor.at for cursor in cursors})


async def _cursors(cluster: Cluster, topic: str, wanted: Wanted) -> list[_Cursor]:
    made: list[_Cursor] = []
    queues = await offsets.chosen_queues(cluster, topic, wanted.broker_name, wanted.queue_id)
    for queue, address in queues.items():
        first, end = await offsets.limits(cluster, address, queue)
        if wanted.from_ms is not None:
            first = max(first, await offsets.search(cluster, address, queue, wanted.from_ms))
        if wanted.until_ms is not None:
            # java: for a time behind all messages, some brokers answer with the last one
            end = min(end, 1 + await offsets.search(cluster, address, queue, wanted.until_ms))
        end = max(first, end)
        if queue in wanted.positions:
            at = wanted.positions[queue]
        elif wanted.from_offset is not None:
            at = wanted.from_offset + wanted.newest_first
        else:
            at = end if wanted.newest_first else first
        made.append(_Cursor(queue, address, first, end, max(first, min(end, at)), wanted.newest_first))
    return made
