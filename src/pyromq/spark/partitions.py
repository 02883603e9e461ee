"""Spark's partitions of a read, each the work of one task: a span of offsets, or a few short ones."""

from collections.abc import Iterable, Sequence

from pyspark.sql.datasource import InputPartition

from pyromq.spark.options import ReadOptions
from pyromq.spark.queues import Span, split_spans


class SpansPartition(InputPartition):
    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(", ".join(map(str, spans)))
        self.spans = spans


def partitions_of(spans: Iterable[Span], options: ReadOptions) -> list[InputPartition]:
    pieces = split_spans(spans, options.min_partitions, options.max_records_per_partition)
    return [SpansPartition([piece]) for piece in pieces]
