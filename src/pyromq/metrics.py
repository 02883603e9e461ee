"""Metrics: plain numbers owned by one event loop, turned into text or requests only when these are wanted.

Nothing here locks: a metric is written by the loop that owns it, and read there too. Adding to a counter or
observing a duration costs a dictionary lookup and an addition or two. The text is made in pieces, because
that of very many topics takes seconds: the loop does other work between them.
"""

import platform
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from pyromq import compiled
from pyromq.version import version

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

Labels = tuple[str, ...]
V = TypeVar("V")

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

LATENCY_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds of latency buckets: from a route served out of memory to a call that nearly timed out."""


_PIECE = 200
"""Lines in one piece of text: a few milliseconds of work."""


class _Source(Protocol):
    def families(self) -> "Iterator[Metric]":
        """The metric in parts, each with some of its sets of labels; at least one."""
        ...


class _Readings:
    """Numbers by label that are kept elsewhere: they are read on request, so that they cost nothing."""

    __slots__ = ("_read", "_sentence", "label_names", "name")

    def __init__(
        self, name: str, sentence: str, read: Callable[[], Mapping[Labels, float]], label_names: Labels = ()
    ) -> None:
        self.name = name
        self.label_names = label_names
        self._sentence = sentence
        self._read = read

    def values(self) -> Mapping[Labels, float]:
        return self._read()

    def families(self) -> "Iterator[Metric]":
        for some in _pieces_of(self._read()):
            family = self._empty_family()
            for labels, value in some:
                family.add_metric(labels, value)
            yield family

    def _empty_family(self) -> "CounterMetricFamily | GaugeMetricFamily":
        raise NotImplementedError


class CounterReading(_Readings):
    """How often something happened, since the start."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {sum(self._read().values())}>"

    def _empty_family(self) -> "CounterMetricFamily":
        from prometheus_client.core import CounterMetricFamily

        return CounterMetricFamily(self.name, self._sentence, labels=self.label_names)


class Counter(CounterReading):
    """A count that is kept here; compiled code may add to `counts` directly."""

    __slots__ = ("counts",)

    def __init__(self, name: str, sentence: str, label_names: Labels = ()) -> None:
        self.counts: dict[Labels, int] = {} if label_names else {(): 0}
        super().__init__(name, sentence, lambda: self.counts, label_names)

    def add(self, labels: Labels = (), amount: int = 1) -> None:
        counts = self.counts
        counts[labels] = counts.get(labels, 0) + amount

    def count(self, labels: Labels = ()) -> int:
        return self.counts.get(labels, 0)


class Gauge(_Readings):
    """A value as it is right now."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<Gauge {self.name}>"

    def _empty_family(self) -> "GaugeMetricFamily":
        from prometheus_client.core import GaugeMetricFamily

        return GaugeMetricFamily(self.name, self._sentence, labels=self.label_names)


class Distribution:
    """The counts of a histogram's buckets, and the sum of all values.

    Callers that observe very often may keep one and add to it directly.
    """

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts: list[float] = [0] * buckets
        self.total = 0.0


class Histogram:
    """How values spread over fixed buckets."""

    __slots__ = ("_distributions", "_sentence", "bounds", "label_names", "name")

    def __init__(self, name: str, sentence: str, bounds: Iterable[float], label_names: Labels = ()) -> None:
        self.name = name
        self.label_names = label_names
        self._sentence = sentence
        self.bounds = tuple(bounds)
        if not self.bounds or list(self.bounds) != sorted(set(self.bounds)):
            raise ValueError(f"{name}: bucket bounds must rise, not {self.bounds}")
        self._distributions: dict[Labels, Distribution] = {}

    def __repr__(self) -> str:
        return f"<Histogram {self.name} {sum(sum(each.counts) for each in self._distributions.values())}>"

    def observe(self, value: float, labels: Labels = (), weight: float = 1) -> None:
        """Count a value, as often as `weight` says."""
        distribution = self.of(labels)
        distribution.counts[bisect_left(self.bounds, value)] += weight
        distribution.total += value * weight

    def of(self, labels: Labels = ()) -> Distribution:
        distribution = self._distributions.get(labels)
        if distribution is None:
            distribution = self._distributions[labels] = Distribution(len(self.bounds) + 1)
        return distribution

    def count(self, labels: Labels = ()) -> float:
        distribution = self._distributions.get(labels)
        return sum(distribution.counts) if distribution else 0

    def families(self) -> "Iterator[Metric]":
        from prometheus_client.core import HistogramMetricFamily

        upper_bounds = [*map(repr, map(float, self.bounds)), "+Inf"]
        for some in _pieces_of(self._distributions, len(upper_bounds) + 2):
            family = HistogramMetricFamily(self.name, self._sentence, labels=self.label_names)
            for labels, distribution in some:
                below: float = 0
                buckets: list[tuple[str, float]] = []
                for bound, count in zip(upper_bounds, distribution.counts, strict=True):
                    below += count
                    buckets.append((bound, below))
                family.add_metric(labels, buckets, distribution.total)
            yield family


class Measured(Protocol):
    def families(self) -> "Iterable[Metric | None]":
        """All metrics in parts, None where one takes long: the loop does other work between them."""
        ...


class Metrics:
    """All metrics of one server; `labels` are those that every one of them has."""

    def __init__(self, labels: Mapping[str, str] | None = None) -> None:
        self._labels = dict(labels or {})
        for name in self._labels:
            _check_name(name)
        self._sources: dict[str, _Source] = {}
        self.labelled_gauge(
            "pyromq_build_info",
            "Always 1; the labels say what runs.",
            lambda: {_build(): 1},
            ("version", "python", "compiled"),
        )

    def __repr__(self) -> str:
        return f"<Metrics {len(self._sources)}>"

    def counter(self, name: str, sentence: str, label_names: Labels = ()) -> Counter:
        counter = Counter(name, sentence, label_names)
        self._register(name, label_names, counter)
        return counter

    def read_counter(self, name: str, sentence: str, read: Callable[[], int]) -> CounterReading:
        return self.labelled_read_counter(name, sentence, lambda: {(): read()}, ())

    def labelled_read_counter(
        self, name: str, sentence: str, read: Callable[[], Mapping[Labels, int]], label_names: Labels
    ) -> CounterReading:
        counter = CounterReading(name, sentence, read, label_names)
        self._register(name, label_names, counter)
        return counter

    def gauge(self, name: str, sentence: str, read: Callable[[], float]) -> Gauge:
        return self.labelled_gauge(name, sentence, lambda: {(): read()}, ())

    def labelled_gauge(
        self, name: str, sentence: str, read: Callable[[], Mapping[Labels, float]], label_names: Labels
    ) -> Gauge:
        gauge = Gauge(name, sentence, read, label_names)
        self._register(name, label_names, gauge)
        return gauge

    def histogram(
        self, name: str, sentence: str, label_names: Labels = (), bounds: Iterable[float] = LATENCY_SECONDS
    ) -> Histogram:
        return self.offer(Histogram(name, sentence, bounds, label_names))

    def offer(self, histogram: Histogram) -> Histogram:
        """A histogram that somebody else observes."""
        self._register(histogram.name, histogram.label_names, histogram)
        return histogram

    def families(self) -> "Iterator[Metric]":
        """Everything counted in parts, together with what the system says of this process."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        for source in self._sources.values():
            for family in source.families():
                if self._labels:
                    family.samples = [
                        sample._replace(labels=self._labels | sample.labels) for sample in family.samples
                    ]
                yield family
        registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=registry)
        yield from registry.collect()

    def _register(self, name: str, label_names: Labels, source: _Source) -> None:
        if name in self._sources:
            raise ValueError(f"{name} is registered already")
        for each in (name, *label_names):
            _check_name(each)
        self._sources[name] = source


def content_type() -> str:
    """Of the text that `Metrics` gives. The first call loads Prometheus' library, which takes a while."""
    from prometheus_client import CONTENT_TYPE_LATEST

    return CONTENT_TYPE_LATEST


def text_of(families: "Iterable[Metric | None]") -> Iterator[bytes]:
    """The text that Prometheus reads, in pieces; an empty one where there is nothing yet."""
    from prometheus_client import generate_latest

    last = ""
    for family in families:
        if family is None:
            yield b""
            continue
        text = generate_latest(_OneFamily(family))
        # Only the first part of a metric says what it is.
        yield text if family.name != last else text.split(b"\n", 2)[2]
        last = family.name


class _OneFamily:
    """A collection of metrics as Prometheus' library wants it."""

    def __init__(self, family: "Metric") -> None:
        self._family = family

    def collect(self) -> "Iterator[Metric]":
        yield self._family


def _pieces_of(values: Mapping[Labels, V], lines_each: int = 1) -> Iterator[list[tuple[Labels, V]]]:
    """The current values in pieces; one empty piece if there are none."""
    items = list(values.items())
    step = max(_PIECE // lines_each, 1)
    for start in range(0, len(items) or 1, step):
        yield items[start : start + step]


def _build() -> Labels:
    return version(), platform.python_version(), "yes" if compiled.IS_COMPILED else "no"


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a valid name for a metric or a label")
