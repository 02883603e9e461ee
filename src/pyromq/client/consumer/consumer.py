"""The skeleton of all consumers: they subscribe, start, join their group, pause, and leave it.

A consumer can be started once. It builds its parts when it starts, and drops them when it has left the group.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from pyromq.client.consumer.background import Background
from pyromq.client.consumer.group.assigned_queues import RebalanceListener, Runner
from pyromq.client.consumer.group.joining import JoinedTopics
from pyromq.client.consumer.group.member import MemberKind
from pyromq.client.consumer.group.membership import ConsumerWork, GroupMembership
from pyromq.client.consumer.reading.fetching import Fetching
from pyromq.client.consumer.reading.offsets import on_the_wire
from pyromq.client.consumer.reading.queue_reader import Source
from pyromq.client.consumer.reading.stats import SAMPLE_S, ConsumerStats
from pyromq.client.consumer.reading.subscriptions import Expression
from pyromq.client.consumer.settings import PullSettings, PushSettings, check_group
from pyromq.client.health import DEFAULT_TIMEOUT_S, NOT_RUNNING, ConsumerHealth, asked
from pyromq.client.namespaces import wrap
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings
from pyromq.client.tracing_choice import is_traced
from pyromq.errors import PyroError, StateError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.membership import ConsumeType, MessageModel

if TYPE_CHECKING:  # OpenTelemetry is optional
    from pyromq.client.spans import ConsumeSpans


def _spans(
    group: str, settings: PushSettings | PullSettings, client_settings: ClientSettings
) -> "ConsumeSpans":
    from pyromq.client.spans import ConsumeSpans

    return ConsumeSpans(group, is_broadcast=settings.broadcast, namespace=client_settings.namespace)


@dataclass(frozen=True, slots=True)
class ConsumerParts:
    """The parts of a running consumer."""

    membership: GroupMembership


P = TypeVar("P", bound=ConsumerParts)


class Consumer(ABC, Generic[P]):
    """`joins_unsubscribed`: it joins its group even without a subscription."""

    settings: PushSettings | PullSettings

    def __init__(
        self,
        group: str,
        settings: PushSettings | PullSettings,
        client_settings: ClientSettings,
        *,
        joins_unsubscribed: bool,
    ) -> None:
        check_group(group)
        self.group = group
        self.settings = settings
        self.client_settings = client_settings
        self._joins_unsubscribed = joins_unsubscribed
        self._topics = JoinedTopics()
        self._expressions: dict[str, Expression] = {}
        self._stats = ConsumerStats()
        self._listeners: list[RebalanceListener] = []
        self._background = Background(group)
        self._parts: P | None = None
        self._is_closing = False
        self._starting = asyncio.Lock()
        self._spans = _spans(group, settings, client_settings) if is_traced(settings.otel) else None

    def __repr__(self) -> str:
        topics = ",".join(sorted(self._expressions)) or "nothing"
        parts = self._parts
        state = repr(parts.membership.assigned) if parts is not None else "not running"
        return f"<{type(self).__name__} {self.group} of {topics} {state}>"

    # Each kind of consumer

    @abstractmethod
    def _build(self, session: Session, group: str) -> P:
        """Build the parts; `group` is the name that brokers know."""

    @abstractmethod
    def _begin_work(self, parts: P) -> None:
        """Start the background tasks, apart from rebalancing and statistics."""

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def _shut(self, *, is_failed: bool = False, reader: Hashable = None) -> None:
        """Close. `is_failed`: what this task, or `reader`, has taken is not done."""

    @abstractmethod
    async def _leave(self, parts: P) -> None:
        """Leave the group and drop the parts."""

    # Subscribing

    def _subscribe(
        self, topic: str, expression: Expression, refused: Callable[[PyroError], None] = lambda _: None
    ) -> None:
        """`refused` is called if a broker refuses a subscription that was made while the consumer runs."""
        self._expressions[topic] = expression
        parts = self._parts
        if parts is None:
            return

        def forget(problem: PyroError) -> None:
            self._expressions.pop(topic, None)
            refused(problem)

        membership = parts.membership
        name = membership.session.wrap(topic)
        membership.subscribe(name, expression)
        self._background.start(membership.take_up(name, forget), f"subscription to {topic}")

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; running handlers finish."""
        self._check_loop()
        self._expressions.pop(topic, None)
        if self._parts is not None:
            membership = self._parts.membership
            await membership.unsubscribe(membership.session.wrap(topic))

    def on_rebalance(self, listener: RebalanceListener) -> RebalanceListener:
        """Have a function called with the queues that were assigned and those that were revoked."""
        self._listeners.append(listener)
        return listener

    # Beginning and end

    @property
    def is_running(self) -> bool:
        return self._parts is not None

    async def start(self) -> None:
        """Return when this member holds its queues, as far as their brokers can be reached."""
        if self._parts is not None or self._is_closing:
            raise StateError("a consumer can be started only once: create a new one")
        async with self._starting:
            await self._start()

    async def _start(self) -> None:
        group = wrap(self.group, self.client_settings.namespace)
        session = await Session.obtain(
            self.client_settings, consumer_group=group, stable_id=self.settings.broadcast
        )
        parts = self._parts = self._build(session, group)
        membership = parts.membership
        try:
            for topic, expression in self._expressions.items():
                membership.subscribe(session.wrap(topic), expression, is_awaited=True)
            if self._expressions or self._joins_unsubscribed:
                await membership.join()
                await membership.rebalancing.once()
        except BaseException:
            await self._leave(parts)
            raise
        self._background.start(membership.rebalancing.run(), "rebalancing")
        self._background.every(SAMPLE_S, self._stats.sample, "statistics")
        self._begin_work(parts)

    def _new_membership(
        self,
        session: Session,
        group: str,
        fetching: Fetching,
        kind: MemberKind,
        source: Source,
        runner: Runner,
    ) -> GroupMembership:
        work = ConsumerWork(self._topics, fetching, source, runner, self._stats)
        return GroupMembership(session, group, self.settings, kind, work, self._listeners)

    def _kind(
        self, consume_type: ConsumeType, *, is_ordered: bool = False, concurrency: int = 1, **shown: Any
    ) -> MemberKind:
        """The description for brokers and operators; `shown` adds settings under their Java names."""
        settings = self.settings
        named = {f"pyromq.{name}": value for name, value in asdict(settings).items()} | shown
        return MemberKind(
            consume_type=consume_type,
            message_model=MessageModel.BROADCASTING if settings.broadcast else MessageModel.CLUSTERING,
            consume_from=on_the_wire(settings.start_from),
            is_ordered=is_ordered,
            concurrency=concurrency,
            settings={name: str(value) for name, value in named.items()},
        )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._shut(is_failed=problem is not None)

    # While it runs

    def pause(self, *queues: MessageQueue) -> None:
        """Stop pulling from these queues, or from all; messages already pulled are still delivered."""
        self._running().membership.assigned.pause([self._wrapped(queue) for queue in queues])

    def resume(self, *queues: MessageQueue) -> None:
        self._running().membership.assigned.resume([self._wrapped(queue) for queue in queues])

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues assigned to this member now, including those of its retry topic."""
        parts = self._parts
        return parts.membership.assigned.queues if parts is not None else set()

    @property
    def client_id(self) -> str:
        parts = self._parts
        if parts is None:
            raise StateError("the consumer is not running and has no client id yet: start it")
        return parts.membership.session.client_id

    async def health(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> ConsumerHealth:
        """Whether the brokers answer, the topics have routes, and handlers are in time."""
        parts = self._parts
        if parts is None:
            return ConsumerHealth(group=self.group, problems=(NOT_RUNNING,))
        membership = parts.membership
        session = membership.session
        lost, problems = await asked(session, timeout_s)
        readers = list(membership.assigned)
        failing = {reader.queue.broker_name for reader in readers if reader.is_failing} - lost.keys()
        problems += [f"the broker {name} refuses pulls" for name in sorted(failing)]
        for topic in self._expressions:
            if session.routes.cached(session.wrap(topic)) is None:
                problems.append(f"the topic {topic} has no route")
        if handlers := self._lost_handlers(parts):
            problems.append(f"{handlers} handlers run although their time is up")
        answered = [reader.pulled_at for reader in readers if reader.pulled_at is not None]
        return ConsumerHealth(
            group=self.group,
            problems=tuple(problems),
            brokers=len(session.routes.brokers),
            lost_brokers=tuple(sorted(lost.keys() | failing)),
            queues=len(readers),
            last_pull_s=session.clock.monotonic() - max(answered) if answered else None,
            lag=None if self._are_messages_divided else sum(reader.lag for reader in readers),
            lost_handlers=handlers,
        )

    def _lost_handlers(self, parts: P) -> int:
        return 0

    @property
    def _are_messages_divided(self) -> bool:
        """Whether brokers divide the messages, and have the offsets."""
        return False

    def _running(self) -> P:
        if self._parts is None:
            raise StateError("the consumer is not running: start it, or use it in a `with` block")
        self._parts.membership.session.check_loop()
        return self._parts

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        """A queue with the topic name that brokers know; the application may use that or its own."""
        topic = wrap(queue.topic, self.client_settings.namespace)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)

    def _check_loop(self) -> None:
        if self._parts is not None:
            self._parts.membership.session.check_loop()
