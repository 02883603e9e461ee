"""Timed messages that were delivered before a stop although the checkpoint does not say so.

A delivery is a record of the log, and the checkpoint is written later. After a crash the records behind it
show which messages of the unfinished slot have left it: these are not delivered again. A message that is not
in the wheel yet may have left the wheel of a former master.
"""

from collections import Counter

from pyromq.broker.flow.timing import delivery_key
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore

_MARK = b"TIMER_DEQUEUE_MS\x01"


def deliveries_begin(store: MessageStore) -> int:
    """Where in the log the deliveries of the present slot begin."""
    timers = store.timers
    if store.statistics().log_start_offset <= timers.delivered_from <= store.log.end:
        return timers.delivered_from
    return store.log.offset_at(timers.read_number * timers.precision_ms)


class DeliveredTimers:
    def __init__(self, store: MessageStore) -> None:
        start = deliveries_begin(store)
        first = max(store.timers.queue_offset, store.queues.min_offset(names.TIMER_TOPIC, 0))
        untaken = store.queues.log_offset(names.TIMER_TOPIC, 0, first)
        if untaken is not None:
            start = min(start, untaken)
        self._seen: Counter[int] = Counter()
        """By hash: a hot slot may have a million of them."""
        for outline, properties in store.log.records_from(start):
            if _MARK in properties:
                key = delivery_key(outline.topic, properties)
                if key is not None:
                    self._seen[hash(key)] += 1

    def __len__(self) -> int:
        return self._seen.total()

    def take(self, topic: str, properties: bytes) -> bool:
        """Whether this delivery, about to be stored, was made before; each one is reported once."""
        if not self._seen:
            return False
        key = hash(delivery_key(topic, properties))
        if not self._seen[key]:
            return False
        self._seen[key] -= 1
        return True

    def clear(self) -> None:
        self._seen.clear()
