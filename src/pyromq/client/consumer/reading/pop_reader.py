"""Pops from one queue, or from any queue of a broker, while the thresholds allow, and delivers."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyromq.chance import token
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.reading.queue_reader import QueueReader, ReaderOwner, ReadingContext, Source
from pyromq.client.values import ReceivedMessage
from pyromq.errors import PyroError
from pyromq.protocol.body import MessageQueue

_WAIT_S = 15.0


class PoppedInFlight(InFlight[ReceivedMessage]):
    """Messages of any queues: each is done by itself, and the broker knows where the group is."""

    def put(self, messages: Iterable[ReceivedMessage], next_offset: int) -> None:
        for message in messages:
            self._messages[id(message)] = message
            self.size_bytes += message.body_bytes
        self.last_pull_ms = self._clock.now_ms()

    def done(self, message: ReceivedMessage) -> None:
        if self._messages.pop(id(message), None) is not None:
            self._let_go(message.body_bytes)

    def done_all(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            self.done(message)

    @property
    def committable(self) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class PopSource(Source):
    """Brokers hand messages out. `limit` and `invisible_s` are those of each pop, `abandon` gets what arrives
    late. With `by_queue` the messages of a queue come in order: at most `limit` of them are held."""

    popping: PopReading
    limit: int
    invisible_s: float
    abandon: Callable[[list[PoppedMessage]], None]

    def open(
        self, queue: MessageQueue, offset: int, owner: ReaderOwner, reading: ReadingContext
    ) -> QueueReader:
        return PopReader(queue, owner, reading, self)


class PopReader(QueueReader):
    def __init__(
        self, queue: MessageQueue, owner: ReaderOwner, reading: ReadingContext, source: PopSource
    ) -> None:
        super().__init__(queue, 0, owner, reading)
        self.held = PoppedInFlight(queue, 0, source.thresholds(1), reading.clock)
        self._source = source
        self._asked: asyncio.Task[list[PoppedMessage]] | None = None
        self._attempt_id: str | None = None

    async def _read(self) -> None:
        held, reading = self.held, self._reading
        while True:
            await self._resumed.wait()
            await (held.wait_until_empty() if self._source.by_queue else held.wait_for_room())
            try:
                self._asked = asyncio.create_task(self._pop(), name=f"pop {self.queue}")
                messages = await asyncio.shield(self._asked)
            except PyroError as problem:
                await self._pause_after(problem)
                continue
            self._asked = None
            if self._failures:
                self._failures = 0
                reading.troubles.broker_answered(self.queue)
            if not messages:
                await self._pause_in_a_circle()
                continue
            self._circles = 0
            received: list[ReceivedMessage] = [*messages]
            held.put(received, 0)
            reading.deliver(self, received)
            if self._source.interval_s:
                await asyncio.sleep(self._source.interval_s)

    async def stop(self) -> None:
        """Stop popping; a pop that waits at the broker cannot be taken back."""
        await super().stop()
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.add_done_callback(self._arrived_late)

    def _arrived_late(self, asked: "asyncio.Task[list[PoppedMessage]]") -> None:
        if not asked.cancelled() and asked.exception() is None and asked.result():
            self._source.abandon(asked.result())

    async def _pop(self) -> list[PoppedMessage]:
        started = self._clock.monotonic()
        queue = self.queue
        if self._source.by_queue and self._attempt_id is None:
            self._attempt_id = token(16)
        messages = await self._source.popping.pop(
            queue.broker_name,
            self.subscription,
            self._source.limit,
            self._source.invisible_s,
            _WAIT_S,
            queue.queue_id,
            self._attempt_id,
        )
        self._attempt_id = None  # the answer has arrived
        self.pulled_at = self._clock.monotonic()
        self._pull_s = self.pulled_at - started
        total = self._reading.stats.of(self.subscription.topic).total
        total.pulls += 1
        total.pull_ms += self._pull_s * 1000
        total.pulled += len(messages)
        return messages
