"""Writes: every row becomes a message, where and when it was meant to."""

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyromq.errors import BadMessage
from pyromq.spark.options import write_options
from pyromq.spark.writer import BatchWriter, Written

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def read(spark: SparkSession, topics: "Topics", topic: str) -> DataFrame:
    frame = spark.read.format("rocketmq").options(**topics.options(topic)).load()
    return frame.withColumn("text", frame.value.cast("string"))


def write(frame: DataFrame, topics: "Topics", **more: str) -> None:
    frame.write.format("rocketmq").options(**topics.options(), **more).mode("append").save()


def test_rows_become_messages_with_all_their_columns(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Out", queues=4)
    rows = spark.range(3000).selectExpr(
        "cast(id as string) as value",
        "concat('k', id) as key",
        "if(id % 2 = 0, 'even', null) as tags",
        "map('n', cast(id as string), 'empty', '', 'nothing', null) as properties",
    )
    write(rows, topics, topic="Out", batchBytes="8k")
    found = read(spark, topics, "Out").collect()
    assert sorted(int(row.text) for row in found) == list(range(3000))
    for row in found:
        assert (row.key, row.tags) == (f"k{row.text}", "even" if int(row.text) % 2 == 0 else None)
        assert row.properties["n"] == row.text
        assert "empty" not in row.properties
    assert len({row.msgId for row in found}) == 3000
    assert len({row.queueId for row in found}) > 1


def test_messages_belong_to_the_trace_of_the_job(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Traced", queues=2)
    rows = spark.range(10).selectExpr(
        "cast(id as string) as value", "if(id = 0, map('traceparent', 'own'), null) as properties"
    )
    job = f"00-{'ab' * 16}-{'12' * 8}-01"
    # Executors have no SDK here: their spans have the context of the job.
    write(rows, topics, topic="Traced", otel="true", traceparent=job)
    found = read(spark, topics, "Traced").collect()
    carried = {int(row.text): row.properties["traceparent"] for row in found}
    assert carried == {0: "own"} | dict.fromkeys(range(1, 10), job)


def test_rows_choose_their_topic_queue_and_shard(spark: SparkSession, topics: "Topics") -> None:
    topics.create("A", queues=3)
    topics.create("B", queues=3)
    rows = spark.range(90).selectExpr(
        "cast(id as string) as value", "if(id < 60, 'A', 'B') as topic", "cast(id % 3 as int) as queueId"
    )
    write(rows, topics)
    assert read(spark, topics, "A").groupBy("queueId").count().orderBy("queueId").collect() == [
        (0, 20),
        (1, 20),
        (2, 20),
    ]
    assert read(spark, topics, "B").count() == 30
    topics.create("C", queues=5)
    sharded = spark.range(200).selectExpr(
        "cast(id as string) as value", "concat('user', id % 10) as shardingKey"
    )
    write(sharded, topics, topic="C")
    found = spark.read.format("rocketmq").options(**topics.options("C"))
    by_key = found.schema("queueId int, shardingKey string").load().distinct().collect()
    assert len(by_key) == 10
    with pytest.raises(PySparkException, match="queue 9 of topic C: no such queue"):
        write(spark.sql("select 'x' as value, 9 as queueId"), topics, topic="C")


def test_a_topic_that_does_not_exist_is_created_by_its_first_message(
    spark: SparkSession, topics: "Topics"
) -> None:
    write(spark.range(10).selectExpr("cast(id as string) as value"), topics, topic="Fresh")
    assert read(spark, topics, "Fresh").count() == 10


def test_delayed_rows_wait(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Later", queues=1)
    rows = spark.sql("select 'now' as value, cast(null as int) as delayLevel union all select 'later', 18")
    write(rows, topics, topic="Later")
    assert [row.text for row in read(spark, topics, "Later").collect()] == ["now"]
    waiting = read(spark, topics, "SCHEDULE_TOPIC_XXXX").collect()
    assert [row.text for row in waiting] == ["later"]
    timed = spark.sql("select 'x' as value, timestamp_millis(4102444800000) as deliverTimestamp")
    with pytest.raises(PySparkException, match=r"(?i)timer|time"):
        write(timed, topics, topic="Later")


@pytest.mark.parametrize(
    ("query", "options", "named"),
    [
        ("select 1 as id", {"topic": "Out"}, "id"),
        ("select 'x' as value", {}, "topic"),
        (
            "select 'x' as value, 3 as delayLevel",
            {"topic": "Out", "mode": "transactional"},
            "a row is delayed",
        ),
        ("select 'x' as value", {"topic": "Out", "subscribe": "In"}, "subscribe"),
        ("select '' as value", {"topic": "Out"}, "no value"),
    ],
)
def test_what_cannot_be_written_is_named(
    spark: SparkSession, topics: "Topics", query: str, options: dict[str, str], named: str
) -> None:
    topics.create("Out")
    with pytest.raises(PySparkException, match=named):
        write(spark.sql(query), topics, **options)


def test_overwriting_a_topic_is_refused(spark: SparkSession, topics: "Topics") -> None:
    frame = spark.sql("select 'x' as value")
    writer = frame.write.format("rocketmq").options(**topics.options(), topic="Out")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        writer.mode("overwrite").save()


@pytest.mark.parametrize("mode", ["atLeastOnce", "transactional"])
def test_a_batch_that_is_repeated_repeats_its_ids_or_sends_nothing(
    spark: SparkSession, topics: "Topics", tmp_path: Path, mode: str
) -> None:
    topics.create("In", queues=2)
    topics.create("Copy", queues=2)
    for queue_id in (0, 1):
        topics.fill("In", queue_id, [b"%d" % n for n in range(queue_id * 300, queue_id * 300 + 300)])

    def run() -> None:
        source = spark.readStream.format("rocketmq").options(
            **topics.options("In", startingOffsets="earliest", maxOffsetsPerTrigger="200")
        )
        copy = source.load().select("value", "key", "properties").writeStream.format("rocketmq")
        copy = copy.options(
            **topics.options(), topic="Copy", mode=mode, checkpointLocation=str(tmp_path / "cp")
        )
        query = copy.trigger(availableNow=True).start()
        assert query.awaitTermination(300)

    run()
    first = read(spark, topics, "Copy").select("text", "msgId").collect()
    assert sorted(int(row.text) for row in first) == list(range(600))
    # As if the driver had died before the last batch was committed.
    commits = sorted((tmp_path / "cp" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    commits[-1].unlink()
    (commits[-1].parent / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    run()
    again = read(spark, topics, "Copy").select("text", "msgId").collect()
    assert len(again) == (800 if mode == "atLeastOnce" else 600)
    assert {tuple(row) for row in again} == {tuple(row) for row in first}


def test_writes_survive_a_restart_of_the_broker(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Out", queues=2)
    options = {"fetchOffset.numRetries": "60", "fetchOffset.retryIntervalMs": "100"}
    rows = spark.range(100).selectExpr("cast(id as string) as value")
    write(rows, topics, topic="Out")
    topics.running.restart()
    rows.write.format("rocketmq").options(**topics.options() | options, topic="Out").mode("append").save()
    assert read(spark, topics, "Out").count() == 200


@pytest.mark.parametrize("value", [None, ""])
def test_a_row_that_cannot_be_sent_ends_the_job_at_its_commit_so_that_spark_repeats_nothing(
    value: str | None, topics: "Topics"
) -> None:
    topics.create("Orders", queues=1)
    options = write_options(topics.options() | {"topic": "Orders"})
    batch = pa.RecordBatch.from_pydict({"value": pa.array(["x", value], pa.string())})
    writer = BatchWriter(options)
    with pytest.raises(BadMessage, match="a row has no value"):
        writer.commit([writer.write(iter([batch]))])
    stored = writer.write(iter([batch.slice(0, 1)]))
    writer.commit([stored, None])
    assert isinstance(stored, Written)
    assert stored.messages == 1
