"""Finished minutes into another topic."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("results", "rocketmq", {"namesrv": spark.conf.get("pyromq.namesrv") or "", "topic": "Revenue"})


@dp.append_flow(target="results")
def minutes() -> DataFrame:
    return spark.readStream.table("revenue").selectExpr("to_json(struct(*)) AS value", "region AS tags")
