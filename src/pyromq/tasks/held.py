"""Messages that a worker has, waiting or worked on: each is renewed until it is settled.

A worker that lives keeps its messages for days. Those of a dead one are delivered again when their time is
over.
"""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, NamedTuple

from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.errors import PyroError

_log = logging.getLogger(__name__)

_SOON_S = 0.01


class Held(NamedTuple):
    consumer: SimpleConsumer
    message: PoppedMessage


class HeldMessages:
    """Used on one event loop; the key of a message is up to the caller."""

    def __init__(self, invisible_s: float) -> None:
        self._invisible_s = invisible_s
        self._held: dict[int, Held] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<HeldMessages {len(self)}>"

    def __len__(self) -> int:
        return len(self._held)

    def add(self, key: int, consumer: SimpleConsumer, message: PoppedMessage) -> None:
        self._held[key] = Held(consumer, message)
        if self._renewal is None:
            self._renewal = asyncio.create_task(self._renew(), name="renew tasks")

    def take(self, key: int) -> Held | None:
        """No longer held, and not settled here."""
        return self._held.pop(key, None)

    def ack(self, key: int) -> None:
        if held := self.take(key):
            held.consumer.ack_soon(held.message)

    def show(self, key: int, after_s: float = _SOON_S) -> None:
        """Give it back: it is delivered again, to any worker."""
        if held := self.take(key):
            self.start(show(*held, after_s))

    def reject(self, key: int, reason: str) -> None:
        """Make it a dead letter."""
        if held := self.take(key):
            self.start(reject(*held, reason))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done; `close` waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give back what is left."""
        for key in list(self._held):
            self.show(key)
        if self._renewal is not None:
            self._renewal.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._invisible_s / 3)
            by_consumer: dict[SimpleConsumer, list[PoppedMessage]] = {}
            for held in self._held.values():
                by_consumer.setdefault(held.consumer, []).append(held.message)
            for consumer, messages in by_consumer.items():
                await consumer.renew(messages, invisible_s=self._invisible_s)


async def show(consumer: SimpleConsumer, message: PoppedMessage, after_s: float = _SOON_S) -> None:
    try:
        await consumer.change_invisible_time(message, after_s)
    except PyroError as problem:
        _log.info("task is visible later id=%s: %s", message.message_id, problem)


async def reject(consumer: SimpleConsumer, message: PoppedMessage, reason: str) -> None:
    try:
        await consumer.reject(message, reason)
    except PyroError as problem:
        _log.warning("rejected task comes again id=%s: %s", message.message_id, problem)
