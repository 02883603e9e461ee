"""Topics into a lake: Parquet by topic and day, each message once however often the job is run."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKPOINT = "_checkpoint"


def archive(spark: "SparkSession", options: Mapping[str, str], lake: str, **trigger: Any) -> int:
    """Copy what has come since the last run, or run on with a `trigger` of your own; how many were copied.

    The checkpoint lies in the lake: moving or deleting one without the other would double or lose messages.
    """
    given = {"startingOffsets": "earliest"} | dict(options)
    stream = spark.readStream.format("rocketmq").options(**given).load()
    by_day = stream.selectExpr("*", "to_date(timestamp) as day")
    writer = by_day.writeStream.format("parquet").partitionBy("topic", "day")
    writer = writer.option("checkpointLocation", str(PurePath(lake) / CHECKPOINT))
    query = writer.trigger(**(trigger or {"availableNow": True})).start(lake)
    query.awaitTermination()
    return sum(progress.numInputRows for progress in query.recentProgress)
