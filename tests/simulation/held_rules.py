"""A message that waits for its time is delivered once due, and no progress leaves it behind undelivered.

Progress in memory counts deliveries in the log of the same broker. Progress that is kept counts deliveries
on its disk; that of delay levels, to which a cut goes back, only what is confirmed as well.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from tests.simulation.cluster import Server, SimulatedCluster
from tests.simulation.disk_rules import Problem

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.protocol import properties as props
from pyromq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import RecordOutline
from pyromq.store.message_store import MessageStore
from pyromq.store.timers.timer_log import RECALL

_LATE_S = 5.0
"""A master has delivered what is due after this time, counted from its election."""
_DELAY_DELIVERY = frozenset({"slow", "eio", "full", "read-only", "clock"})

Key = tuple[str, str]
"""The topic to which a message goes, and its unique key."""


class _Held(NamedTuple):
    key: Key
    place: int
    due_ms: int
    level: int
    """0: it is in the timer wheel."""
    queue_offset: int


class HeldRules:
    """Of one broker, over all its processes."""

    def __init__(self, cluster: SimulatedCluster, server: Server) -> None:
        self._cluster = cluster
        self._server = server
        self._confirmed = 0
        """Up to where it knows that its log is confirmed: this part never changes."""
        self._is_judged_late = not any(fault.kind in _DELAY_DELIVERY for fault in cluster.plan.faults)
        self._held: dict[int, _Held] = {}
        """By the place of their records, unless their deliveries are confirmed."""
        self._delivered: dict[Key, list[int]] = {}
        """Where the deliveries end: a message may be delivered again, and one that failed waits again."""
        self._ends: list[int] = []
        """Of all records that were read."""
        self._log: tuple[Broker | None, int] = None, 0
        """The broker, and how often its log was cut."""
        self._loaded: tuple[object, object] = None, None
        """What the broker had kept of its progress when it started."""
        self._wheel_from = 0
        """Slots before it were looked at."""
        self._passed: list[tuple[int, int]] = []
        """Of messages that have left the wheel: the time of the slot, and where their deliveries end."""
        self._confirmed_before = 0
        self._reign: tuple[int, float] = 0, 0.0
        """The epoch in which it is a master that runs and is heard, and since when."""

    def look(self, broker: Broker) -> Iterator[Problem]:
        store = broker.store
        if store.cutting.is_under_way:
            return
        if (broker, store.cutting.cuts) != self._log:
            self._begin(broker)
        self._read(store)
        side = broker.replication.master
        if isinstance(side, InSyncMaster) and not side.acknowledges_alone:
            self._confirmed = max(self._confirmed, min(side.confirmed, store.log.end))
        if self._held or self._passed:
            yield from self._check_levels(broker)
            yield from self._check_wheel(store)
            yield from self._check_late(broker)

    def _begin(self, broker: Broker) -> None:
        """Another process, or the log was cut."""
        store = broker.store
        if broker is not self._log[0]:
            self._loaded = broker._started.tables.delay_offsets._taken, store.timers.checkpoint
        self._log = broker, store.cutting.cuts
        del self._ends[bisect_right(self._ends, min(self._confirmed, store.log.end)) :]
        read = self._ends[-1] if self._ends else 0
        self._held = {place: each for place, each in self._held.items() if place < read}
        for ends in self._delivered.values():
            del ends[bisect_right(ends, read) :]
        self._wheel_from, self._passed = 0, []

    def _read(self, store: MessageStore) -> None:
        start = self._ends[-1] if self._ends else store.log.start
        if start >= store.log.end:
            return
        for outline, properties in store.log.records_from(start):
            self._ends.append(outline.log_offset + outline.size)
            if outline.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
                self._hold(outline, properties, store)
            elif self._held:
                key = outline.topic, get_property(properties, props.UNIQ_KEY) or ""
                self._delivered.setdefault(key, []).append(self._ends[-1])

    def _hold(self, outline: RecordOutline, properties: bytes, store: MessageStore) -> None:
        key = (
            get_property(properties, props.REAL_TOPIC) or "",
            get_property(properties, props.UNIQ_KEY) or "",
        )
        if outline.topic == TIMER_TOPIC:
            level, due_ms = 0, int(get_property(properties, props.TIMER_OUT_MS) or 0)
        else:
            level = outline.queue_id + 1
            due_ms = outline.store_timestamp + store.settings.delays_ms[outline.queue_id]
        place = outline.log_offset
        self._held[place] = _Held(key, place, due_ms, level, outline.queue_offset)

    def _delivery_of(self, held: _Held) -> int | None:
        """Where the first one ends; None if the log has none."""
        return next((end for end in self._delivered.get(held.key, ()) if end > held.place), None)

    def _check_levels(self, broker: Broker) -> Iterator[Problem]:
        table, store = broker._started.tables.delay_offsets, broker.store
        kept = table._taken.offset_table if table._taken is not self._loaded[0] else {}
        safe = min(store.flushes.offset, self._confirmed or store.log.end)
        for held in list(self._held.values()):
            end, level = self._delivery_of(held), held.level
            if end is None:
                if level and held.queue_offset < table.get(level):
                    text = f"{held.key} of level {level}, progress is {table.get(level)}"
                    yield "passed over, but not delivered", text
                continue
            if level and held.queue_offset < kept.get(level, 0) and end > safe:
                text = f"level {level} at {kept[level]}: a delivery ends at {end}, safe is {safe}"
                yield "progress of delays ahead of the log", text
            if end <= min(safe, self._confirmed):
                del self._held[held.place]

    def _check_wheel(self, store: MessageStore) -> Iterator[Problem]:
        timers = store.timers
        first, self._wheel_from = self._wheel_from, timers.read_number
        if timers.wheel.is_made and first < timers.read_number:
            for slot in list(timers.wheel.all()):
                if first <= slot.number < timers.read_number:
                    yield from self._check_slot(store, slot.number)
        checkpoint = timers.checkpoint
        if checkpoint is self._loaded[1]:
            return
        for slot_ms, end in self._passed:
            if slot_ms < checkpoint.read_ms and end > store.flushes.offset:
                text = f"a delivery of {slot_ms} ms ends at {end}, flushed is {store.flushes.offset}"
                yield "a checkpoint of timers ahead of the log", text
        self._passed = [each for each in self._passed if each[0] >= checkpoint.read_ms]

    def _check_slot(self, store: MessageStore, number: int) -> Iterator[Problem]:
        for _, unit in store.timers.units(number):
            held = self._held.get(unit.log_offset)
            if held is None or unit.kind & RECALL:
                continue
            end = self._delivery_of(held)
            if end is None:
                self._wheel_from = min(self._wheel_from, number)
                yield "passed over, but not delivered", f"{held.key} of slot {number}"
            else:
                self._passed.append((number * store.timers.precision_ms, end))

    def _check_late(self, broker: Broker) -> Iterator[Problem]:
        role, now_s = broker.role.now, self._cluster.loop.time()
        process, before = self._server.process, self._confirmed_before
        self._confirmed_before = self._confirmed
        # What the group does not confirm goes into no queue, and so not into the wheel.
        is_heard = self._confirmed > before or self._confirmed in (0, broker.store.log.end)
        is_able = is_heard and process is not None and process.is_running
        epoch = role.epoch if role.is_master and is_able else -1
        if epoch != self._reign[0]:
            self._reign = epoch, now_s
        if epoch < 0 or now_s < self._reign[1] + _LATE_S:
            return
        if not self._is_judged_late or not self._cluster.is_whole:
            return
        late_ms = self._server.host.clock.now_ms() - int(_LATE_S * 1000)
        for held in self._held.values():
            if held.due_ms < late_ms and self._delivery_of(held) is None:
                yield "due, but not delivered", f"{held.key} since {late_ms - held.due_ms} ms"
