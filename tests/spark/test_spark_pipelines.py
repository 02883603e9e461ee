"""Lakes, with real topics, real files and a real crash: nothing is lost, nothing is there twice."""

import io
import signal
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from pyromq.clock import ManualClock
from pyromq.errors import ConfigError, NoRoute
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.display import picture, reported
from pyromq.spark.pipelines.history import history
from pyromq.spark.pipelines.lake import archived, condition, keep_batch
from pyromq.spark.pipelines.replay import ReplayJournal, in_words, pace, replay
from pyromq.spark.pipelines.tallies import Tally, TopicTally

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def in_lake(lake: Path) -> list[int]:
    """What a reader sees that knows nothing of Spark."""
    files = ds.dataset(lake, partitioning="hive", format="parquet")
    return sorted(int(value) for value in files.to_table(columns=["value"])["value"].to_pylist())


def test_an_archive_goes_on_where_it_stopped(spark: SparkSession, topics: "Topics", tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    topics.create("Orders", queues=2)
    topics.create("Payments", queues=1)
    topics.fill("Orders", 0, numbers(0, 300))
    topics.fill("Payments", 0, numbers(300, 400))
    options = topics.options("Orders,Payments", maxOffsetsPerTrigger="250")
    seen: list[tuple[int, int]] = []

    def show(tallies: Mapping[str, Tally]) -> None:
        seen.append((tallies["archive"].rows_in, tallies["archive"].lag))

    tally = archive(spark, options, str(lake), show=show)
    assert (tally.rows_in, tally.rows_out, tally.batches, tally.lag) == (400, 400, 2, 0)
    assert {name: topic.rows for name, topic in tally.topics.items()} == {"Orders": 300, "Payments": 100}
    assert seen[-1] == (400, 0)
    topics.fill("Orders", 1, numbers(400, 450))
    assert archive(spark, options, str(lake)).rows_in == 50
    assert in_lake(lake) == list(range(450))
    kept = spark.read.parquet(str(lake)).select("topic", "day", "timestamp").distinct().collect()
    assert {row.topic for row in kept} == {"Orders", "Payments"}
    assert all(row.day == row.timestamp.astimezone(UTC).date() for row in kept)


DIES_IN_THE_MIDDLE = """
import os, signal, sys
from pyromq.spark import session
from pyromq.spark.pipelines import archive, lake

namesrv, directory = sys.argv[1:]
keep_all = lake.keep_batch

def keep_some_and_die(frame, batch, lake, form):
    if batch < 1:
        return keep_all(frame, batch, lake, form)
    keep_all(frame.where("queueId = 0"), batch, lake, form)
    os.kill(os.getpid(), signal.SIGKILL)

lake.keep_batch = keep_some_and_die
options = {"namesrv": namesrv, "subscribe": "Orders", "maxOffsetsPerTrigger": "100"}
archive.archive(session("dies", master="local[2]", memory="512m"), options, directory)
"""


def test_an_archive_killed_in_the_middle_of_a_batch_has_everything_once(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    lake = tmp_path / "lake"
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, numbers(0, 150))
    topics.fill("Orders", 1, numbers(150, 300))
    program = [sys.executable, "-c", DIES_IN_THE_MIDDLE, topics.running.namesrv, str(lake)]
    died = subprocess.run(program, cwd=tmp_path, capture_output=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    # The batch was half written: that is what has to be put right.
    assert len(in_lake(lake)) == 150
    reach = archived(spark, str(lake))
    assert reach is not None
    assert reach.batch == 0
    options = topics.options("Orders")
    whole = history(spark, options, str(lake))
    assert sorted(int(row.value) for row in whole.collect()) == list(range(300))
    assert archive(spark, options, str(lake)).rows_in == 200
    assert in_lake(lake) == list(range(300))


def test_files_without_a_journal_are_not_taken_for_a_lake(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "lake"))
    with pytest.raises(ConfigError, match="an empty directory, or a lake with its _checkpoint"):
        archive(spark, topics.options("Orders"), str(tmp_path / "lake"))
    with pytest.raises(ConfigError, match="pyromq pipeline archive"):
        replay(spark, str(tmp_path / "lake"), topics.options() | {"topic": "Again"})


def test_a_history_has_topics_that_were_deleted_since(
    spark: SparkSession, topics: "Topics", tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = str(tmp_path / "lake")
    for topic in ("Orders", "Payments"):
        topics.create(topic, queues=1)
        topics.fill(topic, 0, numbers(0, 3))
    archive(spark, topics.options("Orders,Payments"), lake)
    topics.delete("Orders")
    topics.fill("Payments", 0, numbers(3, 5))
    whole = history(spark, topics.options(), lake)
    assert {row.topic: row["count"] for row in whole.groupBy("topic").count().collect()} == {
        "Orders": 3,
        "Payments": 5,
    }
    assert history(spark, topics.options("Orders"), lake).count() == 3
    assert "no broker has Orders: only what is archived is shown" in caplog.text
    with pytest.raises(NoRoute, match="Never"):
        history(spark, topics.options("Never"), lake)


def test_a_history_has_neither_gap_nor_double(spark: SparkSession, topics: "Topics", tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=2)
    topics.create("Payments", queues=1)
    topics.fill("Orders", 0, numbers(0, 100))
    topics.fill("Payments", 0, numbers(1000, 1010))
    options = topics.options("Orders,Payments")
    live = history(spark, options, lake)
    assert live.count() == 110
    archive(spark, options, lake)
    topics.fill("Orders", 0, numbers(100, 130))
    topics.fill("Orders", 1, numbers(130, 150))
    # A batch that is being written is not part of the lake yet.
    keep_batch(live.limit(10), 1, lake)
    both = history(spark, topics.options(), lake)
    assert sorted(int(row.value) for row in both.where("topic = 'Orders'").collect()) == list(range(150))
    assert both.where("topic = 'Payments'").count() == 10
    assert history(spark, topics.options("Payments"), lake).count() == 10
    assert history(spark, topics.options(subscribePattern="Ord.*"), lake).count() == 150
    assert history(spark, topics.options(assign='{"Orders": ["broker-a:1"]}'), lake).count() == 20
    with pytest.raises(ConfigError, match="a history has all messages"):
        history(spark, topics.options("Orders", tags="a"), lake)


def test_a_replay_keeps_the_queues_of_several_brokers(
    spark: SparkSession, topics_of_two: "Topics", tmp_path: Path
) -> None:
    topics, lake = topics_of_two, str(tmp_path / "lake")
    for broker in (0, 1):
        for topic in ("Orders", "Again"):
            topics.create(topic, queues=2, broker=broker)
        topics.fill("Orders", 1, numbers(10 * broker, 10 * broker + 10), broker=broker)
    archive(spark, topics.options("Orders"), lake)
    target = topics.options() | {"topic": "Again"}
    assert replay(spark, lake, target, keeps_queues=True).rows_out == 20
    rows = spark.read.format("rocketmq").options(**topics.options("Again")).load().collect()
    found = {(row.brokerName, row.queueId, int(row.value)) for row in rows}
    expected = {("broker-a", 1, number) for number in range(10)}
    assert found == expected | {("broker-b", 1, number) for number in range(10, 20)}


def test_a_replay_sends_what_was_chosen_oldest_first_and_goes_on(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    lake, checkpoint = str(tmp_path / "lake"), str(tmp_path / "checkpoint")
    for topic in ("Orders", "Again"):
        topics.create(topic, queues=2)
    topics.fill("Orders", 1, numbers(0, 50), b"TAGS\x01a\x02")
    archive(spark, topics.options("Orders"), lake)
    topics.fill("Orders", 1, numbers(50, 150), b"TAGS\x01b\x02")
    archive(spark, topics.options("Orders"), lake)
    target = topics.options() | {"topic": "Again"}
    shown: list[int] = []
    where = condition("tags IN ('a', 'b')", topics=("Orders",), since="2020-01-01", until="2222-01-01T10:00")
    # A run that had sent the first batch when it was interrupted.
    ReplayJournal(spark, checkpoint, in_words(lake, target, where, keeps_queues=True)).finish(0)
    tally = replay(
        spark,
        lake,
        target,
        where=where,
        rows_per_s=1000,
        keeps_queues=True,
        checkpoint=checkpoint,
        show=lambda tallies: shown.append(tallies["replay"].rows_out),
    )
    assert (tally.expected, tally.rows_out, tally.batches, shown[0]) == (100, 100, 1, 100)
    again = (
        spark.read.format("rocketmq").options(**topics.options("Again")).load().orderBy("offset").collect()
    )
    assert [int(row.value) for row in again] == list(range(50, 150))
    assert {(row.tags, row.queueId) for row in again} == {("b", 1)}
    again_with: dict[str, Any] = {"where": where, "keeps_queues": True, "checkpoint": checkpoint}
    assert replay(spark, lake, target, **again_with).rows_out == 0
    # Another replay would find that everything has been sent.
    for other in ({"where": "true"}, {"keeps_queues": False}):
        with pytest.raises(ConfigError, match=r"checkpoint=.*: expected a new directory for messages of"):
            replay(spark, lake, target, **again_with | other)
    with pytest.raises(ConfigError, match=r"this one is for .* to Again and the queues they had"):
        replay(spark, lake, topics.options() | {"topic": "Elsewhere"}, **again_with)
    assert len({row.msgId for row in again}) == 100


def test_rows_go_no_faster_than_asked() -> None:
    clock = ManualClock()
    started = clock.monotonic()
    batch = pa.record_batch({"n": list(range(10))})
    left = [clock.monotonic() - started for _ in pace(iter([batch] * 4), 20, clock, clock.advance)]
    assert left == [0.0, 0.5, 1.0, 1.5]
    late = ManualClock()
    paced = pace(iter([batch] * 3), 20, late, late.advance)
    next(paced)
    late.advance(10)
    before = late.monotonic()
    assert len(list(paced)) == 2
    assert late.monotonic() == before


def test_a_report_is_counted_once() -> None:
    offset = {"v": 1, "q": {"Orders": {"a:0": 7}}}
    report: dict[str, Any] = {
        "batchId": 3,
        "timestamp": "2026-03-01T12:00:00.000Z",
        "numInputRows": 7,
        "processedRowsPerSecond": 3.5,
        "durationMs": {"addBatch": 1},
        "eventTime": {"watermark": "2026-03-01T11:00:00.000Z"},
        "observedMetrics": {"out": {"rows": 2}},
        "sources": [
            {
                "startOffset": None,
                "endOffset": offset | {"from": {"Orders": {"a:0": 0}}},
                "latestOffset": {"v": 1, "q": {"Orders": {"a:0": 9, "a:1": 4}}},
            }
        ],
    }
    tally = Tally()
    for _ in range(2):
        tally.add(report)
    assert (tally.rows_in, tally.rows_out, tally.batches, tally.lag) == (7, 2, 1, 6)
    assert tally.topics["Orders"].rows == 7
    assert tally.watermark == "2026-03-01T11:00:00.000Z"
    # The clock was set back; the next batch counts all the same.
    tally.add(report | {"batchId": 4, "timestamp": "2026-03-01T11:59:00.000Z"})
    assert (tally.rows_in, tally.batches) == (14, 2)


def test_a_pipeline_is_shown_as_it_comes_along(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(expected=2000, rows_in=1500, rows_out=1200, batches=3, rows_per_s=99.5, seconds=10.0)
    tally.topics["Orders"] = TopicTally(rows=1500, lag=70)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(picture({"replay": tally}))
    shown = console.export_text()
    line = "replay: 1,500 rows in, 1,200 out, 3 batches, 10.0 s, 150/s (last batch 100/s)"
    assert line in shown
    assert "│ Orders │ 1,500 │  70 │" in shown
    assert "━━━" in shown

    def interrupted() -> None:
        with reported() as show:
            show({"replay": tally})
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    # However it ends, there is a summary.
    assert line in capsys.readouterr().out
