"""A consumer as a member of its group: it joins, holds its assigned queues, and leaves.

It takes no queues of a topic before brokers know its subscription: the other members would not count it.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from pyromq.client.consumer.group.assigned_queues import AssignedQueues, RebalanceListener, Runner
from pyromq.client.consumer.group.filter_uploads import upload_again
from pyromq.client.consumer.group.joining import JoinedTopics, look_up
from pyromq.client.consumer.group.locks import MemberLocks
from pyromq.client.consumer.group.member import Member, MemberKind
from pyromq.client.consumer.group.rebalancing import Division, Rebalancing
from pyromq.client.consumer.reading.brokers import QueueBrokers
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.offsets import (
    LocalOffsets,
    OffsetStore,
    RemoteOffsets,
    StartFrom,
    StartPositions,
    offset_directory,
)
from pyromq.client.consumer.reading.pop_starts import PopStarts
from pyromq.client.consumer.reading.queue_reader import ReadingContext, Source
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription
from pyromq.client.session import Session
from pyromq.cluster.assignment import Assignment
from pyromq.errors import PyroError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import retry_topic

_log = logging.getLogger(__name__)


class GroupSettings(Protocol):
    """The settings of a consumer that concern its group; see `PushSettings` and `PullSettings`."""

    @property
    def broadcast(self) -> bool: ...
    @property
    def start_from(self) -> StartFrom: ...
    @property
    def assignment(self) -> Assignment: ...
    @property
    def rebalance_interval_s(self) -> float: ...
    @property
    def offset_directory(self) -> Path | None: ...


@dataclass(frozen=True, slots=True)
class ConsumerWork:
    """A consumer's subscriptions, how it gets their messages, and what becomes of them."""

    topics: JoinedTopics
    fetching: Fetching
    source: Source
    runner: Runner
    stats: ConsumerStats


class GroupMembership:
    """Topics have the names that brokers know."""

    def __init__(
        self,
        session: Session,
        group: str,
        settings: GroupSettings,
        kind: MemberKind,
        work: ConsumerWork,
        listeners: Iterable[RebalanceListener],
    ) -> None:
        source, runner = work.source, work.runner
        self.session = session
        self.group = group
        self._topics = work.topics
        self._retries = retry_topic(group) if source.reads_retries else None
        self._is_joined = False
        self._is_known = False
        brokers = QueueBrokers(session)
        self.offsets: OffsetStore
        if settings.broadcast:
            directory = offset_directory(settings.offset_directory)
            self.offsets = LocalOffsets(directory, session.client_id, group)
        else:
            self.offsets = RemoteOffsets(brokers, group)
        starts = source.starts
        self.positions = (
            starts.positions if starts else StartPositions(brokers, settings.start_from, session.clock)
        )
        reading = ReadingContext(
            subscriptions=work.topics.subscriptions,
            source=source,
            fetching=work.fetching,
            deliver=runner.deliver,
            introduce=self._introduce_again,
            stats=work.stats,
            clock=session.clock,
        )
        self._troubles = reading.troubles
        begin: Callable[[MessageQueue], Awaitable[int]] = partial(self.positions.find, offsets=self.offsets)
        if starts is not None:
            begin = partial(_placed, starts)
        locks = MemberLocks(session, group, session.client_id) if source.needs_lock else None
        self.assigned = AssignedQueues(reading, runner, locks, begin, self.offsets, listeners)
        self.rebalancing = Rebalancing(
            session,
            group,
            session.client_id,
            Division(
                None if settings.broadcast else settings.assignment,
                pops=starts is not None,
                by_queue=source.by_queue,
                interval_s=settings.rebalance_interval_s,
            ),
            self._divided_topics,
            self.assigned.hold,
            troubles=reading.troubles,
        )
        self._member = Member(
            session,
            group,
            kind,
            reading=reading,
            assigned=self.assigned,
            rebalance_soon=self.rebalancing.soon,
            consume=runner.handle_now,
        )

    def __repr__(self) -> str:
        state = "known" if self._is_known else "not known yet"
        return f"<GroupMembership {self.group} {state} {self.assigned!r}>"

    def _divided_topics(self) -> Collection[str]:
        return self._topics.subscriptions if self._is_known else ()

    def subscribe(self, topic: str, expression: Expression, *, is_awaited: bool = False) -> None:
        """Brokers learn of it by `join`. `is_awaited`: see `StartPositions`."""
        self.positions.subscribing(topic, is_awaited=is_awaited)
        subscription = Subscription.of(topic, expression, self.session.clock.now_ms())
        self._topics.put(subscription, self.session, self.rebalancing.soon)

    async def unsubscribe(self, topic: str) -> None:
        self._topics.remove(topic)
        await self.assigned.drop_topics_except(set(self._topics.subscriptions))
        await self.session.heartbeat_now()

    async def join(self) -> None:
        """Tell brokers the subscriptions; raises if a broker cannot filter as asked."""
        for subscription in list(self._topics.subscriptions.values()):
            if subscription.topic != self._retries:
                route = await look_up(self.session, self.group, subscription, self._troubles)
                queues = route.subscribe_queues if route is not None else ()
                self.positions.subscribed(subscription.topic, queues)
        if not self._is_joined:
            self._is_joined = True
            if self._retries is not None:
                self.subscribe(self._retries, "*")
            self.session.add_consumer(self.group, self._member)
        await self.introduce()

    async def introduce(self) -> None:
        await self.session.heartbeat_now()
        if self.session.refusal is not None:
            raise self.session.refusal
        self._is_known = bool(self._topics.subscriptions)

    async def _introduce_again(self) -> None:
        await upload_again(self.session, self.group, list(self._topics.subscriptions.values()))
        await self.session.heartbeat_now()

    async def take_up(self, topic: str, refused: Callable[[PyroError], None]) -> None:
        """Join again, with a topic that was subscribed to while the consumer runs."""
        try:
            await self.join()
        except PyroError as problem:
            _log.error("subscription failed topic=%s: %s", topic, problem)
            self._topics.remove(topic)
            refused(problem)
            return
        subscription = self._topics.subscriptions.get(topic)
        for reader in self.assigned:
            if reader.queue.topic == topic and subscription is not None:
                reader.subscription = subscription
        self.rebalancing.soon()

    async def leave(self) -> None:
        """Give up all queues, unregister, and release the session."""
        await self.assigned.give_up_all()
        self._topics.close()
        await self.session.remove_consumer(self.group, self._member)
        await self.session.release()


async def _placed(starts: PopStarts, queue: MessageQueue) -> int:
    """Brokers know where the group is."""
    await starts.place(queue.topic, queue.broker_name)
    return 0
