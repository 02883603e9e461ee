"""The one door into the store: whatever enters, from a producer or from the broker itself, enters here.

Messages with a delay level are parked on the way in. What was appended in one turn of the loop is dispatched
at the end of that turn, and whoever waits for it is woken then.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from pyromq.broker.flow.stamping import closed, delay_level, pair, with_property
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.properties import get_property_bytes, without_property
from pyromq.protocol.record import MAX_V1_TOPIC_BYTES
from pyromq.store.dispatch import Arrival
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_TRANSACTION_BITS = 0xC
_COMMIT_BIT = 0x8
_DISPATCH_STEP = 4096

_DELAY = f"{props.DELAY}\x01".encode()
_WAIT = f"{props.WAIT}\x01".encode()


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


class Appending:
    def __init__(self, store: MessageStore, store_host: bytes) -> None:
        self._store = store
        self._store_host = store_host
        self._id_prefix = store_host.hex().upper()
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[Arrival], None]] = []
        self._is_dispatch_due = False
        self._is_sync_flush = store.settings.is_sync_flush
        self._delay_levels = len(store.settings.delays_ms)
        store.on_flush_progress(self._flush_progressed)

    def __repr__(self) -> str:
        return f"<Appending to {self._store!r}>"

    def on_arrival(self, listener: Callable[[Arrival], None]) -> None:
        """Tell which queues have more to read."""
        self._listeners.append(listener)

    def append(self, draft: Draft) -> AppendResult:
        """Store a message; the result says whether, not yet how safely. A delayed message is parked, and its
        draft says afterwards where."""
        if _DELAY in draft.properties and draft.sys_flag & _TRANSACTION_BITS in (0, _COMMIT_BIT):
            self._park_if_delayed(draft)
        return self.append_as_it_is(draft)

    def append_as_it_is(self, draft: Draft) -> AppendResult:
        """Store a message where it says, whatever delay it asks for."""
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

    def is_safe_enough(self, result: AppendResult, properties: bytes) -> bool:
        """Whether there is nothing to wait for before the sender of a message is told about it."""
        if not self._is_sync_flush or not result.is_ok:
            return True
        # java: without the property it waits, and whatever is not `true` is false
        wait = get_property_bytes(properties, props.WAIT) if _WAIT in properties else None
        return wait is not None and wait.lower() != b"true"

    def when_safe(self, result: AppendResult, settle: Callable[[AppendStatus], None]) -> None:
        """Call back once an append is on disk (PUT_OK), or will not be in time."""
        self._store.when_flushed(result, settle)

    # Parking

    def _park_if_delayed(self, draft: Draft) -> None:
        level = delay_level(draft.properties)
        if level <= 0 or not self._delay_levels:
            return
        if not names.is_retry_topic(draft.topic) and len(draft.topic.encode()) > MAX_V1_TOPIC_BYTES:
            return  # the store refuses such a topic, and must do so now and not on delivery
        raw = draft.properties
        if level > self._delay_levels:
            # java: a level that does not exist is the highest that does
            level = self._delay_levels
            raw = with_property(raw, props.DELAY, str(level))
        # java: a level goes before any other way to say when
        for name in (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS):
            raw = without_property(raw, name)
        # A message that was parked before, and comes back, still says where it went then.
        for name in (props.REAL_TOPIC, props.REAL_QUEUE_ID):
            raw = without_property(raw, name)
        origin = pair(props.REAL_TOPIC, draft.topic) + pair(props.REAL_QUEUE_ID, str(draft.queue_id))
        draft.properties = closed(raw) + origin.encode()
        draft.topic = names.SCHEDULE_TOPIC
        draft.queue_id = level - 1

    # What comes after an append

    def dispatch_soon(self) -> None:
        if not self._is_dispatch_due:
            self._is_dispatch_due = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._is_dispatch_due = False
        for arrival in self._store.dispatch(_DISPATCH_STEP):
            for listener in self._listeners:
                listener(arrival)
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
