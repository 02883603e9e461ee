"""A consumer that the application polls: it pulls ahead, and `poll` returns messages that were pulled.

Messages are done when the application commits, or, with auto commit, when it polls again: after a crash,
unfinished messages are delivered again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Unpack

from pyromq.client.consumer.consumer import Consumer, ConsumerParts
from pyromq.client.consumer.group.membership import GroupMembership
from pyromq.client.consumer.reading.fetching import Fetching, PullLimits
from pyromq.client.consumer.reading.in_flight import InFlight, Thresholds
from pyromq.client.consumer.reading.queue_reader import QueueReader, Source
from pyromq.client.consumer.reading.quick_pulls import quick_pulls
from pyromq.client.consumer.reading.server_filter import FilterCode
from pyromq.client.consumer.reading.subscriptions import (
    Expression,
    Subscription,
    check_topic,
    chosen_expression,
)
from pyromq.client.consumer.settings import PullOptions, PullSettings
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, split_options
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError, StateError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.membership import ConsumeType

_log = logging.getLogger(__name__)

_SUSPEND_S = 20.0


@dataclass(frozen=True, slots=True)
class PullStatistics:
    queues: int
    held_messages: int
    held_bytes: int


class _Polling:
    """Pulled messages wait until the application polls."""

    handle_now = None

    def __init__(self) -> None:
        self.pulled: deque[tuple[InFlight[ReceivedMessage], list[ReceivedMessage]]] = deque()
        self.arrived = asyncio.Event()

    def deliver(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        self.pulled.append((reader.held, messages))
        self.arrived.set()

    async def give_up(self, held: InFlight[ReceivedMessage]) -> None:
        """A queue is given up at once; messages that were not polled are delivered again elsewhere."""
        held.close()

    def committable(self, reader: QueueReader) -> int | None:
        return reader.confirmed_offset


class PullConsumer(Consumer[ConsumerParts]):
    """`async with PullConsumer("reports", namesrv="127.0.0.1:9876") as consumer: await consumer.poll()`.

    Either it subscribes to topics and shares their queues with the other members of its group, or the
    application assigns queues to it. Options are the fields of `PullSettings` and of `ClientSettings`.
    """

    settings: PullSettings

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PullOptions]
    ) -> None:
        settings, client_options = split_options(options, PullSettings)
        client_settings = ClientSettings.of(namesrv, **client_options)
        super().__init__(group, settings, client_settings, joins_unsubscribed=True)
        self._is_assigned_by_hand = False
        self._polling = _Polling()
        if self._spans is not None:
            setattr(self, "poll", self._spans.receiving(self.poll))  # noqa: B010 (mypy: it is a method)

    # Which queues

    def subscribe(
        self, topic: str, expression: Expression = "*", *, filter: FilterCode | None = None
    ) -> None:
        """Share the queues of a topic with the other members of the group.

        `filter`: what filter servers run instead of an expression: a function of (message, context), or a
        `Path` of a module in WebAssembly.
        """
        check_topic(topic)
        if self._is_closing:
            raise StateError("the consumer is closed: create a new one")
        if self._is_assigned_by_hand:
            raise StateError("queues are assigned to this consumer: subscribe with another consumer")
        self._check_loop()
        chosen = chosen_expression(expression, filter)
        Subscription.of(topic, chosen, 0)
        self._subscribe(topic, chosen)

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues, even if other members read them; replaces the former assignment."""
        membership = self._running().membership
        if self._expressions and not self._is_assigned_by_hand:
            raise StateError("this consumer has subscriptions: assign queues to another consumer")
        if not self._is_assigned_by_hand:
            self._is_assigned_by_hand = True
            membership.rebalancing.by_hand = {}
        wanted: dict[str, set[MessageQueue]] = {}
        for queue in map(self._wrapped, queues):
            check_topic(queue.topic)
            wanted.setdefault(queue.topic, set()).add(queue)
        for topic in set(self._expressions) - set(wanted):
            self._expressions.pop(topic)
            self._topics.remove(topic)
            await membership.assigned.hold(topic, set())
        for topic in wanted:
            self._expressions[topic] = expression
            membership.subscribe(topic, expression, is_awaited=True)
            await membership.session.routes.get(topic)
        membership.rebalancing.by_hand = wanted
        await membership.introduce()
        await membership.rebalancing.once()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic; raises NoRoute if the topic does not exist."""
        session = self._running().membership.session
        return (await session.routes.get(session.wrap(topic))).subscribe_queues

    # Beginning and end

    def _build(self, session: Session, group: str) -> ConsumerParts:
        settings = self.settings
        fetching = Fetching(
            session,
            group,
            namespace=session.settings.namespace,
            is_lite=True,
            limits=PullLimits(settings.pull_batch_size, settings.pull_batch_bytes, _SUSPEND_S),
            quick=quick_pulls(session, group),
        )
        kind, source = self._kind(ConsumeType.CONSUME_ACTIVELY), Source(thresholds=self._thresholds)
        return ConsumerParts(self._new_membership(session, group, fetching, kind, source, self._polling))

    def _begin_work(self, parts: ConsumerParts) -> None:
        membership = parts.membership
        if self.settings.auto_commit:
            self._background.every(self.settings.auto_commit_interval_s, membership.assigned.commit, "commit")
        _log.debug("pull consumer started group=%s client=%s", membership.group, membership.session.client_id)

    def _thresholds(self, queue_count: int) -> Thresholds:
        limits = self.settings.thresholds
        of_all = max(1, self.settings.all_messages // max(queue_count, 1))
        return replace(limits, messages=min(limits.messages, of_all))

    async def close(self) -> None:
        """Leave the group; with auto commit, all polled messages are done."""
        await self._shut()

    async def _shut(self, *, is_failed: bool = False, reader: Hashable = None) -> None:
        parts = self._parts
        if parts is None or self._is_closing:
            return
        self._check_loop()
        self._is_closing = True
        async with self._starting:
            pass  # wait until the start has ended
        if self._parts is not parts:
            return
        await self._background.end()
        if self.settings.auto_commit and not is_failed:
            self._confirm(parts.membership)
        await self._leave(parts)
        self._polling.arrived.set()
        _log.debug("pull consumer closed group=%s", parts.membership.group)

    async def _leave(self, parts: ConsumerParts) -> None:
        await parts.membership.leave()
        self._polling.pulled.clear()
        self._parts = None

    # Messages

    async def poll(
        self, timeout_s: float = 5.0, max_messages: int | None = None, *, min_messages: int = 1
    ) -> list[ReceivedMessage]:
        """Some messages of one queue, in order; an empty list if none arrive in time.

        With `min_messages` it waits for that many, of any queues, and returns those that are there when the
        time is up.
        """
        membership = self._running().membership
        if max_messages is not None and max_messages < 1:
            raise ConfigError("max_messages", max_messages, "a number above 0, or None")
        if min_messages < 1 or (max_messages is not None and min_messages > max_messages):
            raise ConfigError("min_messages", min_messages, "a number above 0, and at most max_messages")
        if self.settings.auto_commit:
            self._confirm(membership)
        if min_messages > 1:
            return await self._poll_many(timeout_s, min_messages, max_messages)
        messages = self._next_messages(max_messages)
        if messages or timeout_s <= 0:
            return messages
        try:
            async with asyncio.timeout(timeout_s):
                while not messages and self._parts is not None:
                    self._polling.arrived.clear()
                    await self._polling.arrived.wait()
                    messages = self._next_messages(max_messages)
        except TimeoutError:
            pass
        return messages

    async def _poll_many(self, timeout_s: float, least: int, most: int | None) -> list[ReceivedMessage]:
        messages: list[ReceivedMessage] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while len(messages) < least and self._parts is not None:
                    more = self._next_messages(None if most is None else most - len(messages))
                    messages += more
                    if not more:
                        self._polling.arrived.clear()
                        await self._polling.arrived.wait()
        return messages

    def _next_messages(self, max_messages: int | None) -> list[ReceivedMessage]:
        while self._polling.pulled:
            held, messages = self._polling.pulled.popleft()
            if held.is_closing:
                continue
            if max_messages is not None and len(messages) > max_messages:
                messages, rest = messages[:max_messages], messages[max_messages:]
                self._polling.pulled.appendleft((held, rest))
            for message in messages:
                held.done(message)
            return messages
        return []

    def _confirm(self, membership: GroupMembership) -> None:
        """All messages that `poll` returned are done."""
        for reader in membership.assigned:
            reader.confirmed_offset = reader.held.committable

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets, by default those after the last polled messages; raises if they are not stored."""
        membership = self._running().membership
        if offsets is not None:
            reader_of = membership.assigned.reader
            readers = {reader_of(self._wrapped(queue)): offset for queue, offset in offsets.items()}
            for reader, offset in readers.items():
                reader.confirmed_offset = offset
        else:
            self._confirm(membership)
        await membership.assigned.commit(confirmed=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The stored offset of the group, None if there is none."""
        return await self._running().membership.offsets.read(self._wrapped(queue))

    def position(self, queue: MessageQueue) -> int:
        """The offset of the next message."""
        return self._running().membership.assigned.reader(self._wrapped(queue)).held.committable

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset, which must be in the queue; the next commit stores it."""
        membership, queue = self._running().membership, self._wrapped(queue)
        membership.assigned.reader(queue)
        first, last = await membership.positions.first(queue), await membership.positions.last(queue)
        if not first <= offset <= last:
            raise StateError(f"offset {offset} is not in the queue {queue}: it has {first} to {last}")
        await membership.assigned.begin_at(queue, offset, for_all=False)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Continue at the first message of these queues, or of all."""
        membership = self._running().membership
        for queue in map(self._wrapped, queues or tuple(membership.assigned.queues)):
            await membership.assigned.begin_at(queue, await membership.positions.first(queue), for_all=False)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Continue after the last message of these queues, or of all."""
        membership = self._running().membership
        for queue in map(self._wrapped, queues or tuple(membership.assigned.queues)):
            await membership.assigned.begin_at(queue, await membership.positions.last(queue), for_all=False)

    async def offsets_for_times(
        self, times: Mapping[MessageQueue, datetime | int]
    ) -> dict[MessageQueue, int]:
        """The first offset stored at a time or later; numbers are milliseconds since the epoch."""
        positions = self._running().membership.positions
        return {
            queue: await positions.at(
                self._wrapped(queue), round(time.timestamp() * 1000) if isinstance(time, datetime) else time
            )
            for queue, time in times.items()
        }

    def statistics(self) -> PullStatistics:
        # Read once: another thread may close the consumer.
        parts = self._parts
        held = [reader.held for reader in parts.membership.assigned] if parts is not None else []
        return PullStatistics(len(held), sum(map(len, held)), sum(each.size_bytes for each in held))
