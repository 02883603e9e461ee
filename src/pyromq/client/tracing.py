"""Reports about messages, sent as messages: what was sent, what was consumed, how it went.

Reports are worth less than what they are about: when they cannot be sent they are dropped, and said to be.
"""

import asyncio
import itertools
import logging
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Literal

from pyromq.client.letters import LetterWriter
from pyromq.client.sending import Sender, SendPolicy
from pyromq.client.session import Session
from pyromq.client.values import Message
from pyromq.errors import PyroError
from pyromq.protocol import names

_log = logging.getLogger(__name__)

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"

RECORDS_PER_MESSAGE: Final = 10
MAX_WAITING: Final = 2048
FLUSH_AFTER_S: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 128_000
_SEND_TIMEOUT_S: Final = 5.0

_numbers = itertools.count(1)


class MessageKind(IntEnum):
    """java: by its ordinal."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAYED = 3
    ORDERED = 4


def encode_record(*fields: object) -> str:
    """One report, as Java writes values."""
    return _FIELD.join(map(_text, fields)) + _RECORD


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
    """A transaction ended, or was asked about."""
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


class Tracing:
    """Collects reports and sends them in bundles."""

    def __init__(
        self,
        session: Session,
        group: str,
        role: Literal["PRODUCE", "CONSUME"],
        topic: str = names.TRACE_TOPIC,
    ) -> None:
        self.topic = topic
        self._session = session
        self._loop = asyncio.get_running_loop()
        own_group = f"_INNER_TRACE_PRODUCER-{group}-{role}-{next(_numbers)}"
        self._sender = Sender(session, own_group, SendPolicy(timeout_s=_SEND_TIMEOUT_S))
        self._writer = LetterWriter(max_bytes=_MAX_MESSAGE_BYTES)
        self._records: list[tuple[str, tuple[str, ...]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<Tracing {self.topic} waiting={len(self._records)} dropped={self.dropped}>"

    def report(self, record: str, keys: Iterable[str]) -> None:
        """`keys`: what an operator will look for, the message's id among it."""
        if len(self._records) + RECORDS_PER_MESSAGE * len(self._deliveries) >= MAX_WAITING:
            self.dropped += 1
            return
        self._records.append((record, tuple(keys)))
        if len(self._records) >= RECORDS_PER_MESSAGE:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_AFTER_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._records:
            return
        records, self._records = self._records, []
        task = self._loop.create_task(self._send(records))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def close(self) -> None:
        self.flush()
        await asyncio.gather(*self._deliveries)

    async def _send(self, records: list[tuple[str, tuple[str, ...]]]) -> None:
        keys = dict.fromkeys(key for _, each in records for key in each if key)
        message = Message(self.topic, "".join(text for text, _ in records).encode(), keys=" ".join(keys))
        now_ms = self._session.clock.now_ms()
        try:
            letter = self._writer.write(message, self._session.unique_keys.next(now_ms), now_ms)
            await self._sender.send(letter)
        except PyroError as problem:
            self.dropped += len(records)
            _log.warning("trace not sent topic=%s records=%d: %s", self.topic, len(records), problem)
