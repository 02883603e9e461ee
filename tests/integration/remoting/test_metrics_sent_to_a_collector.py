"""Metrics that servers send by themselves: to a real gRPC server, and into the log."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.controlled_brokers import controller
from tests.support.front import front
from tests.support.otlp_collector import KeptMetrics, otlp_collector
from tests.support.replicas import until

from pyromq.console.server import Console
from pyromq.console.settings import ConsoleSettings
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.testing import aio_cluster

SENT = 5


async def _fill(tmp_path: Path, **settings: Any) -> None:
    """Start a broker, send some messages and stop it again: what it counted is sent at the end."""
    from pyromq.aio import Message, Producer

    async with (
        aio_cluster(tmp_path, **settings) as cluster,
        Producer("tills", namesrv=cluster.namesrv) as producer,
    ):
        for _ in range(SENT):
            await producer.send(Message("Orders", b"x"))


def _otlp(collector: KeptMetrics, **more: Any) -> dict[str, Any]:
    return {"metrics_exporter": "OTLP_GRPC", "metrics_target": collector.target, **more}


def _messages_in(collector: KeptMetrics) -> Any:
    points = collector.metrics()["rocketmq_messages_in_total"].sum.data_points
    labels = [{each.key: each.value.string_value for each in point.attributes} for point in points]
    (found,) = [point.as_int for point, of in zip(points, labels, strict=True) if of.get("topic") == "Orders"]
    return found


async def test_a_broker_that_stops_has_sent_what_it_counted(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        await _fill(tmp_path, **_otlp(collector, metrics_headers="api-key:s3cret, Team:tills"))
    assert _messages_in(collector) == SENT
    assert collector.services() == {"pyromq-broker"}
    assert {"api-key": "s3cret", "team": "tills"}.items() <= collector.headers[0].items()
    latency = collector.metrics()["rocketmq_rpc_latency_milliseconds"].histogram.data_points[0]
    assert sum(latency.bucket_counts) == latency.count > 0


async def test_metrics_come_at_intervals_in_requests_of_the_wanted_size(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        wanted = _otlp(collector, metrics_interval_ms=50, metrics_batch=10)
        async with aio_cluster(tmp_path, **wanted):
            await until(lambda: _exports(collector) >= 3)
    sizes = [_points(request) for request in collector.requests]
    assert max(sizes) == 10
    assert len(sizes) >= 3 * _exports(collector)


def _exports(collector: KeptMetrics) -> int:
    """How often the metrics were sent: those of one time have the same time."""
    return len({_time(request) for request in collector.requests})


def _time(request: Any) -> int:
    metric = request.resource_metrics[0].scope_metrics[0].metrics[0]
    points = [*metric.gauge.data_points, *metric.sum.data_points, *metric.histogram.data_points]
    return int(points[0].time_unix_nano)


def _points(request: Any) -> int:
    return sum(
        len(metric.sum.data_points) + len(metric.gauge.data_points) + len(metric.histogram.data_points)
        for metric in request.resource_metrics[0].scope_metrics[0].metrics
    )


async def test_every_other_server_sends_its_metrics_in_the_same_way(tmp_path: Path) -> None:
    with otlp_collector() as collector:
        sent = _otlp(collector, metrics_labels="zone:a")
        async with NameServer(
            NameServerSettings(
                listen_port=0, kv_config_path=tmp_path / "kv", config_store_path=tmp_path / "c", **sent
            )
        ):
            pass
        async with controller(tmp_path / "controller", **sent):
            pass
        async with front(settings=sent):
            pass
        async with Console(ConsoleSettings(listen_port=0, home=tmp_path / "console", **sent)):
            pass
    names = {"namesrv", "controller", "proxy", "console"}
    assert collector.services() == {f"pyromq-{name}" for name in names}
    for name in ("pyromq_namesrv_ready", "role", "rocketmq_proxy_up", "pyromq_console_sessions"):
        labels = collector.metrics()[name].gauge.data_points[0].attributes
        assert {each.key: each.value.string_value for each in labels}["zone"] == "a"


async def test_a_collector_with_a_certificate_is_verified(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with otlp_collector(authority.issue("collector", host="localhost")) as collector:
        await _fill(tmp_path / "trusted", **_otlp(collector, metrics_trust_path=authority.trust))
        assert _messages_in(collector) == SENT
        collector.requests.clear()
        await _fill(tmp_path / "unknown", **_otlp(collector))
        assert collector.requests == []


async def test_a_collector_that_cannot_be_reached_is_named_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = "http://127.0.0.1:1"
    with caplog.at_level(logging.WARNING):
        await _fill(
            tmp_path,
            metrics_exporter="OTLP_GRPC",
            metrics_target=target,
            metrics_interval_ms=20,
            metrics_timeout_ms=500,
        )
    said = [record.getMessage() for record in caplog.records if "metrics were not sent" in record.message]
    assert len(said) == 1
    assert "<Collector 127.0.0.1:1>: UNAVAILABLE" in said[0]


async def test_points_that_the_collector_refuses_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with otlp_collector() as collector, caplog.at_level(logging.WARNING):
        collector.refusal = "too many labels"
        await _fill(tmp_path, **_otlp(collector))
    assert "the collector refused metrics points=1: too many labels" in caplog.messages


async def test_the_log_has_a_line_of_json_for_each_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "pyromq.metrics"):
        await _fill(tmp_path, metrics_exporter="LOG")
    lines = [record.getMessage() for record in caplog.records if record.name == "pyromq.metrics"]
    written = [metric for line in lines for metric in json.loads(line)["scopeMetrics"][0]["metrics"]]
    (counted,) = [each for each in written if each["name"] == "rocketmq_messages_in_total"]
    assert counted["sum"]["aggregationTemporality"] == 2
    values = {point["asInt"] for point in counted["sum"]["dataPoints"]}
    assert str(SENT) in values
