"""The connector through Spark Connect: `python examples/spark_connect.py [sc://host:15002]`.

1. A batch write sends orders to a topic. This program has no JVM of its own: a Spark Connect server does all.
2. A stream adds up the revenue of each region and writes it to another topic.
3. SQL reads the result.

The server must have PyroMQ in its Python (`PYSPARK_PYTHON`), and so must its executors; this side needs
`pip install 'pyromq[connect]'`. Without an address, the program starts a server on port 15002.
"""

import json
import sys
import tempfile

from pyspark.sql import SparkSession

from pyromq.spark.session import prepare_environment
from pyromq.testing import cluster

REGIONS = ("africa", "americas", "asia", "europe", "oceania")
ORDERS = 200


def main(spark: SparkSession, namesrv: str, checkpoint: str) -> None:
    sold = [(json.dumps({"region": REGIONS[number % 5], "cents": number}),) for number in range(ORDERS)]
    till = spark.createDataFrame(sold, "value string").write.format("rocketmq").option("namesrv", namesrv)
    till.option("topic", "Orders").mode("append").save()

    orders = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", "Orders")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "region string, cents bigint")
        .load()
    )
    revenue = orders.groupBy("value.region").agg({"value.cents": "sum"}).toDF("region", "cents")
    messages = revenue.selectExpr("region AS key", "CAST(cents AS STRING) AS value")
    writer = messages.writeStream.format("rocketmq").option("namesrv", namesrv).option("topic", "Revenue")
    writer = writer.outputMode("complete").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()

    options = f"namesrv '{namesrv}', subscribe 'Revenue', valueFormat 'string'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW revenue USING rocketmq OPTIONS ({options})")
    for region, cents in spark.sql("SELECT key, value FROM revenue ORDER BY key").collect():
        print(f"{region}: {cents} cents")


if __name__ == "__main__":
    prepare_environment()  # for a server of its own: this Python, and a Java
    url = sys.argv[1] if len(sys.argv) > 1 else "local[2]"
    with cluster() as running, tempfile.TemporaryDirectory() as checkpoint:
        spark = SparkSession.builder.remote(url).getOrCreate()
        main(spark, running.namesrv, checkpoint)
        spark.stop()
