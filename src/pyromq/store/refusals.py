"""Refusals: the checks of a message before it is stored, and the reasons that its sender gets."""

from collections.abc import Sequence
from typing import Final

from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.properties import INNER_MULTI_QUEUE_OFFSET, PROPERTIES_LIMIT_BYTES, get_property
from pyromq.store.filenames import can_be_directory
from pyromq.store.results import AppendResult, AppendStatus

_TOPIC_LIMIT_BYTES: Final = 127
_RETRY_TOPIC_LIMIT_BYTES: Final = 255


def refuse_queue(topic: str, queue_id: int) -> AppendResult | None:
    """The reason why a queue is impossible; None if it is possible."""
    limit = _RETRY_TOPIC_LIMIT_BYTES if topic.startswith(RETRY_PREFIX) else _TOPIC_LIMIT_BYTES
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        return illegal(f"topic {topic!r} is not valid Unicode")
    if not 0 < length <= limit:
        return illegal(f"the topic has {length} bytes; expected 1 to {limit}")
    if not can_be_directory(topic):
        return illegal(f"topic {topic!r} cannot be a directory name")
    if not 0 <= queue_id < 1 << 31:
        return illegal(f"queue id {queue_id} is out of range; expected 0 to {(1 << 31) - 1}")
    return None


def too_large(body_bytes: int, properties_bytes: int, max_body_bytes: int) -> AppendResult:
    if properties_bytes > PROPERTIES_LIMIT_BYTES:
        return AppendResult(
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            reason=f"the properties have {properties_bytes} bytes; the maximum is {PROPERTIES_LIMIT_BYTES}",
        )
    return illegal(f"the body has {body_bytes} bytes; the maximum is {max_body_bytes}")


def refuse_batch(entries: Sequence[BatchEntry], sys_flag: int, max_bytes: int) -> AppendResult | None:
    """The reason why a batch cannot be stored; None if it can."""
    if not entries:
        return illegal("the batch has no messages")
    if sys_flag & 0xC:
        return illegal("a batch cannot be part of a transaction")
    for entry in entries:
        if len(entry.properties) > PROPERTIES_LIMIT_BYTES:
            return too_large(0, len(entry.properties), max_bytes)
    total = sum(len(entry.body) + len(entry.properties) for entry in entries)
    if total > max_bytes:
        return illegal(f"the batch has {total} bytes; the maximum is {max_bytes}")
    return None


def refuse_places(entries: Sequence[BatchEntry]) -> AppendResult | None:
    """Messages of a batch enter no light queues. One that names its place there would move others."""
    for entry in entries:
        if get_property(entry.properties, INNER_MULTI_QUEUE_OFFSET) is not None:
            return illegal(f"a message of a batch cannot have the property {INNER_MULTI_QUEUE_OFFSET}")
    return None


def illegal(reason: str) -> AppendResult:
    return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)
