"""Why filters are not pushed down: Spark keeps one plan of a source for all uses of a frame."""

from collections.abc import Iterable, Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition
from pyspark.sql.types import StructType

SETTING = "spark.sql.python.filterPushdown.enabled"


def make_source() -> type[DataSource]:
    """Made here, so that Spark sends it to its workers by value."""

    class QueueReader(DataSourceReader):
        queues: tuple[int, ...] = (0, 1)

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
            for each in filters:
                if isinstance(each, EqualTo) and each.attribute == ("queueId",):
                    self.queues = (each.value,)
                else:
                    yield each

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            return iter([(queue,) for queue in self.queues])

    class QueueSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "two_queues"

        def schema(self) -> str:
            return "queueId int"

        def reader(self, schema: StructType) -> DataSourceReader:
            return QueueReader()

    return QueueSource


def test_trap_a_filter_that_is_pushed_down_is_used_for_all_uses_of_a_frame(spark: SparkSession) -> None:
    """Should a release mend this, `BatchReader` could have `pushFilters`, and docs/howto/spark.md changes."""
    spark.dataSource.register(make_source())
    spark.conf.set(SETTING, "true")
    try:
        frame = spark.read.format("two_queues").load()
        both = frame.where("queueId = 1").union(frame.where("queueId = 0"))
        assert sorted(row.queueId for row in both.collect()) != [0, 1]
        frame = spark.read.format("two_queues").load()
        assert frame.where("queueId = 1").count() == 1
        assert frame.count() != 2
    finally:
        spark.conf.set(SETTING, "false")


def test_trap_a_source_that_takes_filters_cannot_be_read_without_the_setting(spark: SparkSession) -> None:
    """It is off by default, so every ordinary session would have to turn it on."""
    spark.dataSource.register(make_source())
    with pytest.raises(AnalysisException, match="DATA_SOURCE_PUSHDOWN_DISABLED"):
        spark.read.format("two_queues").load().collect()
