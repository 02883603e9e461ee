"""Batch reads: exactly the messages asked for, and clear words about what cannot be had."""

import json
import time
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import struct
from tests.support.schema_registry import some_registry

from pyromq.protocol.compression import Compression, compress
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.fetch import DataLoss
from pyromq.spark.options import read_options
from pyromq.spark.queues import Queue, Span
from pyromq.spark.reading import read_span
from pyromq.spark.registry_columns import from_avro, from_protobuf, to_avro, to_protobuf

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


def numbers(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def load(spark: SparkSession, options: dict[str, str], schema: str | None = None) -> DataFrame:
    reader = spark.read.format("rocketmq").options(**options)
    return (reader.schema(schema) if schema is not None else reader).load()


def values(frame: DataFrame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_rows_have_all_that_a_message_has(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=2)
    properties = "KEYS\x01k1 k2\x02TAGS\x01paid\x02UNIQ_KEY\x01ID1\x02region\x01eu\x02"
    packed = compress(b"hello" * 100, Compression.ZLIB)
    topics.send("Orders", 1, packed, properties, Compression.ZLIB.sys_flag)
    row = load(spark, topics.options("Orders")).collect()[0]
    assert bytes(row.value) == b"hello" * 100
    assert (row.key, row.topic, row.brokerName, row.queueId, row.offset) == (
        "k1 k2",
        "Orders",
        "broker-a",
        1,
        0,
    )
    assert (row.tags, row.msgId, row.reconsumeTimes) == ("paid", "ID1", 0)
    assert row.properties["region"] == "eu"
    assert row.bornTimestamp.timestamp() == 1_700_000_000
    assert abs(row.timestamp.timestamp() - time.time()) < 600
    further = "keys array<string>, bornHost string, storeHost string, flag int, sysFlag int, logOffset bigint"
    extra = load(spark, topics.options("Orders"), further).collect()[0]
    assert extra["keys"] == ["k1", "k2"]
    assert extra.storeHost == topics.running.broker_address
    assert extra.bornHost.startswith("127.0.0.1:")
    assert extra.logOffset == 0


def test_lite_topics_are_a_column_and_one_row_each_when_grouped(
    spark: SparkSession, topics: "Topics"
) -> None:
    topics.create("Sessions", queues=2)
    for number, name in enumerate(["b", "a", "a", None, "a"]):
        properties = f"__LITE_TOPIC\x01{name}\x02" if name is not None else ""
        topics.send("Sessions", number % 2, b"%d" % number, properties)
    frame = load(spark, topics.options("Sessions"), "value binary, liteTopic string")
    assert {(bytes(row.value), row.liteTopic) for row in frame.collect()} == {
        (b"0", "b"),
        (b"1", "a"),
        (b"2", "a"),
        (b"3", None),
        (b"4", "a"),
    }
    rows = frame.where("liteTopic is not null").groupBy("liteTopic").count().collect()
    assert {row.liteTopic: row["count"] for row in rows} == {"a": 3, "b": 1}


def test_subscribe_pattern_assign_and_path_choose_queues(spark: SparkSession, topics: "Topics") -> None:
    for number, topic in enumerate(["OrdersA", "OrdersB", "Payments"]):
        topics.create(topic, queues=2)
        topics.fill(topic, 0, numbers(number * 100, 10))
        topics.fill(topic, 1, numbers(number * 100 + 50, 10))
    every = [*range(10), *range(50, 60)]
    assert values(load(spark, topics.options("OrdersA"))) == every
    both = values(load(spark, topics.options("OrdersB,OrdersA")))
    assert both == every + [number + 100 for number in every]
    assert values(load(spark, topics.options(subscribePattern="Orders.*"))) == both
    assert load(spark, topics.options(subscribePattern=".*")).count() == 60
    assigned = topics.options(assign=json.dumps({"OrdersA": ["broker-a:1"], "Payments": ["broker-a:0"]}))
    assert values(load(spark, assigned)) == [*range(50, 60), *range(200, 210)]
    by_path = spark.read.format("rocketmq").options(**topics.options()).load("OrdersA")
    assert values(by_path) == every


def test_offsets_limit_a_read_from_both_ends(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, numbers(0, 100))
    topics.fill("Orders", 1, numbers(100, 100))
    start = json.dumps({"Orders": {"broker-a:0": 40, "broker-a:1": -2}})
    end = json.dumps({"Orders": {"broker-a:0": 60, "broker-a:1": -1}})
    frame = load(spark, topics.options("Orders", startingOffsets=start, endingOffsets=end))
    assert values(frame) == [*range(40, 60), *range(100, 200)]
    incomplete = json.dumps({"Orders": {"broker-a:0": 40}})
    with pytest.raises(PySparkException, match=r"Orders@broker-a:1 are missing"):
        load(spark, topics.options("Orders", startingOffsets=incomplete)).collect()


def test_times_limit_a_read(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 50))
    stamps = [row.timestamp for row in load(spark, topics.options("Orders")).collect()]
    first_ms = int(stamps[0].timestamp() * 1000)
    later_ms = int(stamps[-1].timestamp() * 1000) + 3_600_000
    assert values(load(spark, topics.options("Orders", startingTimestamp=str(first_ms)))) == list(range(50))
    assert values(load(spark, topics.options("Orders", endingTimestamp=str(first_ms)))) == []
    assert values(load(spark, topics.options("Orders", endingTimestamp=str(later_ms)))) == list(range(50))
    by_queue = json.dumps({"Orders": {"broker-a:0": first_ms}})
    assert len(values(load(spark, topics.options("Orders", startingOffsetsByTimestamp=by_queue)))) == 50
    too_late = topics.options("Orders", startingTimestamp=str(later_ms))
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        load(spark, too_late).collect()
    assert values(load(spark, too_late | {"startingOffsetsByTimestampStrategy": "latest"})) == []


def test_partitions_are_cut_as_asked(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, numbers(0, 300))
    topics.fill("Orders", 1, numbers(300, 100))
    assert load(spark, topics.options("Orders")).rdd.getNumPartitions() == 2
    eight = load(spark, topics.options("Orders", minPartitions="8"))
    assert eight.rdd.getNumPartitions() == 8
    assert values(eight) == list(range(400))
    small = load(spark, topics.options("Orders", maxRecordsPerPartition="90"))
    assert small.rdd.getNumPartitions() == 6
    assert values(small) == list(range(400))
    topics.create("Large", queues=1)
    topics.fill("Large", 0, [b"%d" % n + b" " * 1000 for n in range(100)])
    light = load(spark, topics.options("Large", maxBytesPerPartition="30k"))
    assert light.rdd.getNumPartitions() == 4
    assert values(light) == list(range(100))


def test_brokers_filter_by_tags_and_by_sql(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    # "Aa" and "BB" have the same hash, which is all a broker compares.
    for number, tag in enumerate(["Aa", "BB", "C", "Aa"] * 300):
        if number % 100 == 0:
            topics.send("Orders", 0, b"%d" % number, f"TAGS\x01{tag}\x02n\x01{number}\x02")
    topics.fill("Orders", 0, numbers(5000, 900), b"TAGS\x01C\x02n\x015000\x02")
    topics.send("Orders", 0, b"9999", "TAGS\x01Aa\x02n\x019999\x02")
    tagged = load(spark, topics.options("Orders", tags="Aa||X"))
    assert values(tagged) == [*range(0, 1200, 100), 9999]
    assert values(load(spark, topics.options("Orders", tags="BB"))) == []
    big = values(load(spark, topics.options("Orders", sqlFilter="n BETWEEN 800 AND 1100 OR TAGS = 'Aa'")))
    assert big == [*range(0, 1200, 100), 9999]
    assert values(load(spark, topics.options("Orders", sqlFilter="n > 9000"))) == [9999]
    # A number is JSON, too, but has no fields.
    topics.send("Orders", 0, b'{"order": {"n": 7}}')
    by_body = load(spark, topics.options("Orders", sqlFilter="body.order.n BETWEEN 5 AND 9"))
    assert [row.value for row in by_body.collect()] == [b'{"order": {"n": 7}}']


def test_a_schema_reads_some_columns_only(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 5))
    frame = load(spark, topics.options("Orders"), "offset bigint, value binary")
    assert frame.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(n, b"%d" % n) for n in range(5)]
    assert "properties" not in load(spark, topics.options("Orders", includeHeaders="false")).columns
    with pytest.raises(PySparkException, match="expected one of the columns"):
        load(spark, topics.options("Orders"), "text binary").collect()
    with pytest.raises(PySparkException, match="expected value binary"):
        load(spark, topics.options("Orders"), "value string").collect()


def test_values_have_the_type_that_was_asked_for(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b'{"id": %d, "amount": 2.5}' % n for n in range(4)] + [b"broken"])
    text = load(spark, topics.options("Orders", valueFormat="string"))
    assert text.collect()[0].value == '{"id": 0, "amount": 2.5}'
    options = topics.options("Orders", valueFormat="json", valueSchema="id bigint, amount double")
    total = (
        load(spark, options).selectExpr("sum(value.amount) as total", "max(value.id) as last").collect()[0]
    )
    assert (total.total, total.last) == (10.0, 3)
    given = load(spark, topics.options("Orders", valueFormat="json"), "value struct<id: int>, offset bigint")
    assert [row.value and row.value.id for row in given.collect()] == [0, 1, 2, 3, None]
    with pytest.raises(PySparkException, match=r"Orders@broker-a:0 offset 4: .* cannot be read"):
        load(spark, options | {"valueMode": "failfast"}).collect()


def test_trap_filters_of_one_use_do_not_reach_another(spark: SparkSession, topics: "Topics") -> None:
    """Filters are not pushed down: Spark would keep those of the first use for the second."""
    topics.create("Orders", queues=2)
    topics.fill("Orders", 0, numbers(0, 10))
    topics.fill("Orders", 1, numbers(10, 10))
    frame = load(spark, topics.options("Orders"))
    both = frame.where("queueId = 1").union(frame.where("queueId = 0"))
    assert values(both) == list(range(20))


def test_avro_bodies_become_typed_columns(spark: SparkSession, topics: "Topics") -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": ["null", "string"]}],
    }
    topics.create("Orders", queues=1)
    # Zigzag numbers; the branch of the union; a text with its length before it.
    topics.fill("Orders", 0, [b"\x02\x02\x04eu", b"\x04\x00", b"\x80"])
    options = topics.options("Orders", valueFormat="avro", valueSchema=json.dumps(schema))
    rows = load(spark, options).orderBy("offset").select("value").collect()
    assert [row.value and tuple(row.value) for row in rows] == [(1, "eu"), (2, None), None]


def test_bodies_go_to_a_topic_and_come_back_with_the_ids_of_their_schemas(
    spark: SparkSession, topics: "Topics"
) -> None:
    topics.create("Orders", queues=1)
    identity, note = {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"]}
    with some_registry() as registry:
        for fields, ddl, rows in (
            ([identity], "id bigint", [(1,)]),
            ([identity, note], "id bigint, note string", [(2, "hello"), (3, None)]),
        ):
            schema = json.dumps({"type": "record", "name": "Order", "fields": fields})
            frame = spark.createDataFrame(rows, ddl)
            body = to_avro(struct(*frame.columns), registry, "Orders-value", schema=schema)
            writer = frame.coalesce(1).select(body.alias("value")).write.format("rocketmq")
            writer.options(**topics.options() | {"topic": "Orders"}).mode("append").save()
        options = topics.options("Orders", valueFormat="avro", schemaRegistry=registry)
        found = load(spark, options).orderBy("offset").select("value.*").collect()
        assert [tuple(row) for row in found] == [(1, None), (2, "hello"), (3, None)]


def test_protobuf_goes_to_a_topic_and_comes_back(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Messages", queues=1)
    schema = """
        syntax = "proto3"; import "google/protobuf/duration.proto";
        message Order { int64 id = 1; google.protobuf.Duration took = 2; map<string, uint64> counts = 3; }
    """
    frame = spark.sql(
        "SELECT 1L AS id, INTERVAL '1 02:03:04.5' DAY TO SECOND AS took, map('a', 5BD) AS counts"
    )
    expected = frame.collect()
    with some_registry() as registry:
        body = to_protobuf(struct(*frame.columns), registry, "Messages-value", schema=schema)
        written = frame.select(body.alias("value"))
        options = topics.options() | {"topic": "Messages"}
        written.write.format("rocketmq").options(**options).mode("append").save()
        options = topics.options("Messages", valueFormat="protobuf", schemaRegistry=registry)
        assert load(spark, options).select("value.*").collect() == expected
        found = written.select(from_protobuf("value", registry, "Messages-value").alias("value"))
        assert found.select("value.*").collect() == expected
        avro = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
        bodies = frame.select(to_avro(struct("id"), registry, "id", schema=avro).alias("body"))
        assert bodies.select(from_avro("body", registry, "id").alias("it")).select("it.id").collect() == [
            (1,)
        ]


def test_trap_a_frame_is_a_snapshot_of_its_first_action(spark: SparkSession, topics: "Topics") -> None:
    """Spark keeps the plan of a frame: what comes later is seen by a new frame."""
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 10))
    frame = load(spark, topics.options("Orders"))
    assert frame.count() == 10
    topics.fill("Orders", 0, numbers(10, 5))
    assert frame.count() == 10
    assert load(spark, topics.options("Orders")).count() == 15


def test_an_end_before_the_start_is_named(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 10))
    later, sooner = (json.dumps({"Orders": {"broker-a:0": offset}}) for offset in (8, 3))
    with pytest.raises(PySparkException, match="no end before the start at 8"):
        load(spark, topics.options("Orders", startingOffsets=later, endingOffsets=sooner)).collect()
    beyond = topics.options("Orders", startingOffsets=json.dumps({"Orders": {"broker-a:0": 50}}))
    with pytest.raises(PySparkException, match="Orders@broker-a:0 ends at 10 now, before the start at 50"):
        load(spark, beyond).collect()
    assert load(spark, beyond | {"failOnDataLoss": "false"}).collect() == []


def test_an_end_behind_the_newest_message_is_named(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 10))
    beyond = topics.options("Orders", endingOffsets=json.dumps({"Orders": {"broker-a:0": 50}}))
    with pytest.raises(PySparkException, match="Orders@broker-a:0 ends at 10 now, before the end at 50"):
        load(spark, beyond).collect()
    assert load(spark, beyond | {"failOnDataLoss": "false"}).count() == 10


def test_a_queue_that_its_broker_does_not_have_cannot_be_assigned(
    spark: SparkSession, topics: "Topics"
) -> None:
    topics.create("Orders", queues=1)
    options = topics.options() | {"assign": json.dumps({"Orders": ["broker-a:0", "broker-a:9"]})}
    with pytest.raises(PySparkException, match=r"broker-a:9.*expected one of Orders@broker-a:0"):
        load(spark, options).collect()


def test_nothing_to_read_is_no_error(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Orders", queues=3)
    assert load(spark, topics.options("Orders")).collect() == []
    with pytest.raises(PySparkException, match="no route for topic Nowhere"):
        load(spark, topics.options("Nowhere")).collect()


def test_unknown_options_are_named_when_a_frame_is_made(spark: SparkSession, topics: "Topics") -> None:
    with pytest.raises(PySparkException, match="expected the option failOnDataLoss"):
        load(spark, topics.options("Orders", failOnDataLos="true"))


# Without Spark: the same code that tasks run


def span_values(topics: "Topics", span: Span, **more: str) -> list[int]:
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = read_options(topics.options(span.queue.topic, **more), streaming=False)
    cluster = SparkCluster(options.access)
    try:
        batches = read_span(cluster, options, StructType([StructField("value", BinaryType())]), span)
        return [int(body) for batch in batches for body in batch.column("value").to_pylist()]
    finally:
        cluster.close()


A0 = Queue("Orders", "broker-a", 0)


@pytest.mark.parametrize("pulls", ["1", "3", "8"])
@pytest.mark.parametrize("messages", ["1", "7", "32", "4096"])
def test_spans_are_exact_whatever_the_size_of_pulls(topics: "Topics", pulls: str, messages: str) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % n + b" " * (n % 50 * 40) for n in range(700)])
    found = span_values(topics, Span(A0, 13, 688), pullsInFlight=pulls, pullMessages=messages)
    assert found == list(range(13, 688))


@pytest.mark.parametrize("pulls", ["1", "8"])
def test_messages_that_are_gone_are_a_loss_or_left_out(topics: "Topics", pulls: str) -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 100))
    with pytest.raises(DataLoss, match=r"messages 100 to 149 of Orders@broker-a:0 are gone"):
        span_values(topics, Span(A0, 90, 150), pullsInFlight=pulls)
    found = span_values(topics, Span(A0, 90, 150), pullsInFlight=pulls, failOnDataLoss="false")
    assert found == list(range(90, 100))


def test_a_lost_connection_is_opened_again_without_doubles(
    topics: "Topics", monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyromq.errors import ConnectionLost
    from pyromq.remoting.blocking_link import Link

    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 900))
    receive, answers = Link.receive, [0]

    def unreliable(self: Link) -> object:
        answers[0] += 1
        if answers[0] % 9 == 0:
            raise ConnectionLost("pulled by the test")
        return receive(self)

    monkeypatch.setattr(Link, "receive", unreliable)
    found = span_values(topics, Span(A0, 0, 900), fetchOffset__numRetries="5", pullMessages="32")
    assert found == list(range(900))
    assert answers[0] > 18


def test_a_group_sent_elsewhere_does_not_move_a_span(topics: "Topics") -> None:
    from pyromq.protocol.requests.offsets import ResetOffset

    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, numbers(0, 100))
    assert span_values(topics, Span(A0, 0, 10), consumerGroup="lake") == list(range(10))
    topics._call(ResetOffset(group="lake", topic="Orders", queue_id=0, offset=77, timestamp=0, is_force=True))
    assert span_values(topics, Span(A0, 0, 100), consumerGroup="lake") == list(range(100))


def test_data_deleted_under_a_read_is_a_loss_or_left_out(topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    topics.fill("Orders", 0, [b"%d" % n + b" " * 4000 for n in range(3000)])
    topics.expire_data()
    least = topics.earliest("Orders")
    assert 0 < least < 3000
    with pytest.raises(DataLoss, match=rf"messages 0 to {least - 1} of Orders@broker-a:0 are gone"):
        span_values(topics, Span(A0, 0, 3000))
    found = span_values(topics, Span(A0, 0, 3000), failOnDataLoss="false")
    assert found == list(range(least, 3000))
