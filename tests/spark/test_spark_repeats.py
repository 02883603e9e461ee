"""Reads that leave out messages which repeat one before them, however a queue is cut into tasks."""

from itertools import pairwise
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StructField, StructType

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import read_options
from pyromq.spark.queues import Queue, Span
from pyromq.spark.reading import read_span

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

QUEUE = Queue("Orders", "broker-a", 0)
SCHEMA = StructType([StructField("value", BinaryType())])


def test_a_message_that_repeats_one_before_it_is_left_out(topics: "Topics") -> None:
    topics.create("Orders", queues=1)
    sent = [*range(30), *range(20, 40), 0]
    for number in sent:
        tag = "even" if number % 2 == 0 else "odd"
        topics.fill(
            "Orders", 0, [b"%d" % number], b"UNIQ_KEY\x01ID%d\x02TAGS\x01%s\x02" % (number, tag.encode())
        )
    cluster = SparkCluster(topics.access)

    def numbers(*edges: int, **more: str) -> list[int]:
        options = read_options(topics.options("Orders", **more), streaming=False)
        spans = [Span(QUEUE, start, end) for start, end in pairwise(edges)]
        batches = [batch for span in spans for batch in read_span(cluster, options, SCHEMA, span)]
        return [int(value) for batch in batches for value in batch.column("value").to_pylist()]

    try:
        assert numbers(0, 51) == sent
        assert numbers(0, 51, dropDuplicatesWithin="10") == [*range(40), 0]
        assert numbers(0, 51, dropDuplicatesWithin="100") == list(range(40))
        assert numbers(0, 3, 25, 35, 36, 51, dropDuplicatesWithin="10") == [*range(40), 0]
        assert numbers(35, 51, dropDuplicatesWithin="10") == [*range(30, 40), 0]
        assert numbers(35, 51, dropDuplicatesWithin="10", tags="odd") == list(range(31, 40, 2))
    finally:
        cluster.close()
