"""Metrics as OpenTelemetry's requests: nothing is lost, nothing is told twice, no request is too large."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.metrics import Metrics
from pyromq.remoting.otlp import MetricsBatch, OtlpMetrics

Adding = tuple[str, int, float]


def _sent(otlp: OtlpMetrics, metrics: Metrics, at_ns: int) -> list[MetricsBatch]:
    return [batch for batch in otlp.batches(metrics.families(), at_ns) if batch is not None]


def _points(batches: list[MetricsBatch], name: str, kind: str) -> list[Any]:
    return [
        point
        for batch in batches
        for metric in batch.request.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == name
        for point in getattr(metric, kind).data_points
    ]


def _labels(point: Any) -> dict[str, str]:
    return {each.key: each.value.string_value for each in point.attributes}


def test_a_gauge_a_counter_and_a_histogram_keep_their_names_labels_and_values() -> None:
    metrics = Metrics({"node": "a"})
    metrics.gauge("pyromq_up", "Up.", lambda: 0.5)
    metrics.counter("pyromq_sent", "Sent.", ("topic",)).add(("Orders",), 3)
    metrics.histogram("pyromq_size", "Sizes.", bounds=(10, 20)).observe(15, weight=2.4)
    batches = _sent(OtlpMetrics({"service.name": "x"}, started_ns=7), metrics, 9)
    (up,) = _points(batches, "pyromq_up", "gauge")
    assert (up.as_double, up.time_unix_nano, _labels(up)) == (0.5, 9, {"node": "a"})
    (sent,) = _points(batches, "pyromq_sent_total", "sum")
    assert (sent.as_int, sent.start_time_unix_nano) == (3, 7)
    assert _labels(sent) == {"node": "a", "topic": "Orders"}
    (size,) = _points(batches, "pyromq_size", "histogram")
    assert (size.count, list(size.bucket_counts), list(size.explicit_bounds)) == (2, [0, 2, 0], [10, 20])
    assert size.sum == 36
    assert _points(batches, "process_open_fds", "gauge")


@settings(max_examples=examples(60))
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.floats(0, 4)), max_size=6),
            st.booleans(),
        ),
        max_size=6,
    ),
    max_points=st.integers(1, 20),
)
def test_what_arrives_in_deltas_adds_up_to_what_was_counted(
    rounds: list[tuple[list[Adding], bool]], max_points: int
) -> None:
    metrics = Metrics()
    counter = metrics.counter("sent", "Sent.", ("topic",))
    sizes = metrics.histogram("size", "Sizes.", ("topic",), (1, 2))
    otlp = OtlpMetrics({}, started_ns=0, is_delta=True, max_points=max_points)
    counted: dict[str, int] = {}
    spread: dict[str, list[int]] = {}
    for at_ns, (added, arrives) in enumerate([*rounds, ([], True)], 1):
        for topic, amount, size in added:
            counter.add((topic,), amount)
            sizes.observe(size, (topic,))
        batches = _sent(otlp, metrics, at_ns)
        assert all(batch.points <= max_points for batch in batches)
        if not arrives:
            continue
        for point in _points(batches, "sent_total", "sum"):
            topic = _labels(point)["topic"]
            assert _labels(point)["aggregation"] == "delta"
            counted[topic] = counted.get(topic, 0) + point.as_int
        for point in _points(batches, "size", "histogram"):
            had = spread.setdefault(_labels(point)["topic"], [0, 0, 0])
            spread[_labels(point)["topic"]] = [a + b for a, b in zip(had, point.bucket_counts, strict=True)]
        for batch in batches:
            otlp.arrived(batch)
    assert counted == {topic: count for (topic,), count in counter.counts.items()}
    assert spread == {topic: sizes.of((topic,)).counts for topic in spread}


def test_a_count_that_begins_again_is_told_whole() -> None:
    metrics, value = Metrics(), [5]
    metrics.read_counter("sent", "Sent.", lambda: value[0])
    otlp = OtlpMetrics({}, started_ns=0, is_delta=True)
    for expected, value[0] in ((5, 5), (2, 7), (3, 3)):
        batches = _sent(otlp, metrics, 1)
        (point,) = _points(batches, "sent_total", "sum")
        assert point.as_int == expected
        for batch in batches:
            otlp.arrived(batch)
