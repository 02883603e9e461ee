"""From a stored record to the message that a client receives.

`framed` has a compiled twin of `received` make the bytes of a whole answer, if all of its messages are plain.
"""

import logging
from hashlib import md5
from typing import Any, NamedTuple

from pyromq.compiled import twin
from pyromq.errors import RemoteProtocolError
from pyromq.filtering.tags import TagFilter
from pyromq.protocol import properties as props
from pyromq.protocol.compression import compression_of, decompress
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.pop_receipt import ORDER_REVIVE_QUEUE, decode_offsets, decode_start_offsets
from pyromq.protocol.record import StoredMessage, SysFlag
from pyromq.protocol.requests.popping import PopMessageAnswer
from pyromq.proxy.messages import enum_values, message

_log = logging.getLogger(__name__)

_native = twin("proxy.fast_incoming")

Message = message("Message")
_Resource = message("Resource")

_TYPES = enum_values("MessageType")
_ENCODINGS = enum_values("Encoding")
_MD5 = enum_values("DigestType")["MD5"]
_GZIP_MAGIC = b"\x1f\x8b"


def received(stored: StoredMessage, topic: str | None = None) -> Any:
    """`topic`: the one under which the client subscribed, if the message is a retry."""
    properties = stored.property_map()
    found = Message(body=_body(stored))
    system = found.system_properties
    is_gzipped = bool(stored.sys_flag & SysFlag.COMPRESSED) and found.body[:2] == _GZIP_MAGIC
    # With its namespace, as in `NS%topic`: clients answer under this name, and say nothing else about it.
    found.topic.name = topic or properties.get(props.RETRY_TOPIC) or stored.topic
    for key, value in properties.items():
        if key not in props.RESERVED_NAMES and key not in _HIDDEN:
            found.user_properties[key] = value
    system.message_id = shown_message_id(stored)
    if props.TAGS in properties:
        system.tag = properties[props.TAGS]
    system.keys.extend(properties.get(props.KEYS, "").split())
    if props.SHARDING_KEY in properties:
        system.message_group = properties[props.SHARDING_KEY]
    if props.TRACE_CONTEXT in properties:
        system.trace_context = properties[props.TRACE_CONTEXT]
    # Clients take a message without a digest, or with a wrong one, for corrupted.
    system.body_digest.type = _MD5
    system.body_digest.checksum = md5(found.body, usedforsecurity=False).hexdigest().upper()
    system.body_encoding = _ENCODINGS["GZIP" if is_gzipped else "IDENTITY"]
    system.message_type = _TYPES[_type_of(properties)]
    _set_time(system.born_timestamp, stored.born_timestamp)
    system.born_host = properties.get(props.BORN_HOST) or stored.born_host.ip_text
    _set_time(system.store_timestamp, stored.store_timestamp)
    system.store_host = str(stored.store_host)
    system.queue_id = stored.queue_id
    system.queue_offset = stored.queue_offset
    system.delivery_attempt = stored.reconsume_times + 1
    deliver_ms = properties.get(props.TIMER_DELIVER_MS, "")
    if deliver_ms.isdecimal() and len(deliver_ms) < 15:
        system.delivery_timestamp.FromMilliseconds(int(deliver_ms))
    priority = properties.get(props.PRIORITY, "")
    if priority.isdecimal() and len(priority) < 10:
        system.priority = int(priority)
    if props.LITE_TOPIC in properties:
        system.lite_topic = properties[props.LITE_TOPIC]
    if props.POP_CK in properties:
        system.receipt_handle = properties[props.POP_CK]
    if props.DLQ_ORIGIN_TOPIC in properties:
        system.dead_letter_queue.topic = properties[props.DLQ_ORIGIN_TOPIC]
        system.dead_letter_queue.message_id = properties.get(props.DLQ_ORIGIN_MESSAGE_ID, "")
    return found


def _set_time(timestamp: Any, milliseconds: int) -> None:
    """A time that no Timestamp can have is omitted: a producer says what it likes, and others must not
    suffer from it."""
    if _FIRST_MS <= milliseconds <= _LAST_MS:
        timestamp.FromMilliseconds(milliseconds)


_FIRST_MS = -62_135_596_800_000
_LAST_MS = 253_402_300_799_999
"""The first and the last millisecond of the years 1 to 9999."""


class Framed(NamedTuple):
    """Messages as parts of an answer."""

    data: bytes
    handles: list[tuple[str, int]]
    """The handle of each message, and which attempt it is."""


def framed(
    answer: PopMessageAnswer, broker_name: str, topic: str, wanted: TagFilter | None, max_retries: int
) -> Framed | None:
    """The messages of a pop; None if they need a closer look."""
    if (
        _native is None
        or answer.revive_qid == ORDER_REVIVE_QUEUE
        or not 0 < len(answer.body) <= _MAX_FRAMED_BYTES
        or " " in broker_name
    ):
        return None
    receipts = _native.ReceiptMaker(
        b"%d %d %d" % (answer.pop_time, answer.invisible_time, answer.revive_qid),
        broker_name.encode(),
        decode_start_offsets(answer.start_offset_info or ""),
        decode_offsets(answer.msg_offset_info or ""),
    )
    found = _native.received(
        answer.body,
        _Resource(name=topic).SerializeToString(),
        receipts,
        _NOT_SHOWN,
        _UNUSUAL,
        None if wanted is None or wanted.wants_all else frozenset(tag.encode() for tag in wanted.tags),
        max_retries,
    )
    return Framed(*found) if found is not None else None


_MAX_FRAMED_BYTES = 1024 * 1024
"""More is sent message by message, each when the client has read the one before."""

_HIDDEN = frozenset(
    (
        props.SHARDING_KEY,
        props.TRACE_CONTEXT,
        props.TRANSACTION_ID,
        props.TRANSACTION_CHECK_TIMES,
        props.CHECK_IMMUNITY_TIME_IN_SECONDS,
        props.INNER_MULTI_DISPATCH,
    )
)


_NOT_SHOWN = frozenset(name.encode() for name in props.RESERVED_NAMES | _HIDDEN)
_UNUSUAL = frozenset(
    name.encode()
    for name in (
        props.TRACE_CONTEXT,
        props.TIMER_DELIVER_MS,
        props.PRIORITY,
        props.LITE_TOPIC,
        props.POP_CK,
        props.DLQ_ORIGIN_TOPIC,
    )
)
"""Properties that only `received` knows."""


def _body(stored: StoredMessage) -> bytes:
    """The body as it was stored if clients can unpack it, else unpacked: they know gzip only.

    Every sender can mark any body as compressed. That must not keep the other messages from a client.
    """
    if not stored.sys_flag & SysFlag.COMPRESSED or stored.body[:2] == _GZIP_MAGIC or not stored.body:
        return stored.body
    try:
        return decompress(stored.body, compression_of(stored.sys_flag))
    except RemoteProtocolError as problem:
        _log.warning("a body is delivered as it was stored topic=%s: %s", stored.topic, problem)
        return stored.body


def _type_of(properties: dict[str, str]) -> str:
    if props.TRANSACTION_PREPARED in properties:
        return "TRANSACTION"
    if props.TIMER_DELIVER_MS in properties or props.DELAY in properties:
        return "DELAY"
    if props.SHARDING_KEY in properties:
        return "FIFO"
    if props.PRIORITY in properties:
        return "PRIORITY"
    return "LITE" if props.LITE_TOPIC in properties else "NORMAL"
