"""Parking: a message that must wait is stored in a system topic first, and moved to its own topic later.

A parked message carries the names of its real topic and queue as properties.
"""

from collections.abc import Callable

from msgspec.structs import replace

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import with_property
from pyromq.broker.flow.timing import ASKING, asked_ms, is_timed, slot_of
from pyromq.chance import random
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property, without_property
from pyromq.protocol.record import MAX_V1_TOPIC_BYTES, StoredMessage, SysFlag
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus

_PARKED_TOPICS = frozenset(
    (names.TIMER_TOPIC, names.HALF_TOPIC, names.OP_HALF_TOPIC, names.CHECK_MAX_TIME_TOPIC)
)
"""Messages of these topics wait already."""
_PARKED = (
    f"{props.TIMER_OUT_MS}\x01%d\x02{props.REAL_TOPIC}\x01%s\x02{props.REAL_QUEUE_ID}\x01%d\x02".encode()
)
_WHEEL_IS_OFF = AppendResult(
    AppendStatus.WHEEL_TIMER_NOT_ENABLE,
    reason="the broker does not accept messages with a time of delivery: timerWheelEnable is off",
)


class Parking:
    """One method for each reason to wait: a transaction, a delay level, a time."""

    def __init__(self, store: MessageStore, chance: Callable[[], float] = random) -> None:
        self._store = store
        self._delay_levels = len(store.settings.delays_ms)
        self._chance = chance

    def park(self, draft: Draft) -> AppendResult | None:
        """Redirect a message to its waiting place, if it must wait; a result means that it is refused."""
        if draft.deliver_ms:
            return self._park_at(draft, draft.deliver_ms, draft.born_timestamp)
        if draft.is_half:
            return self._park_half(draft)
        if draft.sys_flag & SysFlag.TRANSACTION_MASK not in (0, SysFlag.TRANSACTION_COMMIT):
            return None
        if draft.delay_level > 0:
            self._park_on_level(draft)
        elif b"TIMER_DEL" in draft.properties and draft.topic not in _PARKED_TOPICS:
            return self._park_until(draft)
        return None

    def _park_half(self, draft: Draft) -> AppendResult | None:
        if _is_refused(draft.topic):
            return None
        if draft.delay_level <= 0 and b"TIMER_DEL" in draft.properties:
            # It waits for its time after the commit; a time that is not accepted is better refused now.
            refused = self._park_until(replace(draft))
            if refused is not None:
                return refused
        if (unique_key := get_property(draft.properties, props.UNIQ_KEY)) is not None:
            draft.properties = with_property(draft.properties, props.TRANSACTION_ID, unique_key)
        # java: a record with transaction bits is in no queue, but half messages are read from theirs
        draft.sys_flag &= ~SysFlag.TRANSACTION_MASK
        _move(draft, names.HALF_TOPIC, 0)
        return None

    def _park_on_level(self, draft: Draft) -> None:
        if not self._delay_levels or _is_refused(draft.topic):
            return
        raw = draft.properties
        # java: a delay level takes precedence over timer properties
        for name in ASKING:
            raw = without_property(raw, name)
        # java: a level above the highest one means the highest one
        level = min(draft.delay_level, self._delay_levels)
        draft.properties = with_property(raw, props.DELAY, str(level))
        _move(draft, names.SCHEDULE_TOPIC, level - 1)

    def _park_until(self, draft: Draft) -> AppendResult | None:
        if not is_timed(draft.properties) or _is_refused(draft.topic):
            return None
        if not self._store.settings.timer_wheel:
            return _WHEEL_IS_OFF
        now_ms = self._store.time.now_ms()
        try:
            slot_ms = self._slot_at(asked_ms(draft.properties, now_ms), now_ms)
        except ValueError as problem:
            return _illegal(str(problem))
        if slot_ms is None and get_property(draft.properties, props.TIMER_DEL_UNIQKEY) is not None:
            return _illegal("a message whose time has come cannot be recalled")
        if not isinstance(slot_ms, int):
            return slot_ms
        draft.properties = with_property(draft.properties, props.TIMER_OUT_MS, str(slot_ms))
        _move(draft, names.TIMER_TOPIC, 0)
        return None

    def _park_at(self, draft: Draft, deliver_ms: int, now_ms: int) -> AppendResult | None:
        """The same for a message of which is known that it asks for this time, and for nothing else."""
        if _is_refused(draft.topic):
            return None
        slot_ms = self.slot_for(deliver_ms, 0, now_ms)
        if not isinstance(slot_ms, int):
            return slot_ms
        draft.properties += _PARKED % (slot_ms, draft.topic.encode(), draft.queue_id)
        draft.topic, draft.queue_id = names.TIMER_TOPIC, 0
        return None

    def slot_for(self, asked: int, unit_ms: int, now_ms: int) -> int | AppendResult | None:
        """The slot for a time, or with `unit_ms` for a delay in these units; None if the time has come, a
        result if it is refused."""
        if not self._store.settings.timer_wheel:
            return _WHEEL_IS_OFF
        return self._slot_at(now_ms + asked * unit_ms if unit_ms else asked, now_ms)

    def _slot_at(self, deliver_ms: int, now_ms: int) -> int | AppendResult | None:
        if deliver_ms <= now_ms:
            return None
        settings = self._store.settings
        max_delay_ms = settings.timer_max_delay_seconds * 1000
        if deliver_ms - now_ms > max_delay_ms:
            return _illegal(
                f"the time of delivery is {deliver_ms - now_ms} ms ahead, expected at most"
                f" {max_delay_ms} ms (timerMaxDelaySec)"
            )
        slot_ms = slot_of(deliver_ms, self._store.timers.precision_ms)
        if self._is_crowded(slot_ms, settings.timer_max_per_slot):
            return AppendResult(
                AppendStatus.WHEEL_TIMER_FLOW_CONTROL,
                reason=f"too many messages wait for this time: expected at most {settings.timer_max_per_slot}"
                " (timerCongestNumEachSlot)",
            )
        return slot_ms

    def _is_crowded(self, slot_ms: int, limit: int) -> bool:
        """From the limit on a growing share is refused, above twice the limit all."""
        timers = self._store.timers
        if timers.counts.total <= limit:
            return False
        excess = timers.count_at(slot_ms // timers.precision_ms) - limit
        return excess > 0 and self._chance() < excess / limit


def _is_refused(topic: str) -> bool:
    """Whether the store refuses this topic: then it shall do so now and not on delivery."""
    return not names.is_retry_topic(topic) and len(topic.encode()) > MAX_V1_TOPIC_BYTES


def unpark(message: StoredMessage) -> Draft:
    """The message for its own queue; raises ValueError if the message does not name it."""
    topic, queue_id = message.get(props.REAL_TOPIC), message.get(props.REAL_QUEUE_ID)
    if topic is None or queue_id is None:
        raise ValueError(f"the properties {props.REAL_TOPIC} and {props.REAL_QUEUE_ID} are missing")
    # java: the properties stay as they are, so consumers can see DELAY, REAL_TOPIC and REAL_QID
    return Draft(
        topic,
        int(queue_id),
        message.body,
        message.properties,
        message.born_timestamp,
        message.born_host.pack(),
        message.flag,
        message.sys_flag,
        message.reconsume_times,
    )


def _illegal(reason: str) -> AppendResult:
    return AppendResult(AppendStatus.WHEEL_TIMER_MSG_ILLEGAL, reason=reason)


def _move(draft: Draft, topic: str, queue_id: int) -> None:
    raw = with_property(draft.properties, props.REAL_TOPIC, draft.topic)
    draft.properties = with_property(raw, props.REAL_QUEUE_ID, str(draft.queue_id))
    draft.topic = topic
    draft.queue_id = queue_id
