"""Count the errors of each logger in a topic that `pyromq.logging.TopicHandler` fills.

python examples/spark_logs.py 127.0.0.1:9876 ShopLogs
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count
from pyspark.sql.functions import max as latest

from pyromq.spark import session


def main(spark: SparkSession, namesrv: str, topic: str) -> None:
    options = {"namesrv": namesrv, "subscribe": topic, "valueFormat": "log"}
    logs = spark.read.format("rocketmq").options(**options).load().select("value.*")
    errors = logs.where(col("level").isin("ERROR", "CRITICAL"))
    counted = errors.groupBy("logger").agg(count("*").alias("errors"), latest("time").alias("last"))
    for row in counted.orderBy("logger").collect():
        print(f"{row.logger}: {row.errors} errors, the last at {row['last']:%Y-%m-%d %H:%M:%S}")


if __name__ == "__main__":
    with session("logs", master="local[2]") as spark:
        main(spark, *sys.argv[1:3])
