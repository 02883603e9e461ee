"""Streams: every trap of Spark's offsets has a test that would lose or double data without its remedy."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tests.support.apache import wait_until
from tests.support.schema_registry import stand_in_registry

from pyromq.spark.avro import avro_writer
from pyromq.spark.lag import lags
from pyromq.spark.lag_metrics import serve_lag
from pyromq.spark.offsets import ends_of
from pyromq.spark.queues import Queue
from pyromq.spark.registry import Registry

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


class Sink:
    """A Parquet sink with a checkpoint, run again and again."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._out = str(directory / "out")
        self.checkpoint = directory / "checkpoint"

    def start(self, options: dict[str, str], **trigger: Any) -> StreamingQuery:
        stream = self._spark.readStream.format("rocketmq").options(**options).load()
        rows = stream.selectExpr("cast(value as string) as value", "queueId", "offset")
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(**trigger).start(self._out)

    def drain(self, options: dict[str, str], **trigger: Any) -> StreamingQuery:
        query = self.start(options, **(trigger or {"availableNow": True}))
        try:
            assert query.awaitTermination(300)
        finally:
            query.stop()
        return query

    def values(self) -> list[int]:
        """What has landed, doubles included."""
        rows = self._spark.read.schema("value string, queueId int, offset bigint").parquet(self._out)
        return sorted(int(row.value) for row in rows.collect())

    def journal(self) -> list[dict[str, Any]]:
        """What each batch ended at."""
        files = sorted((self.checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
        return [json.loads(path.read_text().splitlines()[2]) for path in files]


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def test_available_now_reads_everything_once_over_several_batches(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 700))
    topics.fill("Orders", 1, numbers(700, 300))
    options = topics.options("Orders", startingOffsets="earliest", maxOffsetsPerTrigger="400")
    query = sink.drain(options)
    assert sink.values() == list(range(1000))
    sizes = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sizes == [400, 400, 200]
    topics.fill("Orders", 1, numbers(1000, 50))
    sink.drain(options)
    assert sink.values() == list(range(1050))


def test_once_reads_everything_in_one_batch(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 500))
    options = topics.options("Orders", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    query = sink.drain(options, once=True)
    assert sink.values() == list(range(500))
    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [500]


def test_a_latest_start_survives_a_restart_in_the_middle_of_batch_0(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 100))
    options = topics.options("Orders", startingOffsets="latest")
    sink.drain(options)
    assert sink.values() == []
    # As if the driver had died after journalling batch 0 and before finishing it.
    for directory in ("commits",):
        for file in (sink.checkpoint / directory).iterdir():
            file.unlink()
    topics.fill("Orders", 0, numbers(100, 50))
    sink.drain(options)
    topics.fill("Orders", 1, numbers(150, 50))
    sink.drain(options)
    assert sink.values() == list(range(100, 200))
    assert sink.journal()[0]["from"] == {"Orders": {"broker-a": [100, 0]}}


def test_idle_queries_make_no_batches(sink: Sink, topics: "Topics", spark: SparkSession) -> None:
    topics.create("Orders", queues=11)
    for queue_id in (10, 2, 9, 1):
        topics.fill("Orders", queue_id, numbers(queue_id * 10, 10))
    options = topics.options("Orders", startingOffsets="earliest")
    query = sink.start(options, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        query.processAllAvailable()
        topics.fill("Orders", 0, numbers(0, 10))
        query.processAllAvailable()
    finally:
        query.stop()
    assert len(sink.journal()) == 2
    assert ends_of(sink.journal()[-1]) == {
        Queue("Orders", "broker-a", queue_id): 10 if queue_id in (0, 1, 2, 9, 10) else 0
        for queue_id in range(11)
    }


def test_new_queues_and_new_topics_are_read_from_their_beginning(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 10))
    options = topics.options(subscribePattern="Ord.*", startingOffsets="latest")
    sink.drain(options)
    topics.create("Orders", queues=3)
    topics.fill("Orders", 2, numbers(10, 10))
    topics.create("OrdersToo", queues=1)
    topics.fill("OrdersToo", 0, numbers(20, 10))
    sink.drain(options)
    assert sink.values() == list(range(10, 30))
    assert sink.journal()[-1]["from"] == {
        "Orders": {"broker-a": [None, 0, 0]},
        "OrdersToo": {"broker-a": [0]},
    }


def test_few_messages_wait_until_there_are_enough_or_the_delay_is_over(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    options = topics.options(
        "Orders", startingOffsets="earliest", minOffsetsPerTrigger="100", maxTriggerDelay="1h"
    )
    query = sink.start(options, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        topics.fill("Orders", 0, numbers(0, 60))
        query.processAllAvailable()
        assert len(sink.journal()) == 1
        topics.fill("Orders", 1, numbers(60, 60))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.values() == list(range(120))
    topics.fill("Orders", 1, numbers(120, 5))
    sink.drain(options | {"maxTriggerDelay": "1ms"})
    assert sink.values() == list(range(125))


def test_bytes_per_trigger_bound_a_batch(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % n + b" " * 1000 for n in range(100)])
    options = topics.options("Orders", startingOffsets="earliest", maxBytesPerTrigger="30k")
    query = sink.drain(options)
    assert sink.values() == list(range(100))
    sizes = [p.numInputRows for p in query.recentProgress if p.numInputRows]
    assert max(sizes) <= 30
    assert sum(sizes) == 100


def test_a_schema_that_grows_ends_a_running_query_and_the_next_one_has_the_field(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders", queues=1)
    identity, note = {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}
    with stand_in_registry() as server:
        registry = Registry(server.url)

        def produce(row: dict[str, Any], *fields: dict[str, Any]) -> None:
            text = json.dumps({"type": "record", "name": "Order", "fields": fields})
            topics.fill("Orders", 0, [avro_writer(registry.register("Orders-value", text))(row)])

        def start() -> StreamingQuery:
            options = topics.options(
                "Orders",
                startingOffsets="earliest",
                valueFormat="avro",
                schemaRegistry=server.url,
                newFields="fail",
            )
            stream = spark.readStream.format("rocketmq").options(**options).load().select("value.*")
            writer = stream.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "c"))
            return writer.start(str(tmp_path / "out"))

        produce({"id": 1}, identity)
        query = start()
        query.processAllAvailable()
        produce({"id": 2, "note": "hello"}, identity, note)
        with pytest.raises(StreamingQueryException, match="has note, which this query does not know"):
            query.awaitTermination(120)
        query = start()
        query.processAllAvailable()
        query.stop()
    rows = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "out")).orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, None), (2, "hello")]


def test_bytes_per_partition_bound_the_tasks_of_a_stream(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % n + b" " * 1000 for n in range(50)])
    sink.drain(topics.options("Orders", startingOffsets="earliest", maxBytesPerPartition="30k"))
    assert sink.values() == list(range(50))


def test_progress_is_published_to_a_group_up_to_the_end(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 30))
    topics.fill("Orders", 1, numbers(30, 20))
    options = topics.options("Orders", startingOffsets="earliest", consumerGroup="lake", commitOffsets="true")
    sink.drain(options)
    assert topics.committed("lake", "Orders") == {0: 30, 1: 20}


def test_a_stream_goes_on_where_a_group_stands(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 30))
    group = {"consumerGroup": "lake", "startingOffsets": "group"}
    sink.drain(topics.options("Orders", commitOffsets="true", **group))
    topics.fill("Orders", 0, numbers(30, 30))
    fresh = Sink(sink._spark, sink.checkpoint.parent / "fresh")
    fresh.drain(topics.options("Orders", **group))
    assert sink.values() == list(range(30))
    assert fresh.values() == list(range(30, 60))


def test_a_stream_survives_restarts_of_the_broker(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 300))
    options = topics.options("Orders", startingOffsets="earliest", maxOffsetsPerTrigger="100")
    options |= {"fetchOffset.numRetries": "60", "fetchOffset.retryIntervalMs": "100"}
    query = sink.start(options, processingTime="0 seconds")
    try:
        query.processAllAvailable()
        topics.running.restart()
        topics.fill("Orders", 1, numbers(300, 300))
        query.processAllAvailable()
    finally:
        query.stop()
    assert sink.values() == list(range(600))


def test_brokers_come_crash_and_come_back_while_a_query_runs(
    spark: SparkSession, tmp_path: Path, topics_of_two: "Topics"
) -> None:
    topics, sink = topics_of_two, Sink(spark, tmp_path)
    topics.running.stop_broker(1)
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 10))
    query = sink.start(topics.options("Orders", startingOffsets="earliest"), processingTime="0 seconds")

    def has_read(rows: int) -> None:
        def reached() -> bool:
            assert query.exception() is None
            return sum(progress.numInputRows for progress in query.recentProgress) >= rows

        wait_until(reached, f"{rows} rows")

    try:
        has_read(10)
        topics.create("Orders", queues=3)
        topics.fill("Orders", 2, numbers(10, 10))
        has_read(20)
        topics.running.start_broker(1)
        topics.create("Orders", queues=2, broker=1)
        topics.fill("Orders", 1, numbers(20, 10), broker=1)
        has_read(30)
        topics.running.kill_broker(1)
        topics.fill("Orders", 0, numbers(30, 10))
        has_read(40)
        topics.running.start_broker(1)
        topics.fill("Orders", 0, numbers(40, 10), broker=1)
        has_read(50)
    finally:
        query.stop()
    assert sink.values() == list(range(50))


def test_data_deleted_under_a_stream_ends_it_or_is_left_out(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 100))
    options = topics.options("Orders", startingOffsets="earliest")
    sink.drain(options)
    topics.fill("Orders", 0, [b"%d" % n + b" " * 4000 for n in range(100, 3000)])
    topics.expire_data()
    with pytest.raises(StreamingQueryException, match=r"messages 100 to \d+ of Orders@broker-a:0 are gone"):
        sink.drain(options)
    # The same batch, which is journalled by now, is read without what is gone.
    sink.drain(options | {"failOnDataLoss": "false"})
    least = topics.earliest("Orders")
    assert 100 < least < 3000
    assert sink.values() == [*range(100), *range(least, 3000)]


def test_consumer_progress_of_mqadmin_shows_the_lag_of_a_query(sink: Sink, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 30))
    sink.drain(
        topics.options("Orders", startingOffsets="earliest", consumerGroup="lake", commitOffsets="true")
    )
    topics.fill("Orders", 0, numbers(30, 5))
    command = ["mqadmin", "consumerProgress", "-n", topics.running.namesrv, "-g", "lake"]
    command[0] = str(Path(sys.executable).with_name("mqadmin"))
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert re.search(r"Orders +broker-a +0 +35 +30 +5 ", shown), shown
    assert "Consume Diff Total: 5" in shown


def test_trap_continuous_processing_is_refused_by_spark(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    stream = spark.readStream.format("rocketmq").options(**topics.options("Orders")).load()
    with pytest.raises(Exception, match=r"(?i)continuous"):
        stream.writeStream.format("noop").trigger(continuous="1 second").start().awaitTermination(300)


@pytest.mark.parametrize(
    ("fails", "messages", "said"),
    [
        (True, 20, "Orders@broker-a:0 ends at 20 now and was read up to 100"),
        (True, 150, "The topic was created again: what the old queue had from 100 on was not read"),
        (False, 20, ""),
        (False, 150, ""),
    ],
)
def test_a_topic_made_anew_is_a_loss_of_data(
    sink: Sink, topics: "Topics", fails: bool, messages: int, said: str
) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 100))
    options = topics.options("Orders", startingOffsets="earliest", failOnDataLoss=str(fails).lower())
    sink.drain(options)
    topics.delete("Orders")
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(100, messages))
    if fails:
        with pytest.raises(StreamingQueryException, match=said):
            sink.drain(options)
    else:
        sink.drain(options)
        assert sink.values() == list(range(100 + messages))


def test_a_task_that_fails_is_repeated_without_doubles(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 500))
    topics.fill("Orders", 1, numbers(500, 500))
    killed = tmp_path / "killed"
    seen: list[int] = []

    def die_once(rows: Iterable[Row]) -> Iterator[int]:
        for row in rows:
            yield int(row.value)
        if not killed.exists():
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def collect(frame: DataFrame, batch_id: int) -> None:
        rows = frame.select("value").rdd.mapPartitions(die_once).collect()
        seen.extend(rows)

    stream = spark.readStream.format("rocketmq").options(
        **topics.options("Orders", startingOffsets="earliest")
    )
    writer = (
        stream.load().writeStream.foreachBatch(collect).option("checkpointLocation", str(tmp_path / "cp"))
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    assert killed.exists()
    assert sorted(seen) == list(range(1000))


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"endingOffsets": "latest"}, "endingOffsets"),
    ({"startingOffsets": "group"}, "consumerGroup"),
    ({"commitOffsets": "true"}, "consumerGroup"),
    ({"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger"),
]


@pytest.mark.parametrize(("wrong", "named"), REFUSED)
def test_contradictions_are_named_and_not_masked_by_spark(
    sink: Sink, topics: "Topics", wrong: dict[str, str], named: str
) -> None:
    topics.create("Orders")
    with pytest.raises(Exception, match=named) as caught:
        sink.drain(topics.options("Orders", **wrong))
    assert "UnboundLocalError" not in str(caught.value)


def test_the_lag_of_a_query_is_served_to_prometheus(
    sink: Sink, topics: "Topics", spark: SparkSession
) -> None:
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, numbers(0, 50))
    topics.fill("Orders", 1, numbers(50, 10))
    server = serve_lag(spark, "127.0.0.1", 0)
    assert server is not None
    options = topics.options("Orders", startingOffsets="earliest", maxOffsetsPerTrigger="6")
    query = sink.start(options, processingTime="1 hour")
    try:
        wait_until(lambda: bool(lags(query)), "the first batch")
        (lag,) = lags(query)
        figures = lag.metrics()
        assert lag.by_topic() == {"Orders": 54}
        assert (figures["minOffsetsBehindLatest"], figures["maxOffsetsBehindLatest"]) == (9, 45)
        assert figures["avgOffsetsBehindLatest"] == 27
        assert figures["estimatedTotalBytesBehindLatest"] > 54 * 90, "a record is larger than its body"
        with urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
        labels = f'{{query="{query.id}",source="0",topic="Orders"}}'
        assert f"pyromq_spark_offsets_behind_latest{labels} 54.0" in text
    finally:
        query.stop()
        server.shutdown()
        server.server_close()
