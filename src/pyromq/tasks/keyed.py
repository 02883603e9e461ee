"""A topic as a table: a record is a message with a key, and the newest one counts.

A record is there as long as the broker keeps messages, or for `lives_s`. Forgetting one is a message, too.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Unpack

from pyromq.client.producer import Producer
from pyromq.client.producer_settings import ProducerOptions
from pyromq.client.reader import Reader
from pyromq.client.values import Message, ReceivedMessage
from pyromq.clock import clock_of
from pyromq.errors import Refused

FORGOTTEN = "FORGOTTEN"


class KeyedTopic:
    """`client`: what clients are given, name servers included. Used on one event loop."""

    def __init__(
        self,
        topic: str,
        client: Mapping[str, Any],
        *,
        queues: int = 8,
        lives_s: float | None = None,
        **producer: Unpack[ProducerOptions],
    ) -> None:
        self.topic = topic
        self._queues = queues
        self._lives_s = lives_s
        self.producer = Producer(f"{topic}-PRODUCERS", **client, **producer)
        self._reader = Reader(topic, **client)

    def __repr__(self) -> str:
        return f"<KeyedTopic {self.topic}>"

    async def start(self) -> None:
        try:
            await self.producer.start()
            with suppress(Refused):  # an account may not create topics: then it is there, or the reader fails
                await self.producer.declare_topic(self.topic, queues=self._queues)
            await self._reader.start()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        await self._reader.close()
        await self.producer.close()

    async def put(
        self, key: str, body: bytes, tag: str | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        message = Message(self.topic, body, tags=tag, keys=key, properties=properties or {})
        await self.producer.send(message, sharding_key=key)

    async def forget(self, key: str) -> None:
        await self.put(key, b"-", FORGOTTEN)

    async def find(self, key: str) -> list[ReceivedMessage]:
        """The newest records of the key, newest first, up to the time when it was forgotten."""
        found = await self._reader.find(key)
        since_ms = 0 if self._lives_s is None else _now_ms() - round(self._lives_s * 1000)
        ends = (at for at, each in enumerate(found) if each.tags == FORGOTTEN or each.stored_ms < since_ms)
        return found[: next(ends, len(found))]

    async def is_forgotten(self, key: str) -> bool:
        """Whether the newest record says so."""
        found = await self._reader.find(key, 1)
        return bool(found) and found[0].tags == FORGOTTEN


def _now_ms() -> int:
    return clock_of(asyncio.get_running_loop()).now_ms()
