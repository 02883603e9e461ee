"""Spark Connect: the client has no JVM, the server finds the source by itself; every read and write once."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import SparkSession
from tests.support.spark_session import connect_url

if TYPE_CHECKING:
    from tests.spark.conftest import Topics

PROGRAM = """
import sys
from pyspark.sql import SparkSession

url, namesrv, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote(url).getOrCreate()

rows = spark.range(20).selectExpr("cast(id as string) as value", "concat('k', id) as key")
rows.write.format("rocketmq").option("namesrv", namesrv).option("topic", "Orders").mode("append").save()
print("written")

frame = spark.read.format("rocketmq").option("namesrv", namesrv).option("subscribe", "Orders").load()
print("batch", frame.selectExpr("sum(cast(cast(value as string) as int)) as total").collect()[0].total)

stream = spark.readStream.format("rocketmq").option("namesrv", namesrv).option("subscribe", "Orders")
copy = stream.option("startingOffsets", "earliest").load().select("value", "key")
writer = copy.writeStream.format("rocketmq").option("namesrv", namesrv).option("topic", "Copy")
query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
assert query.awaitTermination(200)

spark.sql(f"CREATE TEMPORARY VIEW copied USING rocketmq OPTIONS (namesrv '{namesrv}', subscribe 'Copy')")
print("sql", spark.sql("SELECT count(DISTINCT key) AS keys FROM copied").collect()[0]["keys"])
spark.stop()
"""


def test_connect_reads_streams_writes_and_queries(
    spark: SparkSession, topics: "Topics", tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs the extra connect")
    topics.create("Orders", queues=2)
    topics.create("Copy", queues=2)
    arguments = [connect_url(spark), topics.running.namesrv, str(tmp_path / "checkpoint")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.stdout.splitlines() == ["written", "batch 190", "sql 20"], done.stderr[-4000:]
