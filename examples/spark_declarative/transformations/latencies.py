"""From send to consume, by topic and group."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from pyromq.spark.pipelines.trace import latencies as by_topic_and_group
from pyromq.spark.pipelines.trace import read_messages, records

spark = SparkSession.active()


@dp.materialized_view
def latencies() -> DataFrame:
    messages = read_messages(spark, {"namesrv": spark.conf.get("pyromq.namesrv") or ""})
    return by_topic_and_group(records(messages)).drop("grid")
