"""Joins the parts that brokers reported into topics and groups of the whole cluster. Pure, and in slices."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

import msgspec

from pyromq.admin.topics import is_derived
from pyromq.console.watch.broker_part import BrokerPart, PairPart, TopicPart
from pyromq.console.watch.forecast import LagForecast, LossClock
from pyromq.console.watch.values import GroupState, GroupTopicView, GroupView, LastAnswer, TopicView
from pyromq.protocol import names

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

STUCK_AFTER_S = 120.0
_CHUNK = 50
"""Number of parts that are added between two looks at the clock."""


class Spread(Protocol):
    """Yields the items, with a pause whenever this turn of the loop took long enough."""

    def __call__(self, items: Iterable[T]) -> AsyncIterator[T]: ...


# There are ten thousand of these for a moment: the garbage collector does not have to look at them. A sum is
# as old as its oldest part, and has the first problem of its parts.


class _TopicSum(msgspec.Struct, gc=False):
    kind: str
    at_ms: int | None
    problem: str
    read: int = 0
    write: int = 0
    perm: int = 0
    brokers: tuple[str, ...] = ()
    held: int | None = None
    in_per_s: float | None = None
    out_per_s: float | None = None
    groups: dict[str, int] = msgspec.field(default_factory=dict)


class _PairSum(msgspec.Struct, gc=False):
    """A group in one topic."""

    lag: int = 0
    oldest_ms: int | None = None
    out_per_s: float | None = None
    lost: int | None = None


class _GroupSum(msgspec.Struct, gc=False):
    at_ms: int | None
    problem: str
    members: int | None = None
    is_broadcasting: bool | None = None
    topics: dict[str, _PairSum] = msgspec.field(default_factory=dict)
    moved_at: float | None = None
    out_per_s: float | None = None
    lost: int | None = None


def _add_told(whole: _TopicSum | _GroupSum, told: LastAnswer) -> None:
    if told.at_ms is not None and (whole.at_ms is None or told.at_ms < whole.at_ms):
        whole.at_ms = told.at_ms
    if told.problem and not whole.problem:
        whole.problem = told.problem


class Joined:
    """Topics and groups of all parts, summed up. Taking one frees its sums, so that ten thousand of them are
    not freed at once: groups first, which look at the topics of their dead letters."""

    def __init__(self) -> None:
        self.topics: dict[str, _TopicSum] = {}
        self.groups: dict[str, _GroupSum] = {}

    async def add(self, part: BrokerPart, spread: Spread) -> None:
        told = part.lists_told
        async for topics in spread(_chunks(part.topics)):
            for topic, here in topics:
                self._add_topic(topic, here, part.member.broker_name, told)
        # Most groups have no members at most brokers.
        async for groups in spread(_chunks(part.groups)):
            for group, (members, is_broadcasting) in groups:
                found = self.groups.get(group)
                if found is None:
                    found = self.groups[group] = _GroupSum(told.at_ms, told.problem)
                # Members are connected to every broker of their topics: the largest number is the true one.
                if members is not None and (found.members is None or members > found.members):
                    found.members = members
                if is_broadcasting is not None:
                    found.is_broadcasting = found.is_broadcasting or is_broadcasting
        async for pairs in spread(_chunks(part.pairs)):
            for (topic, group), pair in pairs:
                self._add_pair(topic, group, pair, told)

    def _add_topic(self, topic: str, here: TopicPart, broker_name: str, told: LastAnswer) -> None:
        whole = self.topics.get(topic)
        if whole is None:
            whole = self.topics[topic] = _TopicSum(here.shape.kind, told.at_ms, told.problem)
        else:
            _add_told(whole, told)
        whole.brokers += (broker_name,)
        whole.read += here.shape.read_queues
        whole.write += here.shape.write_queues
        whole.perm |= here.shape.perm
        whole.held = plus(whole.held, here.held)
        whole.in_per_s = plus(whole.in_per_s, here.in_per_s)

    def _add_pair(self, topic: str, group: str, pair: PairPart, told: LastAnswer) -> None:
        found = self.groups.get(group)
        if found is None:
            found = self.groups[group] = _GroupSum(told.at_ms, told.problem)
        else:
            _add_told(found, told)
        whole = found.topics.get(topic)
        if whole is None:
            whole = found.topics[topic] = _PairSum()
        whole.lag += pair.lag
        whole.out_per_s, whole.lost = plus(whole.out_per_s, pair.out_per_s), plus(whole.lost, pair.lost)
        if pair.oldest_ms and (whole.oldest_ms is None or pair.oldest_ms < whole.oldest_ms):
            whole.oldest_ms = pair.oldest_ms
        found.out_per_s = plus(found.out_per_s, pair.out_per_s)
        found.lost = plus(found.lost, pair.lost)
        if found.moved_at is None or pair.moved_at > found.moved_at:
            found.moved_at = pair.moved_at
        read = self.topics.get(topic)
        if read is not None:
            read.groups[group] = read.groups.get(group, 0) + pair.lag
            read.out_per_s = plus(read.out_per_s, pair.out_per_s)

    def take_topic(
        self, name: str, system: frozenset[str], trend: tuple[float, ...], before: TopicView | None
    ) -> TopicView:
        """`before` is the view of the last snapshot: what is the same is not made again."""
        found = self.topics.pop(name)
        worst = max(found.groups, key=found.groups.__getitem__, default=None)
        brokers, groups = found.brokers, tuple(sorted(found.groups))
        if before is not None:
            brokers = before.brokers if before.brokers == brokers else brokers
            groups = before.groups if before.groups == groups else groups
        return TopicView(
            name=name,
            kind=found.kind,
            is_system=is_system_topic(name, system),
            brokers=brokers,
            read_queues=found.read,
            write_queues=found.write,
            perm=found.perm,
            in_per_s=found.in_per_s,
            out_per_s=found.out_per_s,
            messages=found.held,
            worst_lag=None if worst is None else found.groups[worst],
            worst_group=worst,
            groups=groups,
            trend=trend,
            told=LastAnswer(found.at_ms, found.problem),
            is_derived=is_derived(name),
        )

    def take_group(
        self,
        name: str,
        now_s: float,
        members_changed_s: float | None,
        *,
        forecast: LagForecast | None,
        loss: LossClock | None,
        trend: tuple[float, ...],
    ) -> GroupView:
        found = self.groups.pop(name)
        topics = sorted(
            (
                GroupTopicView(topic, each.lag, each.oldest_ms, each.out_per_s, each.lost)
                for topic, each in found.topics.items()
            ),
            key=_worst_first,
        )
        lag = sum(each.lag for each in topics) if topics else None
        times = [each.oldest_unread_ms for each in topics if each.oldest_unread_ms is not None]
        letters = self.topics.get(names.dlq_topic(name))
        return GroupView(
            name=name,
            is_system=name in names.SYSTEM_GROUPS or names.is_system_group(name),
            state=_state(found, lag or 0, now_s, members_changed_s),
            lag=lag,
            oldest_unread_ms=min(times, default=None),
            members=found.members,
            is_broadcasting=found.is_broadcasting,
            out_per_s=found.out_per_s,
            topics=tuple(topics),
            lost=found.lost,
            dead_letters=0 if letters is None else letters.held,
            forecast=forecast,
            loss=loss,
            trend=trend,
            told=LastAnswer(found.at_ms, found.problem),
        )


def _worst_first(view: GroupTopicView) -> tuple[int, str]:
    return -view.lag, view.topic


def _state(found: _GroupSum, lag: int, now_s: float, members_changed_s: float | None) -> GroupState:
    if found.members == 0:
        return GroupState.EMPTY
    if members_changed_s is not None:
        return GroupState.BALANCING
    is_still = found.moved_at is None or now_s - found.moved_at >= STUCK_AFTER_S
    if found.members is None:
        # Apache's brokers do not report the members: only a group whose offsets move is known to have some.
        return GroupState.UNKNOWN if is_still else GroupState.READING
    return GroupState.STUCK if lag and is_still else GroupState.READING


def plus(one: T | None, other: T | None) -> T | None:
    """The sum of what is known."""
    if one is None or other is None:
        return other if one is None else one
    return one + other  # type: ignore[operator, no-any-return]


def _chunks(table: Mapping[K, V]) -> Iterator[Iterable[tuple[K, V]]]:
    """Of the table as it is now. There is no list of pairs: the garbage collector would look at each."""
    keys, values = list(table), list(table.values())
    for start in range(0, len(keys), _CHUNK):
        end = start + _CHUNK
        yield zip(keys[start:end], values[start:end], strict=True)


def is_system_topic(name: str, system: frozenset[str]) -> bool:
    return name in names.SYSTEM_TOPICS or name in system or name.startswith(names.SYSTEM_TOPIC_PREFIX)


def system_topics(parts: Mapping[str, BrokerPart]) -> frozenset[str]:
    """Each cluster and each broker has its own topics, named after it."""
    found: set[str] = set()
    for part in parts.values():
        member = part.member
        found |= {member.cluster, member.broker_name, names.reply_topic(member.cluster)}
    return frozenset(found)
