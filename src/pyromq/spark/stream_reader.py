"""Streaming reads: Spark's face of `StreamProgress` on the driver, and of spans on the executors."""

import io
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import datasource_internal
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyromq.spark.cluster import SparkCluster
from pyromq.spark.offsets import FIRST, Offset, begins_of, ends_of, spans_between
from pyromq.spark.options import ReadOptions
from pyromq.spark.partitions import SpansPartition, partitions_of
from pyromq.spark.progress import StreamProgress
from pyromq.spark.queues import Queue, Span
from pyromq.spark.settling import HUNG_UP, told_in_a_line
from pyromq.spark.tier_parts import TierPart

if TYPE_CHECKING:
    import pyarrow as pa

    from pyromq.spark.tier_of_stream import TierOfStream

SIMPLE_READER: type | None = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)
"""A class of Spark's own. A release that has none lets tasks read everything."""

_SMALL_BATCH_BYTES = 1024 * 1024


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark sends copies of this to executors: connections exist only once the driver asks something."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: SparkCluster | None = None
        self._progress: StreamProgress | None = None
        self._tier: TierOfStream | None = None
        self._small_batch: list[pa.RecordBatch] | None = None

    @property
    def __class__(self) -> type:
        """Spark takes rows that the driver has read, but only from its own wrapper of simple readers. For a
        small batch, and as long as Spark has not asked for it, this reader says that it is one."""
        return SIMPLE_READER if SIMPLE_READER is not None and self._small_batch is not None else StreamReader

    @__class__.setter
    def __class__(self, other: type) -> None:
        raise TypeError(f"a stream reader cannot become a {other.__name__}")

    def _driver(self) -> StreamProgress:
        if self._progress is None:
            self._cluster = SparkCluster(self._options.access)
            record_bytes = self._cluster.record_bytes
            if self._options.tier is not None:
                from pyromq.spark.tier_of_stream import TierOfStream  # most reads do not need it

                self._tier = TierOfStream(self._cluster, self._options)
                record_bytes = self._tier.record_bytes
            self._progress = StreamProgress(self._options, self._cluster, record_bytes=record_bytes)
        return self._progress

    def _connected(self) -> SparkCluster:
        self._driver()
        assert self._cluster is not None
        return self._cluster

    def initialOffset(self) -> Offset:  # noqa: N802
        return FIRST

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._driver().default_limit()

    @told_in_a_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._driver().fix_target()

    @told_in_a_line()
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return self._driver().latest(start, limit)

    @told_in_a_line()
    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._driver().newest()

    @told_in_a_line()
    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        spans = spans_between(start, end)
        cluster = self._connected()
        parts: list[TierPart] = []
        if self._tier is not None:
            parts, spans = self._tier.split(spans, self._from_first(end))
        pieces: list[Span | TierPart] = [*spans, *parts]
        if self._is_small(pieces):
            pieces.sort(key=lambda each: (each.queue, each.start))
            self._small_batch = self._read_here(pieces)
            if self._small_batch is not None:
                return [SpansPartition(pieces)]  # read by a task only if Spark has lost what was read here
        return partitions_of(spans, self._options, cluster.record_bytes, parts)

    def _from_first(self, end: Offset) -> set[Queue]:
        """The queues that the batch reads from their first message on."""
        return set(begins_of(end)) if self._options.start.kind == "earliest" else set()

    def getCache(self, start: Offset, end: Offset) -> "Iterator[pa.RecordBatch] | None":  # noqa: N802
        """The rows of the partition that Spark was given last, if the driver has read them."""
        batches, self._small_batch = self._small_batch, None
        return iter(batches) if batches is not None else None

    def _is_small(self, spans: Sequence[Span | TierPart]) -> bool:
        if SIMPLE_READER is None:
            return False
        options = self._options
        limits = (options.min_partitions, options.max_records_per_partition, options.max_bytes_per_partition)
        if any(limits) or options.drop_duplicates_within is not None:
            return False
        return 0 < sum(span.size for span in spans) <= options.driver_reads_up_to

    def _read_here(self, spans: Sequence[Span | TierPart]) -> "list[pa.RecordBatch] | None":
        """The rows; None if they are too large for the driver."""
        from pyromq.spark.reading import read_spans

        batches, size_bytes = [], 0
        for batch in read_spans(self._connected(), self._options, self._schema, spans):
            batches.append(batch)
            size_bytes += batch.nbytes
            if size_bytes > _SMALL_BATCH_BYTES:
                return None
        return batches

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyromq.spark.reading import read_partition  # planning stays quick without it

        return read_partition(self._options, self._schema, partition)

    @told_in_a_line()
    def commit(self, end: Offset) -> None:
        self._driver().finished(ends_of(end))

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
        if isinstance(sys.exception(), HUNG_UP):
            # Spark has hung up, as it does at the end of every query. Its worker answers even so, in vain,
            # and would print a traceback for each attempt.
            sys.stderr = io.StringIO()


class RefusedStreamReader(DataSourceStreamReader):
    """Raises the error at the first call; Spark would drop an error raised while it makes a reader."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    @told_in_a_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._problem

    @told_in_a_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._problem

    @told_in_a_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        raise self._problem
