"""Metrics: what is counted comes out as Prometheus text that Prometheus' own parser reads."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pyromq.metrics import Metrics, text_of


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = b"".join(text_of(metrics.families()))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_a_counter_is_there_before_the_first_event() -> None:
    metrics = Metrics()
    connections = metrics.counter("pyromq_connections_total", "Connections accepted.")
    assert samples(metrics)["pyromq_connections_total", ()] == 0
    connections.add()
    connections.add(amount=4)
    assert samples(metrics)["pyromq_connections_total", ()] == 5
    assert connections.count() == 5


def test_a_labelled_counter_counts_each_combination() -> None:
    metrics = Metrics()
    requests = metrics.counter("pyromq_requests_total", "Requests answered.", ("request", "code"))
    requests.add(("GetRoute", "0"))
    requests.add(("GetRoute", "0"))
    requests.add(("GetRoute", "17"))
    found = samples(metrics)
    assert found["pyromq_requests_total", (("code", "0"), ("request", "GetRoute"))] == 2
    assert found["pyromq_requests_total", (("code", "17"), ("request", "GetRoute"))] == 1
    assert requests.count(("Nothing", "0")) == 0


def test_a_count_kept_elsewhere_comes_out_as_a_counter() -> None:
    metrics = Metrics()
    pushes = [1, 2, 3]
    metrics.read_counter("pyromq_pushes_total", "Pushes sent.", lambda: len(pushes))
    assert samples(metrics)["pyromq_pushes_total", ()] == 3
    assert b"# TYPE pyromq_pushes_total counter" in b"".join(text_of(metrics.families()))


def test_a_gauge_is_read_when_asked() -> None:
    metrics = Metrics()
    topics = {"a": 1}
    metrics.gauge("pyromq_topics", "Topics known.", lambda: len(topics))
    topics["b"] = 2
    assert samples(metrics)["pyromq_topics", ()] == 2


def test_a_labelled_gauge_gives_a_value_for_each_label() -> None:
    metrics = Metrics()
    metrics.labelled_gauge("pyromq_brokers", "Brokers alive.", lambda: {("c1",): 2, ("c2",): 1}, ("cluster",))
    assert samples(metrics)["pyromq_brokers", (("cluster", "c2"),)] == 1


def test_a_histogram_adds_up_its_buckets() -> None:
    metrics = Metrics()
    latency = metrics.histogram("pyromq_latency_seconds", "Time to answer.", ("request",), bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 3.0):
        latency.observe(value, ("GetRoute",))
    found = samples(metrics)
    label = ("request", "GetRoute")
    buckets = {
        le: found["pyromq_latency_seconds_bucket", (("le", le), label)] for le in ("0.1", "1.0", "+Inf")
    }
    assert buckets == {"0.1": 2, "1.0": 3, "+Inf": 4}
    assert found["pyromq_latency_seconds_count", (label,)] == 4
    assert found["pyromq_latency_seconds_sum", (label,)] == pytest.approx(3.65)
    assert latency.count(("GetRoute",)) == 4
    assert latency.count(("Nothing",)) == 0


def test_awkward_label_values_survive() -> None:
    metrics = Metrics()
    odd = 'quote " back \\ line \n 中'
    metrics.counter("pyromq_odd_total", "Odd \\ things\nhappen.", ("what",)).add((odd,))
    assert samples(metrics)["pyromq_odd_total", (("what", odd),)] == 1


def test_a_name_is_taken_once() -> None:
    metrics = Metrics()
    metrics.counter("pyromq_x_total", "X.")
    with pytest.raises(ValueError, match="already"):
        metrics.gauge("pyromq_x_total", "X.", lambda: 0)


@pytest.mark.parametrize(("name", "labels"), [("a-b", ()), ("1a", ()), ("a", ("b c",))])
def test_a_name_prometheus_would_refuse_is_refused_at_once(name: str, labels: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="not a valid name"):
        Metrics().counter(name, "X.", labels)


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0)])
def test_bucket_bounds_must_rise(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="must rise"):
        Metrics().histogram("a", "A.", bounds=bounds)


def test_labels_of_the_server_are_on_every_metric_but_those_of_the_process() -> None:
    metrics = Metrics({"cluster": "c1"})
    metrics.counter("pyromq_connections_total", "Connections accepted.").add()
    metrics.histogram("pyromq_latency_seconds", "Time.", ("request",), bounds=(1.0,)).observe(0.5, ("a",))
    found = samples(metrics)
    assert found["pyromq_connections_total", (("cluster", "c1"),)] == 1
    assert found["pyromq_latency_seconds_count", (("cluster", "c1"), ("request", "a"))] == 1
    assert ("process_open_fds", ()) in found
    with pytest.raises(ValueError, match="not a valid name"):
        Metrics({"0": "c1"})


def test_a_labelled_count_kept_elsewhere_comes_out_as_a_counter() -> None:
    metrics = Metrics()
    metrics.labelled_read_counter("pyromq_sent_total", "Sent.", lambda: {("a",): 3}, ("topic",))
    assert samples(metrics)["pyromq_sent_total", (("topic", "a"),)] == 3


def test_a_value_may_stand_for_several() -> None:
    metrics = Metrics()
    sizes = metrics.histogram("pyromq_size", "Sizes.", bounds=(10,))
    sizes.observe(4, weight=2.5)
    found = samples(metrics)
    assert (found["pyromq_size_count", ()], found["pyromq_size_sum", ()]) == (2.5, 10)


def test_the_text_of_very_many_is_made_in_pieces() -> None:
    metrics = Metrics({"node": "a"})
    counter = metrics.counter("pushes_total", "Pushes.", ("topic",))
    histogram = metrics.histogram("sizes", "Sizes.", ("topic",), [1, 2])
    for number in range(1200):
        counter.add((f"t{number}",))
        histogram.observe(1, (f"t{number}",))
    pieces = list(text_of(metrics.families()))
    assert len(pieces) >= 7
    text = b"".join(pieces).decode()
    assert text.count("# TYPE pushes_total counter\n") == text.count("# TYPE sizes histogram\n") == 1
    assert text.count('pushes_total{node="a",topic="t') == 1200
    assert text.count('sizes_count{node="a",topic="t') == 1200
