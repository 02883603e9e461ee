"""`pyromq bench` against a cluster: each load, what it prints and keeps, and what it leaves behind."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq import Message, Producer, SimpleConsumer
from pyromq.admin.blocking import Admin
from pyromq.apps.pyromq import COMMANDS
from pyromq.cli.bench import loads
from pyromq.cli.bench.latencies import Latencies
from pyromq.cli.bench.loads import LOADS, READS
from pyromq.testing import RunningCluster, cluster

SHORT = ("--duration", "0.2", "--warm-up", "0.1", "--messages", "300", "--size", "100", "--quiet")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


def bench(running: RunningCluster, *words: str) -> Result:
    return CliRunner().invoke(COMMANDS, ["bench", *words, "-n", running.namesrv])


@pytest.mark.parametrize("load", LOADS)
def test_a_load_tells_its_rate_and_leaves_nothing_behind(
    running: RunningCluster, tmp_path: Path, load: str
) -> None:
    kept = tmp_path / "figures.json"
    done = bench(running, load, *SHORT, "--json", str(kept))
    assert done.exit_code == 0, done.output
    found = json.loads(kept.read_text())
    assert found["load"] == load
    assert found["messages"] >= (300 if load in READS else 1)
    assert found["messagesPerSecond"] > 0
    assert f"{load}: {found['messages']:,} messages of 100 B" in done.stdout
    assert ("latencyMs" in found) == (load not in READS)
    with Admin(running.namesrv) as admin:
        assert [topic for topic in admin.topics() if "bench" in topic] == []
        assert [group for group in admin.groups() if "bench" in group] == []


def test_messages_are_due_at_a_fixed_rate(running: RunningCluster, tmp_path: Path) -> None:
    kept = tmp_path / "figures.json"
    words = ("--rate", "200", "--duration", "1", "--warm-up", "0", "--size", "10")
    done = bench(running, "send", *words, "--connections", "2", "--json", str(kept))
    assert done.exit_code == 0, done.output
    found = json.loads(kept.read_text())
    assert 195 <= found["messages"] + found["failed"] <= 201
    latencies = found["latencyMs"]
    assert 0 < latencies["p50"] <= latencies["p99"] <= latencies["max"]
    assert sum(each["messages"] for each in found["histogram"]) == found["messages"]


def test_two_runs_are_compared_and_drawn(running: RunningCluster, tmp_path: Path) -> None:
    kept, drawn = tmp_path / "figures.json", tmp_path / "latency.svg"
    assert bench(running, "send", *SHORT, "--json", str(kept), "--picture", str(drawn)).exit_code == 0
    assert ElementTree.parse(drawn).getroot().tag.endswith("svg")
    done = bench(running, "send", *SHORT, "--in-flight", "2", "--compare", str(kept))
    assert done.exit_code == 0, done.output
    assert "not the same load: inFlight was 64, is 2" in done.stdout
    assert "messages a second" in done.stdout
    assert "p99.9, ms" in done.stdout


def test_a_cluster_with_other_topics_is_not_disturbed_unasked(running: RunningCluster) -> None:
    with Admin(running.namesrv) as admin:
        admin.create_topic("Orders", queues=1)
        try:
            done = bench(running, "send", *SHORT)
            assert done.exit_code == 2
            assert "the cluster has other topics (Orders)" in done.stderr
            assert bench(running, "send", *SHORT, "--yes").exit_code == 0
            done = bench(running, "send", *SHORT, "--yes", "--topic", "Orders")
            assert done.exit_code == 2
            assert "topic Orders exists" in done.stderr
        finally:
            admin.delete_topic("Orders")


def test_a_topic_can_be_kept(running: RunningCluster) -> None:
    done = bench(running, "send", *SHORT, "--keep")
    assert done.exit_code == 0, done.output
    with Admin(running.namesrv) as admin:
        assert "pyromq-bench" in admin.topics()
        assert bench(running, "pull", *SHORT).exit_code == 0
        assert "pyromq-bench" not in admin.topics()


def test_a_group_is_deleted_with_its_offsets_and_retries(running: RunningCluster) -> None:
    with Admin(running.namesrv) as admin, Producer("shop", running.namesrv) as producer:
        admin.create_topic("Orders", queues=1)
        producer.send(Message("Orders", b"1"))
        with SimpleConsumer("billing", running.namesrv, start_from="first") as consumer:
            consumer.subscribe("Orders")
            [message] = consumer.receive(wait_s=30)
            consumer.ack(message)
        assert "billing" in admin.groups()
        admin.delete_group("billing")
        assert "billing" not in admin.groups()
        assert admin.lag("billing", "Orders").total == 1
        admin.delete_topic("Orders")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("pull", "--rate", "5"), "--rate does not apply to pull"),
        (("pop", "--picture", "x.svg"), "--picture does not apply to pop"),
        (("send", "--compare", __file__), "--compare"),
        (("nap",), "'nap' is not one of 'send', 'transaction', 'latency'"),
        (("send", "--rate", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_is_sent(
    running: RunningCluster, words: tuple[str, ...], text: str
) -> None:
    done = bench(running, *words)
    assert done.exit_code == 2
    assert text in done.stderr


def test_a_run_with_failures_ends_with_status_1(tmp_path: Path) -> None:
    with cluster(tmp_path, max_message_bytes=50) as strict:
        done = bench(strict, "send", *SHORT)
    assert done.exit_code == 1
    assert "messages failed; the first:" in done.stderr


def test_messages_that_cannot_be_sent_for_reading_end_the_run_with_one_line(tmp_path: Path) -> None:
    with cluster(tmp_path, max_message_bytes=50) as strict:
        done = bench(strict, "pull", *SHORT)
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_a_rate_that_the_cluster_cannot_follow_is_said(
    running: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "_MOST_WAITING", 1)
    done = bench(running, "send", *SHORT, "--rate", "100000")
    assert done.exit_code == 1
    assert "1 messages wait for their answers: the rate is too high" in done.stderr


@settings(max_examples=examples(200))
@given(st.lists(st.floats(0.001, 1e6), min_size=1, max_size=50), st.floats(0.01, 1.0))
def test_a_share_of_a_histogram_is_within_two_per_cent_of_the_true_one(
    times: list[float], share: float
) -> None:
    histogram = Latencies()
    for each in times:
        histogram.add(each)
    ordered = sorted(times)
    true = ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]
    found = histogram.at(share)
    assert found >= true * (1 - 1e-9) or found == histogram.max_ms
    assert min(abs(found / each - 1) for each in ordered) <= 1 / 31
    assert sum(count for _, count in histogram.doublings()) == len(times)
