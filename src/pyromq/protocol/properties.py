"""Message properties as text: `name U+0001 value U+0002`, repeated.

The reader is lenient, the writer is strict: it never writes a property that could not be read back.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import AnyStr, Final

from pyromq.errors import LocalProtocolError

NAME_SEPARATOR: Final = "\x01"
PAIR_SEPARATOR: Final = "\x02"
KEY_SEPARATOR: Final = " "
"""Between the keys inside the value of `KEYS`."""

PROPERTIES_LIMIT_BYTES: Final = 32_767

# What an application says about its message.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
FIRST_RETRY_LEVEL: Final = 3
"""java: the delay level of a message's first retry; each further retry has the next level."""
SHARDING_KEY: Final = "__SHARDINGKEY"
BUYER_ID: Final = "BUYER_ID"
INSTANCE_ID: Final = "INSTANCE_ID"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"

# Identity and origin.
UNIQ_KEY: Final = "UNIQ_KEY"
EXTEND_UNIQ_INFO: Final = "EXTEND_UNIQ_INFO"
DUP_INFO: Final = "DUP_INFO"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
BORN_HOST: Final = "__BORNHOST"
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
CLUSTER: Final = "CLUSTER"
RECORD_CRC: Final = "__CRC32#"

# Parked in a system topic, retried, or dead.
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

# Transactions.
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
CHECK_IMMUNITY_TIME_IN_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"

# Delivery at any time.
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"

# Requests and replies between clients.
CORRELATION_ID: Final = "CORRELATION_ID"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
TTL: Final = "TTL"
ARRIVE_TIME: Final = "ARRIVE_TIME"
PUSH_REPLY_TIME: Final = "PUSH_REPLY_TIME"
MESSAGE_TYPE: Final = "MSG_TYPE"

# Reading: pull and pop.
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
CONSUME_START_TIME: Final = "CONSUME_START_TIME"
POP_CK: Final = "POP_CK"
PRIORITY: Final = "_SYS_MSG_PRIORITY_"
POP_CK_OFFSET: Final = "POP_CK_OFFSET"
FIRST_POP_TIME: Final = "1ST_POP_TIME"

# Inner batches and messages that enter several queues.
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"

LITE_TOPIC: Final = "__LITE_TOPIC"
LITE_EPOCH: Final = "__LITE_EPOCH"
"""Counts the writers of a lite topic: who has a lower one than its last message is refused."""
LITE_OFFSET: Final = "__LITE_OFFSET"
"""The offset in its lite topic that a message must get, or it is refused."""
LITE_KIND: Final = "__LITE_KIND"
"""The kind of a session's message; see `proxy/http/sessions.py`."""

# Left from earlier days of the protocol.
TRANSFER_FLAG: Final = "TRANSFER_FLAG"
CORRECTION_FLAG: Final = "CORRECTION_FLAG"
MQ2_FLAG: Final = "MQ2_FLAG"
FORWARD_QUEUE_ID: Final = "PROPERTY_FORWARD_QUEUE_ID"
REDIRECT: Final = "REDIRECT"

RESERVED_NAMES: Final = frozenset(
    {
        ARRIVE_TIME,
        BORN_HOST,
        BORN_TIMESTAMP,
        BUYER_ID,
        CLUSTER,
        CONSUME_START_TIME,
        CORRECTION_FLAG,
        CORRELATION_ID,
        DELAY,
        DLQ_ORIGIN_MESSAGE_ID,
        DLQ_ORIGIN_TOPIC,
        DUP_INFO,
        EXTEND_UNIQ_INFO,
        FIRST_POP_TIME,
        INNER_MULTI_QUEUE_OFFSET,
        INSTANCE_ID,
        KEYS,
        LITE_EPOCH,
        LITE_KIND,
        LITE_OFFSET,
        LITE_TOPIC,
        MAX_OFFSET,
        MAX_RECONSUME_TIMES,
        MESSAGE_TYPE,
        MIN_OFFSET,
        MQ2_FLAG,
        MSG_REGION,
        ORIGIN_MESSAGE_ID,
        POP_CK,
        POP_CK_OFFSET,
        PRIORITY,
        PRODUCER_GROUP,
        PUSH_REPLY_TIME,
        REAL_QUEUE_ID,
        REAL_TOPIC,
        RECONSUME_TIME,
        RECORD_CRC,
        REPLY_TO_CLIENT,
        RETRY_TOPIC,
        TAGS,
        TIMER_DELAY_LEVEL,
        TIMER_DELAY_MS,
        TIMER_DELAY_SEC,
        TIMER_DELIVER_MS,
        TIMER_DEL_UNIQKEY,
        TIMER_DEQUEUE_MS,
        TIMER_ENQUEUE_MS,
        TIMER_OUT_MS,
        TIMER_ROLL_TIMES,
        TRACE_ON,
        TRANSACTION_PREPARED,
        TRANSACTION_PREPARED_QUEUE_OFFSET,
        TRANSFER_FLAG,
        TTL,
        UNIQ_KEY,
        WAIT,
    }
)
"""Names an application may not use for its own properties."""


def encode_properties(properties: Mapping[str, str | None]) -> str:
    """The property string of a message; a name whose value is None is omitted."""
    parts = []
    for name, value in properties.items():
        if value is None:
            continue
        if not name or NAME_SEPARATOR in name or PAIR_SEPARATOR in name or PAIR_SEPARATOR in value:
            raise LocalProtocolError(f"property {name!r}={value!r}: a name is empty or a separator is inside")
        parts.append(f"{name}\x01{value}\x02")
    text = "".join(parts)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise LocalProtocolError(f"properties cannot be written as UTF-8: {error}") from None
    return text


def decode_properties(properties: str | bytes) -> dict[str, str]:
    """All valid pairs; the rest is dropped, and of two equal names the later one wins."""
    if not isinstance(properties, str):
        # java: bytes that are not UTF-8 read as U+FFFD
        properties = properties.decode("utf-8", "replace")
    pairs = {}
    for piece in properties.split(PAIR_SEPARATOR):
        name, _, value = piece.partition(NAME_SEPARATOR)
        if name and value:
            pairs[name] = value
    return pairs


def get_property(properties: str | bytes, name: str) -> str | None:
    """Same as `decode_properties(properties).get(name)`, without building the dict."""
    if isinstance(properties, str):
        inner, leading = _text_needles(name)
        return _probe(properties, inner, leading, PAIR_SEPARATOR)
    value = get_property_bytes(properties, name)
    return None if value is None else str(value, "utf-8", "replace")


def get_property_bytes(properties: bytes, name: str) -> bytes | None:
    """The same, undecoded."""
    inner, leading = _byte_needles(name)
    return _probe(properties, inner, leading, b"\x02")


def _probe(properties: AnyStr, inner: AnyStr, leading: AnyStr, separator: AnyStr) -> AnyStr | None:
    found = properties.rfind(inner)
    while True:
        if found >= 0:
            start = found + len(inner)
        elif properties.startswith(leading):
            start = len(leading)
        else:
            return None
        stop = properties.find(separator, start)
        value = properties[start:] if stop < 0 else properties[start:stop]
        if value:
            return value
        if found < 0:
            return None
        # an empty value does not count, so an earlier pair of that name still does
        found = properties.rfind(inner, 0, found)


@lru_cache(maxsize=256)
def _text_needles(name: str) -> tuple[str, str]:
    return f"\x02{name}\x01", f"{name}\x01"


@lru_cache(maxsize=256)
def _byte_needles(name: str) -> tuple[bytes, bytes]:
    leading = name.encode() + b"\x01"
    return b"\x02" + leading, leading


def without_property(properties: bytes, name: str) -> bytes:
    """The same properties in the same order, without the pairs called `name`."""
    _, leading = _byte_needles(name)
    if leading not in properties:
        return properties
    kept = [piece for piece in properties.split(b"\x02") if not piece.startswith(leading)]
    return b"\x02".join(kept)
