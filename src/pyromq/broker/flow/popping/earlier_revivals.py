"""Messages that were revived before a crash although the saved progress does not say so.

A revived message is a record of a topic with retries, stored after its checkpoint appeared in the revive log.
So the records since then show what was revived: it is not revived again.
"""

from collections import Counter

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore

_Key = tuple[str, int]
"""Unique key and number of deliveries."""


class EarlierRevivals:
    """Reads each topic once, when it is asked about it for the first time."""

    def __init__(self, store: MessageStore, since_ms: int) -> None:
        self._store = store
        self._since_ms = since_ms
        self._end_ms = store.time.now_ms()
        self._seen: dict[str, Counter[_Key]] = {}

    def take(self, topic: str, message: StoredMessage, deliveries: int) -> bool:
        """Whether this message was put into `topic` before; each one is reported once."""
        key = message.get(props.UNIQ_KEY)
        if key is None:
            return False
        seen = self._seen.get(topic)
        if seen is None:
            seen = self._seen[topic] = self._read(topic)
        if not seen[key, deliveries]:
            return False
        seen[key, deliveries] -= 1
        return True

    def _read(self, topic: str) -> Counter[_Key]:
        store, seen = self._store, Counter[_Key]()
        for queue_id in store.queues.ids(topic):
            first = store.queues.offset_by_time(topic, queue_id, self._since_ms)
            for offset in range(first, store.queues.max_offset(topic, queue_id)):
                message = message_at(store, topic, queue_id, offset)
                if message is None or message.store_timestamp > self._end_ms:
                    continue
                if (key := message.get(props.UNIQ_KEY)) is not None:
                    seen[key, message.reconsume_times] += 1
        return seen


def message_at(store: MessageStore, topic: str, queue_id: int, offset: int) -> StoredMessage | None:
    """A message of a queue; None if the log no longer has it, or has it damaged."""
    place = store.queues.log_offset(topic, queue_id, offset)
    record = None if place is None else store.log.record_at(place)
    if record is None:
        return None
    try:
        return decode_record(record)
    except RemoteProtocolError:
        return None
