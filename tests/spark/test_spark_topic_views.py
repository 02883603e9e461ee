"""Topics as tables: the columns that messages have, and the same ones after a restart."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from pyromq.apps.pyromq import COMMANDS
from pyromq.spark.topic_views import register_topics

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

JSON = {"valueFormat": "json", "valueSchema": "infer"}


def fill(topics: "Topics", topic: str, *documents: Any) -> None:
    topics.fill(topic, 0, [json.dumps(document).encode() for document in documents])


def test_all_topics_of_a_cluster_are_views_with_the_columns_of_their_messages(
    spark: SparkSession, topics: "Topics"
) -> None:
    for topic in ("shop-orders", "shop-notes", "shop-bytes", "shop-empty", "other"):
        topics.create(topic, queues=2)
    fill(topics, "shop-orders", {"id": 1, "cents": 5}, {"id": 2, "cents": 7.5, "who": {"name": "x"}})
    topics.fill("shop-notes", 1, [b"hello", b"[1]"])
    topics.fill("shop-bytes", 0, [b"\xff\xfe"])
    found = register_topics(spark, topics.options(), "shop-.*")
    assert found == {
        "shop-bytes": "binary",
        "shop-empty": "binary",
        "shop-notes": "string",
        "shop-orders": "struct<cents:double,id:bigint,who:struct<name:string>>",
    }
    rows = spark.sql("SELECT value.id, value.cents, value.who.name FROM `shop-orders` ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(1, 5.0, None), (2, 7.5, "x")]
    fill(topics, "shop-empty", {"late": True})
    assert register_topics(spark, topics.options(), "shop-empty") == {"shop-empty": "struct<late:boolean>"}
    assert spark.sql("SELECT value.late FROM `shop-empty`").collect() == [(True,)]
    given = topics.options(valueFormat="string")
    assert set(register_topics(spark, given, "shop-[on].*").values()) == {"string"}


def test_an_inferred_schema_is_kept_for_streams_that_start_again(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    options = topics.options("Orders", startingOffsets="earliest") | JSON

    def start(options: dict[str, str], name: str) -> str:
        frame = spark.readStream.format("rocketmq").options(**options).load()
        writer = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)
        return frame.schema["value"].dataType.simpleString()

    with pytest.raises(Exception, match=r"expected JSON objects among the newest 1000 messages of Orders"):
        spark.read.format("rocketmq").options(**topics.options("Orders") | JSON).load()
    fill(topics, "Orders", {"id": 1})
    with pytest.raises(StreamingQueryException, match="schemaLocation with it"):
        start(options, "without")
    options["schemaLocation"] = str(tmp_path / "schemas")
    assert start(options, "first") == "struct<id:bigint>"
    fill(topics, "Orders", {"id": 2, "more": "x"})
    assert start(options, "second") == "struct<id:bigint>"
    found = spark.read.format("rocketmq").options(**topics.options("Orders") | JSON).load()
    assert found.schema["value"].dataType.simpleString() == "struct<id:bigint,more:string>"
    assert sorted(tuple(row.value) for row in found.collect()) == [(1, None), (2, "x")]
    (tmp_path / "schemas" / "Orders.ddl").unlink()
    assert start(options, "third") == "struct<id:bigint,more:string>"


def test_a_script_uses_topics_that_it_does_not_declare(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    fill(topics, "Orders", {"region": "n", "cents": 5}, {"region": "n", "cents": 6})
    command = ["pipeline", "sql", "-e", "SELECT value.region, value.cents FROM Orders", "--topics", "Ord.*"]
    command += ["--once", "--sink", f"parquet={tmp_path / 'rows'}", "--checkpoint", str(tmp_path / "kept")]
    command += ["-O", "startingOffsets=earliest", "-n", topics.running.namesrv]

    def run() -> list[tuple[Any, ...]]:
        result = CliRunner().invoke(COMMANDS, command)
        assert result.exit_code == 0, f"{result.output} {result.exception}"
        return sorted(tuple(row) for row in spark.read.parquet(str(tmp_path / "rows")).collect())

    assert run() == [("n", 5), ("n", 6)]
    fill(topics, "Orders", {"region": "s", "cents": 7.5, "more": 1})
    # The checkpoint keeps that cents are whole numbers.
    assert run() == [("n", 5), ("n", 6), ("s", None)]
    assert [path.name for path in (tmp_path / "kept" / "_schemas").iterdir()] == ["Orders.json"]
