"""Micro-batches of few messages: the driver reads them, and no task waits for a Python worker."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.spark.test_spark_stream import numbers

from pyromq.spark import stream_reader
from pyromq.spark.offsets import FIRST
from pyromq.spark.options import read_options
from pyromq.spark.stream_reader import StreamReader

if TYPE_CHECKING:
    from tests.spark.conftest import Topics


@pytest.fixture
def orders(topics: "Topics") -> "Topics":
    """Two queues with few messages."""
    topics.create("Orders")
    topics.fill("Orders", 0, numbers(0, 2))
    topics.fill("Orders", 1, numbers(2, 3))
    return topics


def says_it_is_simple(reader: StreamReader) -> bool:
    """What Spark asks of a reader before it takes rows from the driver."""
    assert stream_reader.SIMPLE_READER is not None
    return isinstance(reader, stream_reader.SIMPLE_READER)


def read(spark: SparkSession, options: dict[str, str]) -> tuple[list[int], int]:
    """The values of a stream, of large ones the lengths, and how many partitions had them."""
    stream = spark.readStream.format("rocketmq").options(startingOffsets="earliest", **options).load()
    rows = stream.selectExpr("cast(value as string) as value", "spark_partition_id() as task")
    query = rows.writeStream.format("memory").queryName("small").trigger(availableNow=True).start()
    assert query.awaitTermination(300)
    found = spark.table("small").collect()
    values = sorted(int(row.value) if len(row.value) < 10 else len(row.value) for row in found)
    return values, len({row.task for row in found})


def test_few_messages_of_several_queues_are_one_partition(spark: SparkSession, orders: "Topics") -> None:
    assert read(spark, orders.options("Orders")) == ([0, 1, 2, 3, 4], 1)


@pytest.mark.parametrize(
    "option", [{"driverReadsUpTo": "4"}, {"driverReadsUpTo": "0"}, {"minPartitions": "2"}]
)
def test_tasks_read_what_is_too_much_or_meant_for_them(
    spark: SparkSession, orders: "Topics", option: dict[str, str]
) -> None:
    assert read(spark, orders.options("Orders", **option)) == ([0, 1, 2, 3, 4], 2)


def test_tasks_read_few_messages_that_are_large(spark: SparkSession, topics: "Topics") -> None:
    topics.create("Large")
    for queue_id in (0, 1):
        topics.fill("Large", queue_id, [b"x" * 700_000])
    assert read(spark, topics.options("Large")) == ([700_000, 700_000], 2)


def test_tasks_read_everything_if_spark_has_no_place_for_rows_of_the_driver(
    orders: "Topics", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "SIMPLE_READER", None)
    options = read_options(orders.options("Orders", startingOffsets="earliest"), streaming=True)
    reader = StreamReader(options, StructType().add("offset", "long"))
    try:
        end = reader.latestOffset(FIRST, reader.getDefaultReadLimit())
        assert len(reader.partitions(FIRST, end)) == 2
    finally:
        reader.stop()


def test_a_batch_of_nothing_but_filtered_messages_is_empty(spark: SparkSession, orders: "Topics") -> None:
    assert read(spark, orders.options("Orders", tags="none")) == ([], 0)


def test_a_task_reads_the_same_if_spark_lost_the_rows_of_the_driver(orders: "Topics") -> None:
    options = read_options(orders.options("Orders", startingOffsets="earliest"), streaming=True)
    schema = StructType().add("value", "binary").add("offset", "long")
    reader = StreamReader(options, schema)
    try:
        end = reader.latestOffset(FIRST, reader.getDefaultReadLimit())
        (partition,) = reader.partitions(FIRST, end)
        assert says_it_is_simple(reader)
        read_here = reader.getCache(FIRST, end)
        assert not says_it_is_simple(reader)
        assert read_here is not None
        table = pa.Table.from_batches(list(read_here))
        assert table.num_rows == 5
        assert pa.Table.from_batches(list(reader.read(partition))) == table
        assert reader.getCache(FIRST, end) is None
    finally:
        reader.stop()
