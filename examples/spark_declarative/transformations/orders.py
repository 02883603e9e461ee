"""The topic as a table that grows: each message once."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()


@dp.table(partition_cols=["day"])
def orders() -> DataFrame:
    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrv", spark.conf.get("pyromq.namesrv"))
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "region string, cents bigint, at timestamp")
        .load()
    )
    return stream.selectExpr("value.*", "key", "queueId", "offset", "to_date(timestamp) AS day")
