"""Dead letters by group, topic and reason."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from pyromq.spark.pipelines.dlq import read_dead_letters, summarized

spark = SparkSession.active()


@dp.materialized_view
def dead_letters() -> DataFrame:
    return summarized(read_dead_letters(spark, {"namesrv": spark.conf.get("pyromq.namesrv") or ""}))
