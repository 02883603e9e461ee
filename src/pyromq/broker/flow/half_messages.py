"""The contents of half messages and op messages: pure functions of their properties and bodies.

A half message waits in queue 0 of its system topic for the end of its transaction. A transaction that is
checked gets a new copy of its half message at the end of the queue, and only the last copy counts. An op
message lists offsets of half messages that are over.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyromq.broker.flow.draft import Draft
from pyromq.broker.flow.message_properties import pair, with_property
from pyromq.compiled import twin
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.record import StoredMessage, decode_record

GROUP: Final = "CID_RMQ_SYS_TRANS"
"""java: the offsets of this group say where checks continue after a restart."""
QUEUE: Final = 0
"""java: all half messages are in one queue, and so are all op messages."""
OP_PROPERTIES: Final = (pair(props.WAIT, "true") + pair(props.TAGS, "d")).encode()
"""java: the tag says that the half messages are over; there is no other."""


_native = twin("protocol.requests")


class HalfOutline(NamedTuple):
    """The facts about a half message that decide whether it is open."""

    key: int
    topic: str
    is_copy: bool


def read_half(record: memoryview) -> HalfOutline:
    """Raises RemoteProtocolError if it is not a record."""
    found = None if _native is None else _native.read_half(record)
    if found is not None:
        born_timestamp, unique_key, topic, has_original = found
        return HalfOutline(transaction_key(unique_key, born_timestamp), topic, has_original)
    half = decode_record(record, check_crc=False)
    return HalfOutline(key_of(half), real_topic(half), is_copy(half))


def transaction_key(identity: str | bytes, born_timestamp: int) -> int:
    """The same for all copies of a half message, in this process; `identity` is its unique key."""
    return hash((identity, born_timestamp))


def key_of(half: StoredMessage) -> int:
    return transaction_key(half.get(props.UNIQ_KEY) or half.properties, half.born_timestamp)


def real_topic(half: StoredMessage) -> str:
    return half.get(props.REAL_TOPIC) or ""


def is_copy(half: StoredMessage) -> bool:
    """Whether the broker stored it, in place of an earlier one."""
    return (
        half.get(props.TRANSACTION_CHECK_TIMES) is not None
        or half.get(props.TRANSACTION_PREPARED_QUEUE_OFFSET) is not None
    )


def check_times(half: StoredMessage) -> int | None:
    """How often producers were asked; None if they were not."""
    text = half.get(props.TRANSACTION_CHECK_TIMES)
    return None if text is None else _number(text, -1)


def own_immunity_ms(half: StoredMessage, timeout_ms: int) -> int | None:
    """The time that the message itself asks for before the first check, None if it does not."""
    text = half.get(props.CHECK_IMMUNITY_TIME_IN_SECONDS)
    if text is None:
        return None
    seconds = _number(text, -1)
    return timeout_ms if seconds == -1 else seconds * 1000


def _number(text: str | None, otherwise: int) -> int:
    try:
        return otherwise if text is None or len(text) > 18 else int(text)
    except ValueError:
        return otherwise


def copy_of(half: StoredMessage, topic: str = names.HALF_TOPIC, **changes: str) -> Draft:
    """The half message for a queue of the broker, with these properties changed."""
    properties = half.properties
    for name, value in changes.items():
        properties = with_property(properties, name, value)
    return Draft(
        topic,
        QUEUE,
        half.body,
        properties,
        half.born_timestamp,
        half.born_host.pack(),
        half.flag,
        half.sys_flag,
        half.reconsume_times,
    )


def op_body(offsets: Sequence[int]) -> bytes:
    # java: a comma follows each offset; brokers before 5.0 write and read a single one, without a comma
    return b"%d" % offsets[0] if len(offsets) == 1 else b"".join([b"%d," % offset for offset in offsets])


def read_op(record: memoryview) -> list[int]:
    """The offsets that an op message lists; raises RemoteProtocolError if it is not a record."""
    return op_offsets(decode_record(record, check_crc=False).body)


def op_offsets(body: bytes) -> list[int]:
    return [int(text) for text in body.split(b",") if text.isdigit() and len(text) <= 18]
