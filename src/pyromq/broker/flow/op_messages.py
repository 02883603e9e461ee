"""Op messages: the record in the log that half messages are over.

An offset waits in memory until the message is flushed that was stored in place of the half message: a power
loss must not leave an op message without it. Then it waits until an op message is full or the interval is
over. Offsets that a crash takes are not missed: a restarted broker finds the committed messages themselves in
the log, and asks again about the rest.
"""

import logging
from collections import deque

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.half_messages import OP_PROPERTIES, QUEUE, op_body
from pyromq.broker.settings import BrokerSettings
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.protocol import names
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult

_log = logging.getLogger(__name__)

_MAX_OFFSETS = 10_000
"""In one message, if the store has refused them for a while."""


class OpMessages:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        appending: Appending,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._appending = appending
        self._clock = clock
        self._waiting: list[tuple[int, int]] = []
        """Half offsets, and the log offsets that must be flushed first."""
        self._waiting_bytes = 0
        self._needed: deque[tuple[int, int]] = deque()
        self._end = 0
        self._complaint = ""

    def __repr__(self) -> str:
        return f"<OpMessages waiting={len(self._waiting)} needed={len(self._needed)}>"

    def begin(self, end: int) -> None:
        """Start over: the op queue ends at `end`, and nothing waits."""
        self._waiting.clear()
        self._waiting_bytes = 0
        self._needed.clear()
        self._end = end

    def read(self, offset: int, last_half: int) -> None:
        """The op queue has a message that lists half messages up to `last_half`."""
        self._needed.append((offset, last_half))

    def add(self, half_offset: int, needed_end: int = 0) -> None:
        """A half message is over; the log must be flushed up to `needed_end` before that is recorded."""
        self._waiting.append((half_offset, needed_end))
        self._waiting_bytes += len(str(half_offset)) + 1
        if self._waiting_bytes >= self._live.now.transaction_op_max_bytes and not self._complaint:
            self.write()

    def write(self) -> AppendResult | None:
        """Write what can be recorded by now, and return the last message; what the store refuses waits."""
        flushed = self._store.flushes.offset
        ready = [offset for offset, needed_end in self._waiting if needed_end <= flushed]
        self._waiting = [each for each in self._waiting if each[1] > flushed]
        self._waiting_bytes = 0
        result = None
        for begin in range(0, len(ready), _MAX_OFFSETS):
            offsets = ready[begin : begin + _MAX_OFFSETS]
            result = self._append(op_body(offsets))
            if not result.is_ok:
                self._waiting[:0] = [(offset, 0) for offset in ready[begin:]]
                if self._complaint != result.reason:
                    self._complaint = result.reason
                    _log.warning("ends of transactions are not recorded, trying again: %s", result.reason)
                return result
            self._complaint = ""
            self._needed.append((result.queue_offset, max(offsets)))
            self._end = result.queue_offset + 1
        return result

    def _append(self, body: bytes) -> AppendResult:
        host = self._appending.store_host
        draft = Draft(names.OP_HALF_TOPIC, QUEUE, body, OP_PROPERTIES, self._clock.now_ms(), host)
        return self._appending.append(draft)

    def position(self, first_half: int) -> int:
        """The first op message that a broker must read which begins with the half message `first_half`."""
        while self._needed and self._needed[0][1] < first_half:
            self._needed.popleft()
        return self._needed[0][0] if self._needed else self._end
