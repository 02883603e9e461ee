"""Trace records: one text for each event of a message, as Java clients write and read it."""

from enum import IntEnum
from typing import ClassVar, Final

import msgspec

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


class TraceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a message. The fields are in the order in which Java writes them."""

    EVENT: ClassVar[str]

    def text(self) -> str:
        return encode_record(self.EVENT, *msgspec.structs.astuple(self))


class SentRecord(TraceRecord, frozen=True, kw_only=True):
    """A message was sent."""

    EVENT = "Pub"
    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: MessageKind
    offset_message_id: str
    is_ok: bool


class EndedRecord(TraceRecord, frozen=True, kw_only=True):
    """A transaction ended, or was checked."""

    EVENT = "EndTransaction"
    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    kind: MessageKind = MessageKind.TRANSACTION_COMMIT
    transaction_id: str | None
    state: str
    is_check: bool


class ConsumingRecord(TraceRecord, frozen=True, kw_only=True):
    """A message is about to be consumed."""

    EVENT = "SubBefore"
    at_ms: int
    region: str
    group: str
    request_id: str
    message_id: str
    retries: int
    keys: str | None


class ConsumedRecord(TraceRecord, frozen=True, kw_only=True):
    """A message was consumed. `outcome`: 0 success, 1 timed out, 2 raised, 3 returned nothing, 4 failed."""

    EVENT = "SubAfter"
    request_id: str
    message_id: str
    cost_ms: int
    is_ok: bool
    keys: str | None
    outcome: int
    at_ms: int
    group: str
