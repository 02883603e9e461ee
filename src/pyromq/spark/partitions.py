"""Spark's partitions of a read: each is one span of offsets, read by one task."""

from collections.abc import Iterable

from pyspark.sql.datasource import InputPartition

from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Span, split_spans


class SpanPartition(InputPartition):
    def __init__(self, span: Span) -> None:
        super().__init__(str(span))
        self.span = span


def partitions_of(spans: Iterable[Span], options: ReadOptions) -> list[InputPartition]:
    pieces = split_spans(spans, options.min_partitions, options.max_records_per_partition)
    return [SpanPartition(piece) for piece in pieces]
