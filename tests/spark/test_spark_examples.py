"""The examples for Spark do what they say: one as a program of its own, the others in one session."""

import importlib.util
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from tests.support.brief_consumer import consume_with
from tests.support.spark_session import connect_url

from pyromq import GiveUp, Message, Producer, ReceivedMessage
from pyromq.logging import TopicHandler
from pyromq.spark.pipelines.archive import archive
from pyromq.spark.pipelines.history import history
from pyromq.testing import RunningCluster

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, EXAMPLES / name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def send(running: RunningCluster, *tags: str, topic: str = "Orders", trace: bool = False) -> None:
    with Producer("tills", namesrv=running.namesrv, trace=trace) as producer:
        for number, tag in enumerate(tags):
            order = {"region": "asia", "cents": 100 + number, "at": f"2026-03-01T12:0{number}:00Z"}
            producer.send(Message(topic, json.dumps(order).encode(), tags=tag))


def test_from_topics_to_a_lake_and_back(
    spark: SparkSession, topics: "Topics", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, namesrv = str(tmp_path / "lake"), topics.running.namesrv
    topics.create("Again", queues=1)
    send(topics.running, "Created", "Paid", "Created")
    example("spark_archive.py").main(spark, namesrv, "Orders", lake)
    assert "3 rows in, 3 out" in capsys.readouterr().out
    send(topics.running, "Paid")
    example("spark_history.py").main(spark, namesrv, lake)
    # Of one day, or of two at midnight.
    days = re.findall(r"^Orders \d{4}-\d\d-\d\d: (\d) messages$", capsys.readouterr().out, re.MULTILINE)
    assert sum(map(int, days)) == 4
    example("spark_replay.py").main(spark, namesrv, lake, "Again", "tags = 'Created'")
    assert "2 rows in, 2 out" in capsys.readouterr().out


def test_sql(
    spark: SparkSession, topics: "Topics", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.create("Revenue", queues=1)
    send(topics.running, "a", "b", "c")
    script = str(EXAMPLES / "spark_sql.sql")
    example("spark_sql.py").main(spark, topics.running.namesrv, script, str(tmp_path / "checkpoint"))
    assert "revenue: 3 rows in, 1 out" in capsys.readouterr().out
    results = spark.read.format("rocketmq").options(**topics.options("Revenue", valueFormat="string")).load()
    assert sorted(json.loads(row.value)["cents"] for row in results.collect()) == [100]


def test_traces_and_dead_letters(
    spark: SparkSession, topics: "Topics", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    send(topics.running, "a", "b", topic="Payments", trace=True)

    def refuse(message: ReceivedMessage) -> None:
        raise GiveUp("no")

    consume_with(topics.running, "payments", "Payments", 2, refuse, trace=True)
    plot = tmp_path / "plot.png"
    example("spark_trace.py").main(spark, topics.running.namesrv, str(plot))
    assert "Payments → payments: 2 messages" in capsys.readouterr().out
    assert plot.exists()
    example("spark_dlq.py").main(spark, topics.running.namesrv, "payments", str(tmp_path / "checkpoint"))
    shown = capsys.readouterr().out
    assert "2 from Payments: given up after 1" in shown
    assert "redrive: 2 rows in, 2 out" in shown


def test_logs(
    spark: SparkSession, broker: RunningCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    handler = TopicHandler("SparkLogs", broker.namesrv, flush_timeout_s=60.0)
    for level in (logging.INFO, logging.ERROR, logging.ERROR):
        record = logging.makeLogRecord({
            "name": "shop", "levelno": level, "levelname": logging.getLevelName(level), "msg": "m",
            "customer": 7,
        })  # fmt: skip
        handler.handle(record)
    handler.close()
    example("spark_logs.py").main(spark, broker.namesrv, "SparkLogs")
    assert capsys.readouterr().out.startswith("shop: 2 errors, the last at 20")
    options = {"namesrv": broker.namesrv, "subscribe": "SparkLogs", "valueFormat": "log"}
    rows = (
        spark.read.format("rocketmq")
        .options(**options)
        .load()
        .select("value.extra", "value.process")
        .collect()
    )
    assert [(row.extra, row.process) for row in rows] == [({"customer": "7"}, os.getpid())] * 3
    lake = str(tmp_path / "lake")
    archive(spark, options, lake)
    kept = history(spark, options, lake).select("value.level", "value.logger", "value.message").collect()
    assert sorted(map(tuple, kept)) == [("ERROR", "shop", "m"), ("ERROR", "shop", "m"), ("INFO", "shop", "m")]


def test_sessions(
    spark: SparkSession, broker: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("spark_sessions.py").main(spark, broker.namesrv, str(tmp_path / "sessions"))
    # Three of each of 40 visitors; the last click, of the next day, belongs to a session that is still open.
    assert capsys.readouterr().out.splitlines() == [
        "358 clicks sent; 60 sessions have ended, with 257 clicks, 19 paid",
        "189 clicks sent; 120 sessions have ended, with 546 clicks, 29 paid",
    ]


def test_join(
    spark: SparkSession, broker: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("spark_join.py").main(spark, broker.namesrv, str(tmp_path / "joined"))
    late_or_never = [100 + number for number in range(100) if number % 10 in (3, 7)]
    in_time = [100 + number for number in range(101) if number % 10 not in (3, 7)]
    assert capsys.readouterr().out.splitlines() == [
        f"20 orders of {sum(late_or_never)} cents were not paid in time",
        f"81 orders of {sum(in_time)} cents were paid",
    ]


def test_change_data_capture(
    spark: SparkSession, broker: RunningCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example("spark_cdc.py").main(spark, broker.namesrv, str(tmp_path / "customers"))
    first, second = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"1000 changes: version \d of the table has 44 customers", first)
    assert second == "The table has the rows of the database."


def test_connect(spark: SparkSession, tmp_path: Path) -> None:
    """The client has no JVM. The session of these tests is its server, which finds the source by itself."""
    pytest.importorskip("grpc", reason="Spark Connect needs the extra connect")
    command = [sys.executable, str(EXAMPLES / "spark_connect.py"), connect_url(spark)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.stdout.splitlines() == [
        "africa: 3900 cents",
        "americas: 3940 cents",
        "asia: 3980 cents",
        "europe: 4020 cents",
        "oceania: 4060 cents",
    ], done.stderr[-4000:]


def test_stream(broker: RunningCluster, tmp_path: Path) -> None:
    send(broker, "Created", "Paid", "Created")
    log = tmp_path / "log"
    with (
        log.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, str(EXAMPLES / "spark_stream.py"), broker.namesrv, "Orders"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=tmp_path,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            counts: dict[str, int] = {}
            while len(counts) < 2:
                line = process.stdout.readline()
                assert line, log.read_text()[-4000:]
                if found := re.match(r"\|\s*(Created|Paid)\|\s*(\d+)\|", line):
                    counts[found[1]] = int(found[2])
        finally:
            process.kill()
    assert counts == {"Created": 2, "Paid": 1}
