"""How large messages are, told by the queues: whoever sends pays nothing for it."""

from collections.abc import Callable

from pyromq.metrics import Histogram, Labels
from pyromq.protocol.record import MIN_RECORD_SIZE
from pyromq.store.message_store import MessageStore
from pyromq.store.queues.consume_queue import PRE_BLANK_SIZE

_LOOKED_AT = 256
"""Messages of one queue that are looked at each time; they stand for all that came since the last time."""


class MessageSizes:
    def __init__(self, store: MessageStore, histogram: Histogram, labels_of: Callable[[str], Labels]) -> None:
        """`labels_of` gives the labels of a topic. What is there already is not counted."""
        self._store = store
        self._histogram = histogram
        self._labels_of = labels_of
        self._counted = {
            (topic, queue_id): store.max_offset(topic, queue_id)
            for topic in store.topics()
            for queue_id in store.queue_ids(topic)
        }

    def __repr__(self) -> str:
        return f"<MessageSizes queues={len(self._counted)}>"

    def look(self) -> None:
        """Count what came since the last look."""
        before, self._counted = self._counted, {}
        for topic in self._store.topics():
            for queue_id in self._store.queue_ids(topic):
                end = self._store.max_offset(topic, queue_id)
                self._counted[topic, queue_id] = end
                start = before.get((topic, queue_id), 0)
                # Behind the end of before: the topic was deleted and made anew.
                self._count(topic, queue_id, start if start <= end else 0, end)

    def _count(self, topic: str, queue_id: int, start: int, end: int) -> None:
        queue = self._store.find_queue(topic, queue_id)
        start = max(start, self._store.min_offset(topic, queue_id))
        if queue is None or start >= end:
            return
        step = -(-(end - start) // _LOOKED_AT)
        offsets = range(start, end, step)
        weight = (end - start) / len(offsets)
        labels = self._labels_of(topic)
        for offset in offsets:
            _, size_bytes, _ = queue.unit(offset)
            if MIN_RECORD_SIZE <= size_bytes < PRE_BLANK_SIZE:  # not a lost message, or a damaged unit
                self._histogram.observe(size_bytes, labels, weight)
