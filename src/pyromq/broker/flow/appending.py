"""The only way into the store, for messages of producers and of the broker itself.

A replica takes none: its log is a copy of its master's. Messages that must wait are parked first. At the end
of each turn of the event loop the messages appended in that turn are dispatched, and the pulls that wait for
them wake up.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.durability import Durability
from pyromq.broker.flow.parking import Parking
from pyromq.broker.flow.resends import Resends, Sent
from pyromq.broker.tables.role import RoleTable
from pyromq.clock import Clock
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.record import StoredMessage
from pyromq.store.light.light_queues import MARK, enters_light_queues, light_names
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus, QueueAdvance

_DISPATCH_STEP = 4096
_AT_A_REPLICA = AppendResult(
    AppendStatus.SERVICE_NOT_AVAILABLE, reason="this broker is a replica: only the master accepts messages"
)


class Appending:
    def __init__(
        self, store: MessageStore, store_host: bytes, durability: Durability, role: RoleTable, clock: Clock
    ) -> None:
        self.durability = durability
        self.resends = Resends(store, clock)
        self.store = store
        self._role = role
        self._appender = store.appender
        self._light = store.light
        self.store_host = store_host
        self._id_prefix = store_host.hex().upper()
        self._loop = asyncio.get_running_loop()
        self._listeners: list[Callable[[QueueAdvance], None]] = []
        self._listeners_of: dict[str, list[Callable[[QueueAdvance], None]]] = {}
        self._light_listeners: list[Callable[[Mapping[str, int]], None]] = []
        self._half_listeners: list[Callable[[Draft, AppendResult], None]] = []
        self._turn_listeners: list[Callable[[], None]] = []
        self.end_of_turn: Callable[[], None] = self._dispatch
        """The work after the appends of a turn; whoever measures it may put something around it."""
        self._is_dispatch_due = False
        self._awaited: list[tuple[int, asyncio.Future[None]]] = []
        self._readable_offset = durability.readable_offset
        self._parking = Parking(store)
        self.slot_for = self._parking.slot_for
        durability.on_progress(self.dispatch_soon)

    def __repr__(self) -> str:
        return f"<Appending to {self.store!r}>"

    def on_advance(self, listener: Callable[[QueueAdvance], None], topic: str | None = None) -> None:
        """Call `listener` for each queue that has new messages, or only for those of one topic."""
        if topic is None:
            self._listeners.append(listener)
        else:
            self._listeners_of.setdefault(topic, []).append(listener)

    def on_light_advance(self, listener: Callable[[Mapping[str, int]], None]) -> None:
        """Call `listener` with the light queues that have new messages, each with its end."""
        self._light_listeners.append(listener)

    def on_half(self, listener: Callable[[Draft, AppendResult], None]) -> None:
        """Call `listener` for each half message that was stored."""
        self._half_listeners.append(listener)

    def at_turn_end(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at the end of each turn in which a message was appended, or in which the returned
        function was called."""
        self._turn_listeners.append(listener)
        return self.dispatch_soon

    def append(self, draft: Draft) -> AppendResult:
        """Store a message; `durability` says when it is safe. Parking a message that must wait changes the
        topic and queue of its draft; a time that is too far away is refused."""
        if not self._role.now.is_master:
            return _AT_A_REPLICA
        refused = self._parking.park(draft)
        if refused is None and self._light is not None:
            refused = self._number(draft)
        if refused is not None:
            return refused
        result = self.store.append(
            draft.topic,
            draft.queue_id,
            draft.body,
            draft.properties,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_host=self.store_host,
            flag=draft.flag,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
            prepared_offset=draft.prepared_offset,
        )
        if draft.light_queues and result.is_ok and self._light is not None:
            self._light.appended(draft.light_queues)
        if draft.is_half and result.is_ok:
            for listener in self._half_listeners:
                listener(draft, result)
        if not self._is_dispatch_due:
            self.dispatch_soon()
        return result

    def _number(self, draft: Draft) -> AppendResult | None:
        """Give a message its offsets in the light queues that it names, or say why it cannot be stored."""
        light, settings = self._light, self.store.settings
        if light is None or MARK not in draft.properties or not enters_light_queues(draft.topic):
            return None
        try:
            names = light_names(draft.properties)
            made = light.made_by(names) if settings.light_queue_quota else 0
            if made and len(light) + made > settings.max_light_queues:
                return AppendResult(
                    AppendStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED,
                    reason=f"{len(light)} light queues, and {made} more: maxLmqConsumeQueueNum is"
                    f" {settings.max_light_queues}",
                )
        except ValueError as problem:
            return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=str(problem))
        draft.properties, draft.light_queues = light.numbered(draft.properties, names), names
        return None

    @property
    def has_light_queues(self) -> bool:
        return self._light is not None

    def append_again(
        self, record: memoryview, topic: str, queue_id: int, more_properties: bytes
    ) -> AppendResult | None:
        """Store a record of the log once more in another queue, with more properties; None if it must go the
        usual way. It is not parked."""
        if self._appender is None or not self._role.now.is_master:
            return None
        if self._light is not None and MARK in bytes(record):
            return None
        result: AppendResult | None = self._appender.append_again(
            record, topic, queue_id, more_properties, self.store_host
        )
        if result is not None and not self._is_dispatch_due:
            self.dispatch_soon()
        return result

    def append_batch(self, draft: Draft, entries: Sequence[BatchEntry]) -> AppendResult:
        """Store several messages of one queue, all or none; the draft's body and properties are ignored."""
        if not self._role.now.is_master:
            return _AT_A_REPLICA
        result = self.store.append_batch(
            draft.topic,
            draft.queue_id,
            entries,
            born_timestamp=draft.born_timestamp,
            born_host=draft.born_host,
            store_host=self.store_host,
            sys_flag=draft.sys_flag,
            reconsume_times=draft.reconsume_times,
        )
        self.dispatch_soon()
        return result

    def sent_before(self, topics: Sequence[str], sent: Sent) -> list[StoredMessage]:
        """The result of an earlier try of the same send, if one was stored. See `Resends.find`."""
        return self.resends.find(topics, sent) if self._role.now.is_master else []

    def message_ids(self, result: AppendResult) -> str:
        """The id of a stored message. java: all ids of a batch, joined with commas."""
        if not result.record_offsets:
            return f"{self._id_prefix}{result.log_offset:016X}"
        return ",".join([f"{self._id_prefix}{offset:016X}" for offset in result.record_offsets])

    # After an append

    def dispatch_soon(self) -> None:
        if not self._is_dispatch_due:
            self._is_dispatch_due = True
            self._loop.call_soon(self.end_of_turn)

    async def indexed(self, end: int, timeout_s: float) -> None:
        """Return when the index has everything before a log offset. Raises TimeoutError."""
        awaited = end, self._loop.create_future()
        self._awaited.append(awaited)
        self.dispatch_soon()
        try:
            async with asyncio.timeout(timeout_s):
                await awaited[1]
        finally:
            self._awaited.remove(awaited)

    def _dispatch(self) -> None:
        self._dispatch_readable()
        for end, indexed in self._awaited:
            if end <= self.store.queues.indexed_offset and not indexed.done():
                indexed.set_result(None)

    def _dispatch_readable(self) -> None:
        self._is_dispatch_due = False
        for listener in self._turn_listeners:
            listener()
        # Messages that become readable later have this called again.
        readable_offset = self.durability.readable_offset
        arrived_bytes = readable_offset - self._readable_offset
        self._readable_offset = readable_offset
        store = self.store
        start = offset = store.queues.dispatched_offset
        while True:
            self._tell(store.dispatch(_DISPATCH_STEP, readable_offset))
            if light := store.queues.take_light_advances():
                for on_light_advance in self._light_listeners:
                    on_light_advance(light)
            if not store.can_dispatch_to(readable_offset):
                return
            before, offset = offset, store.queues.dispatched_offset
            # As much as has arrived, or large batches would come faster than they become readable.
            if offset == before or offset - start >= arrived_bytes:
                break
        self.dispatch_soon()

    def _tell(self, advances: Sequence[QueueAdvance]) -> None:
        for advance in advances:
            for on_advance in self._listeners:
                on_advance(advance)
            if advance.topic in self._listeners_of:
                for on_advance in self._listeners_of[advance.topic]:
                    on_advance(advance)
