"""Refusals: what a message must be like to be stored, and what its sender is told if it is not."""

from collections.abc import Sequence
from typing import Final

from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.names import RETRY_PREFIX
from pyromq.protocol.properties import PROPERTIES_LIMIT_BYTES
from pyromq.store.filenames import can_be_directory
from pyromq.store.results import AppendResult, AppendStatus

_TOPIC_LIMIT_BYTES: Final = 127
_RETRY_TOPIC_LIMIT_BYTES: Final = 255


def refuse_queue(topic: str, queue_id: int) -> AppendResult | None:
    """None if there can be such a queue."""
    limit = _RETRY_TOPIC_LIMIT_BYTES if topic.startswith(RETRY_PREFIX) else _TOPIC_LIMIT_BYTES
    try:
        length = len(topic.encode())
    except UnicodeEncodeError:
        return illegal(f"topic {topic!r} is not text")
    if not 0 < length <= limit:
        return illegal(f"a topic of {length} bytes; allowed are 1 to {limit}")
    if not can_be_directory(topic):
        return illegal(f"topic {topic!r} cannot be a file name")
    if not 0 <= queue_id < 1 << 31:
        return illegal(f"queue id {queue_id} is out of range")
    return None


def too_large(body_bytes: int, properties_bytes: int, max_body_bytes: int) -> AppendResult:
    if properties_bytes > PROPERTIES_LIMIT_BYTES:
        return AppendResult(
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
            reason=f"{properties_bytes} bytes of properties are more than {PROPERTIES_LIMIT_BYTES}",
        )
    return illegal(f"a body of {body_bytes} bytes is larger than {max_body_bytes}")


def refuse_batch(entries: Sequence[BatchEntry], sys_flag: int, max_bytes: int) -> AppendResult | None:
    """None if it can be stored."""
    if not entries:
        return illegal("a batch without messages")
    if sys_flag & 0xC:
        return illegal("a batch cannot be part of a transaction")
    for entry in entries:
        if len(entry.properties) > PROPERTIES_LIMIT_BYTES:
            return too_large(0, len(entry.properties), max_bytes)
    total = sum(len(entry.body) + len(entry.properties) for entry in entries)
    if total > max_bytes:
        return illegal(f"a batch of {total} bytes is larger than {max_bytes}")
    return None


def illegal(reason: str) -> AppendResult:
    return AppendResult(AppendStatus.MESSAGE_ILLEGAL, reason=reason)
