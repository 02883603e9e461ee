"""Several messages in one request: a list from the application, or single messages sent at the same time.

All messages of a batch have the same topic and the same `wait_stored`. A message that is delayed, compressed,
sent to a retry topic, or part of a transaction is never batched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from pyromq.client.plain_entries import EncodedEntry
from pyromq.client.prepared_messages import PreparedMessage
from pyromq.errors import BadMessage
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import MIN_ENTRY_SIZE, add_entry
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2


def entry_bytes(message: PreparedMessage) -> int:
    """The size of the message in a batch; exact, or slightly too large."""
    properties = message.properties
    size_bytes = len(properties) if properties.isascii() else len(properties.encode())
    return MIN_ENTRY_SIZE + len(message.body) + size_bytes


def batching_problem(message: PreparedMessage) -> str | None:
    """Why a message cannot be in a batch, if it cannot."""
    if message.is_delayed:
        return "a delayed message cannot be in a batch"
    if props.PRIORITY in message.properties:
        return "a message with a priority cannot be in a batch"
    if names.is_retry_topic(message.topic):
        return "a message to a retry topic cannot be in a batch"
    if message.kind is not SendMessageV2 or message.sys_flag:
        return "only plain messages can be in a batch"
    return None


def check_batch(messages: Sequence[PreparedMessage]) -> None:
    """Raises BadMessage for messages that cannot be in one batch."""
    if not messages:
        raise BadMessage("the batch is empty")
    topics = {message.topic for message in messages}
    if len(topics) > 1:
        raise BadMessage(f"all messages of a batch must have the same topic, not {', '.join(sorted(topics))}")
    if len({message.wait_stored for message in messages}) > 1:
        raise BadMessage("all messages of a batch must have the same wait_stored")
    for message in messages:
        if (problem := batching_problem(message)) is not None:
            raise BadMessage(problem)


def split(messages: Iterable[PreparedMessage], max_bytes: int) -> list[list[PreparedMessage]]:
    """The same messages in the same order, in parts that each fit into a request."""
    parts: list[list[PreparedMessage]] = []
    left_bytes = 0
    for message in messages:
        size_bytes = entry_bytes(message)
        if size_bytes > left_bytes:
            parts.append([])
            left_bytes = max_bytes
        parts[-1].append(message)
        left_bytes -= size_bytes
    return parts


def encode_batch(messages: Sequence[PreparedMessage | EncodedEntry]) -> PreparedMessage:
    """One message to send that holds them all."""
    first = messages[0]
    entries: list[bytes] = []
    for message in messages:
        if isinstance(message, EncodedEntry):
            entries.append(message.entry)
        else:
            add_entry(entries, message.body, message.properties.encode(), message.flag)
    body = b"".join(entries)
    # java: brokers append these to the properties of every message inside, where a unique key of the batch
    # would win over those of the messages
    properties = "" if first.wait_stored else f"{props.WAIT}{NAME_SEPARATOR}false{PAIR_SEPARATOR}"
    return PreparedMessage(
        first.topic,
        body,
        properties,
        first.unique_key,
        first.born_ms,
        wait_stored=first.wait_stored,
        plain_bytes=len(body),
        kind=SendMessageBatch,
    )


R = TypeVar("R")

_Key: TypeAlias = tuple[str, MessageQueue | None, bool, str | None]
"""What messages must have in common to share a batch: topic, queue, `wait_stored`, tags."""


class SendBatch(Generic[R]):
    """A batch that is being filled, and the futures of its messages."""

    __slots__ = ("encoded", "encoded_bytes", "futures", "messages", "size_bytes", "timer")

    def __init__(self) -> None:
        self.messages: list[PreparedMessage | EncodedEntry] = []
        self.futures: list[asyncio.Future[R]] = []
        self.size_bytes = 0
        self.encoded = 0
        """How many of the messages are an `EncodedEntry`."""
        self.encoded_bytes = 0
        self.timer: asyncio.Handle | None = None


class Accumulator(Generic[R]):
    """Collects messages for a moment and sends them together; each gets its own result.

    `deliver` sends the messages of one batch and returns a result for each. `left` is told how many
    `EncodedEntry` messages, of how many bytes, are no longer in flight.
    """

    def __init__(
        self,
        deliver: Callable[
            [list[PreparedMessage | EncodedEntry], MessageQueue | None], Awaitable[Sequence[R]]
        ],
        *,
        linger_s: float,
        max_bytes: int,
        left: Callable[[int, int], None] = lambda count, size_bytes: None,
    ) -> None:
        self._deliver = deliver
        self._left = left
        self._linger_s = linger_s
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._filling: dict[_Key, SendBatch[R]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self.batches = 0
        self.messages = 0

    def __repr__(self) -> str:
        return (
            f"<Accumulator filling={len(self._filling)} delivering={len(self._deliveries)} "
            f"batches={self.batches} messages={self.messages}>"
        )

    def maybe_add(self, message: PreparedMessage, queue: MessageQueue | None) -> "asyncio.Future[R] | None":
        """The future result; None for a message that must be sent alone."""
        size_bytes = entry_bytes(message)
        if size_bytes > self._max_bytes or batching_problem(message) is not None:
            return None
        key = (message.topic, queue, message.wait_stored, message.tags)
        return self.add(key, message, size_bytes)

    def add(self, key: _Key, message: PreparedMessage | EncodedEntry, size_bytes: int) -> "asyncio.Future[R]":
        """The future result; the caller has checked that the message may be batched and fits."""
        batch = self._filling.get(key)
        if batch is None or batch.size_bytes + size_bytes > self._max_bytes:
            batch = self._begin(key)
        future: asyncio.Future[R] = self._loop.create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size_bytes += size_bytes
        if type(message) is EncodedEntry:
            batch.encoded += 1
            batch.encoded_bytes += size_bytes
        if batch.size_bytes >= self._max_bytes:
            self._flush(key)
        return future

    def _begin(self, key: _Key) -> SendBatch[R]:
        """A new batch; the one before it is sent."""
        if key in self._filling:
            self._flush(key)
        batch = self._filling[key] = SendBatch()
        if self._linger_s > 0:
            batch.timer = self._loop.call_later(self._linger_s, self._flush, key)
        else:
            # Messages of the same turn of the loop share a batch.
            batch.timer = self._loop.call_soon(self._flush, key)
        return batch

    def flush(self, topic: str | None = None) -> None:
        """Send the batches of a topic, or all of them, now."""
        for key in list(self._filling):
            if topic is None or key[0] == topic:
                self._flush(key)

    async def close(self) -> None:
        self.flush()
        await asyncio.gather(*self._deliveries)

    def _flush(self, key: _Key) -> None:
        batch = self._filling.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        task = self._loop.create_task(self._send(batch, key[1]))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _send(self, batch: SendBatch[R], queue: MessageQueue | None) -> None:
        messages, futures = batch.messages, batch.futures
        if any(map(asyncio.Future.done, futures)):
            # Messages whose caller was cancelled meanwhile are not sent.
            wanted = [each for each in zip(messages, futures, strict=True) if not each[1].done()]
            messages, futures = [message for message, _ in wanted], [future for _, future in wanted]
        try:
            if messages:
                await self._send_messages(messages, futures, queue)
        finally:
            if batch.encoded:
                self._left(batch.encoded, batch.encoded_bytes)

    async def _send_messages(
        self,
        messages: list[PreparedMessage | EncodedEntry],
        futures: "list[asyncio.Future[R]]",
        queue: MessageQueue | None,
    ) -> None:
        self.batches += 1
        self.messages += len(messages)
        try:
            results = await self._deliver(messages, queue)
        except asyncio.CancelledError:
            for future in futures:
                future.cancel()
            raise
        except Exception as problem:
            for future in futures:
                if not future.done():
                    future.set_exception(problem)
        else:
            for future, result in zip(futures, results, strict=True):
                if not future.done():
                    future.set_result(result)
