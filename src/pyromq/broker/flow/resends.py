"""Resends: a send that its producer repeats is stored once.

A producer that does not know whether a send was stored repeats it with the same unique key, and says so. The
broker then looks for the message in the index, once that has everything that was in the log when the first
resend came. So a first try costs nothing, and kills and fail-overs change nothing: the index is made from the
log.

The first try may still be under way on another connection, and has no mark. So the keys of resends are kept
for a while: any send with one of them counts as a resend. Messages that were stored since the first resend
came are remembered with its key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyromq.clock import Clock
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import properties as props
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore

KEPT_S: Final = 1000.0
"""Kernels give up a connection that holds up a request for so long."""
MAX_KEPT: Final = 100_000


class Sent(NamedTuple):
    """The fields that all tries of one send share."""

    messages: Sequence[tuple[str, bytes]]
    """Unique keys and bodies."""
    born_timestamp: int
    reconsume_times: int


class NotIndexedYet(Exception):
    """The index must have the log up to `end` before a resend can be answered."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


@dataclass(slots=True)
class _Resend:
    end: int
    """The end of the log when the first resend came: what was stored before is in the index, or will be."""
    until: float
    log_offset: int = -1
    """Where a message with this key was stored since."""


class Resends:
    def __init__(self, store: MessageStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._cuts = store.cutting.cuts
        self.recent: dict[str, _Resend] = {}
        """By unique key, the oldest first; for a batch, by that of its first message."""

    def __repr__(self) -> str:
        return f"<Resends recent={len(self.recent)}>"

    def find(self, topics: Sequence[str], sent: Sent) -> list[StoredMessage]:
        """The stored messages of a send, if an earlier try has stored all of them in one of the topics.

        Raises NotIndexedYet.
        """
        key = sent.messages[0][0]
        resend = self._remembered(key)
        if self._store.queues.indexed_offset < resend.end:
            raise NotIndexedYet(resend.end)
        for topic in topics:
            for log_offset in (resend.log_offset, *self._store.log.latest_with_key(topic, key)):
                found = list(self._same(topic, log_offset, sent))
                if len(found) == len(sent.messages):
                    return found
        return []

    def stored(self, key: str, log_offset: int) -> None:
        """A send with the key of a resend was stored."""
        if key in self.recent:
            self.recent[key].log_offset = log_offset

    def expire(self) -> None:
        """Forget old keys; called regularly."""
        now = self._clock.monotonic()
        while self.recent and next(iter(self.recent.values())).until <= now:
            del self.recent[next(iter(self.recent))]

    def _remembered(self, key: str) -> _Resend:
        if self._cuts != self._store.cutting.cuts:
            self._cuts = self._store.cutting.cuts
            self.recent.clear()  # what was stored may be gone
        if key not in self.recent:
            if len(self.recent) == MAX_KEPT:
                del self.recent[next(iter(self.recent))]
            self.recent[key] = _Resend(self._store.log.end, self._clock.monotonic() + KEPT_S)
        return self.recent[key]

    def _same(self, topic: str, log_offset: int, sent: Sent) -> Iterator[StoredMessage]:
        """The records at a log offset, as long as they are those of the send: a batch lies together."""
        for key, body in sent.messages:
            record = self._store.log.record_at(log_offset)
            if record is None or self._store.topics.is_deleted(topic, log_offset):
                return
            try:
                message = decode_record(record)
            except RemoteProtocolError:
                return
            # Copies of a message that is retried, or that is written again by Spark, have its key, too.
            if (
                message.topic != topic
                or message.get(props.UNIQ_KEY) != key
                or message.born_timestamp != sent.born_timestamp
                or message.reconsume_times != sent.reconsume_times
                or message.body != body
            ):
                return
            yield message
            log_offset += len(record)
