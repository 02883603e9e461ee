"""Brokers' answers about topics and groups, kept for a while: a topic's type, a group's retries."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from pyromq.clock import Clock
from pyromq.errors import PyroError, Refused, TransportError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from pyromq.protocol.requests.groups import GetGroupConfig, SubscriptionGroupConfig
from pyromq.protocol.requests.topics import GetTopicConfig
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.codes import Code, Rejected

T = TypeVar("T")

NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY, LITE, MIXED, UNSPECIFIED = (
    "NORMAL",
    "FIFO",
    "DELAY",
    "TRANSACTION",
    "PRIORITY",
    "LITE",
    "MIXED",
    "UNSPECIFIED",
)
_ATTRIBUTE = "message.type"
_OF_ANY_TYPE = (RETRY_PREFIX, DLQ_PREFIX)
_MAX_KEPT = 20_000


class _Kept(Generic[T]):
    """Values by name, refreshed when they are old; the old value serves while no server answers."""

    def __init__(self, ask: Callable[[str], Awaitable[T]], clock: Clock, refresh_s: float) -> None:
        self._ask = ask
        self._clock = clock
        self._refresh_s = refresh_s
        self._values: dict[str, tuple[T, float]] = {}
        self._questions: dict[str, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def fresh(self, name: str) -> T | None:
        """The value, if it need not be asked for."""
        found = self._values.get(name)
        return found[0] if found is not None and self._clock.monotonic() < found[1] else None

    async def get(self, name: str) -> T:
        found = self._values.get(name)
        if found is not None and self._clock.monotonic() < found[1]:
            return found[0]
        question = self._questions.get(name)
        if question is None:
            question = self._questions[name] = asyncio.create_task(self._refresh(name))
            question.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(question)
        except TransportError:
            if found is None:
                raise
            return found[0]

    async def _refresh(self, name: str) -> T:
        try:
            value = await self._ask(name)
        except Refused:
            self._values.pop(name, None)
            raise
        finally:
            del self._questions[name]
        if len(self._values) >= _MAX_KEPT:
            del self._values[next(iter(self._values))]
        self._values.pop(name, None)
        self._values[name] = (value, self._clock.monotonic() + self._refresh_s)
        return value


def _retrieve(question: "asyncio.Task[T]") -> None:
    if not question.cancelled():
        question.exception()


class ProxyTopics:
    def __init__(self, cluster: ProxyCluster, clock: Clock, refresh_s: float) -> None:
        self._cluster = cluster
        self._types = _Kept(self._ask_type, clock, refresh_s)
        self._groups = _Kept(self._ask_group, clock, refresh_s)

    def __repr__(self) -> str:
        return f"<ProxyTopics topics={len(self._types)} groups={len(self._groups)}>"

    def known_type(self, topic: str) -> str | None:
        """The same, if brokers need not be asked."""
        return self._types.fresh(topic)

    async def type_of(self, topic: str) -> str:
        """Which messages the topic takes; raises NoRoute if there is no such topic."""
        return await self._types.get(topic)

    async def _ask_type(self, topic: str) -> str:
        route = await self._cluster.route(topic)
        problem: PyroError | None = None
        for address in self._cluster.addresses_of(route):
            try:
                answer = await self._cluster.call_address(address, GetTopicConfig(topic=topic))
            except TransportError as failure:
                problem = failure
            else:
                return answer.body.attributes.get(_ATTRIBUTE, NORMAL)
        assert problem is not None
        raise problem

    async def group(self, name: str) -> SubscriptionGroupConfig:
        """The settings of a consumer group; a new group has the defaults."""
        return await self._groups.get(name)

    async def _ask_group(self, name: str) -> SubscriptionGroupConfig:
        problem: PyroError | None = None
        is_new = False
        for address in await self._cluster.addresses():
            try:
                return (await self._cluster.call_address(address, GetGroupConfig(group=name))).body
            except TransportError as failure:
                problem = failure
            except Refused as refusal:
                if refusal.code not in (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.SYSTEM_ERROR):
                    raise
                is_new = True  # unless a broker of other topics has it
        if problem is not None and not is_new:
            raise problem
        return SubscriptionGroupConfig(group_name=name)

    async def check_type(self, topic: str, message_type: str) -> None:
        """Raises Rejected, with what to do about it, unless the topic takes messages of this type."""
        if not topic.startswith(_OF_ANY_TYPE):
            self.compare_type(topic, message_type, await self.type_of(topic))

    def compare_type(self, topic: str, message_type: str, wanted: str) -> None:
        """The same for a type that is known."""
        if wanted not in (message_type, MIXED) and not topic.startswith(_OF_ANY_TYPE):
            raise Rejected(
                Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"a message of type {message_type} for topic {topic}, which takes {wanted}; to change that:"
                f" mqadmin updateTopic -n '{self._cluster.name_servers}' -c CLUSTER -t {topic}"
                f" -a +{_ATTRIBUTE}={message_type}",
            )
