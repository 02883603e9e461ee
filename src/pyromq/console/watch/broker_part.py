"""One broker's part: its own figures, and its share of every topic and group.

Pure: answers and times in, parts out. Rates are differences between two answers, by the broker's own clock
where it reports it.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from pyromq.admin.cluster import BrokerMember
from pyromq.console.watch.values import BrokerKind, LastAnswer
from pyromq.protocol.requests.inspection import Figures, StoreFigures
from pyromq.protocol.requests.topics import TopicConfig

UNSPECIFIED = "UNSPECIFIED"
_TYPE_ATTRIBUTE = "message.type"

GroupOfTopic = tuple[str, str]
"""A topic and a group."""


class TopicShape(NamedTuple):
    """Equal shapes are one object: a hundred brokers may have ten thousand topics each."""

    read_queues: int
    write_queues: int
    perm: int
    is_ordered: bool
    kind: str


# There are tens of thousands of these: the garbage collector does not have to look at them.


class TopicPart(msgspec.Struct, gc=False):
    """One topic on one broker; `held` and `in_per_s` are None if the broker does not report them."""

    shape: TopicShape
    held: int | None = None
    counter: int | None = None
    in_per_s: float | None = None


class PairPart(msgspec.Struct, gc=False):
    """One group in one topic on one broker."""

    moved_at: float
    """When its counter last moved, on our monotonic clock."""
    lag: int = 0
    oldest_ms: int = 0
    lost: int | None = None
    counter: int | None = None
    out_per_s: float | None = None


class BrokerQueueLag(NamedTuple):
    """One group in one queue, as Apache's brokers report it; `last_ms` is the time of its last message
    read."""

    topic: str
    group: str
    queue_id: int
    end: int
    offset: int
    last_ms: int


class BrokerPart:
    def __init__(self, member: BrokerMember) -> None:
        self.member = member
        self.source = BrokerKind.UNKNOWN
        self.told = LastAnswer()
        self.lists_told = LastAnswer()
        self.runtime: Mapping[str, str] = {}
        self.settings: Mapping[str, str] = {}
        self.store: StoreFigures | None = None
        self.topics: dict[str, TopicPart] = {}
        self.pairs: dict[GroupOfTopic, PairPart] = {}
        self.groups: dict[str, tuple[int | None, bool | None]] = {}
        """Members, and whether it broadcasts."""
        self.version: str | None = None
        """Of its last figures."""
        self._counted_ms = 0
        self._offsets_s: float | None = None
        self._ends_s: float | None = None
        self._moving_in: set[str] = set()
        self._moving_out: set[GroupOfTopic] = set()
        self._shapes: dict[TopicShape, TopicShape] = {}

    def __repr__(self) -> str:
        return f"<BrokerPart {self.member.broker_name} {self.source} topics={len(self.topics)}>"

    def has_nothing_yet(self) -> bool:
        """Whether its next figures are all it has, and not only what changed."""
        return self.version is None and self.source is not BrokerKind.APACHE

    def forget_lists(self) -> None:
        """Another broker of the group reports them from now on."""
        self.topics, self.pairs, self.groups = {}, {}, {}
        self.version, self.lists_told = None, LastAnswer()
        self._counted_ms, self._offsets_s, self._ends_s = 0, None, None
        self._moving_in, self._moving_out = set(), set()

    # From a broker of ours

    def take_figures(self, version: str, figures: Figures, now_s: float) -> None:
        self.source, self.version, self.store = BrokerKind.PYROMQ, version, figures.store
        if figures.has_all:
            self._drop_missing(figures)
        elapsed_s = (figures.at - self._counted_ms) / 1000 if self._counted_ms else 0.0
        if figures.has_all and self._counted_ms:
            elapsed_s = 0.0  # it has started again: its counters, too
        self._counted_ms = figures.at
        self._take_topics(figures)
        self._take_queues(figures.queues)
        self._take_stored(figures.stored, elapsed_s)
        self._take_lags(figures.lags, elapsed_s, now_s)
        for group, numbers in figures.groups.items():
            if numbers:
                self.groups[group] = numbers[0], None if numbers[1] < 0 else bool(numbers[1])
            else:
                self.groups.pop(group, None)

    def _drop_missing(self, figures: Figures) -> None:
        for table, told in ((self.topics, figures.topics), (self.groups, figures.groups)):
            for gone in table.keys() - told.keys():
                del table[gone]
        known = {_pair(key) for key in figures.lags}
        self.pairs = {pair: part for pair, part in self.pairs.items() if pair in known}
        self._moving_in, self._moving_out = set(), set()

    def _take_topics(self, figures: Figures) -> None:
        for topic, numbers in figures.topics.items():
            if not numbers:
                self.topics.pop(topic, None)
                self._moving_in.discard(topic)
                continue
            read, write, perm, ordered = numbers
            self._put_shape(
                topic, TopicShape(read, write, perm, bool(ordered), figures.types.get(topic, UNSPECIFIED))
            )

    def _put_shape(self, topic: str, shape: TopicShape) -> None:
        shape = self._shapes.setdefault(shape, shape)
        part = self.topics.get(topic)
        if part is None:
            self.topics[topic] = TopicPart(shape)
        else:
            part.shape = shape

    def _take_queues(self, queues: Mapping[str, list[int]]) -> None:
        for topic, ends in queues.items():
            part = self.topics.get(topic)
            if part is not None:
                part.held = sum(ends[1::2]) - sum(ends[0::2])

    def _take_stored(self, stored: Mapping[str, list[int]], elapsed_s: float) -> None:
        if elapsed_s > 0:
            for still in self._moving_in - stored.keys():
                self.topics[still].in_per_s = 0.0
            self._moving_in.intersection_update(stored)
        for topic, numbers in stored.items():
            part = self.topics.get(topic)
            if part is None or not numbers:
                continue
            part.in_per_s = _rate(part.counter or 0, numbers[0], elapsed_s)
            part.counter = numbers[0]
            if part.in_per_s:
                self._moving_in.add(topic)
        if elapsed_s > 0:
            for part in self.topics.values():
                if part.in_per_s is None:
                    part.in_per_s = 0.0

    def _take_lags(self, lags: Mapping[str, list[int]], elapsed_s: float, now_s: float) -> None:
        told = {_pair(key): numbers for key, numbers in lags.items()}
        if elapsed_s > 0:
            for still in self._moving_out - told.keys():
                if still in self.pairs:
                    self.pairs[still].out_per_s = 0.0
            self._moving_out.intersection_update(told)
        for pair, numbers in told.items():
            if not numbers:
                self.pairs.pop(pair, None)
                continue
            part = self._pair_part(pair, now_s)
            part.lag, part.oldest_ms, counter, part.lost = numbers
            if part.counter != counter:
                part.moved_at = now_s
            part.out_per_s = _rate(part.counter or 0, counter, elapsed_s)
            part.counter = counter
            if part.out_per_s:
                self._moving_out.add(pair)
        if elapsed_s > 0:
            for part in self.pairs.values():
                if part.out_per_s is None:
                    part.out_per_s = 0.0

    def _pair_part(self, pair: GroupOfTopic, now_s: float) -> PairPart:
        part = self.pairs.get(pair)
        if part is None:
            part = self.pairs[pair] = PairPart(now_s)
        return part

    # From a broker of Apache

    def take_topics(self, configs: Mapping[str, TopicConfig]) -> None:
        self.source = BrokerKind.APACHE
        for gone in self.topics.keys() - configs.keys():
            del self.topics[gone]
        for name, config in configs.items():
            self._put_shape(
                name,
                TopicShape(
                    config.read_queue_nums,
                    config.write_queue_nums,
                    config.perm,
                    config.order,
                    config.attributes.get(_TYPE_ATTRIBUTE, UNSPECIFIED),
                ),
            )

    def take_offsets(self, totals: Mapping[GroupOfTopic, int], now_s: float) -> None:
        """The offsets of every group in every topic, summed up: their growth is its rate."""
        elapsed_s = 0.0 if self._offsets_s is None else now_s - self._offsets_s
        self._offsets_s = now_s
        for pair, total in totals.items():
            part = self._pair_part(pair, now_s)
            if part.counter != total:
                part.moved_at = now_s
            part.out_per_s = None if part.counter is None else _rate(part.counter, total, elapsed_s)
            part.counter = total
        for gone in self.pairs.keys() - totals.keys():
            del self.pairs[gone]
        for _, group in totals:
            self.groups.setdefault(group, (None, None))

    def take_lags(self, lags: Iterable[BrokerQueueLag], groups: Iterable[str], now_s: float) -> None:
        """The lag of every group in every queue, and the names of all groups."""
        elapsed_s = 0.0 if self._ends_s is None else now_s - self._ends_s
        self._ends_s = now_s
        ends: dict[str, dict[int, int]] = {}
        behind: dict[GroupOfTopic, list[BrokerQueueLag]] = {}
        for each in lags:
            ends.setdefault(each.topic, {})[each.queue_id] = each.end
            behind.setdefault((each.topic, each.group), []).append(each)
        for pair, queues in behind.items():
            part = self._pair_part(pair, now_s)
            part.lag = sum(max(0, each.end - each.offset) for each in queues)
            times = [each.last_ms for each in queues if each.end > each.offset and each.last_ms > 0]
            part.oldest_ms = min(times, default=0)
        for topic, queues_ends in ends.items():
            topic_part = self.topics.get(topic)
            if topic_part is not None:
                end = sum(queues_ends.values())
                before, topic_part.counter = topic_part.counter, end
                topic_part.in_per_s = None if before is None else _rate(before, end, elapsed_s)
        named = set(groups)
        self.groups = {group: self.groups.get(group, (None, None)) for group in named} | {
            group: self.groups.get(group, (None, None)) for _, group in self.pairs
        }


def _pair(key: str) -> GroupOfTopic:
    topic, _, group = key.partition("@")
    return topic, group


def _rate(before: int, now: int, elapsed_s: float) -> float | None:
    """None if two answers are needed to know it; a counter that fell was started again."""
    if elapsed_s <= 0:
        return None
    return max(0, now - before) / elapsed_s
