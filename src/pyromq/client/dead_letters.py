"""The dead letters of a group: listed, sent again, dropped.

`pyromq.protocol.dead_letters` says how a letter is settled. Queues are read backwards, so that the note about
a letter comes before the letter. A letter is sent first and noted then: after a crash in between it is still
listed, and may be sent twice.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Unpack

import msgspec

from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.fetching import Fetching, PullLimits
from pyromq.client.consumer.reading.offsets import StartPositions
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.consumer.settings import check_group
from pyromq.client.opened import Opened
from pyromq.client.producer import Producer
from pyromq.client.session import Session
from pyromq.client.settings import ClientOptions
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.cluster.retry_table import require_safe
from pyromq.errors import NoRoute, StateError
from pyromq.protocol import dead_letters as said
from pyromq.protocol import names
from pyromq.protocol import properties as props

_CHUNK = 32
_SUSPEND_S = 1.0


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A message that a group gave up. Letters that a broker made by itself have no error and no member."""

    message: ReceivedMessage
    """With the body, keys, tags and properties that it had."""
    topic: str
    """Where it was sent first; empty if the letter does not say."""
    error: str | None
    member: str | None
    """The client id of the consumer that failed last."""
    failed_at: datetime
    attempts: int


class DeadLetters(Opened):
    """`async with DeadLetters("billing", namesrv=...) as letters: await letters.list()`."""

    def __init__(self, group: str, namesrv: str | None = None, **options: Unpack[ClientOptions]) -> None:
        """`group`: the consumer group that gave the messages up."""
        check_group(group)
        self.group = group
        self._producer = Producer(f"{group}-dead-letters", namesrv, **options)

    def __repr__(self) -> str:
        return f"<DeadLetters {self.group}>"

    async def start(self) -> None:
        """Done by `async with`."""
        await self._producer.start()

    async def close(self) -> None:
        await self._producer.close()

    async def list(
        self,
        *,
        topic: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        reason: str | None = None,
        limit: int | None = None,
    ) -> Sequence[DeadLetter]:
        """The letters that were neither sent again nor dropped, the newest first.

        `topic`: where they were sent first. `since`, `until`: when the broker made them dead letters.
        `reason`: a part of the error. `limit`: no more than these.
        """
        session = self._producer._started().session
        named = session.wrap(names.dlq_topic(self.group))
        try:
            route = await session.routes.refresh(named)
        except NoRoute:
            return []
        if not route.subscribe_queues:
            raise StateError(f"the topic {named} cannot be read: allow it by mqadmin updateTopicPerm -p 6")

        def is_wanted(letter: DeadLetter) -> bool:
            at_s = letter.message.stored_ms / 1000
            return (
                (topic is None or letter.topic == topic)
                and (since is None or at_s >= since.timestamp())
                and (until is None or at_s < until.timestamp())
                and (reason is None or reason in (letter.error or ""))
            )

        found: list[DeadLetter] = []
        for queue in route.subscribe_queues:
            of_queue = 0
            async for letter in self._open_letters(session, queue, since):
                if of_queue == limit:
                    break
                if is_wanted(letter):
                    of_queue += 1
                    found.append(letter)
        found.sort(key=lambda letter: letter.message.stored_ms, reverse=True)
        return found[:limit]

    async def _open_letters(
        self, session: Session, queue: MessageQueue, since: datetime | None
    ) -> AsyncIterator[DeadLetter]:
        """The letters of a queue that are not settled, backwards."""
        positions = StartPositions(QueueBrokers(session), "first", session.clock)
        if since is None:
            first = await positions.first(queue)
        else:
            first = await positions.at(queue, round(since.timestamp() * 1000))
        settled: set[int] = set()
        async for message in _backwards(session, self.group, queue, first, await positions.last(queue)):
            if said.is_open(message, settled):
                yield letter_of(message, session.unwrap)

    async def resend(self, *letters: DeadLetter, to_topic: bool = False) -> None:
        """Send letters again as new messages, to their group alone, or to their topics, for all groups."""
        for letter in letters:
            if not letter.topic:
                raise StateError(f"the dead letter does not say which topic it was sent to: {letter!r}")
        sent: list[DeadLetter] = []
        try:
            for letter in letters:
                await self._send(letter, to_group=not to_topic)
                sent.append(letter)
        finally:
            await self._settle(sent)

    async def drop(self, *letters: DeadLetter) -> None:
        """Have letters listed no more. Brokers keep them until their retention ends."""
        await self._settle(letters)

    async def _send(self, letter: DeadLetter, *, to_group: bool) -> None:
        parts, message = self._producer._started(), letter.message
        topic = names.retry_topic(self.group) if to_group else letter.topic
        keys = message.get(props.KEYS) or ""
        again = Message(topic, message.body, message.tags, keys, flag=message.flag)
        kept = said.sent_again(message, message.properties, to_group=to_group)
        result = await parts.send(parts.prepare(again, kept), None, None)
        require_safe(result.status)

    async def _settle(self, letters: Iterable[DeadLetter]) -> None:
        parts = self._producer._started()
        by_queue: dict[MessageQueue, list[int]] = {}
        for letter in letters:
            by_queue.setdefault(letter.message.queue, []).append(letter.message.queue_offset)
        for queue, offsets in by_queue.items():
            body = ",".join(map(str, offsets)).encode()
            note = Message(names.dlq_topic(self.group), body, properties={said.SETTLED: "true"})
            await parts.send(parts.prepare(note), queue, None)


async def _backwards(
    session: Session, group: str, queue: MessageQueue, first: int, end: int
) -> AsyncIterator[ReceivedMessage]:
    """The messages from `first` up to `end`, the last one first."""
    fetching = Fetching(
        session,
        session.wrap(group),
        namespace=session.settings.namespace,
        is_lite=True,
        limits=PullLimits(_CHUNK, suspend_s=_SUSPEND_S),
    )
    subscription = Subscription.of(queue.topic, "*", 0)
    while end > first:
        begin = at = max(first, end - _CHUNK)
        chunk: list[ReceivedMessage] = []
        while at < end:
            pulled = await fetching.pull(queue, subscription, at)
            chunk += [message for message in pulled.messages if message.queue_offset < end]
            if pulled.next_offset <= at:
                break  # the log was cut meanwhile
            at = pulled.next_offset
        for message in reversed(chunk):
            yield message
        end = begin


def letter_of(message: ReceivedMessage, unwrap: Callable[[str], str] = str) -> DeadLetter:
    failed_ms, attempts = message.get(said.FAILED_AT), message.get(said.ATTEMPTS)
    return DeadLetter(
        message=message,
        topic=unwrap(said.origin_topic(message)),
        error=message.get(said.ERROR),
        member=message.get(said.MEMBER),
        failed_at=datetime.fromtimestamp(int(failed_ms or message.stored_ms) / 1000, UTC),
        attempts=int(attempts or message.reconsume_times),
    )
