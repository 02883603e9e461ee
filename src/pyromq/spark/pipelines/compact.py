"""Few large files instead of many small ones, in lakes that are tables: no reader sees a difference."""

from typing import TYPE_CHECKING, NamedTuple

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.lake import PLAIN, form_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES = 128 * 1024 * 1024


class Compacted(NamedTuple):
    replaced: int
    made: int


def compact(spark: "SparkSession", lake: str, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Files of one topic and one day that are smaller than `target_bytes` are joined.

    The old files stay for readers that have begun.
    """
    form = form_of(spark, lake)
    if form == PLAIN:
        # Nothing says which files of a plain lake are valid, so no reader would see a change as one step.
        raise ConfigError("lake", lake, "a Delta or Iceberg table; plain Parquet cannot be compacted safely")
    return Compacted(*table_at(lake, form).compact(spark, target_bytes))
