"""Delivery: messages leave the timer wheel for their own queues, each at its millisecond.

The slot whose time it is and the one behind it are loaded; their messages stay in the log until they are due.
A slot is done when its time is over and all its messages are stored in their queues. No message leaves before
the recalls that came before the slot's time are taken in.
"""

import logging
from collections.abc import Callable

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.delivered_timers import DeliveredTimers
from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.parking import unpark
from pyromq.broker.flow.timed_outline import TimedOutline, read_timed
from pyromq.broker.flow.timer_slot import TimerSlot
from pyromq.broker.flow.timing import recall_key, staged, stamped, stamps
from pyromq.broker.tables.statistics import Statistics
from pyromq.broker.tables.timer_counts import TimerCounts
from pyromq.errors import RemoteProtocolError
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus
from pyromq.store.timers.timer_log import PLAIN, RECALL, ROLLED, TimerUnit

_log = logging.getLogger(__name__)

_RETRY_MS = 100
_MAX_WAIT_MS = 1000
"""The clock may be set meanwhile."""
_LOOK_AT_TIME_EVERY = 16
_MAX_SKIPPED = 10_000
"""Empty slots that are passed in one go: some milliseconds."""
_HOPELESS = frozenset((AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED))


class TimerDelivery:
    def __init__(
        self, store: MessageStore, appending: Appending, counts: TimerCounts, statistics: Statistics
    ) -> None:
        self._store = store
        self._timers = store.timers
        self._appending = appending
        self._counts = counts
        self._statistics = statistics
        self._slots: dict[int, TimerSlot] = {}
        self._must_be_taken: int | None = None
        """The queue offset up to which messages must be in the wheel before the slot's may leave."""
        self._earlier: DeliveredTimers | None = None
        self._earlier_until = 0
        self._complaint = ""
        self.messages = 0
        self.delivered_until_ms = 0
        """All messages in the wheel that were due until then are delivered."""

    def begin(self) -> None:
        """This broker delivers from now on: find out what was delivered before."""
        self.delivered_until_ms = 0
        self._slots.clear()
        self._must_be_taken = None
        now_number = self._store.time.now_ms() // self._timers.precision_ms
        if self._timers.wheel.is_made:
            self._earlier = DeliveredTimers(self._store)
            self._earlier_until = now_number
        else:
            self._timers.read_number = now_number

    def scheduled(self, position: int, unit: TimerUnit, outline: TimedOutline) -> None:
        """A message was put into the wheel: if its slot is loaded, it joins the others."""
        slot = self._slots.get(unit.slot_ms // self._timers.precision_ms)
        if slot is not None:
            slot.add(position, unit, outline)

    def step(self, is_over: Callable[[], bool]) -> int:
        """Deliver until nothing is due or the time is over. Returns the ms until there is more to do."""
        now_ms = self._store.time.now_ms()
        timers, precision_ms = self._timers, self._timers.precision_ms
        if not timers.wheel.is_made:
            timers.read_number = now_ms // precision_ms
            self.delivered_until_ms = now_ms
            return _MAX_WAIT_MS
        while (start_ms := timers.read_number * precision_ms) <= now_ms:
            slot = self._loaded(timers.read_number)
            if not slot.load(is_over):
                return 0
            # At the very start of a slot recalls for it may still come, and only late messages are due.
            if start_ms < now_ms and not self._are_recalls_taken(now_ms):
                return _MAX_WAIT_MS
            wait_ms = self._deliver_from(slot, now_ms, is_over)
            if wait_ms is not None:
                return wait_ms
            if start_ms + precision_ms > now_ms:
                self.delivered_until_ms = now_ms
                return self._wait_in(slot, now_ms, is_over)
            self._finish(slot)
            self._skip_empty_slots(now_ms // precision_ms)
            if is_over():
                return 0
        self.delivered_until_ms = now_ms
        return min(start_ms - now_ms, _MAX_WAIT_MS)

    def _wait_in(self, slot: TimerSlot, now_ms: int, is_over: Callable[[], bool]) -> int:
        """Prepare the next slot; returns the ms until the next message of this one is due, or it is over."""
        if not self._loaded(slot.number + 1).load(is_over):
            return 0
        end_ms = (slot.number + 1) * self._timers.precision_ms
        due = slot.first_due_ms()
        return min((end_ms if due is None else due) - now_ms, _MAX_WAIT_MS)

    def _loaded(self, number: int) -> TimerSlot:
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = TimerSlot(self._store, number)
        return slot

    def _finish(self, slot: TimerSlot) -> None:
        del self._slots[slot.number]
        if self._earlier is not None and slot.number > self._earlier_until:
            self._earlier = None
        self._timers.finish_slot(self._delivered_from())
        self._must_be_taken = None
        if not self._timers.counts.total:
            self._counts.reset()

    def _skip_empty_slots(self, now_number: int) -> None:
        timers = self._timers
        timers.skip_empty_slots(min(now_number, timers.read_number + _MAX_SKIPPED), self._delivered_from())
        for number in [each for each in self._slots if each < timers.read_number]:
            del self._slots[number]

    def _delivered_from(self) -> int:
        """Where in the log the deliveries of the next slot begin: at its end, unless some were made before
        the last stop. Another stop must not hide those."""
        return self._store.log.end if self._earlier is None else self._timers.delivered_from

    def _are_recalls_taken(self, now_ms: int) -> bool:
        timers = self._timers
        # After weeks without deliveries the wheel may have no place for messages until these are made.
        behind = now_ms // timers.precision_ms - timers.read_number
        if self._store.settings.timer_stop_enqueue or behind > timers.wheel.slots // 4:
            return True
        if self._must_be_taken is None:
            self._must_be_taken = self._store.queues.next_offset(names.TIMER_TOPIC, 0)
        return timers.queue_offset >= self._must_be_taken

    # One message

    def _deliver_from(self, slot: TimerSlot, now_ms: int, is_over: Callable[[], bool]) -> int | None:
        """Deliver what is due. Returns the ms until it must be tried again; None if nothing is due."""
        count = 0
        while (due := slot.first_due_ms()) is not None and due <= now_ms:
            position = slot.pop()
            if not self._deliver(slot, position, now_ms):
                slot.put_back(position)
                return _RETRY_MS
            count += 1
            if count % _LOOK_AT_TIME_EVERY == 0 and is_over():
                return 0
        return None

    def _deliver(self, slot: TimerSlot, position: int, now_ms: int) -> bool:
        """Whether the message is finished: delivered, recalled, or gone."""
        unit = self._timers.log.unit(position)
        record = None if unit is None else self._store.log.record_at(unit.log_offset)
        if unit is None or record is None:
            _log.error("timed message lost: its log file is gone slot=%d position=%d", slot.number, position)
            return True
        outline = read_timed(record)
        if (
            outline is not None
            and outline.is_usual
            and unit.kind == PLAIN
            and not slot.recalled
            and self._earlier is None
            and self._deliver_again(outline, record, unit, now_ms)
        ):
            return True
        try:
            message = decode_record(record)
            draft = unpark(message)
            topic = draft.topic
            if unit.kind & ROLLED:
                draft.topic, draft.queue_id = names.TIMER_TOPIC, 0
                draft.properties = staged(draft.properties, self._time_of(outline))
        except (RemoteProtocolError, ValueError) as problem:
            _log.error("timed message dropped slot=%d position=%d: %s", slot.number, position, problem)
            return True
        if slot.recalled and recall_key(topic, message.get(props.UNIQ_KEY) or "") in slot.recalled:
            return True  # it was taken off the counts with its recall
        draft.properties = stamped(draft.properties, unit.write_ms, now_ms)
        is_done = (
            self._store.topics.is_deleted(topic, unit.log_offset)
            or (self._earlier is not None and self._earlier.take(draft.topic, draft.properties))
            or self._store_it(draft, message)
        )
        if is_done:
            self._counts.add(topic, 1 if unit.kind & RECALL else -1)
        return is_done

    def _deliver_again(self, outline: TimedOutline, record: memoryview, unit: TimerUnit, now_ms: int) -> bool:
        """Store a message in its queue straight from its record; False if that must be done otherwise."""
        topic, queue_id = outline.topic, outline.queue_id
        if topic is None or queue_id is None or self._store.topics.is_deleted(topic, unit.log_offset):
            return False
        result = self._appending.append_again(record, topic, queue_id, stamps(unit.write_ms, now_ms))
        if result is None:
            return False
        self._delivered(topic, queue_id, result)
        self._counts.add(topic, -1)
        return True

    def _time_of(self, outline: TimedOutline | None) -> int:
        """The time that a message on a longer way asks for; raises ValueError if it asks for none."""
        if outline is None or (outline.slot_ms is None and outline.asked_ms is None):
            raise ValueError("it asks for no time")
        return outline.due_ms(outline.slot_ms or outline.asked_ms or 0, self._timers.precision_ms)

    def _store_it(self, draft: Draft, message: StoredMessage) -> bool:
        result = self._appending.append(draft)
        if result.status is AppendStatus.PROPERTIES_SIZE_EXCEEDED and draft.topic != names.TIMER_TOPIC:
            draft.properties = message.properties  # as they were they had room
            result = self._appending.append(draft)
        if not result.is_ok:
            return self._failed(draft, result)
        self._delivered(draft.topic, draft.queue_id, result)
        return True

    def _delivered(self, topic: str, queue_id: int, result: AppendResult) -> None:
        self._complaint = ""
        self.messages += 1
        self._counts.delivered[topic] += 1
        self._statistics.put(topic, queue_id, 1, result.size_bytes)

    def _failed(self, draft: Draft, result: AppendResult) -> bool:
        self._statistics.put_failures += 1
        if result.status in _HOPELESS:
            unique_key = get_property(draft.properties, props.UNIQ_KEY)
            _log.error("timed message dropped topic=%s id=%s: %s", draft.topic, unique_key, result.reason)
            return True
        why = f"{result.status.value}: {result.reason}"
        if self._complaint != why:
            self._complaint = why
            _log.warning("timed messages not delivered: %s", why)
        return False
