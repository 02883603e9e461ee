"""Parking: a message that must wait is stored in a system topic first, and moved to its own topic later.

A parked message carries the names of its real topic and queue as properties.
"""

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import with_property
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property, without_property
from pyromq.protocol.record import MAX_V1_TOPIC_BYTES, StoredMessage, SysFlag


class Parking:
    """One method for each reason to wait: a transaction, a delay level."""

    def __init__(self, delay_levels: int) -> None:
        self._delay_levels = delay_levels

    def park(self, draft: Draft) -> None:
        """Redirect a message to its waiting place, if it must wait."""
        if draft.is_half:
            _park_half(draft)
        elif draft.delay_level > 0:
            self._park_on_level(draft)

    def _park_on_level(self, draft: Draft) -> None:
        is_half = draft.sys_flag & SysFlag.TRANSACTION_MASK not in (0, SysFlag.TRANSACTION_COMMIT)
        if not self._delay_levels or is_half:
            return
        if _is_refused(draft.topic):
            return
        raw = draft.properties
        # java: a delay level takes precedence over timer properties
        for name in (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS):
            raw = without_property(raw, name)
        # java: a level above the highest one means the highest one
        level = min(draft.delay_level, self._delay_levels)
        draft.properties = with_property(raw, props.DELAY, str(level))
        _move(draft, names.SCHEDULE_TOPIC, level - 1)


def _park_half(draft: Draft) -> None:
    if _is_refused(draft.topic):
        return
    raw = draft.properties
    if (unique_key := get_property(raw, props.UNIQ_KEY)) is not None:
        draft.properties = with_property(raw, props.TRANSACTION_ID, unique_key)
    # java: a record with transaction bits is in no queue, but half messages are read from theirs
    draft.sys_flag &= ~SysFlag.TRANSACTION_MASK
    _move(draft, names.HALF_TOPIC, 0)


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


def _move(draft: Draft, topic: str, queue_id: int) -> None:
    raw = with_property(draft.properties, props.REAL_TOPIC, draft.topic)
    draft.properties = with_property(raw, props.REAL_QUEUE_ID, str(draft.queue_id))
    draft.topic = topic
    draft.queue_id = queue_id
