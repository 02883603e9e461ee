"""Several messages in one request: those that the sender hands over together, and those that come together.

All messages of a batch go to one topic and wait, or do not wait, to be made safe; none of them is delayed,
retried, packed or part of a transaction.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeAlias, TypeVar

from pyromq.client.letters import Letter
from pyromq.client.plain_entries import Parcel
from pyromq.errors import BadMessage
from pyromq.protocol import names
from pyromq.protocol import properties as props
from pyromq.protocol.batch import MIN_ENTRY_SIZE, add_entry
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.properties import NAME_SEPARATOR, PAIR_SEPARATOR
from pyromq.protocol.requests.sending import SendMessageBatch, SendMessageV2


def entry_bytes(letter: Letter) -> int:
    """What a letter takes in a batch; not less than it does."""
    properties = letter.properties
    size_bytes = len(properties) if properties.isascii() else len(properties.encode())
    return MIN_ENTRY_SIZE + len(letter.body) + size_bytes


def batching_problem(letter: Letter) -> str | None:
    """Why a letter cannot be in a batch, if it cannot."""
    if letter.is_delayed:
        return "a delayed message cannot be in a batch"
    if names.is_retry_topic(letter.topic):
        return "a message to a retry topic cannot be in a batch"
    if letter.kind is not SendMessageV2 or letter.sys_flag:
        return "only plain messages can be in a batch"
    return None


def check_batch(letters: Sequence[Letter]) -> None:
    """Raises BadMessage for letters that cannot be in one batch."""
    if not letters:
        raise BadMessage("the batch is empty")
    topics = {letter.topic for letter in letters}
    if len(topics) > 1:
        raise BadMessage(f"a batch goes to one topic, not to {', '.join(sorted(topics))}")
    if len({letter.wait_stored for letter in letters}) > 1:
        raise BadMessage("of the messages of a batch all wait until they are stored, or none")
    for letter in letters:
        if (problem := batching_problem(letter)) is not None:
            raise BadMessage(problem)


def split(letters: Iterable[Letter], max_bytes: int) -> list[list[Letter]]:
    """The same letters in the same order, in parts that fit into a request each."""
    parts: list[list[Letter]] = []
    room_bytes = 0
    for letter in letters:
        size_bytes = entry_bytes(letter)
        if size_bytes > room_bytes:
            parts.append([])
            room_bytes = max_bytes
        parts[-1].append(letter)
        room_bytes -= size_bytes
    return parts


def pack_letters(letters: Sequence[Letter | Parcel]) -> Letter:
    """One letter that holds them all."""
    first = letters[0]
    entries: list[bytes] = []
    for letter in letters:
        if isinstance(letter, Parcel):
            entries.append(letter.entry)
        else:
            add_entry(entries, letter.body, letter.properties.encode(), letter.flag)
    body = b"".join(entries)
    # java: brokers append these to the properties of every message inside, where a unique key of the batch
    # would win over those of the messages
    properties = "" if first.wait_stored else f"{props.WAIT}{NAME_SEPARATOR}false{PAIR_SEPARATOR}"
    return Letter(
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
"""What letters must have in common to come into one batch: topic, queue, `wait_stored`, tags."""


class _Gathering(Generic[R]):
    """A batch that is not full yet."""

    __slots__ = ("letters", "parcel_bytes", "parcels", "promises", "size_bytes", "timer")

    def __init__(self) -> None:
        self.letters: list[Letter | Parcel] = []
        self.promises: list[asyncio.Future[R]] = []
        self.size_bytes = 0
        self.parcels = 0
        self.parcel_bytes = 0
        self.timer: asyncio.Handle | None = None


class Accumulator(Generic[R]):
    """Gathers letters for a moment and sends them together; each gets a result of its own.

    `deliver` sends the letters of one batch and gives a result for each; `left` hears how many
    parcels, of how many bytes, are not on their way any more.
    """

    def __init__(
        self,
        deliver: Callable[[list[Letter | Parcel], MessageQueue | None], Awaitable[Sequence[R]]],
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
        self._gatherings: dict[_Key, _Gathering[R]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self.batches = 0
        self.letters = 0

    def __repr__(self) -> str:
        return (
            f"<Accumulator gathering={len(self._gatherings)} delivering={len(self._deliveries)} "
            f"batches={self.batches} letters={self.letters}>"
        )

    def maybe_add(self, letter: Letter, queue: MessageQueue | None) -> "asyncio.Future[R] | None":
        """Where the result will be; None for a letter that must go alone."""
        size_bytes = entry_bytes(letter)
        if size_bytes > self._max_bytes or batching_problem(letter) is not None:
            return None
        key = (letter.topic, queue, letter.wait_stored, letter.tags)
        return self.add(key, letter, size_bytes)

    def add(self, key: _Key, letter: Letter | Parcel, size_bytes: int) -> "asyncio.Future[R]":
        """Where the result will be; no letter that may be in a batch is larger than one."""
        gathering = self._gatherings.get(key)
        if gathering is None or gathering.size_bytes + size_bytes > self._max_bytes:
            gathering = self._begin(key)
        promise: asyncio.Future[R] = self._loop.create_future()
        gathering.letters.append(letter)
        gathering.promises.append(promise)
        gathering.size_bytes += size_bytes
        if type(letter) is Parcel:
            gathering.parcels += 1
            gathering.parcel_bytes += size_bytes
        if gathering.size_bytes >= self._max_bytes:
            self._flush(key)
        return promise

    def _begin(self, key: _Key) -> _Gathering[R]:
        """A new batch; the one before leaves."""
        if key in self._gatherings:
            self._flush(key)
        gathering = self._gatherings[key] = _Gathering()
        if self._linger_s > 0:
            gathering.timer = self._loop.call_later(self._linger_s, self._flush, key)
        else:
            # What is sent in one turn of the loop leaves together.
            gathering.timer = self._loop.call_soon(self._flush, key)
        return gathering

    def flush(self, topic: str | None = None) -> None:
        """Send what is gathered for a topic, or everything, now."""
        for key in list(self._gatherings):
            if topic is None or key[0] == topic:
                self._flush(key)

    async def close(self) -> None:
        self.flush()
        await asyncio.gather(*self._deliveries)

    def _flush(self, key: _Key) -> None:
        gathering = self._gatherings.pop(key)
        if gathering.timer is not None:
            gathering.timer.cancel()
        task = self._loop.create_task(self._send(gathering, key[1]))
        self._deliveries.add(task)
        task.add_done_callback(self._deliveries.discard)

    async def _send(self, gathering: _Gathering[R], queue: MessageQueue | None) -> None:
        letters, promises = gathering.letters, gathering.promises
        if any(map(asyncio.Future.done, promises)):
            # Whoever was cancelled before it left does not leave.
            wanted = [each for each in zip(letters, promises, strict=True) if not each[1].done()]
            letters, promises = [letter for letter, _ in wanted], [promise for _, promise in wanted]
        try:
            if letters:
                await self._send_letters(letters, promises, queue)
        finally:
            if gathering.parcels:
                self._left(gathering.parcels, gathering.parcel_bytes)

    async def _send_letters(
        self,
        letters: list[Letter | Parcel],
        promises: "list[asyncio.Future[R]]",
        queue: MessageQueue | None,
    ) -> None:
        self.batches += 1
        self.letters += len(letters)
        try:
            results = await self._deliver(letters, queue)
        except asyncio.CancelledError:
            for promise in promises:
                promise.cancel()
            raise
        except Exception as problem:
            for promise in promises:
                if not promise.done():
                    promise.set_exception(problem)
        else:
            for promise, result in zip(promises, results, strict=True):
                if not promise.done():
                    promise.set_result(result)
