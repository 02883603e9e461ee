"""How far a query is behind its topics, with the names of Spark's Kafka source.

Spark does not ask sources in Python for metrics (`sources[].metrics` is for sources of the JVM), but it asks
for the newest offsets. The lag is computed from these and from where the last batch ended.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyromq.spark.offsets import ends_of, is_first
from pyromq.spark.queues import Queue

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class SourceLag:
    """One source of a query: how many messages of each queue it has not read."""

    queues: Mapping[Queue, int]
    record_bytes: Mapping[str, int] = field(default_factory=dict)
    """The size of a message by topic, measured where the query is behind."""
    unreachable: tuple[str, ...] = ()
    """Queues whose brokers do not answer; they count with the end that they had before."""

    @property
    def total(self) -> int:
        return sum(self.queues.values())

    @property
    def estimated_bytes(self) -> int:
        return sum(behind * self.record_bytes.get(queue.topic, 0) for queue, behind in self.queues.items())

    def by_topic(self) -> dict[str, int]:
        topics: dict[str, int] = {}
        for queue, behind in self.queues.items():
            topics[queue.topic] = topics.get(queue.topic, 0) + behind
        return topics

    def metrics(self) -> dict[str, float]:
        """As `sources[].metrics` of Spark's Kafka source."""
        behind = list(self.queues.values())
        return {
            "minOffsetsBehindLatest": min(behind, default=0),
            "maxOffsetsBehindLatest": max(behind, default=0),
            "avgOffsetsBehindLatest": self.total / max(len(behind), 1),
            "estimatedTotalBytesBehindLatest": self.estimated_bytes,
        }


def lags(query: "StreamingQuery") -> list[SourceLag]:
    """The lag of each source of a query; none before its first progress."""
    progress = query.lastProgress
    return [] if progress is None else lags_of(json.loads(progress.json))


def lags_of(progress: Mapping[str, Any]) -> list[SourceLag]:
    """The same from the progress that Spark reports, as JSON; sources of other formats are omitted."""
    found = map(lag_of, progress["sources"])
    return [lag for lag in found if lag is not None]


def lag_of(source: Mapping[str, Any]) -> SourceLag | None:
    end = source["endOffset"]
    if not isinstance(end, dict) or is_first(end):
        return None
    newest = source.get("latestOffset") or end
    reached = ends_of(end)
    behind = {queue: max(latest - reached.get(queue, 0), 0) for queue, latest in ends_of(newest).items()}
    return SourceLag(behind, newest.get("bytes", {}), tuple(newest.get("away", ())))
