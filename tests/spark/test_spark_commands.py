"""`pyromq pipeline`: each command once, as a user would call it."""

import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click import ClickException
from click.testing import CliRunner, Result
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.support.brief_consumer import consume_with

from pyromq import GiveUp, Message, Producer, ReceivedMessage
from pyromq.admin import pipeline_runs
from pyromq.apps.pipelines import job
from pyromq.apps.pyromq import COMMANDS
from pyromq.spark.pipelines import quiet

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def run(*arguments: str, namesrv: str = "127.0.0.1:1") -> Result:
    return CliRunner().invoke(COMMANDS, ["pipeline", arguments[0], "-n", namesrv, *arguments[1:]])


def done(topics: "Topics", *arguments: str) -> str:
    result = run(*arguments, namesrv=topics.running.namesrv)
    assert result.exit_code == 0, result.output
    return result.output


def test_without_spark_the_way_to_get_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(job, "find_spec", nothing)
    result = run("archive", "lake", "-t", "Orders")
    assert result.exit_code == 1
    assert "pip install 'pyromq[spark]'" in result.output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("archive", "lake", "-t", "A", "-O", "maxOffsetsPerTrigger=x"), "maxOffsetsPerTrigger"),
        (("archive", "lake"), "subscribe"),
        (("replay", "lake", "--to", "A", "-O", "batchBytes=x"), "batchBytes"),
        (("changes", "table", "-t", "A", "-t", "B"), "one topic"),
        (("changes", "table", "-t", "A", "--schema", "id biggint"), "DDL of Spark"),
        (("changes", "table", "-t", "A", "--placeholder", "\u00e4"), "printable ASCII"),
    ],
)
def test_what_can_be_known_before_is_refused_before_java_starts(
    arguments: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> SparkSession:
        raise AssertionError("Java was started")

    monkeypatch.setattr(quiet, "quiet_session", start)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    result = run(*arguments)
    assert result.exit_code != 0
    assert problem in f"{result.output} {result.exception}"


class Session:
    def stop(self) -> None:
        pass


@pytest.mark.parametrize(
    ("failures", "restart", "expected"),
    [
        (["brokers are away"] * 8, True, [1, 2, 4, 8, 16, 32, 60, 60]),
        (["pyromq.errors.RemoteProtocolError: no event"], True, None),
        (["brokers are away"], False, None),
    ],
)
def test_a_job_starts_again_after_failures_that_may_pass(
    failures: list[str],
    restart: bool,
    expected: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(quiet, "quiet_session", lambda *_: Session())
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    waits: list[float] = []
    left = list(failures)

    def work(spark: object, show: object) -> None:
        if left:
            raise PySparkException(left.pop(0))

    one = job.PipelineJob({"namesrv": "a:1"}, "local[1]", "1g", runs=tmp_path / "runs")
    if expected is None:
        with pytest.raises(ClickException, match=r"no event|are away"):
            one.run("archive", "lake", work, restart=restart, wait=waits.append)
        assert waits == []
        (kept,) = pipeline_runs.runs(tmp_path / "runs")
        assert (kept.ending, kept.problem) == ("failed", failures[0].rpartition(": ")[2])
    else:
        one.run("archive", "lake", work, restart=restart, wait=waits.append)
        assert waits == expected


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("archive", "lake", "-t", "A", "--pattern", "B"), "give -t or --pattern, not both"),
        (("archive", "lake", "-t", "A", "-O", "tags"), "expected NAME=VALUE"),
        (("archive", "lake", "-t", "A", "--namespace", "ns"), "write full names"),
        (("replay", "lake"), "either --to TOPIC or --same-topics"),
        (("replay", "lake", "--to", "A", "--same-topics"), "either --to TOPIC or --same-topics"),
        (("history", "lake", "--out", "rows.txt"), "ends in .parquet, .json, .csv"),
        (("sql",), "either FILE or -e SQL"),
        (("sql", "-e", "SELECT 1", "--sink", "file=x"), "console, topic=NAME or parquet=DIR"),
        (("trace", "--plot", "plot.pdf"), "ends in .png, .svg, .html"),
        (("dlq", "--redrive", "group"), "--redrive and --checkpoint must be given together"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(
    spark: SparkSession, arguments: tuple[str, ...], problem: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert problem in " ".join(result.output.replace("│", " ").split())


def test_a_time_that_is_none_is_named_with_its_option(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    arguments = ("history", str(tmp_path / "lake"), "-t", "Orders")
    for option in ("since", "until"):
        result = run(*arguments, f"--{option}", "yesterday-ish", namesrv=topics.running.namesrv)
        assert result.exit_code == 1
        [line] = result.output.strip().splitlines()
        assert f"{option}=yesterday-ish: expected a time like 2030-12-31T23:59" in line
    assert "History" in done(topics, *arguments, "--since", "2024-1-2")


def test_a_wrong_option_is_named_in_a_line_and_nothing_has_run(tmp_path: Path, kept_runs: Path) -> None:
    result = run("archive", str(tmp_path / "lake"), "-t", "Orders", "-O", "taggs=a")
    assert result.exit_code == 1
    [line] = result.output.strip().splitlines()
    assert "taggs is not an option of rocketmq" in line
    assert not kept_runs.exists()


def test_from_topics_to_a_lake_and_back(
    spark: SparkSession, topics: "Topics", tmp_path: Path, kept_runs: Path
) -> None:
    lake = str(tmp_path / "lake")
    topics.create("Orders", queues=2)
    topics.create("Again", queues=2)
    for number in range(20):
        tag = "Paid" if number % 2 else "Created"
        topics.send("Orders", number % 2, json.dumps({"n": number}).encode(), f"TAGS\x01{tag}\x02")
    archived = done(topics, "archive", lake, "-t", "Orders", "--rows-per-batch", "15")
    assert "20 rows in, 20 out, 2 batches" in archived
    assert "│ Orders │   20 │   0 │" in archived
    (kept,) = pipeline_runs.runs(kept_runs)
    assert (kept.job, kept.place, kept.ending) == ("archive", lake, "ended")
    assert kept.queries["archive"].topics == {"Orders": pipeline_runs.TopicRun(20, 0)}
    topics.send("Orders", 0, b"newest")
    shown = done(topics, "history", lake, "--limit", "1")
    assert "newest" in shown
    assert "there are more" in shown
    counted = done(topics, "history", lake, "--sql", "SELECT count(*) AS many FROM history")
    assert "│ 21   │" in counted
    assert "plain Parquet cannot be compacted" in run("compact", lake).output
    table = str(tmp_path / "table")
    done(topics, "archive", table, "-t", "Orders", "--format", "delta", "--rows-per-batch", "15")
    assert "files became 1" in done(topics, "compact", table)
    maintained = done(topics, "maintain", table, "--forget", "value=newest")
    assert "rows deleted: 1" in maintained
    assert "files removed: 0 of old versions, 0 orphans" in maintained
    assert "expected COLUMN=VALUE" in run("maintain", table, "--forget", "value").output
    assert "forget=nothing: expected a column" in run("maintain", table, "--forget", "nothing=1").output
    assert "│ 20   │" in done(topics, "history", table, "--sql", "SELECT count(*) AS many FROM history")
    for form in ("csv", "json", "parquet"):
        out = str(tmp_path / f"out.{form}")
        assert f"20 rows in {out}" in done(topics, "history", lake, "--where", "offset < 10", "--out", out)
    replayed = done(topics, "replay", lake, "--to", "Again", "--where", "tags = 'Paid'", "--rate", "500")
    assert "10 rows in, 10 out" in replayed
    query = "CREATE TEMPORARY VIEW a USING rocketmq OPTIONS (subscribe 'Again', startingOffsets 'earliest'); "
    query += "SELECT tags, count(*) AS many FROM a GROUP BY tags"
    assert "│ Paid │ 10   │" in done(topics, "sql", "--once", "-e", query)
    script = tmp_path / "job.sql"
    script.write_text(query.split(";")[0] + "; SELECT value, tags FROM a")
    target = ("--sink", f"parquet={tmp_path / 'rows'}", "--checkpoint", str(tmp_path / "checkpoint"))
    assert "parquet: 10 rows in, 10 out" in done(topics, "sql", str(script), "--once", *target)
    assert spark.read.parquet(str(tmp_path / "rows")).count() == 10


def test_traces_and_dead_letters(spark: SparkSession, topics: "Topics", tmp_path: Path) -> None:
    with Producer("tills", namesrv=topics.running.namesrv, trace=True) as producer:
        for number in range(4):
            producer.send(Message("Payments", b"payment %d" % number))

    def refuse(message: ReceivedMessage) -> None:
        raise GiveUp("no")

    consume_with(topics.running, "payers", "Payments", 4, refuse, trace=True)
    plot = tmp_path / "latency.html"
    latencies = done(topics, "trace", "--lake", str(tmp_path / "traces"), "--plot", str(plot))
    assert "archive: " in latencies
    assert "│ Payments │ payers │ 4 " in latencies
    assert "payers" in plot.read_text()
    letters = done(topics, "dlq", "--traced", "--samples", "1")
    assert "│ payers │ Payments │ given up: failed │ 4 " in letters
    assert letters.count("payment ") == 1
    again = done(topics, "dlq", "-g", "payers", "--redrive", "origin", "--checkpoint", str(tmp_path / "cp"))
    assert "redrive: 4 rows in, 4 out" in again
