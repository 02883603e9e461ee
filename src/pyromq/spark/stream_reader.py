"""Streaming reads: Spark's face of `Progress` on the driver, and of spans on the executors."""

import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyromq.spark.cluster import Cluster
from pyromq.spark.options import ReadOptions
from pyromq.spark.partitions import partitions_of
from pyromq.spark.progress import FIRST, Offset, Progress, spans_between
from pyromq.spark.queues import flatten
from pyromq.spark.settling import HUNG_UP

if TYPE_CHECKING:
    import pyarrow as pa


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark sends copies of this to executors: connections exist only once the driver asks something."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._cluster: Cluster | None = None
        self._progress: Progress | None = None

    def _driver(self) -> Progress:
        if self._progress is None:
            self._cluster = Cluster(self._options.access)
            self._progress = Progress(self._options, self._cluster)
        return self._progress

    def initialOffset(self) -> Offset:  # noqa: N802
        return FIRST

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._driver().default_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._driver().fix_target()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        return self._driver().latest(start, limit)

    def reportLatestOffset(self) -> Offset:  # noqa: N802
        return self._driver().newest()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return partitions_of(spans_between(start, end), self._options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        from pyromq.spark.reading import read_partition  # planning stays quick without it

        return read_partition(self._options, self._schema, partition)

    def commit(self, end: Offset) -> None:
        self._driver().finished(flatten(end.get("q", {})))

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

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self._problem

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self._problem

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        raise self._problem

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        raise self._problem
