"""A consumer that is asked for messages: it pulls ahead, and hands out what it has when polled.

Messages count as done when the application commits, or, with auto commit, when it polls again: what a crash
interrupts comes again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from pyromq.client.consumer.background import Background
from pyromq.client.consumer.fetching import Fetching
from pyromq.client.consumer.figures import SAMPLE_S, Figures
from pyromq.client.consumer.in_flight import InFlight, Thresholds
from pyromq.client.consumer.joining import Topics
from pyromq.client.consumer.membership import Membership
from pyromq.client.consumer.queue_reader import QueueReader
from pyromq.client.consumer.settings import PullOptions, PullSettings, check_group, split_options
from pyromq.client.consumer.share import RebalanceListener
from pyromq.client.consumer.subscriptions import Expression, Subscription, check_topic
from pyromq.client.namespaces import wrap
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError, PyroError, StateError
from pyromq.protocol.bodies.queues import MessageQueue

_log = logging.getLogger(__name__)

_SUSPEND_S = 20.0


@dataclass(frozen=True, slots=True)
class PullStatistics:
    queues: int
    held_messages: int
    held_bytes: int


class PullConsumer:
    """`async with PullConsumer("reports", namesrv="127.0.0.1:9876") as consumer: await consumer.poll()`.

    Either it subscribes to topics and shares their queues with the other members of its group, or queues are
    assigned to it by hand. Options are the fields of `PullSettings` and of `ClientSettings`.
    """

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PullOptions]
    ) -> None:
        check_group(group)
        own, others = split_options(dict(options), PullSettings)
        self.group = group
        self.settings = PullSettings(**own)
        self.client_settings = ClientSettings.of(namesrv, **others)
        self._topics = Topics()
        self._expressions: dict[str, Expression] = {}
        self._is_assigned_by_hand = False
        self._assigned: dict[str, set[MessageQueue]] = {}
        self._figures = Figures()
        self._listeners: list[RebalanceListener] = []
        self._background = Background(group)
        self._membership: Membership | None = None
        self._is_closed = False
        self._starting = asyncio.Lock()
        self._pulled: deque[tuple[InFlight[ReceivedMessage], list[ReceivedMessage]]] = deque()
        self._arrived = asyncio.Event()

    def __repr__(self) -> str:
        topics = ",".join(sorted(self._expressions)) or "nothing"
        membership = self._membership
        state = repr(membership.share) if membership is not None else "not running"
        return f"<PullConsumer {self.group} of {topics} {state}>"

    # Which queues

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Share the queues of a topic with the other members of the group."""
        check_topic(topic)
        if self._is_assigned_by_hand:
            raise StateError("queues are assigned by hand: subscribe with another consumer")
        Subscription.of(topic, expression, 0)
        self._expressions[topic] = expression

        def refused(problem: PyroError) -> None:
            self._expressions.pop(topic, None)

        if self._membership is not None:
            membership = self._running()
            name = membership.session.wrap(topic)
            membership.subscribe(name, expression)
            self._background.start(membership.take_up(name, refused), f"subscription to {topic}")

    async def unsubscribe(self, topic: str) -> None:
        self._expressions.pop(topic, None)
        if self._membership is not None:
            membership = self._running()
            await membership.unsubscribe(membership.session.wrap(topic))

    async def assign(self, queues: Iterable[MessageQueue], expression: Expression = "*") -> None:
        """Read exactly these queues, whoever else reads them; replaces what was assigned before."""
        membership = self._running()
        if self._expressions and not self._is_assigned_by_hand:
            raise StateError("this consumer subscribes: assign queues to another one")
        self._is_assigned_by_hand = True
        membership.rebalancing.rule = None
        wanted: dict[str, set[MessageQueue]] = {}
        for queue in queues:
            check_topic(queue.topic)
            wanted.setdefault(queue.topic, set()).add(queue)
        for topic in set(self._expressions) - set(wanted):
            self._expressions.pop(topic)
            self._topics.remove(topic)
            await membership.share.hold(topic, set())
        for topic in wanted:
            self._expressions[topic] = expression
            membership.subscribe(topic, expression)
            await membership.session.routes.get(topic)
        self._assigned = wanted
        await membership.introduce()
        await membership.rebalancing.once()

    async def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic; raises NoRoute if there is no such topic."""
        session = self._running().session
        return (await session.routes.get(session.wrap(topic))).subscribe_queues

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues that this member reads at the moment."""
        membership = self._membership
        return membership.share.queues if membership is not None else set()

    def on_rebalance(self, listener: RebalanceListener) -> RebalanceListener:
        """Have a function called with the queues that were assigned and those that were revoked."""
        self._listeners.append(listener)
        return listener

    # Beginning and end

    async def start(self) -> None:
        """Returns when this member has its share of the queues, as far as they can be reached."""
        if self._membership is not None or self._is_closed:
            raise StateError("a consumer can be started once: make another one")
        async with self._starting:
            await self._start()

    async def _start(self) -> None:
        group = wrap(self.group, self.client_settings.namespace)
        session = await Session.obtain(
            self.client_settings, consumer_group=group, stable_id=self.settings.broadcast
        )
        membership = self._membership = self._build(session, group)
        try:
            for topic, expression in self._expressions.items():
                membership.subscribe(session.wrap(topic), expression)
            await membership.join()
            await membership.rebalancing.once()
        except BaseException:
            await self._leave(membership)
            raise
        self._background.start(membership.rebalancing.run(), "rebalancing")
        if self.settings.auto_commit:
            self._background.every(self.settings.auto_commit_interval_s, membership.share.commit, "commit")
        self._background.every(SAMPLE_S, self._figures.sample, "figures")
        _log.info("pull consumer started group=%s client=%s", group, session.client_id)

    def _build(self, session: Session, group: str) -> Membership:
        settings = self.settings
        fetching = Fetching(
            session,
            group,
            namespace=session.settings.namespace,
            is_lite=True,
            batch_size=settings.pull_batch_size,
            batch_bytes=settings.pull_batch_bytes,
            suspend_s=_SUSPEND_S,
        )

        def open_reader(queue: MessageQueue, offset: int) -> QueueReader:
            return QueueReader(
                queue,
                offset,
                subscription=self._topics.subscriptions[queue.topic],
                fetching=fetching,
                deliver=self._take_in,
                moved=membership.share.moved,
                introduce=session.heartbeat_now,
                thresholds=self._thresholds(1),
                figures=self._figures,
                clock=session.clock,
                commits=False,
            )

        async def finish(held: InFlight[ReceivedMessage]) -> None:
            held.closing.set()

        async def hold(topic: str, queues: set[MessageQueue]) -> bool:
            wanted = self._assigned.get(topic, set()) if self._is_assigned_by_hand else queues
            return await membership.share.hold(topic, wanted)

        membership = Membership(
            session,
            group,
            settings,
            self._topics,
            self._figures,
            open_reader=open_reader,
            finish=finish,
            thresholds=self._thresholds,
            listeners=self._listeners,
            committable=lambda reader: reader.confirmed_offset,
            hold=hold,
        )
        return membership

    def _thresholds(self, queue_count: int) -> Thresholds:
        limits = self.settings.thresholds
        of_all = max(1, self.settings.all_messages // max(queue_count, 1))
        return replace(limits, messages=min(limits.messages, of_all))

    async def close(self, *, is_failed: bool = False) -> None:
        """Leave the group; with auto commit, everything polled so far is done, unless `is_failed`."""
        membership = self._membership
        if membership is None or self._is_closed:
            return
        membership.session.check_loop()
        self._is_closed = True
        async with self._starting:
            pass  # to its end, whatever that is
        if self._membership is not membership:
            return
        await self._background.end()
        if self.settings.auto_commit and not is_failed:
            self._confirm(membership)
        await self._leave(membership)
        self._arrived.set()
        _log.info("pull consumer closed group=%s", membership.group)

    async def _leave(self, membership: Membership) -> None:
        await membership.leave()
        self._pulled.clear()
        self._membership = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(is_failed=problem is not None)

    # Messages

    def _take_in(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        self._pulled.append((reader.held, messages))
        self._arrived.set()

    async def poll(self, timeout_s: float = 5.0, max_messages: int | None = None) -> list[ReceivedMessage]:
        """Some messages of one queue, in their order; none if none come in time."""
        membership = self._running()
        if max_messages is not None and max_messages < 1:
            raise ConfigError("max_messages", max_messages, "a number above 0, or None")
        if self.settings.auto_commit:
            self._confirm(membership)
        messages = self._next_messages(max_messages)
        if messages or timeout_s <= 0:
            return messages
        try:
            async with asyncio.timeout(timeout_s):
                while not messages and self._membership is not None:
                    self._arrived.clear()
                    await self._arrived.wait()
                    messages = self._next_messages(max_messages)
        except TimeoutError:
            pass
        return messages

    def _next_messages(self, max_messages: int | None) -> list[ReceivedMessage]:
        while self._pulled:
            held, messages = self._pulled.popleft()
            if held.closing.is_set():
                continue
            if max_messages is not None and len(messages) > max_messages:
                messages, rest = messages[:max_messages], messages[max_messages:]
                self._pulled.appendleft((held, rest))
            for message in messages:
                held.done(message)
            return messages
        return []

    def _confirm(self, membership: Membership) -> None:
        """Everything handed out so far is done."""
        for reader in membership.share:
            reader.confirmed_offset = reader.held.committable

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store offsets, by default behind everything polled so far; raises if they are not safe then."""
        membership = self._running()
        if offsets is not None:
            readers = {membership.share.reader(queue): offset for queue, offset in offsets.items()}
            for reader, offset in readers.items():
                reader.confirmed_offset = offset
        else:
            self._confirm(membership)
        await membership.share.commit(confirmed=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset that is stored for the group, None if there is none."""
        return await self._running().offsets.read(queue)

    def position(self, queue: MessageQueue) -> int:
        """The offset of the message that comes next."""
        return self._running().share.reader(queue).held.committable

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on from another offset, which must be in the queue; nothing is stored before the next commit."""
        membership = self._running()
        membership.share.reader(queue)
        first, last = await membership.positions.first(queue), await membership.positions.last(queue)
        if not first <= offset <= last:
            raise StateError(f"the queue {queue} reaches from {first} to {last}; {offset} is not in it")
        await membership.share.begin_at(queue, offset, for_all=False)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on from the first message of these queues, or of all."""
        membership = self._running()
        for queue in queues or tuple(membership.share.queues):
            await membership.share.begin_at(queue, await membership.positions.first(queue), for_all=False)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last message of these queues, or of all."""
        membership = self._running()
        for queue in queues or tuple(membership.share.queues):
            await membership.share.begin_at(queue, await membership.positions.last(queue), for_all=False)

    async def offsets_for_times(
        self, times: Mapping[MessageQueue, datetime | int]
    ) -> dict[MessageQueue, int]:
        """The first offset stored at that time or later; numbers are milliseconds since the epoch."""
        positions = self._running().positions
        return {
            queue: await positions.at(
                queue, round(time.timestamp() * 1000) if isinstance(time, datetime) else time
            )
            for queue, time in times.items()
        }

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more from these queues, or from any; what was pulled is still handed out."""
        self._running().share.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        self._running().share.resume(queues)

    def statistics(self) -> PullStatistics:
        # Looked at once: another thread may be closing it.
        membership = self._membership
        held = [reader.held for reader in membership.share] if membership is not None else []
        return PullStatistics(len(held), sum(map(len, held)), sum(each.size_bytes for each in held))

    # Within

    def _running(self) -> Membership:
        if self._membership is None:
            raise StateError("the consumer is not running: start it, or use it in `async with`")
        self._membership.session.check_loop()
        return self._membership
