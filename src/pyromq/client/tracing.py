"""Message traces: records of what was sent and consumed, sent as messages to the trace topic.

Traces never hold up messages: records that cannot be sent are dropped, counted and logged.
"""

import asyncio
import itertools
import logging
from collections.abc import Iterable
from typing import Final, Literal

from pyromq.client.prepared_messages import MessagePreparer
from pyromq.client.producer_settings import ProducerSettings
from pyromq.client.sending import Sender
from pyromq.client.session import Session
from pyromq.client.troubles import Troubles
from pyromq.client.values import Message
from pyromq.errors import PyroError
from pyromq.protocol import names

_log = logging.getLogger(__name__)

RECORDS_PER_MESSAGE: Final = 10
MAX_WAITING: Final = 2048
FLUSH_AFTER_S: Final = 5.0
_MAX_MESSAGE_BYTES: Final = 128_000
_SEND_TIMEOUT_S: Final = 5.0

_numbers = itertools.count(1)


class Tracing:
    """Collects trace records and sends several in one message."""

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
        self._sender = Sender(session, own_group, ProducerSettings(send_timeout_s=_SEND_TIMEOUT_S))
        self._preparer = MessagePreparer(max_bytes=_MAX_MESSAGE_BYTES)
        self._records: list[tuple[str, tuple[str, ...]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._deliveries: set[asyncio.Task[None]] = set()
        self._troubles = Troubles(_log)
        self.dropped = 0

    def __repr__(self) -> str:
        return f"<Tracing {self.topic} waiting={len(self._records)} dropped={self.dropped}>"

    def report(self, record: str, keys: Iterable[str]) -> None:
        """`keys`: what operators search for, among them the message's id."""
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
            prepared = self._preparer.prepare(message, self._session.unique_keys.next(now_ms), now_ms)
            await self._sender.send(prepared, self._sender.plan())
        except PyroError as problem:
            self.dropped += len(records)
            self._troubles.happened("send", problem, "traces not sent topic=%s", self.topic)
        else:
            self._troubles.ended("send", "traces sent again topic=%s", self.topic)
