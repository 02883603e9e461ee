"""Reviving: reads the revive log, and sees to popped messages that were not acknowledged in time.

A pop is decided on when everything that was acknowledged before its time is known: all records that were
written until then have left the timer wheel and were read. Only a master revives. Its progress is an offset
of an internal group, which replicas copy.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import msgspec

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.popping.changed_receipts import ChangedReceipts
from pyromq.broker.flow.popping.checkpoints import Checkpoints
from pyromq.broker.flow.popping.earlier_revivals import EarlierRevivals
from pyromq.broker.flow.popping.found_changes import find_changes
from pyromq.broker.flow.popping.popped_offsets import PoppedOffsets
from pyromq.broker.flow.popping.revival import Revival
from pyromq.broker.flow.popping.revive_log import ACK_TAG, BATCH_ACK_TAG, CHECKPOINT_TAG, ReviveLog
from pyromq.broker.flow.timer_delivery import TimerDelivery
from pyromq.broker.tables.role import Role
from pyromq.errors import RemoteProtocolError, StoreError
from pyromq.protocol import json_body, names
from pyromq.protocol import properties as props
from pyromq.protocol.pop_records import AckMsg, BatchAckMsg, PopCheckPoint
from pyromq.protocol.record import decode_record
from pyromq.store.results import QueueAdvance

_log = logging.getLogger(__name__)

_BATCH = 64
_RETRY_S = 0.2
_MAX_WAIT_S = 1.0
"""The clock may be set meanwhile."""
_WAIT_FOR_TIMERS_S = 0.005


class WakeableTimers(Protocol):
    """Delivers the records of the revive log when their time has come."""

    @property
    def delivery(self) -> TimerDelivery: ...

    def wake(self) -> None: ...


class _Line(msgspec.Struct):
    """A moment, and how far timers and revive log must be read to know all that happened before it."""

    time_ms: int
    timer_offset: int
    ends: dict[int, int] | None = None


class Reviving:
    def __init__(
        self,
        context: Context,
        appending: Appending,
        revive_log: ReviveLog,
        revival: Revival,
        popped_offsets: PoppedOffsets,
        changed: ChangedReceipts,
        timers: WakeableTimers,
    ) -> None:
        tables = context.tables
        self._store = context.store
        self._durability = appending.durability
        self._topic = revive_log.topic
        self._offsets = tables.offsets
        self._counts = tables.pop_counts
        self._role = tables.role
        self._revival = revival
        self._popped_offsets = popped_offsets
        self._changed = changed
        self._timers = timers
        self._slices = context.slices
        self._queues: dict[int, Checkpoints] = {}
        self._line: _Line | None = None
        self._known_until: dict[int, int] = {}
        """The ends of the revive queues when this broker began to revive."""
        self._taken: tuple[dict[int, int], int] | None = None
        """The progress in each queue, and how far the next master must have the log before it counts."""
        self._was_master = False
        self._woken = asyncio.Event()
        self._trouble = ""
        appending.on_advance(self._advanced, self._topic)
        tables.offsets.before_saving = self._before_saving_offsets
        tables.role.on_change(self._role_changed)

    def __repr__(self) -> str:
        return f"<Reviving pending={sum(map(len, self._queues.values()))}>"

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._woken.clear()
            wait_s = self.step()
            if wait_s == 0:
                await self._slices.wait_for_turn()
                continue
            # A deadline for each turn would cost more than the work of many turns.
            waking = loop.call_later(wait_s, self._woken.set)
            await self._woken.wait()
            waking.cancel()

    def _advanced(self, _: QueueAdvance) -> None:
        self._woken.set()

    def _role_changed(self, role: Role) -> None:
        was_master, self._was_master = self._was_master, role.is_master
        if was_master and role.is_master:
            # Elected again, with all of its log. What it has revived is in no queue before it is confirmed:
            # only its memory has all of it.
            return
        self._queues.clear()
        self._line = self._taken = None
        self._revival.earlier = None
        if role.is_master:
            self._begin()
        self._woken.set()

    def _before_saving_offsets(self) -> None:
        if self._role.now.is_master:
            self._popped_offsets.note()

    def _begin(self) -> None:
        """Continue where this broker or its master before it stopped."""
        store, topic = self._store, self._topic
        self._popped_offsets.restore()
        find_changes(store, topic, self._changed)
        if not self._popped_offsets.is_noted:
            # A new store, or one of another broker: a crash before the first regular save must find the mark.
            with suppress(OSError, StoreError):
                self._popped_offsets.note()
                self._offsets.persist()
        since_ms = store.time.now_ms()
        for queue_id in store.queues.ids(topic):
            checkpoints = self._checkpoints(queue_id)
            stored_ms = store.queues.store_time(topic, queue_id, checkpoints.next)
            if stored_ms >= 0:
                self._known_until[queue_id] = store.queues.max_offset(topic, queue_id)
                since_ms = min(since_ms, stored_ms)
        if self._known_until:
            self._revival.earlier = EarlierRevivals(store, since_ms)

    def _checkpoints(self, queue_id: int) -> Checkpoints:
        known = self._queues.get(queue_id)
        if known is None:
            store, topic = self._store, self._topic
            progress = self._offsets.query(names.REVIVE_GROUP, topic, queue_id)
            first, end = store.queues.min_offset(topic, queue_id), store.queues.max_offset(topic, queue_id)
            begin = min(max(progress + 1, first), end)
            known = self._queues[queue_id] = Checkpoints(begin - 1)
        return known

    # One step

    def step(self) -> float:
        """Read and revive for a slice of time; returns the seconds until there is more to do."""
        if not self._role.now.is_master:
            return _MAX_WAIT_S
        is_over = self._slices.is_over_for_newcomer()
        try:
            if not self._read_all(is_over):
                return 0
            wait_s = self._revive_due(is_over)
        except (StoreError, OSError) as problem:
            if self._trouble != str(problem):
                self._trouble = str(problem)
                _log.error("popped messages could not be revived, trying again: %s", problem)
            return _RETRY_S
        self._trouble = ""
        self._commit()
        return wait_s

    def _read_all(self, is_over: Callable[[], bool]) -> bool:
        """Read the revive log; whether all of it is read."""
        store, topic = self._store, self._topic
        for queue_id in store.queues.ids(topic):
            checkpoints = self._checkpoints(queue_id)
            queue = store.queues.find(topic, queue_id)
            while queue is not None and checkpoints.next < queue.end_offset:
                units = store.queues.sound_units(queue, checkpoints.next, _BATCH)
                if not units:
                    break  # being mended; it advances then
                for log_offset, _ in units:
                    if log_offset is not None:
                        self._read(checkpoints, queue_id, log_offset)
                    checkpoints.next += 1
                if is_over():
                    return False
        return True

    def _read(self, checkpoints: Checkpoints, queue_id: int, log_offset: int) -> None:
        record = self._store.log.record_at(log_offset)
        if record is None:
            return
        position = checkpoints.next
        try:
            message = decode_record(record, check_crc=False)
            tag, body = message.get(props.TAGS), bytes(message.body)
            if tag == CHECKPOINT_TAG:
                info = json_body.decode(body, PopCheckPoint)
                checkpoints.add(position, info)
                self._counts.read[info.consumer_group or "", info.topic or "", "CK", str(queue_id)] += 1
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                ack = json_body.decode(body, AckMsg if tag == ACK_TAG else BatchAckMsg)
                checkpoints.acknowledge(ack)
                self._counts.read[ack.consumer_group or "", ack.topic or "", "ACK", str(queue_id)] += 1
        except RemoteProtocolError as problem:
            _log.error("record of the revive log dropped queue=%d offset=%d: %s", queue_id, position, problem)

    def _revive_due(self, is_over: Callable[[], bool]) -> float:
        now_ms = self._store.time.now_ms()
        times = [each.first_due_ms for each in self._queues.values() if each.first_due_ms is not None]
        if not times:
            return _MAX_WAIT_S
        wait_ms = min(times) - now_ms
        if wait_ms > 0:
            return min(wait_ms / 1000, _MAX_WAIT_S)
        if self._line is None:
            self._line = _Line(now_ms, self._store.queues.next_offset(names.TIMER_TOPIC, 0))
        if not self._is_all_known(self._line):
            return _WAIT_FOR_TIMERS_S
        until_ms = self._line.time_ms
        for checkpoints in self._queues.values():
            while (checkpoint := checkpoints.take_due(until_ms)) is not None:
                if not self._revival.revive(checkpoint):
                    checkpoints.put_back(checkpoint)
                    self._line = None
                    return _RETRY_S
                checkpoints.finish(checkpoint)
                if is_over():
                    return 0
        self._line = None
        return _WAIT_FOR_TIMERS_S

    def _is_all_known(self, line: _Line) -> bool:
        """Whether everything was read that was written to the revive log before the moment of the line."""
        if line.ends is None:
            is_taken = self._store.timers.queue_offset >= line.timer_offset
            if not is_taken or self._timers.delivery.delivered_until_ms < line.time_ms:
                self._timers.wake()
                return False
            line.ends = {
                queue_id: self._store.queues.next_offset(self._topic, queue_id)
                for queue_id in self._store.queues.ids(self._topic)
            }
        return all(self._checkpoints(queue_id).next >= end for queue_id, end in line.ends.items())

    def _commit(self) -> None:
        """A message that was revived could be cut off with the end of the log, but is not revived again."""
        if self._taken is None:
            progress_of = {queue_id: each.progress for queue_id, each in self._queues.items()}
            self._taken = progress_of, self._store.log.end
        progress_of, needed_end = self._taken
        if self._durability.readable_offset < needed_end:
            return
        self._taken = None
        for queue_id, progress in progress_of.items():
            if progress > self._offsets.query(names.REVIVE_GROUP, self._topic, queue_id):
                self._offsets.commit(names.REVIVE_GROUP, self._topic, queue_id, progress)
            if self._known_until and progress + 1 >= self._known_until.get(queue_id, 0):
                self._known_until.pop(queue_id, None)
        if not self._known_until:
            self._revival.earlier = None

    # Telling

    def behind(self) -> dict[int, tuple[int, int]]:
        """For each queue of the revive log: its unread or unfinished records, and how late the first is."""
        now_ms = self._store.time.now_ms()
        return {
            queue_id: (
                max(self._store.queues.max_offset(self._topic, queue_id) - checkpoints.progress - 1, 0),
                max(now_ms - (checkpoints.first_due_ms or now_ms), 0),
            )
            for queue_id, checkpoints in self._queues.items()
        }
