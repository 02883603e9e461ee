"""How far a query is behind, from what Spark reports: by queue, by topic, in bytes, and for Prometheus."""

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import generate_latest

from pyromq.clock import ManualClock
from pyromq.errors import ConnectFailed
from pyromq.spark import lag_metrics
from pyromq.spark.lag import SourceLag, lag_of, lags_of
from pyromq.spark.queues import Queue
from pyromq.spark.record_sizes import FRESH_S, RecordSizes

A0, A1, OTHER = Queue("Orders", "a", 0), Queue("Orders", "a", 1), Queue("Other", "a", 0)


def source(end: Any, newest: Any) -> dict[str, Any]:
    return {"startOffset": None, "endOffset": end, "latestOffset": newest}


REACHED = {"v": 1, "q": {"Orders": {"a:0": 10, "a:1": 5}}}
NEWEST = {"v": 1, "q": {"Orders": {"a:0": 40, "a:1": 5}, "Other": {"a:0": 7}}, "bytes": {"Orders": 100}}
NEWEST["away"] = ["Other@a:0"]


def test_the_lag_has_the_figures_of_the_kafka_source() -> None:
    lag = lag_of(source(REACHED, NEWEST))
    assert lag is not None
    assert lag.queues == {A0: 30, A1: 0, OTHER: 7}
    assert lag.by_topic() == {"Orders": 30, "Other": 7}
    assert lag.metrics() == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 30,
        "avgOffsetsBehindLatest": 37 / 3,
        "estimatedTotalBytesBehindLatest": 3000,
    }


@pytest.mark.parametrize("newest", [None, REACHED, {"v": 1, "q": {"Orders": {"a:0": 9, "a:1": 5}}}])
def test_a_query_is_never_ahead_and_without_newer_offsets_not_behind(newest: Any) -> None:
    lag = lag_of(source(REACHED, newest))
    assert lag is not None
    assert lag.total == 0
    assert SourceLag({}).metrics()["avgOffsetsBehindLatest"] == 0


def test_sources_of_other_formats_have_no_lag() -> None:
    files = source({"logOffset": 3}, None)
    assert lags_of({"sources": [files, source("7", None), source(REACHED, NEWEST)]}) == [
        SourceLag({A0: 30, A1: 0, OTHER: 7}, {"Orders": 100}, ("Other@a:0",))
    ]


class Measured:
    def __init__(self) -> None:
        self.asked: list[tuple[Queue, int]] = []
        self.problem: Exception | None = None

    def __call__(self, queue: Queue, offset: int) -> int:
        self.asked.append((queue, offset))
        if self.problem is not None:
            raise self.problem
        return 100 * len(self.asked)


def test_sizes_are_measured_now_and_then_in_the_queue_that_is_furthest_behind() -> None:
    measure, clock = Measured(), ManualClock()
    sizes = RecordSizes(measure, clock)
    reached: Mapping[Queue, int] = {A0: 3, A1: 4}
    assert sizes.behind(reached, {A0: 3, A1: 4}) == {}
    assert measure.asked == [], "a query that is not behind costs no requests"
    assert sizes.behind(reached, {A0: 5, A1: 9}) == {"Orders": 100}
    assert sizes.behind(reached, {A0: 5, A1: 9}) == {"Orders": 100}
    assert measure.asked == [(A1, 4)]
    clock.advance(FRESH_S)
    assert sizes.behind(reached, {A0: 50, A1: 9}) == {"Orders": 200}
    assert measure.asked == [(A1, 4), (A0, 3)]
    assert sizes.behind(reached, {A0: 3, A1: 4}) == {}


def test_a_broker_that_does_not_answer_leaves_the_size_unknown() -> None:
    measure = Measured()
    measure.problem = ConnectFailed("away")
    assert RecordSizes(measure, ManualClock()).behind({}, {A0: 5}) == {}


def test_prometheus_is_told_of_queries_by_name_or_id() -> None:
    report = {
        "name": None,
        "id": "4711",
        "batchId": 3,
        "timestamp": "2026-03-01T12:00:00.000Z",
        "processedRowsPerSecond": 12.5,
        "sources": [source({"logOffset": 3}, None), source(REACHED, NEWEST)],
    }
    reports = [report, report | {"name": "paid", "sources": [], "batchId": 0}]
    text = "".join(
        generate_latest(_One(family)).decode() for family in lag_metrics.families(reports)
    ).splitlines()
    assert 'pyromq_spark_offsets_behind_latest{query="4711",source="1",topic="Orders"} 30.0' in text
    assert 'pyromq_spark_max_offsets_behind_latest{query="4711",source="1"} 30.0' in text
    assert 'pyromq_spark_estimated_bytes_behind_latest{query="4711",source="1"} 3000.0' in text
    assert 'pyromq_spark_unreachable_queues{query="4711",source="1"} 1.0' in text
    assert 'pyromq_spark_batch{query="paid"} 0.0' in text
    assert 'pyromq_spark_rows_per_second{query="4711"} 12.5' in text
    assert 'pyromq_spark_progress_seconds{query="paid"} 1.7723664e+09' in text


class _One:
    def __init__(self, family: Any) -> None:
        self._family = family

    def collect(self) -> Any:
        return [self._family]
