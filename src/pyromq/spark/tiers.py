"""The messages that the tiers of some brokers have of the topics that are read. The driver plans with them.

Where brokers are asked as well, they say which messages are read; the tier only changes where from. Without
brokers it answers all questions itself.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from pyromq.clock import SystemClock
from pyromq.errors import ConfigError, PyroError, TransportError
from pyromq.protocol import json_body
from pyromq.protocol.requests.topics import TopicConfigSerializeWrapper
from pyromq.protocol.topic_ages import max_age_ms
from pyromq.spark.cluster import SparkCluster, matches_pattern
from pyromq.spark.compacted import is_compacting
from pyromq.spark.fetch import report, report_loss
from pyromq.spark.option_kinds import LATEST
from pyromq.spark.options import ReadOptions, Selection
from pyromq.spark.positions import end_option, resolve_spans
from pyromq.spark.queues import Queue, Span
from pyromq.spark.tier_parts import TierPart, split
from pyromq.tier.footers import read_footer
from pyromq.tier.index import Spans, TierIndex, TierSpan, is_internal, span_at, spans_of
from pyromq.tier.manifest import Manifest, SegmentEntry, gone_before
from pyromq.tier.manifests import Manifests
from pyromq.tier.objects import ObjectMissing
from pyromq.tier.open_segment import OpenSegment
from pyromq.tier.opening import brokers_at, open_objects
from pyromq.tier.segment_format import BadObject
from pyromq.tier.tables import TOPICS, parse_tables

_log = logging.getLogger(__name__)

_FOOTERS_AT_ONCE: Final = 8

IsWanted = Callable[[str], bool]


class BrokerTier:
    """The tier of one broker name. Everything may raise TransportError, WrongTier or BadObject."""

    def __init__(self, place: str, cluster: str, broker: str, is_wanted: IsWanted) -> None:
        self.cluster = cluster
        self._objects = open_objects(place, cluster, broker, key="tier")
        self._manifests = Manifests(self._objects, cluster, broker, "")
        self._is_wanted = is_wanted
        self._now_ms = 0
        self._attributes: Mapping[str, Mapping[str, str]] = {}
        self.is_there = False
        self.index = TierIndex()
        self.unknown: dict[SegmentEntry, str] = {}
        """The segments whose footers cannot be read, and why."""

    def __repr__(self) -> str:
        return f"<BrokerTier {self._objects.place}>"

    def load(self) -> None:
        """Find out what there is now. What was found out before is not read again."""
        self._now_ms = SystemClock().now_ms()
        self.is_there = self.is_there or self._manifests.tier_id() is not None
        manifest = self._manifests.read_newest()
        if manifest == self.index.manifest and not self.unknown:
            return
        while manifest is not None:
            parts, self.unknown = self._parts(manifest)
            newest = self._manifests.read_newest()
            if newest is None or not self.unknown or newest.number == manifest.number:
                self.index = TierIndex(manifest, parts)
                self._attributes = self._topics(manifest)
                return
            manifest = newest  # what is missing may have been replaced meanwhile

    def _parts(self, manifest: Manifest) -> tuple[dict[str, Spans], dict[SegmentEntry, str]]:
        parts: dict[str, Spans] = {}
        unknown: dict[SegmentEntry, str] = {}
        known = self.index.parts

        def spans_of_entry(entry: SegmentEntry) -> Spans | str:
            return known[entry.name] if entry.name in known else self._spans(entry)

        with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
            found = threads.map(spans_of_entry, manifest.segments)
            for entry, spans in zip(manifest.segments, found, strict=True):
                if isinstance(spans, str):
                    unknown[entry] = spans
                else:
                    parts[entry.name] = spans
        return parts, unknown

    def _spans(self, entry: SegmentEntry) -> Spans | str:
        """Those of the topics that are read; or why they are not known."""
        try:
            found = spans_of(entry, read_footer(self._objects, entry))
        except ObjectMissing:
            return f"{self._objects.place}/{entry.name} is missing"
        except BadObject as problem:
            return f"{self._objects.place}/{entry.name} is damaged: {problem}"
        return tuple(each for each in found if self._is_wanted(each[0][0]))

    def _topics(self, manifest: Manifest) -> Mapping[str, Mapping[str, str]]:
        """The attributes of the topics, as they were when the newest segment came, or later."""
        name = manifest.tables
        if not name:
            return {}
        try:
            text = parse_tables(self._objects.read(name)).files.get(TOPICS, "{}")
            table = json_body.decode(text.encode(), TopicConfigSerializeWrapper).topic_config_table
        except TransportError:
            raise
        except PyroError as problem:
            _log.warning("no topic has attributes: %s/%s: %s", self._objects.place, name, problem)
            return {}
        return {topic: each.attributes for topic, each in table.items()}

    def is_compacted(self, topic: str) -> bool:
        return is_compacting(self._attributes.get(topic, {}))

    def spans(self, queue: Queue) -> Sequence[TierSpan]:
        """Those with messages that readers may see."""
        return self.index.visible(
            (queue.topic, queue.queue_id), self._gone_before(queue), self._oldest_ms(queue.topic)
        )

    def _gone_before(self, queue: Queue) -> int:
        return gone_before(self.index.hidden, queue.topic, queue.queue_id)

    def _oldest_ms(self, topic: str) -> int:
        age_ms = max_age_ms(self._attributes.get(topic, {}))
        return self._now_ms - age_ms if age_ms else 0

    def first(self, queue: Queue, since_ms: int = 0) -> int | None:
        """The first message that readers may see and that was stored at or after a time."""
        since_ms = max(since_ms, self._oldest_ms(queue.topic))
        spans = self.spans(queue)
        number = bisect_left(spans, since_ms, key=lambda each: each.last_ms)
        if number == len(spans):
            return None
        span, gone = spans[number], self._gone_before(queue)
        if span.first_ms >= since_ms and span.first_log >= gone:
            return span.first_offset
        entry = span.segment
        try:
            segment = OpenSegment(self._objects, entry, read_footer(self._objects, entry))
            return segment.first_offset(segment.footer.runs[span.number], since_ms, gone)
        except ObjectMissing:
            raise BadObject(f"{self._objects.place}/{entry.name} is missing") from None
        except BadObject as problem:
            raise BadObject(f"{self._objects.place}/{entry.name} is damaged: {problem}") from None

    @property
    def last_ms(self) -> int:
        """All messages that were stored before that are in the tier, or were."""
        manifest = self.index.manifest
        return manifest.segments[-1].last_ms if manifest is not None and manifest.segments else 0


class Tiers:
    def __init__(
        self, cluster: SparkCluster, options: ReadOptions, clusters: Mapping[str, str], is_wanted: IsWanted
    ) -> None:
        """`clusters`: the brokers whose tiers are read, and their clusters."""
        assert options.tier is not None
        self.place = options.tier
        self._options = options
        self._is_wanted = is_wanted
        self._persist = partial(cluster.persist, "the tier")
        self._tiers: dict[str, BrokerTier] = {}
        for broker, its_cluster in sorted(clusters.items()):
            self.add(broker, its_cluster)

    def __repr__(self) -> str:
        return f"<Tiers {self.place} {sorted(self._tiers)}>"

    def __bool__(self) -> bool:
        return bool(self._tiers)

    def add(self, broker: str, cluster: str) -> None:
        """Find out what the tier of a further broker has."""
        tier = BrokerTier(self.place, cluster, broker, self._is_wanted)
        self._persist(tier.load)
        if tier.is_there:
            self._tiers[broker] = tier
        else:
            _log.warning("%s has no tier of the broker %s", self.place, broker)

    def load(self, broker: str, *, patient: bool) -> None:
        """Find out what the tier of a broker has now."""
        if (tier := self._tiers.get(broker)) is not None:
            self._persist(tier.load) if patient else tier.load()

    def reaches(self, queue: Queue, offset: int) -> bool:
        """Whether the tier has messages from an offset on, as far as that is known."""
        tier = self._tiers.get(queue.broker)
        spans = tier.spans(queue) if tier is not None else ()
        return bool(spans) and offset < spans[-1].end_offset

    def record_bytes(self, queue: Queue, offset: int) -> int | None:
        """The mean size of the messages around an offset; None if the tier does not have it."""
        tier = self._tiers.get(queue.broker)
        spans = tier.spans(queue) if tier is not None else ()
        number = span_at(spans, offset)
        if number < 0 or offset >= spans[number].end_offset:
            return None
        span = spans[number]
        return max(span.size_bytes // (span.end_offset - span.first_offset), 1)

    @property
    def unknown(self) -> dict[SegmentEntry, str]:
        return {entry: why for tier in self._tiers.values() for entry, why in tier.unknown.items()}

    def split(self, span: Span, *, is_from_first: bool) -> tuple[list[TierPart], list[Span]]:
        """The parts of a span that the tier has, and the rest, for brokers. `is_from_first`: it begins at
        what was the first message of its queue, so what was deleted there is not missing."""
        if not span.size:
            return [], []
        tier = self._tiers.get(span.queue.broker)
        if tier is None or tier.is_compacted(span.queue.topic):
            return [], [span]
        spans = tier.spans(span.queue)
        if not spans:
            return [], [span]
        # Only the first ones may be hidden of those that readers may see at all.
        is_behind = span.start >= spans[0].end_offset
        first = spans[0].end_offset if is_behind else self._first(span.queue)
        if first is None:
            return [], [span]
        if is_from_first and spans[0].first_offset <= span.start < first:
            span = span._replace(start=min(first, span.end))  # deleted, or too old
        return split(span, tier.cluster, spans, first)

    def _first(self, queue: Queue, since_ms: int = 0) -> int | None:
        tier = self._tiers.get(queue.broker)
        return self._persist(lambda: tier.first(queue, since_ms)) if tier is not None else None

    # What brokers are asked otherwise

    def queues(self, selection: Selection) -> list[Queue]:
        """The queues with messages in the tier. Raises ConfigError."""
        there = {
            Queue(topic, broker, queue_id)
            for broker, tier in self._tiers.items()
            for topic, queue_id in tier.index.queues
            if tier.spans(Queue(topic, broker, queue_id))
        }
        if selection.queues is not None:
            if missing := selection.queues - there:
                expected = f"queues with messages in the tier {self.place}"
                raise ConfigError("assign", str(min(missing)), expected)
            there &= selection.queues
        for topic in selection.topics:
            if all(each.topic != topic for each in there):
                raise ConfigError("subscribe", topic, f"topics with messages in the tier {self.place}")
        for queue in there:
            if self._tiers[queue.broker].is_compacted(queue.topic):
                expected = "no compacted topics: read them from brokers, without the option tier"
                raise ConfigError("subscribe", queue.topic, expected)
        return sorted(there)

    def without_messages(self, named: Iterable[Queue], others: Sequence[Queue]) -> list[Queue]:
        """Those of the named queues that are of the same topics and brokers as the others."""
        topics = {queue.topic for queue in others}
        return [queue for queue in named if queue.topic in topics and queue.broker in self._tiers]

    def readable_queues(self, topic: str) -> list[Queue]:
        return self.queues(Selection(topics=(topic,)))

    def earliest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        return {queue: self._first(queue) or 0 for queue in queues}

    def latest(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        spans = {queue: self._tiers[queue.broker].spans(queue) for queue in queues}
        return {queue: found[-1].end_offset if found else 0 for queue, found in spans.items()}

    def committed(self, group: str, queues: Iterable[Queue]) -> dict[Queue, int]:
        raise ConfigError("startingOffsets", "group", "another start: brokers know what groups have read")

    def at_time(self, timestamps: Mapping[Queue, int]) -> dict[Queue, int | None]:
        return {queue: self._first(queue, time_ms) for queue, time_ms in timestamps.items()}

    def check_ends(self, queues: Sequence[Queue]) -> None:
        """Raise ConfigError unless the tier has everything before the ends that are asked for."""
        end, name = self._options.end, end_option(self._options)
        if end.kind == "offsets":
            newest = self.latest(queues)
            for queue, offset in (end.numbers or {}).items():
                if offset == LATEST or offset > newest.get(queue, offset):
                    last = newest.get(queue, 0)
                    expected = f"no end behind {last}, where the tier ends, or the option namesrv"
                    raise ConfigError(name, f"{queue} at {offset}", expected)
        if end.kind in ("timestamp", "timestamps"):
            for queue in queues:
                time_ms = end.timestamp_ms if end.numbers is None else end.numbers.get(queue, 0)
                if time_ms > (known_ms := self._tiers[queue.broker].last_ms):
                    expected = f"no time after {known_ms}, where the tier ends, or the option namesrv"
                    raise ConfigError(name, f"{queue} at {time_ms}", expected)


def planned(cluster: SparkCluster, options: ReadOptions) -> tuple[list[TierPart], list[Span]]:
    """The parts that a batch reads from the tier, and the spans that it reads from brokers."""
    if options.is_without_brokers:
        return _from_tier(cluster, options), []
    queues = cluster.queues(options.selection)
    spans = resolve_spans(cluster, options, queues)
    return below_seam(cluster, options, spans)


def below_seam(
    cluster: SparkCluster, options: ReadOptions, spans: Sequence[Span]
) -> tuple[list[TierPart], list[Span]]:
    """The parts of some spans that the tier has, and the rest, for brokers."""
    spans = [span for span in spans if span.size]
    topics = {span.queue.topic for span in spans if not is_internal(span.queue.topic)}
    clusters = {span.queue.broker: cluster.cluster_of(span.queue) for span in spans}
    if not clusters:
        return [], []
    tiers = Tiers(cluster, options, clusters, topics.__contains__)
    if not tiers:
        raise nothing_there(options, ", ".join(f"{clusters[each]}/{each}" for each in sorted(clusters)))
    for why in tiers.unknown.values():
        _log.warning("brokers are asked for its messages: %s", why)
    parts: list[TierPart] = []
    rest: list[Span] = []
    for span in spans:
        found, others = tiers.split(span, is_from_first=options.start.kind == "earliest")
        parts += found
        rest += others
    return parts, rest


def _from_tier(cluster: SparkCluster, options: ReadOptions) -> list[TierPart]:
    selection = options.selection
    tiers = Tiers(cluster, options, _brokers(cluster, options), wanted(selection))
    for why in tiers.unknown.values():
        report(f"{why}. Its messages are unknown", fails=options.fail_on_data_loss)
    queues = tiers.queues(selection)
    queues = sorted({*queues, *tiers.without_messages(options.end.numbers or (), queues)})
    tiers.check_ends(queues)
    parts: list[TierPart] = []
    for span in resolve_spans(tiers, options, queues):
        found, gaps = tiers.split(span, is_from_first=options.start.kind == "earliest")
        for gap in gaps:
            why = f"the tier {tiers.place} does not have them"
            report_loss(gap.queue, gap.start, gap.end, why, fails=options.fail_on_data_loss)
        parts += found
    return parts


def _brokers(cluster: SparkCluster, options: ReadOptions) -> dict[str, str]:
    """The brokers that have a tier, and their cluster."""
    assert options.tier is not None
    place = options.tier
    found = cluster.persist("the tier", lambda: brokers_at(place, "tier"))
    clusters = sorted({each for each, _ in found})
    chosen = options.tier_cluster
    if chosen is None and len(clusters) > 1:
        raise ConfigError("tierCluster", "", f"one of {', '.join(clusters)}")
    brokers = {broker: each for each, broker in found if chosen in (None, each)}
    if options.selection.queues is not None:
        named = {queue.broker for queue in options.selection.queues}
        brokers = {broker: each for broker, each in brokers.items() if broker in named}
    if not brokers:
        raise nothing_there(options, chosen or "any cluster")
    return brokers


def nothing_there(options: ReadOptions, whose: str) -> ConfigError:
    return ConfigError("tier", options.tier, f"the tieredStoreFilePath of {whose}: nothing of it is there")


def wanted(selection: Selection) -> IsWanted:
    if selection.pattern is not None:
        return matches_pattern(selection.pattern)
    names = set(selection.topics) | {queue.topic for queue in selection.queues or ()}
    return lambda topic: topic in names and not is_internal(topic)
