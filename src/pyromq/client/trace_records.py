"""Trace records: one text for each event of a message, as Java clients write and read it."""

from enum import IntEnum
from typing import Final

FIELD: Final = "\x01"
RECORD: Final = "\x02"


class MessageKind(IntEnum):
    """java: written as its ordinal."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAYED = 3
    ORDERED = 4


def encode_record(*fields: object) -> str:
    """One record, with values written as Java writes them."""
    return FIELD.join(map(_text, fields)) + RECORD


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, IntEnum) else str(value)


def sent_record(
    *,
    at_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    body_bytes: int,
    cost_ms: int,
    kind: MessageKind,
    offset_message_id: str,
    is_ok: bool,
) -> str:
    """A message was sent."""
    what = (topic, message_id, tags, keys, store_host, body_bytes, cost_ms, kind, offset_message_id, is_ok)
    return encode_record("Pub", at_ms, region, group, *what)


def ended_record(
    *,
    at_ms: int,
    region: str,
    group: str,
    topic: str,
    message_id: str,
    tags: str | None,
    keys: str | None,
    store_host: str,
    transaction_id: str | None,
    state: str,
    is_check: bool,
) -> str:
    """A transaction ended, or was checked."""
    what = (topic, message_id, tags, keys, store_host, MessageKind.TRANSACTION_COMMIT, transaction_id)
    return encode_record("EndTransaction", at_ms, region, group, *what, state, is_check)


def consuming_record(
    *, at_ms: int, region: str, group: str, request_id: str, message_id: str, retries: int, keys: str | None
) -> str:
    """A message is about to be consumed."""
    return encode_record("SubBefore", at_ms, region, group, request_id, message_id, retries, keys)


def consumed_record(
    *,
    at_ms: int,
    group: str,
    request_id: str,
    message_id: str,
    cost_ms: int,
    is_ok: bool,
    keys: str | None,
    outcome: int,
) -> str:
    """A message was consumed. `outcome`: 0 success, 1 timed out, 2 raised, 3 returned nothing, 4 failed."""
    return encode_record("SubAfter", request_id, message_id, cost_ms, is_ok, keys, outcome, at_ms, group)
