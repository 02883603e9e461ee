"""Batch reads: the messages that exist when the plan is made, from one position to another.

Spark keeps the plan of a DataFrame: reading the same DataFrame again reads the same messages.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import ReadOptions
from pyromq.spark.partitions import partitions_of
from pyromq.spark.positions import resolve_spans
from pyromq.spark.settling import told_in_a_line

if TYPE_CHECKING:
    import pyarrow as pa


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    @told_in_a_line()
    def partitions(self) -> list[InputPartition]:
        options = self._options
        cluster = SparkCluster(options.access)
        try:
            if options.tier is not None:
                from pyromq.spark.tiers import planned  # most reads do not need it

                parts, spans = planned(cluster, options)
                return partitions_of(spans, options, cluster.record_bytes, parts)
            spans = resolve_spans(cluster, options, cluster.queues(options.selection))
            return partitions_of(spans, options, cluster.record_bytes)
        finally:
            cluster.close()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyromq.spark.reading import read_partition  # planning stays quick without it

        return read_partition(self._options, self._schema, partition)
