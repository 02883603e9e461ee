"""Copy topics into a Parquet lake, by topic and day, exactly once; run it again to go on.

python examples/spark_archive.py 127.0.0.1:9876 Orders,Payments lake/
"""

import sys

from pyspark.sql import DataFrame, SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.display import reported
from pyromq.spark.pipelines.tallies import watch


def main(spark: SparkSession, namesrv: str, topics: str, lake: str) -> None:
    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )

    def keep(frame: DataFrame, batch: int) -> None:
        # A batch that is written again, after a crash, replaces what was left of it.
        days = frame.selectExpr("*", "to_date(timestamp) AS day", f"{batch} AS batch")
        writer = days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("topic", "day", "batch").parquet(lake)

    writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", f"{lake}/_checkpoint")
    with reported() as show:
        watch("archive", writer.trigger(availableNow=True).start(), show)


if __name__ == "__main__":
    with session("archive", master="local[2]") as spark:
        main(spark, *sys.argv[1:4])
