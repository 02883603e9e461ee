"""Reading the queues: where they begin and end, what their units say, and how far they follow the log."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from pyromq.store.compacted_reading import CompactedReader
from pyromq.store.expiry import Expiry
from pyromq.store.light_reading import LightReader
from pyromq.store.log.damage import Damage, is_filler
from pyromq.store.older_messages import OlderMessages, OlderUnknown
from pyromq.store.parts import StoreParts
from pyromq.store.queues.mending import Mending
from pyromq.store.reading import StoreReader
from pyromq.store.results import Boundary

_UNITS_AT_ONCE: Final = 1000


class QueueReading:
    def __init__(
        self,
        parts: StoreParts,
        reader: StoreReader,
        mending: Mending,
        expiry: Expiry,
        compacted: CompactedReader,
        light: LightReader | None = None,
    ) -> None:
        self._light = light
        self.older: OlderMessages | None = None
        """Has the messages before those of this disk."""
        self._log = parts.log
        self._queues = parts.queues
        self._dispatcher = parts.dispatcher
        self._deletions = parts.deletions
        self._reader = reader
        self._mending = mending
        self._expiry = expiry
        self._snapshots = parts.snapshots
        self._compacted = compacted
        # Bound here: a method in between would cost a call.
        self.find = parts.queues.find
        self.sound_units = reader.sound_units

    def ids(self, topic: str) -> list[int]:
        return sorted(self._queues.of_topic(topic))

    def ends(self, topic: str, queues: int) -> list[int]:
        """The ends of the first queues of a topic; 0 for those that were never written."""
        ends = [0] * queues
        for queue_id, queue in self._queues.of_topic(topic).items():
            if queue_id < queues:
                ends[queue_id] = queue.end_offset
        return ends

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            light = self._light
            return light.min_offset(topic) if light is not None and light.has(topic, queue_id) else 0
        if self._expiry.limits:
            self._expiry.apply(queue)
        if (snapshot := self._snapshots.find(topic, queue_id)) is not None:
            return self._compacted.min_offset(queue, snapshot)
        local = queue.min_offset(self._log.start_offset)
        return local if self.older is None else self.older.min_offset(topic, queue_id, local)

    def is_whole(self, topic: str, queue_id: int) -> bool:
        """Whether this disk has a queue from its offset 0 on, also if nothing is there yet."""
        if self.min_offset(topic, queue_id) > 0:
            return False
        queue = self._queues.find(topic, queue_id)
        if queue is None or self._snapshots.find(topic, queue_id) is not None:
            return True
        return queue.min_offset(self._log.start_offset) <= 0

    def gone_before(self, topic: str, queue_id: int) -> int:
        """Messages of the queue before this log offset were deleted or purged."""
        queue = self._queues.find(topic, queue_id)
        return max(self._deletions.offset_of(topic), queue.floor if queue is not None else 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message that can be read."""
        queue = self._queues.find(topic, queue_id)
        light = self._light
        if queue is None and light is not None and light.has(topic, queue_id):
            return light.max_offset(topic)
        return queue.end_offset if queue is not None else 0

    def next_offset(self, topic: str, queue_id: int) -> int:
        """The offset the next message will get."""
        queue = self._queues.find(topic, queue_id)
        light = self._light
        if queue is None and light is not None and not queue_id:
            return light.next_offset(topic)
        return queue.next_offset if queue is not None else 0

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        queue = self._queues.find(topic, queue_id)
        light = self._light
        if queue is None and light is not None and light.has(topic, queue_id):
            return light.offset_at(topic, timestamp_ms, boundary)
        if queue is not None and (snapshot := self._snapshots.find(topic, queue_id)) is not None:
            return self._compacted.offset_at(queue, snapshot, timestamp_ms, boundary)
        return self._reader.offset_at(queue, timestamp_ms, boundary) if queue is not None else 0

    def store_time(self, topic: str, queue_id: int, offset: int) -> int:
        """When a message was stored; -1 if there is no such message, or that cannot be said at once."""
        stored_ms = self._local_store_time(topic, queue_id, offset)
        if stored_ms < 0 and self.older is not None:
            with suppress(OlderUnknown):
                return self.older.store_time(topic, queue_id, offset)
        return stored_ms

    def _local_store_time(self, topic: str, queue_id: int, offset: int) -> int:
        queue = self._queues.find(topic, queue_id)
        light = self._light
        if queue is None and light is not None and light.has(topic, queue_id):
            return light.stored_at(topic, offset)
        snapshot = self._snapshots.find(topic, queue_id)
        if queue is not None and snapshot is not None and self._compacted.covers(queue, snapshot, offset):
            return self._compacted.stored_at(queue, snapshot, offset)
        if queue is None or not queue.first_unit <= offset < queue.end_offset:
            return -1
        return self._reader.stored_at(queue, offset)

    def earliest_time(self, topic: str, queue_id: int = 0) -> int:
        """The store time of the oldest message of a queue; -1 if there is none. Raises OlderUnknown."""
        offset = self.min_offset(topic, queue_id)
        stored_ms = self._local_store_time(topic, queue_id, offset)
        if stored_ms < 0 and self.older is not None:
            return self.older.store_time(topic, queue_id, offset)
        return stored_ms

    def may_be_older(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> bool:
        """Whether what `offset_by_time` looks for may be before the messages of this disk."""
        queue = self._queues.find(topic, queue_id)
        if self.older is None or queue is None or self._snapshots.find(topic, queue_id) is not None:
            return False
        first = queue.min_offset(self._log.start_offset)
        stored_ms = self._reader.stored_at(queue, first)
        if not first or 0 <= stored_ms < timestamp_ms:
            return False
        return boundary is Boundary.LOWER or stored_ms != timestamp_ms

    def log_offset(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Where the log has a message; None for one it does not have."""
        queue = self._queues.find(topic, queue_id)
        light = self._light
        if queue is None and light is not None and light.has(topic, queue_id):
            return light.place_of(topic, offset)
        return None if queue is None else self._reader.place_of(queue, offset)

    @property
    def dispatched_offset(self) -> int:
        """Everything before this log offset is in its queue."""
        return self._dispatcher.offset

    @property
    def dispatched_ms(self) -> int:
        """The store time of the last message that is in its queue; 0 if there is none."""
        return self._dispatcher.last_timestamp

    @property
    def indexed_offset(self) -> int:
        """Everything before this log offset is in its queue and in the index."""
        return self._dispatcher.safe_offset

    def take_light_advances(self) -> dict[str, int]:
        """The light queues that have new messages since the last call, each with its end."""
        return self._dispatcher.take_light_advances()

    def restore_units(self, damage: Damage) -> Iterator[None]:
        """Give units to messages that are back in the log; it yields now and then, so that the caller can
        pause. Raises OSError."""
        for count, (outline, _) in enumerate(self._log.records_from(damage.start)):
            if outline.log_offset >= damage.end:
                return
            if not is_filler(outline) and not self._deletions.covers(outline.topic, outline.log_offset):
                self._mending.restore(outline)
            if count % _UNITS_AT_ONCE == _UNITS_AT_ONCE - 1:
                yield

    def mending_remarks(self) -> list[str]:
        """Log texts about queues mended since the last call."""
        return self._mending.take_remarks()
