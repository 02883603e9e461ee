"""The lag of a session's running queries for Prometheus, over HTTP, read from Spark when it is scraped.

A listener would be called in Python for each batch of each query, and learns nothing of idle ones;
this asks for the last progress of each query instead, and costs nothing in between.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily

from pyromq.errors import ConfigError
from pyromq.spark.lag import lag_of

if TYPE_CHECKING:
    from wsgiref.simple_server import WSGIServer

    from prometheus_client.core import Metric
    from pyspark.sql import SparkSession

_QUERY, _SOURCE = ("query",), ("query", "source")
_PREFIX = "pyromq_spark_"
_OF_SOURCE = {
    "minOffsetsBehindLatest": ("min_offsets_behind_latest", "Unread messages of the queue that has fewest."),
    "maxOffsetsBehindLatest": ("max_offsets_behind_latest", "Unread messages of the queue that has most."),
    "avgOffsetsBehindLatest": ("avg_offsets_behind_latest", "Unread messages of a queue, on average."),
    "estimatedTotalBytesBehindLatest": (
        "estimated_bytes_behind_latest",
        "Unread bytes of all queues, from a sample of messages.",
    ),
}


class LagCollector:
    """Figures about the queries of one session, for Prometheus."""

    def __init__(self, spark: "SparkSession") -> None:
        self.spark = spark

    def __repr__(self) -> str:
        return f"<LagCollector {self.spark}>"

    def collect(self) -> "Iterator[Metric]":
        context = getattr(self.spark, "_sc", None)
        is_stopped = context is not None and context._jsc is None
        last = [] if is_stopped else [query.lastProgress for query in self.spark.streams.active]
        return families([json.loads(progress.json) for progress in last if progress is not None])


def families(reports: list[dict[str, Any]]) -> "Iterator[Metric]":
    """The figures of queries from the last progress of each, as JSON."""
    unread = GaugeMetricFamily(
        _PREFIX + "offsets_behind_latest", "Unread messages.", labels=(*_SOURCE, "topic")
    )
    of_source = {
        name: GaugeMetricFamily(_PREFIX + ours, sentence, labels=_SOURCE)
        for name, (ours, sentence) in _OF_SOURCE.items()
    }
    away = GaugeMetricFamily(
        _PREFIX + "unreachable_queues",
        "Queues whose brokers do not answer. They count with the end that they had before.",
        labels=_SOURCE,
    )
    batch = GaugeMetricFamily(_PREFIX + "batch", "The number of the last batch.", labels=_QUERY)
    at = GaugeMetricFamily(_PREFIX + "progress_seconds", "When the last trigger started.", labels=_QUERY)
    rate = GaugeMetricFamily(_PREFIX + "rows_per_second", "Rows of the last batch per second.", labels=_QUERY)
    for report in reports:
        query = report["name"] or report["id"]
        batch.add_metric([query], report["batchId"])
        at.add_metric([query], datetime.fromisoformat(report["timestamp"]).timestamp())
        rate.add_metric([query], report.get("processedRowsPerSecond") or 0)
        for number, source in enumerate(report["sources"]):
            lag = lag_of(source)
            if lag is None:
                continue
            away.add_metric([query, str(number)], len(lag.unreachable))
            for name, value in lag.metrics().items():
                of_source[name].add_metric([query, str(number)], value)
            for topic, behind in lag.by_topic().items():
                unread.add_metric([query, str(number), topic], behind)
    yield from (unread, *of_source.values(), away, batch, at, rate)


_collectors: dict[tuple[str, int], LagCollector] = {}


def serve_lag(spark: "SparkSession", host: str, port: int) -> "WSGIServer | None":
    """Serve `/metrics` until the process ends; None if that port serves already, now for this session."""
    if (serving := _collectors.get((host, port))) is not None:
        serving.spark = spark
        return None
    registry = CollectorRegistry()
    collector = LagCollector(spark)
    registry.register(collector)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as problem:
        raise ConfigError(
            "metrics", f"{host}:{port}", f"a free address of this machine ({problem})"
        ) from None
    if port:
        _collectors[host, port] = collector
    return server
