"""The one door into the store: whatever enters, from a producer or from the broker itself, enters here.

Messages with a delay level are parked on the way in. What was appended in one turn of the loop is dispatched
at the end of that turn, and whoever waits for it is woken then.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from pyromq.broker.flow.stamping import is_true, with_property
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.properties import get_property, without_property
from pyromq.protocol.record import MAX_V1_TOPIC_BYTES
from pyromq.store.dispatch import Arrival
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_TRANSACTION_BITS = 0xC
_COMMIT_BIT = 0x8
_DISPATCH_STEP = 4096


class Draft(msgspec.Struct):
    """A message on its way in. Properties are raw, hosts are packed."""

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp: int
    born_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_offset: int = 0
    delay_level: int = 0
    """How long it is to be parked before it is delivered; 0 or less is not at all."""


class Appending:
    def __init__(self, store: MessageStore, store_host: bytes) -> None:
        self._store = store
        self._store_host = store_host
        self._id_prefix = store_host.hex().upper()
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[Arrival], None]] = []
        self._turn_listeners: list[Callable[[], None]] = []
        self._is_dispatch_due = False
        self._is_sync_flush = store.settings.is_sync_flush
        self._delay_levels = len(store.settings.delays_ms)
        store.on_flush_progress(self._flush_progressed)

    def __repr__(self) -> str:
        return f"<Appending to {self._store!r}>"

    def on_arrival(self, listener: Callable[[Arrival], None]) -> None:
        """Tell which queues have more to read."""
        self._listeners.append(listener)

    def at_turn_end(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have `listener` called at the end of each turn in which something was appended, or in which
        somebody called what this returns."""
        self._turn_listeners.append(listener)
        return self.dispatch_soon

    def append(self, draft: Draft) -> AppendResult:
        """Store a message; the result says whether, not yet how safely. A delayed message is parked, and its
        draft says afterwards where."""
        if draft.delay_level > 0:
            self._park(draft)
        result = self._store.append(
            draft.topic,
            draft.queue_id,
            draft.body,
            draft.properties,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_host=self._store_host,
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
            prepared_offset=draft.prepared_offset,
        )
        if not self._is_dispatch_due:
            self.dispatch_soon()
        return result

    def append_batch(self, draft: Draft, entries: Sequence[BatchEntry]) -> AppendResult:
        """Store several messages of one queue, all or none; the draft's own body and properties are not."""
        result = self._store.append_batch(
            draft.topic,
            draft.queue_id,
            entries,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_host=self._store_host,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
        )
        self.dispatch_soon()
        return result

    def message_ids(self, result: AppendResult) -> str:
        """The id of what was stored; java: of a batch all ids, joined with commas."""
        if not result.record_offsets:
            return f"{self._id_prefix}{result.log_offset:016X}"
        return ",".join([f"{self._id_prefix}{offset:016X}" for offset in result.record_offsets])

    # How safe it is

    def is_safe_enough(self, result: AppendResult, properties: str | bytes) -> bool:
        """Whether there is nothing to wait for before the sender of a message is told about it."""
        if not self._is_sync_flush or result.status is not AppendStatus.PUT_OK:
            return True
        return get_property(properties, props.WAIT) is not None and not is_true(properties, props.WAIT)

    def when_safe(self, result: AppendResult, settle: Callable[[AppendStatus], None]) -> None:
        """Call back once an append is on disk (PUT_OK), or will not be in time."""
        self._store.when_flushed(result, settle)

    # Parking

    def _park(self, draft: Draft) -> None:
        if not self._delay_levels or draft.sys_flag & _TRANSACTION_BITS not in (0, _COMMIT_BIT):
            return
        if not names.is_retry_topic(draft.topic) and len(draft.topic.encode()) > MAX_V1_TOPIC_BYTES:
            return  # the store refuses such a topic, and must do so now and not on delivery
        raw = draft.properties
        # java: a level goes before any other way to say when
        for name in (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS):
            raw = without_property(raw, name)
        # java: a level that does not exist is the highest that does
        level = min(draft.delay_level, self._delay_levels)
        raw = with_property(raw, props.DELAY, str(level))
        raw = with_property(raw, props.REAL_TOPIC, draft.topic)
        draft.properties = with_property(raw, props.REAL_QUEUE_ID, str(draft.queue_id))
        draft.topic = names.SCHEDULE_TOPIC
        draft.queue_id = level - 1

    # What comes after an append

    def dispatch_soon(self) -> None:
        if not self._is_dispatch_due:
            self._is_dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatch_due = False
        for listener in self._turn_listeners:
            listener()
        for arrival in self._store.dispatch(_DISPATCH_STEP):
            for heard in self._listeners:
                heard(arrival)
        if self._store.has_dispatch_work:
            self.dispatch_soon()

    def _flush_progressed(self) -> None:
        """Called on the flusher's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            # The loop has ended: nobody waits for an answer any more.
            return

    def _settle(self) -> None:
        self._store.settle()
        if self._is_sync_flush:
            self.dispatch_soon()
