"""How many messages of each topic and day there are, archived or not: lake and live messages as one table.

python examples/spark_history.py 127.0.0.1:9876 lake/
"""

import sys

from pyspark.sql import SparkSession

from pyromq.spark import session
from pyromq.spark.pipelines.history import history


def main(spark: SparkSession, namesrv: str, lake: str) -> None:
    messages = history(spark, {"namesrv": namesrv}, lake)
    days = messages.groupBy("topic", messages.timestamp.cast("date").alias("day")).count()
    for topic, day, count in days.orderBy("topic", "day").collect():
        print(f"{topic} {day}: {count:,} messages")


if __name__ == "__main__":
    with session("history", master="local[2]") as spark:
        main(spark, *sys.argv[1:3])
