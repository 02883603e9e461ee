"""The one door into the store: whatever enters, from a producer or from the broker itself, enters here.

Messages with a delay level are parked on the way in. What was appended in one turn of the loop is dispatched
at the end of that turn, and whoever waits for it is woken then.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import BatchEntry
from pyromq.store.dispatch import Arrival
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_TRANSACTION_BITS = 0xC
_COMMIT_BIT = 0x8
_DISPATCH_STEP = 4096

_DELAY = f"{props.DELAY}\x01".encode()


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
        """Store a message; the result says whether, not yet how safely."""
        if _DELAY in draft.properties and draft.sys_flag & _TRANSACTION_BITS in (0, _COMMIT_BIT):
            draft = self._park_if_delayed(draft)
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
        self.dispatch_soon()
        return result

    def append_batch(self, draft: Draft, entries: Sequence[BatchEntry]) -> AppendResult:
        """Store several messages of one queue, all or none."""
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

    def safe(self, result: AppendResult) -> "asyncio.Future[AppendStatus] | None":
        """When the append is as safe as the flush mode promises; None if it is already."""
        if not self._is_sync_flush or not result.is_ok:
            return None
        future: asyncio.Future[AppendStatus] = self._loop.create_future()

        def settle(status: AppendStatus) -> None:
            if not future.done():
                future.set_result(status)

        self._store.when_flushed(result, settle)
        return future

    def _park_if_delayed(self, draft: Draft) -> Draft:
        level_text = props.get_property(draft.properties, props.DELAY)
        level = int(level_text) if level_text is not None and level_text.isdecimal() else 0
        if level <= 0 or not self._delay_levels:
            return draft
        raw = draft.properties
        if raw and not raw.endswith(b"\x02"):
            raw += b"\x02"
        origin = f"{props.REAL_TOPIC}\x01{draft.topic}\x02{props.REAL_QUEUE_ID}\x01{draft.queue_id}\x02"
        return msgspec.structs.replace(
            draft,
            topic=names.SCHEDULE_TOPIC,
            queue_id=min(level, self._delay_levels) - 1,
            properties=raw + origin.encode(),
        )

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
