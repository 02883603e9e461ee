"""Which transactions are open. The log says so; this is what it said at the start, and everything since.

A transaction is open from its half message until it is committed, rolled back or given up. At the start, and
when a replica becomes master, the broker reads the half and op messages since the saved position. It also
looks for committed messages in that part of the log: a crash may have come between a commit and its op
message, and such a transaction must not be committed again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeVar

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.half_messages import (
    GROUP,
    QUEUE,
    key_of,
    read_half,
    read_op,
    real_topic,
    transaction_key,
)
from pyromq.broker.flow.op_messages import OpMessages
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.broker.tables.open_halves import OpenHalves
from pyromq.broker.tables.role import Role
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult

_log = logging.getLogger(__name__)

T = TypeVar("T")

_READ = 64
_DISPATCH_WAIT_S = 0.01
_RETRY_S = 1.0
_LAST_ENDED = 10_000
_SHOWN_TOPICS = 20
"""Those with the most open transactions."""


class OpenTransactions:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        appending: Appending,
        slices: Slices,
        clock: Clock,
    ) -> None:
        self._live = live
        self._store = store
        self._durability = appending.durability
        self._offsets = tables.offsets
        self._role = tables.role
        self._slices = slices
        self._clock = clock
        self.counts = tables.transaction_counts
        self.counts.oldest_age_ms = self.oldest_age_ms
        self.ops = OpMessages(live, store, appending, clock)
        self.halves = OpenHalves()
        self._end = 0
        """The offset behind the last half message that is known."""
        self._early: list[tuple[int, int | None, str]] = []
        """Half messages that came while the earlier ones were read."""
        self._stale = asyncio.Event()
        self._ready = False
        self._settled = asyncio.Event()
        """Set when the open transactions are known, or need not be because this is a replica."""
        self._needed_end = 0
        """The log must be safe up to here before a later position counts."""
        self._taken: tuple[int, int, int] | None = None
        self._last_ended: dict[int, bool] = {}
        self._ended_before: dict[int, bool] = {}
        appending.on_half(self._stored)
        tables.role.on_change(self._role_changed)

    def __repr__(self) -> str:
        state = "" if self.is_ready else " not ready"
        return f"<OpenTransactions {len(self.halves)}{state}>"

    @property
    def is_ready(self) -> bool:
        """Whether the open transactions are known."""
        return self._ready

    async def settled(self) -> None:
        """Return when the open transactions are known, or when this broker is not the master."""
        while not self._ready and self._role.now.is_master:
            await self._settled.wait()

    def oldest_age_ms(self) -> int:
        """How long the oldest half message has waited for its end, 0 if none does."""
        offset = self.halves.from_offset(0)
        half = None if offset is None else self.read(offset)
        return 0 if half is None else max(self._clock.now_ms() - half.born_timestamp, 0)

    def figures(self) -> dict[str, str]:
        """For the runtime information, as soon as they are known; Apache's broker does not report these."""
        if not self.is_ready:
            return {}
        return {
            "halfMessageCount": str(len(self.halves)),
            "halfMessageOldestAgeMs": str(self.oldest_age_ms()),
            "halfMessageTopics": " ".join(
                f"{topic}:{count}" for topic, count in self.counts.open.most_common(_SHOWN_TOPICS) if count
            ),
        }

    # While the broker runs

    def _role_changed(self, _: Role) -> None:
        self._ready = False
        self._settled.set()  # whoever waits looks at the role
        self._settled = asyncio.Event()
        self._stale.set()

    @property
    def accepts_halves(self) -> bool:
        return not self._live.now.reject_transaction_messages

    def _stored(self, draft: Draft, result: AppendResult) -> None:
        """A producer's half message was stored."""
        self.opened(result.queue_offset, get_property(draft.properties, props.REAL_TOPIC) or "")

    def opened(self, offset: int, topic: str, key_of_copy: int | None = None) -> None:
        """A half message for `topic` was stored at `offset`."""
        if not self._ready:
            self._early.append((offset, key_of_copy, topic))
            return
        self.halves.add(offset, key_of_copy)
        self._end = offset + 1
        self.counts.count(topic, 1)

    def is_open(self, offset: int) -> bool:
        """Whether the half message at `offset` is the last copy of an open one, as far as is known."""
        return self._ready and self.halves.is_open(offset)

    def current(self, half: StoredMessage) -> int | None:
        """The offset of the last copy of a half message; None if its transaction is over."""
        if self.halves.is_open(half.queue_offset):
            return half.queue_offset
        return self.halves.find_copy(key_of(half))

    def resumed(self, half: StoredMessage, result: AppendResult) -> None:
        """A half message that had been given up was stored again."""
        self.opened(result.queue_offset, real_topic(half), key_of(half))
        self._needed_end = result.end_offset

    def replaced(
        self, offset: int, half: StoredMessage, result: AppendResult, *, is_immune: bool = False
    ) -> None:
        """A copy was stored in place of the half message at `offset`."""
        key = key_of(half)
        self.halves.close(offset, key)
        if not is_immune:  # java: an op message for an immune one would end its transaction
            self.ops.add(offset, result.end_offset)
        self.halves.add(result.queue_offset, key)
        self._end = result.queue_offset + 1
        self._needed_end = result.end_offset

    def ended(
        self,
        offset: int | None,
        identity: str | bytes,
        born_timestamp: int,
        topic: str,
        needed_end: int,
        named: int | None = None,
    ) -> None:
        """A transaction was committed or rolled back.

        `offset`: of the last copy of its half message, None if it was given up before. `needed_end`: where
        the committed message ends in the log, 0 after a rollback. `named`: the copy that the producer named.
        """
        is_commit = needed_end > 0
        self.counts.ended(topic, born_timestamp, is_commit=is_commit)
        key = transaction_key(identity, born_timestamp)
        if offset is not None:
            self._close(offset, key, topic, needed_end, offset if named is None else named)
        self._note_end(key, is_commit=is_commit)

    def _note_end(self, key: int, *, is_commit: bool) -> None:
        if len(self._last_ended) >= _LAST_ENDED:
            self._ended_before, self._last_ended = self._last_ended, {}
        self._last_ended[key] = is_commit

    async def find_end(self, half: StoredMessage) -> None:
        """Find in the log how a transaction ended that is over, for `was_committed`."""
        key = key_of(half)
        is_commit = False
        async for committed in self._committed_from(half.log_offset):
            if committed == key:
                is_commit = True
                break
        self._note_end(key, is_commit=is_commit)

    def was_committed(self, key: int) -> bool | None:
        """How one of the last transactions ended that are over; None if it is none of them."""
        is_commit = self._last_ended.get(key)
        return self._ended_before.get(key) if is_commit is None else is_commit

    def given_up(self, offset: int, half: StoredMessage, result: AppendResult) -> None:
        """A half message was stored where operators find it."""
        self._close(offset, key_of(half), real_topic(half), result.end_offset, half.queue_offset)

    def _close(self, offset: int, key: int, topic: str, needed_end: int, named: int) -> None:
        if not self.halves.close(offset, key):
            return
        self.counts.count(topic, -1)
        if needed_end:
            self._needed_end = needed_end
        # java: an immune half message is over if its first copy is; that is the copy which its producer names
        if named < offset:
            self.ops.add(named, needed_end)
        self.ops.add(offset, needed_end)

    def lost(self, offset: int) -> None:
        """The log does not have a half message any more."""
        self.halves.close(offset)

    def read(self, offset: int) -> StoredMessage | None:
        """The half message at an offset; None if it cannot be read."""
        log_offset = self._store.queues.log_offset(names.HALF_TOPIC, QUEUE, offset)
        return None if log_offset is None else self.read_at(log_offset)

    def read_at(self, log_offset: int) -> StoredMessage | None:
        record = self._store.log.record_at(log_offset)
        try:
            message = None if record is None else decode_record(record)
        except RemoteProtocolError:
            return None
        return message if message is not None and message.topic == names.HALF_TOPIC else None

    # The position where a restarted broker begins

    def take_position(self) -> None:
        """Save the position once everything that it relies on survives a crash and a change of the master."""
        if self._taken is None and self.is_ready:
            first = self.halves.from_offset(0)
            half_offset = self._end if first is None else first
            self._taken = half_offset, self.ops.position(half_offset), self._needed_end
        if self._taken is not None and self._durability.keeps(self._taken[2]):
            half_offset, op_offset, _ = self._taken
            self._taken = None
            for topic, offset in ((names.HALF_TOPIC, half_offset), (names.OP_HALF_TOPIC, op_offset)):
                if self._offsets.query(GROUP, topic, QUEUE) != offset:
                    self._offsets.commit(GROUP, topic, QUEUE, offset)

    def save_now(self) -> None:
        """Record all ends in the log and flush it, then save the position."""
        if not self.is_ready or not self._role.now.is_master:
            return
        self._store.flushes.flush_log()
        self.ops.write()
        self._taken = None
        self.take_position()

    # Reading it from the log

    async def run(self) -> None:
        while True:
            await self._stale.wait()
            if not self._role.now.is_master:
                self._stale.clear()
                continue
            try:
                await self.rebuild()
            except (StoreError, OSError) as problem:
                _log.error("open transactions could not be read, trying again: %s", problem)
                self._stale.set()
                await asyncio.sleep(_RETRY_S)

    async def rebuild(self) -> None:
        """Find the open transactions; the broker must be master."""
        store, halves = self._store, OpenHalves()
        self._stale.clear()
        self._taken = None
        self._needed_end = store.log.end  # another master may have less
        self._early.clear()
        end = store.queues.next_offset(names.HALF_TOPIC, QUEUE)
        op_end = store.queues.next_offset(names.OP_HALF_TOPIC, QUEUE)
        first = self._saved_position(names.HALF_TOPIC, end)
        self.ops.begin(op_end)
        is_over = await self._read_ops(first, end, op_end)
        found: dict[int, tuple[int, str]] = {}
        copies: set[int] = set()
        counts: Counter[str] = Counter()
        async for offset, (key, topic, is_copy) in self._read_queue(names.HALF_TOPIC, first, end, read_half):
            if is_over[offset - first]:
                # The earlier copies of a checked half message have no separate ends.
                if is_copy and found.pop(key, None) is not None:
                    counts[topic] -= 1
            else:
                is_first = found.pop(key, None) is None
                counts[topic] += is_first
                if not is_first or is_copy:
                    copies.add(key)
                found[key] = offset, topic
        missed: list[int] = []
        for key in await self._read_commits(found):
            offset, topic = found.pop(key)
            missed.append(offset)
            counts[topic] -= 1
        async for key, (offset, _) in self._slices.spread(found.items()):
            halves.add(offset, key if key in copies else None)
        if self._stale.is_set():
            return
        self._end = end
        self.halves = halves
        self.counts.replace(counts)
        for offset in missed:
            self.ops.add(offset)
        self._ready = True
        self._settled.set()
        for offset, key_of_copy, topic in self._early:
            self.opened(offset, topic, key_of_copy)
        self._early.clear()
        if halves or missed:
            _log.info("open transactions count=%d ended_by_the_crash=%d", len(halves), len(missed))

    def _saved_position(self, topic: str, end: int) -> int:
        saved = self._offsets.query(GROUP, topic, QUEUE)
        return min(max(saved, self._store.queues.min_offset(topic, QUEUE)), end)

    async def _read_ops(self, first: int, end: int, op_end: int) -> bytearray:
        """A 1 for each half message from `first` to `end` that op messages list."""
        is_over = bytearray(end - first)
        op_first = self._saved_position(names.OP_HALF_TOPIC, op_end)
        async for op_offset, offsets in self._read_queue(names.OP_HALF_TOPIC, op_first, op_end, read_op):
            self.ops.read(op_offset, max(offsets, default=0))
            for offset in offsets:
                if first <= offset < end:
                    is_over[offset - first] = 1
        return is_over

    async def _read_commits(self, found: Mapping[int, tuple[int, str]]) -> set[int]:
        """The keys of half messages that were committed without an op message for their last copy."""
        keys: set[int] = set()
        # A message is committed behind the last copy of its half message in the log.
        places = (
            self._store.queues.log_offset(names.HALF_TOPIC, QUEUE, offset) for offset, _ in found.values()
        )
        begin = next((place for place in places if place is not None), None)
        if begin is not None:
            keys.update([key async for key in self._committed_from(begin) if key in found])
        return keys

    async def _committed_from(self, begin: int) -> AsyncIterator[int]:
        """The keys of the messages that were committed behind a log offset."""
        async for place in self._slices.spread(self._store.log.committed_records(begin)):
            record = None if place is None else self._store.log.record_at(place)
            if record is None:
                continue
            try:
                yield key_of(decode_record(record, check_crc=False))
            except RemoteProtocolError:
                continue

    async def _read_queue(
        self, topic: str, offset: int, end: int, read: Callable[[memoryview], T]
    ) -> AsyncIterator[tuple[int, T]]:
        """The offsets of the messages of a system queue that can be read, and what `read` makes of them."""
        while offset < end:
            await self._slices.wait_for_turn()
            queue = self._store.queues.find(topic, QUEUE)
            units = (
                []
                if queue is None
                else self._store.queues.sound_units(queue, offset, min(_READ, end - offset))
            )
            if not units:
                await asyncio.sleep(_DISPATCH_WAIT_S)  # not dispatched yet, or being mended
            for log_offset, _ in units:
                record = None if log_offset is None else self._store.log.record_at(log_offset)
                try:
                    found = None if record is None else read(record)
                except RemoteProtocolError:
                    found = None
                if found is not None:
                    yield offset, found
                offset += 1
