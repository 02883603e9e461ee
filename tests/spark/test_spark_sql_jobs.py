"""Streaming SQL: what a script means, and that its queries write what they should, once."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession

from pyromq.errors import ConfigError
from pyromq.spark.encode import Ids
from pyromq.spark.pipelines.sql import Sink, run_sql
from pyromq.spark.pipelines.sql_script import Insert, PlainStatement, Select, Statement, View, parse, split

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

NOW = {"availableNow": True}


@pytest.mark.parametrize(
    ("script", "statements"),
    [
        ("SELECT 1; SELECT 2", ["SELECT 1", "SELECT 2"]),
        ("SELECT ';', \"a;b\", `c;d`;\n", ["SELECT ';', \"a;b\", `c;d`"]),
        ("-- one; two\nSELECT 1 - 2 / 3 /* ; */;;", ["SELECT 1 - 2 / 3"]),
        (r"SELECT 'it\'s; --here'", [r"SELECT 'it\'s; --here'"]),
        ("SELECT 'it''s;'", ["SELECT 'it''s;'"]),
        (" ; -- nothing", []),
    ],
)
def test_statements_end_at_semicolons_that_are_neither_text_nor_comment(
    script: str, statements: list[str]
) -> None:
    assert list(split(script)) == statements


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        (
            "create or replace temp view v using RocketMQ options (subscribe 'A,B', `pollTimeoutMs` = 5)",
            View("v", "rocketmq", {"subscribe": "A,B", "pollTimeoutMs": "5"}, None),
        ),
        (
            r"CREATE TEMPORARY VIEW `v` (value binary, m map<string, decimal(3, 1)>) USING rocketmq"
            r" OPTIONS ('fetchOffset.numRetries' '3', tags 'it''s \'so\'')",
            View(
                "v",
                "rocketmq",
                {"fetchOffset.numRetries": "3", "tags": "it's 'so'"},
                "value binary, m map<string, decimal(3, 1)>",
            ),
        ),
        ("CREATE TEMPORARY VIEW v USING console", View("v", "console", {}, None)),
        ("INSERT INTO v SELECT 1", Insert("v", "SELECT 1")),
        (
            "insert into table v\nwith w as (select 1) select * from w",
            Insert("v", "with w as (select 1) select * from w"),
        ),
        ("WITH w AS (SELECT 1) SELECT * FROM w", Select("WITH w AS (SELECT 1) SELECT * FROM w")),
        ("SET a = b", PlainStatement("SET a = b")),
        ("CREATE TEMPORARY VIEW v AS SELECT 1", PlainStatement("CREATE TEMPORARY VIEW v AS SELECT 1")),
    ],
)
def test_a_statement_is_understood(text: str, meaning: Statement) -> None:
    [statement] = parse(text)
    if isinstance(statement, View) and isinstance(meaning, View):
        assert (statement.name, statement.format) == (meaning.name, meaning.format)
        assert (statement.options, statement.columns) == (meaning.options, meaning.columns)
    else:
        assert statement == meaning


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("CREATE TEMPORARY VIEW v USING rocketmq OPTIONS (subscribe)", "name 'value', separated by commas"),
        ("INSERT INTO nowhere SELECT 1", "a name made by CREATE TEMPORARY VIEW"),
        ("SELECT 1", "no part of the query is a stream"),
        ("SET a = b", "a query: INSERT INTO"),
    ],
)
def test_a_script_that_means_nothing_is_refused(spark: SparkSession, script: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        run_sql(spark, script, {"namesrv": "127.0.0.1:1"})


def orders(topics: "Topics", minutes: range) -> None:
    for minute in minutes:
        order = {"region": "ab"[minute % 2], "cents": minute, "at": f"2026-03-01T12:{minute:02}:00Z"}
        topics.send("Orders", 0, json.dumps(order).encode())


SCRIPT = """
CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (
  subscribe 'Orders', startingOffsets 'earliest',
  valueFormat 'json', valueSchema 'region string, cents bigint, at timestamp');
CREATE TEMPORARY VIEW revenue USING rocketmq OPTIONS (topic 'Revenue');
CREATE TEMPORARY VIEW lake USING parquet OPTIONS (path '{path}', partitionBy 'region');
CREATE TEMPORARY VIEW typed AS SELECT value.* FROM orders;
INSERT INTO revenue
  SELECT region AS tags, region, window.start AS start, sum(cents) AS cents
  FROM typed WATERMARK at DELAY OF INTERVAL 1 MINUTE GROUP BY region, window(at, '10 minutes');
INSERT INTO lake SELECT * FROM typed;
"""


def test_windows_close_with_the_watermark_and_a_second_run_goes_on(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    topics.create("Revenue", queues=1)
    script = SCRIPT.format(path=tmp_path / "lake")
    checkpoint = str(tmp_path / "checkpoint")

    def revenue() -> list[tuple[str, str, int]]:
        frame = (
            spark.read.format("rocketmq").options(**topics.options("Revenue", valueFormat="string")).load()
        )
        bodies = [(row.tags, json.loads(row.value)) for row in frame.collect()]
        return sorted((tags, body["start"][11:16], body["cents"]) for tags, body in bodies)

    orders(topics, range(15))
    tallies = run_sql(spark, script, topics.options(), checkpoint=checkpoint, trigger=NOW)
    assert revenue() == [("a", "12:00", 20), ("b", "12:00", 25)]
    assert (tallies["revenue"].rows_in, tallies["revenue"].rows_out) == (15, 2)
    assert (tallies["lake"].rows_in, tallies["lake"].rows_out) == (15, 15)
    assert tallies["revenue"].watermark == "2026-03-01T12:13:00.000Z"
    orders(topics, range(15, 32))
    tallies = run_sql(spark, script, topics.options(), checkpoint=checkpoint, trigger=NOW)
    assert tallies["lake"].rows_out == 17
    assert revenue() == [
        ("a", "12:00", 20),
        ("a", "12:10", 70),
        ("a", "12:20", 120),
        ("b", "12:00", 25),
        ("b", "12:10", 75),
        ("b", "12:20", 125),
    ]
    lake = spark.read.parquet(str(tmp_path / "lake"))
    assert sorted(row.cents for row in lake.collect()) == list(range(32))


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_totals_that_change_are_sent_again(
    spark: SparkSession, topics: "Topics", tmp_path: Path, mode: str
) -> None:
    for topic in ("Orders", "Totals"):
        topics.create(topic, queues=1)
    script = f"""
    CREATE TEMPORARY VIEW orders USING rocketmq OPTIONS (subscribe 'Orders', startingOffsets 'earliest');
    CREATE TEMPORARY VIEW totals USING rocketmq OPTIONS (topic 'Totals', outputMode '{mode}');
    INSERT INTO totals SELECT tags, cast(count(*) AS string) AS value FROM orders GROUP BY tags"""
    # What concerns only one side of a job is not held against the other.
    options = topics.options(maxOffsetsPerTrigger="100", batchBytes="64k")
    checkpoint = str(tmp_path / "checkpoint")
    for tag in (b"a", b"b"):
        topics.fill("Orders", 0, [b"x"] * 3, b"TAGS\x01" + tag + b"\x02")
        run_sql(spark, script, options, checkpoint=checkpoint, trigger=NOW)
    rows = spark.read.format("rocketmq").options(**topics.options("Totals")).load().collect()
    again = [("a", b"3")] if mode == "complete" else []
    assert sorted((row.tags, bytes(row.value)) for row in rows) == [("a", b"3"), *again, ("b", b"3")]
    query = json.loads((tmp_path / "checkpoint" / "totals" / "metadata").read_text())["id"]
    job = f"{query}:{{}}:0:{{}}" if mode == "update" else f"{query}:{{}}:{{}}"
    tasks = {Ids(job.format(batch, task)).prefix.decode() for batch in range(2) for task in range(2)}
    assert len({row.msgId for row in rows}) == len(rows)
    assert {row.msgId[:20] for row in rows} <= tasks


def test_a_select_goes_where_the_caller_says(
    spark: SparkSession, topics: "Topics", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"x"] * 7)
    view = "CREATE TEMPORARY VIEW o USING rocketmq OPTIONS (subscribe 'Orders', startingOffsets 'earliest');"
    count = f"{view} SELECT topic AS what, count(*) AS many FROM o GROUP BY topic"
    tally = run_sql(spark, count, topics.options(), trigger=NOW)["console"]
    assert (tally.rows_in, tally.rows_out) == (7, 1)
    shown = capsys.readouterr().out
    assert "console, batch 0" in shown
    assert "│ Orders │ 7    │" in shown
    out = Sink("parquet", "parquet", {"path": str(tmp_path / "out")})
    with pytest.raises(ConfigError, match="a directory for the progress of parquet"):
        run_sql(spark, f"{view} SELECT * FROM o", topics.options(), sink=out, trigger=NOW)
