"""Expiry: what readers of a queue no longer get, although the log still has it.

The log belongs to all topics and goes by whole files, so a topic that keeps less has its own, later
beginning: each queue has a *floor*, a log offset before which its messages are gone for readers. Limits of
age and size move floors whenever someone reads; nothing of that is on disk, and it is found again after a
restart. A purge is written to the file `purges`, which has the format of `deletions`: it counts for good.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyromq.errors import StoreError
from pyromq.protocol.record import peek_size
from pyromq.store.deletions import Deletion
from pyromq.store.parts import StoreParts
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE, UNIT, ConsumeQueue
from pyromq.store.queues.queue_files import UNIT_BYTES
from pyromq.store.reading import StoreReader
from pyromq.store.results import Boundary

_CHUNK = 4096
_MAX_ADDED = 100_000
"""If more messages came since the last look, those at the end are counted anew: fewer of them may be kept."""


class QueueLimit(NamedTuple):
    """Limits on what readers of each queue of a topic get; 0 means no limit."""

    max_age_ms: int = 0
    max_bytes: int = 0


class _Counted(NamedTuple):
    """The bytes of the messages from `first` to `end`."""

    first: int
    end: int
    size_bytes: int


class Expiry:
    def __init__(self, parts: StoreParts, reader: StoreReader) -> None:
        self._log = parts.log
        self._queues = parts.queues
        self._reader = reader
        self._purges = parts.purges
        self._time = parts.time
        self.limits: dict[str, QueueLimit] = {}
        """By topic; only `limit` changes it."""
        self._counted: dict[ConsumeQueue, _Counted] = {}
        self.on_purge: Callable[[], None] = lambda: None
        """Called after a purge, so that replicas hear of it."""
        self._queues.floor_of = self._purged_to

    def __repr__(self) -> str:
        return f"<Expiry limits={len(self.limits)} purges={len(self._purges.all())}>"

    def oldest_ms(self, topic: str, now_ms: int | None = None) -> int:
        """The store time before which the messages of a topic have expired; 0 without a limit of age. A clock
        that may be wrong hides nothing. `now_ms`: another time than that of the log."""
        limit = self.limits.get(topic) if self.limits else None
        if limit is None or not limit.max_age_ms:
            return 0
        return (self._time.cautious_ms() if now_ms is None else now_ms) - limit.max_age_ms

    def limit(self, topic: str, limit: QueueLimit | None) -> None:
        """Without a limit, or with a wider one, what the log still has is there again."""
        if limit == self.limits.get(topic):
            return
        if limit is None:
            del self.limits[topic]
        else:
            self.limits[topic] = limit
        self._counted = {queue: each for queue, each in self._counted.items() if queue.topic != topic}
        for queue in self._queues.of_topic(topic).values():
            self._set_floor(queue, self._purged_to(topic, queue.queue_id))

    def apply(self, queue: ConsumeQueue) -> None:
        """Move the floor of a queue up to what the limit of its topic leaves, if there is one."""
        limit = self.limits.get(queue.topic)
        if limit is None:
            return
        first = wanted = queue.min_offset(self._log.start_offset)
        if first >= queue.end_offset:
            return
        if limit.max_age_ms:
            oldest_ms = self.oldest_ms(queue.topic)
            if self._reader.stored_at(queue, first) < oldest_ms:
                wanted = self._reader.offset_at(queue, oldest_ms, Boundary.LOWER)
        if limit.max_bytes:
            wanted = max(wanted, self._first_that_fits(queue, first, limit.max_bytes))
        if wanted > first:
            self._set_floor(queue, self._place(queue, wanted))

    def purge(self, topic: str, queue_id: int, offset: int, time_ms: int) -> int:
        """Messages before `offset` are gone, or all if it is negative; returns the first that is left. On
        return it is safe. Raises StoreError."""
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            raise StoreError(f"the topic {topic} has no messages in queue {queue_id}")
        first, end = queue.min_offset(self._log.start_offset), queue.end_offset
        wanted = end if offset < 0 else offset
        if not first <= wanted <= end:
            raise StoreError(f"queue {queue_id} of {topic} has messages {first} to {end}, and not {wanted}")
        # What only a limit hides is there again without the limit.
        if wanted > first or queue.floor > self._purged_to(topic, queue_id):
            place = self._place(queue, wanted)
            try:
                self._purges.mark(_key(topic, queue_id), place, time_ms, is_finished=True)
            except OSError as error:
                raise StoreError(f"queue {queue_id} of {topic} cannot be purged: {error}") from error
            self._set_floor(queue, place)
        self.on_purge()
        return wanted

    # Replicas, restarts, and logs that lose their end

    def purges(self) -> list[Deletion]:
        """The purges that still hide records of the log; the topic of each is written `3@topic`."""
        return self._purges.all()

    def lacks(self, purge: Deletion) -> bool:
        return purge.log_offset > max(self._purges.offset_of(purge.topic), self._log.start_offset)

    def copy(self, purges: list[Deletion]) -> None:
        """Take over purges of the master, once the log has come so far. Raises OSError."""
        for each in purges:
            self._purges.mark(each.topic, each.log_offset, each.time_ms, is_finished=True)
        if purges:
            self.fit()

    def fit(self) -> None:
        """Bring the floors in line with the purges, and with a log that may have lost its end."""
        self._purges.fit_to_log(self._log.start_offset, self._log.end_offset)
        self._counted.clear()
        for queue in self._queues:
            self._set_floor(queue, self._purged_to(queue.topic, queue.queue_id))

    # Where

    def _purged_to(self, topic: str, queue_id: int) -> int:
        return self._purges.offset_of(_key(topic, queue_id))

    def _set_floor(self, queue: ConsumeQueue, floor: int) -> None:
        queue.floor = floor
        queue.forget_min_offset()

    def _place(self, queue: ConsumeQueue, offset: int) -> int:
        """Where in the log the first readable message from `offset` on begins, or the last one ends."""
        for number in range(offset, queue.end_offset):
            if (place := self._reader.place_of(queue, number)) is not None:
                return place
        for number in range(queue.end_offset - 1, queue.first_unit - 1, -1):
            place = self._reader.place_of(queue, number)
            if place is not None and (record := self._log.record(place)) is not None:
                return place + peek_size(record)
        return queue.floor

    def _first_that_fits(self, queue: ConsumeQueue, first: int, max_bytes: int) -> int:
        """The first of the newest messages that have `max_bytes` at most; the newest one is always kept."""
        end, counted = queue.end_offset, self._counted.get(queue)
        if counted is None or not counted.end <= end <= counted.end + _MAX_ADDED:
            start, size_bytes = self._newest(queue, first, max_bytes)
        else:
            start, size_bytes = counted.first, counted.size_bytes
            for sizes in self._sizes(queue, counted.end, end):
                size_bytes += sum(sizes)
        while size_bytes > max_bytes and start < end - 1:
            size_bytes -= _size(queue.unit(start)[1])
            start += 1
        self._counted[queue] = _Counted(start, end, size_bytes)
        return start

    def _newest(self, queue: ConsumeQueue, first: int, max_bytes: int) -> tuple[int, int]:
        """Counted from the end back, until there are enough."""
        start, size_bytes = queue.end_offset, 0
        while start > first and size_bytes <= max_bytes:
            begin = max(first, start - _CHUNK)
            size_bytes += sum(sum(sizes) for sizes in self._sizes(queue, begin, start))
            start = begin
        return start, size_bytes

    def _sizes(self, queue: ConsumeQueue, begin: int, end: int) -> "list[list[int]]":
        """The sizes of some messages, file by file."""
        found = []
        while begin < end:
            raw = queue.units(begin, end - begin)
            found.append([_size(size) for _, size, _ in UNIT.iter_unpack(raw)])
            begin += len(raw) // UNIT_BYTES
        return found


def _key(topic: str, queue_id: int) -> str:
    return f"{queue_id}@{topic}"


def _size(size: int) -> int:
    """A message that the log has lost takes no room."""
    return 0 if size == PRE_BLANK_SIZE else size
