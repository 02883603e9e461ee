"""Times of delivery: what a message asks for, which slot it waits in, and when exactly it is due.

A slot is named by its start. A message waits in the slot whose start lies before its time and whose end does
not: a message for 12:00:00 waits in the slot of 11:59:59. So a slot is over when its last message is due.
"""

from typing import NamedTuple

from pyromq.broker.flow.message_properties import with_property
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.properties import get_property, without_property

# java: in this order
_RELATIVE = ((props.TIMER_DELAY_SEC, 1000), (props.TIMER_DELAY_MS, 1))
ASKING = (props.TIMER_DELIVER_MS, props.TIMER_DELAY_SEC, props.TIMER_DELAY_MS)

_MAX_DIGITS = 19
_ENQUEUED, _DEQUEUED = props.TIMER_ENQUEUE_MS.encode(), props.TIMER_DEQUEUE_MS.encode()


class DeliveryKey(NamedTuple):
    """Tells a timed message from others, before and after its delivery."""

    topic: str
    unique_key: str | None
    slot_ms: str | None
    stage: str | None
    """How often it was stored anew on its way."""
    is_stage: bool
    """Whether it was stored anew, and not delivered."""


def is_timed(properties: bytes) -> bool:
    """Whether a message asks for a time and does not wait for it already."""
    if b"TIMER_DEL" not in properties or get_property(properties, props.TIMER_OUT_MS) is not None:
        return False
    return any(get_property(properties, name) is not None for name in ASKING)


def asked_ms(properties: bytes, now_ms: int) -> int:
    """The time that a message asks for; raises ValueError if it is not a number."""
    for name, unit_ms in _RELATIVE:
        if (delay := get_property(properties, name)) is not None:
            return now_ms + number_in(name, delay) * unit_ms
    return number_in(props.TIMER_DELIVER_MS, get_property(properties, props.TIMER_DELIVER_MS) or "")


def slot_of(deliver_ms: int, precision_ms: int) -> int:
    """The start of the slot for a time."""
    return (deliver_ms - 1) // precision_ms * precision_ms


def recall_key(topic: str, unique_key: str) -> str:
    """java: the value of TIMER_DEL_UNIQKEY in a recall."""
    return f"{topic}+{unique_key}"


def delivery_key(topic: str, properties: bytes) -> DeliveryKey | None:
    """The message that a record delivers; None if the record is not a delivery."""
    if get_property(properties, props.TIMER_DEQUEUE_MS) is None:
        return None
    is_stage = topic == names.TIMER_TOPIC
    if is_stage:
        topic = get_property(properties, props.REAL_TOPIC) or ""
    return DeliveryKey(
        topic,
        get_property(properties, props.UNIQ_KEY),
        get_property(properties, props.TIMER_OUT_MS),
        get_property(properties, props.TIMER_ROLL_TIMES),
        is_stage,
    )


def staged(raw: bytes, deliver_ms: int) -> bytes:
    """The properties of a message that is stored anew, on its way to a time beyond the window."""
    times = get_property(raw, props.TIMER_ROLL_TIMES) or "0"
    raw = with_property(raw, props.TIMER_ROLL_TIMES, str(int(times) + 1))
    # A delay counts from the first send, whose time is not in the new record.
    return with_property(raw, props.TIMER_DELIVER_MS, str(deliver_ms))


def stamped(raw: bytes, enqueued_ms: int, now_ms: int) -> bytes:
    """The properties of a message that leaves the wheel."""
    if _ENQUEUED in raw:  # from an earlier stage
        raw = without_property(without_property(raw, props.TIMER_ENQUEUE_MS), props.TIMER_DEQUEUE_MS)
    if raw[-1:] != b"\x02":
        raw += b"\x02"
    return raw + stamps(enqueued_ms, now_ms)


def stamps(enqueued_ms: int, now_ms: int) -> bytes:
    return b"%s\x01%d\x02%s\x01%d\x02" % (_ENQUEUED, enqueued_ms, _DEQUEUED, now_ms)


def number_in(name: str, text: str) -> int:
    """The value of a property; raises ValueError."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > _MAX_DIGITS:
        raise ValueError(f"{name} is {text[:40]!r}, not a number")
    return int(text)
