"""Several messages in one request: a list from the application, or single messages sent at the same time.

All messages of a batch have the same topic and the same `wait_stored`. A message that is delayed, compressed,
sent to a retry topic, or part of a transaction is never batched.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import BadMessage
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import MIN_ENTRY_SIZE, add_entry
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2

if TYPE_CHECKING:
    from pyromq_native.client.fast_batches import PlainBatch


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
    if props.LITE_TOPIC in message.properties:
        return "a message of a lite topic cannot be in a batch"
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


def encode_batch(messages: Sequence[PreparedMessage]) -> PreparedMessage:
    """One message to send that holds them all."""
    first = messages[0]
    entries: list[bytes] = []
    for message in messages:
        add_entry(entries, message.body, message.properties.encode(), message.flag)
    # java: brokers append these to the properties of every message inside, where a unique key of the batch
    # would win over those of the messages
    properties = "" if first.wait_stored else f"{props.WAIT}{NAME_SEPARATOR}false{PAIR_SEPARATOR}"
    return batch_request(
        first.topic,
        b"".join(entries),
        properties,
        first.unique_key,
        first.born_ms,
        wait_stored=first.wait_stored,
    )


def batch_request(
    topic: str, body: bytes, properties: str, unique_key: str, born_ms: int, *, wait_stored: bool = True
) -> PreparedMessage:
    """The message to send for a batch; `body` has its messages."""
    return PreparedMessage(
        topic,
        body,
        properties,
        unique_key,
        born_ms,
        wait_stored=wait_stored,
        kind=SendMessageBatch,
    )


def offset_ids(text: str, count: int) -> list[str]:
    """The ids in the store of the messages of a batch, which a broker writes in one text."""
    ids = text.split(",")
    # java: a batch queue has one id for all messages of a batch
    return ids if len(ids) == count else [text] * count


R = TypeVar("R")

_Key: TypeAlias = MessageQueue | tuple[str, bool, str | None]
"""The key of a batch: messages of a chosen queue, whose order counts, share one; others if they have the same
topic, `wait_stored` and tags."""


class SendBatch(Generic[R]):
    """A batch that is being filled, and the futures of its messages."""

    __slots__ = ("futures", "is_closed", "messages", "queue", "size_bytes", "timer", "topic", "wait_stored")

    def __init__(self, topic: str, queue: MessageQueue | None, *, wait_stored: bool) -> None:
        self.topic = topic
        self.queue = queue
        self.wait_stored = wait_stored
        self.messages: list[PreparedMessage] = []
        self.futures: list[asyncio.Future[R]] = []
        self.size_bytes = 0
        self.timer: asyncio.Handle | None = None
        self.is_closed = False

    def __len__(self) -> int:
        return len(self.messages)

    def drop_cancelled(self) -> None:
        """Leave out messages whose caller was cancelled meanwhile."""
        wanted = [each for each in zip(self.messages, self.futures, strict=True) if not each[1].done()]
        if len(wanted) < len(self.futures):
            self.messages, self.futures = [message for message, _ in wanted], [future for _, future in wanted]

    def settle(self, results: Sequence[R]) -> None:
        for future, result in zip(self.futures, results, strict=True):
            if not future.done():
                future.set_result(result)

    def fail(self, problem: BaseException) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(problem)

    def cancel(self) -> None:
        for future in self.futures:
            future.cancel()


class Accumulator(Generic[R]):
    """Collects messages for a moment and sends them together; each gets its own result.

    `deliver` sends the messages of one batch and returns a result for each; `deliver_plain` sends a batch
    that the compiled core has filled, and settles it. `left` gets the number of messages of such a batch that
    are no longer in flight, and their bytes. `quickly` sends such a batch without a task, or declines it.
    """

    def __init__(
        self,
        deliver: Callable[[list[PreparedMessage], MessageQueue | None], Awaitable[Sequence[R]]],
        *,
        linger_s: float,
        max_bytes: int,
        deliver_plain: "Callable[[PlainBatch], Awaitable[None]] | None" = None,
        left: Callable[[int, int], None] = lambda count, size_bytes: None,
    ) -> None:
        self._deliver = deliver
        self._deliver_plain = deliver_plain
        self._left = left
        self.quickly: Callable[[PlainBatch], bool] = lambda batch: False
        self._linger_s = linger_s
        self._max_bytes = max_bytes
        self._loop = asyncio.get_running_loop()
        self._filling: dict[Hashable, SendBatch[R] | PlainBatch] = {}
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
        key: _Key = queue or (message.topic, message.wait_stored, message.tags)
        batch = self._filling.get(key)
        if (
            not isinstance(batch, SendBatch)
            or batch.size_bytes + size_bytes > self._max_bytes
            or batch.wait_stored is not message.wait_stored
        ):
            if batch is not None:
                self._flush(key)
            batch = SendBatch(message.topic, queue, wait_stored=message.wait_stored)
            self._begin(key, batch)
        future: asyncio.Future[R] = self._loop.create_future()
        batch.messages.append(message)
        batch.futures.append(future)
        batch.size_bytes += size_bytes
        if batch.size_bytes >= self._max_bytes:
            self._flush(key)
        return future

    def begin_plain(self, batch: "PlainBatch") -> None:
        """The compiled core begins to fill this batch."""
        self._begin(batch, batch)

    def _begin(self, key: Hashable, batch: "SendBatch[R] | PlainBatch") -> None:
        self._filling[key] = batch
        if self._linger_s > 0:
            batch.timer = self._loop.call_later(self._linger_s, self._flush, key)
        else:
            # Messages of the same turn of the loop share a batch.
            batch.timer = self._loop.call_soon(self._flush, key)

    def flush(self, topic: str | None = None) -> None:
        """Send the batches of a topic, or all of them, now."""
        for key, batch in list(self._filling.items()):
            if topic is None or batch.topic == topic:
                self._flush(key)

    async def close(self) -> None:
        self.flush()
        await asyncio.gather(*self._deliveries)

    def _flush(self, key: Hashable) -> None:
        batch = self._filling.pop(key)
        batch.is_closed = True
        if batch.timer is not None:
            batch.timer.cancel()
            batch.timer = None
        if isinstance(batch, SendBatch) or not self.quickly(batch):
            self.finish(batch, partial(self._send, batch))

    flush_plain = _flush

    def finish(
        self, batch: "SendBatch[R] | PlainBatch", sending: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Have a task settle a batch by `sending` it."""
        task = self._loop.create_task(self._finish(batch, sending))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _finish(
        self, batch: "SendBatch[R] | PlainBatch", sending: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        try:
            await sending()
        except asyncio.CancelledError:
            batch.cancel()
            raise
        except Exception as problem:
            batch.fail(problem)
        finally:
            if not isinstance(batch, SendBatch):
                self.leave(batch)

    async def _send(self, batch: "SendBatch[R] | PlainBatch") -> None:
        batch.drop_cancelled()
        if not len(batch):
            return
        self.count(batch)
        if isinstance(batch, SendBatch):
            batch.settle(await self._deliver(batch.messages, batch.queue))
        else:
            assert self._deliver_plain is not None
            await self._deliver_plain(batch)

    def count(self, batch: "SendBatch[R] | PlainBatch") -> None:
        """The batch is sent, without the messages whose callers were cancelled."""
        self.batches += 1
        self.messages += len(batch)

    def leave(self, batch: "PlainBatch") -> None:
        """The batch is settled."""
        self._left(batch.entered, batch.entered_bytes)
