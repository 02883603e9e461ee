"""Message sizes, sampled from the queues on request, so that sends cost nothing extra."""

from collections.abc import Callable

from pyromq.metrics import Histogram, Labels
from pyromq.protocol.record import MIN_RECORD_SIZE
from pyromq.store.message_store import MessageStore
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE

_MAX_SAMPLED = 256
"""Messages of one queue that are sampled each time, for all messages since the last time."""


class MessageSizes:
    def __init__(self, store: MessageStore, histogram: Histogram, labels_of: Callable[[str], Labels]) -> None:
        """`labels_of(topic)` returns labels. Existing messages are not counted."""
        self._store = store
        self._histogram = histogram
        self._labels_of = labels_of
        self._counted = {
            (topic, queue_id): store.queues.max_offset(topic, queue_id)
            for topic in store.topics.names()
            for queue_id in store.queues.ids(topic)
        }

    def __repr__(self) -> str:
        return f"<MessageSizes queues={len(self._counted)}>"

    def sample(self) -> None:
        """Count the messages since the last call."""
        before, self._counted = self._counted, {}
        for topic in self._store.topics.names():
            for queue_id in self._store.queues.ids(topic):
                end = self._store.queues.max_offset(topic, queue_id)
                self._counted[topic, queue_id] = end
                start = before.get((topic, queue_id), 0)
                # The end is before the start: the topic was deleted and created again.
                self._count(topic, queue_id, start if start <= end else 0, end)

    def _count(self, topic: str, queue_id: int, start: int, end: int) -> None:
        queue = self._store.queues.find(topic, queue_id)
        start = max(start, self._store.queues.min_offset(topic, queue_id))
        if queue is None or start >= end:
            return
        step = -(-(end - start) // _MAX_SAMPLED)
        offsets = range(start, end, step)
        weight = (end - start) / len(offsets)
        labels = self._labels_of(topic)
        for offset in offsets:
            _, size_bytes, _ = queue.unit(offset)
            if MIN_RECORD_SIZE <= size_bytes < PRE_BLANK_SIZE:  # not a lost message, or a damaged unit
                self._histogram.observe(size_bytes, labels, weight)
