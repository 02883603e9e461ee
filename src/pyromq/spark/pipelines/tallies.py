"""The work of a pipeline so far: rows in and out, batches, and the lag of each topic.

Everything comes from the progress that Spark itself reports about a query.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyromq.spark.lag import lag_of
from pyromq.spark.offsets import FIRST, spans_between

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

OUT = "out"
"""The observation that counts a query's rows on their way out."""

POLL_S = 1


@dataclass
class TopicTally:
    rows: int = 0
    lag: int = 0


@dataclass
class Tally:
    """`rows_out` counts the rows observed as `OUT`; without an observation it equals the rows in."""

    expected: int | None = None
    rows_in: int = 0
    rows_out: int = 0
    batches: int = 0
    rows_per_s: float = 0.0
    topics: dict[str, TopicTally] = field(default_factory=dict)
    unreachable: tuple[str, ...] = ()
    """Queues whose brokers did not answer when the lag was computed."""
    watermark: str | None = None
    seconds: float = 0.0
    _started: float = field(default_factory=time.monotonic, repr=False)
    _last: tuple[int, str] = field(default=(-1, ""), repr=False)

    def tick(self) -> None:
        """Note how long it has taken so far."""
        self.seconds = time.monotonic() - self._started

    @property
    def lag(self) -> int:
        return sum(topic.lag for topic in self.topics.values())

    def add(self, report: dict[str, Any]) -> None:
        """Count one report of Spark's; they come in order, and none is counted twice."""
        # By the number of the batch first: clocks may be set back.
        place = (report["batchId"], report["timestamp"])
        if place <= self._last:
            return
        self._last = place
        rows = report["numInputRows"]
        self.rows_in += rows
        observed = report.get("observedMetrics", {})
        self.rows_out += observed[OUT]["rows"] if OUT in observed else rows
        self.batches += "addBatch" in report["durationMs"]
        if rows:
            self.rows_per_s = report["processedRowsPerSecond"]
        self.watermark = report.get("eventTime", {}).get("watermark", self.watermark)
        self.unreachable = ()
        for source in report["sources"]:
            self._add_source(source)

    def _add_source(self, source: dict[str, Any]) -> None:
        lag = lag_of(source)
        if lag is None:
            return
        self.unreachable += lag.unreachable
        for span in spans_between(source["startOffset"] or FIRST, source["endOffset"]):
            self.topics.setdefault(span.queue.topic, TopicTally()).rows += span.size
        for topic, behind in (dict.fromkeys(self.topics, 0) | lag.by_topic()).items():
            self.topics.setdefault(topic, TopicTally()).lag = behind


Show = Callable[[Mapping[str, Tally]], None]


def unseen(_: Mapping[str, Tally]) -> None:
    """For programs that show nothing."""


def watch(name: str, query: "StreamingQuery", show: Show = unseen) -> Tally:
    """Wait for the end of a query and show its progress; Ctrl-C stops it cleanly."""
    return watch_all({name: query}, show)[name]


def watch_all(queries: Mapping[str, "StreamingQuery"], show: Show = unseen) -> dict[str, Tally]:
    """The same for several; when one fails the others are stopped."""
    tallies = {name: Tally() for name in queries}
    try:
        for query in queries.values():
            while not query.awaitTermination(POLL_S):
                _count(queries, tallies, show)
                _raise_failure(queries)
    finally:
        for query in queries.values():
            if query.isActive:
                query.stop()
        _count(queries, tallies, show)
    return tallies


def _count(queries: Mapping[str, "StreamingQuery"], tallies: Mapping[str, Tally], show: Show) -> None:
    for name, query in queries.items():
        for progress in query.recentProgress:
            tallies[name].add(json.loads(progress.json))
        tallies[name].tick()
    show(tallies)


def _raise_failure(queries: Mapping[str, "StreamingQuery"]) -> None:
    for query in queries.values():
        if (problem := query.exception()) is not None:
            raise problem
