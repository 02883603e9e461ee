"""Count the messages of a topic by tag, as they come.

python examples/spark_stream.py 127.0.0.1:9876 Orders
"""

import sys

from pyromq.spark import session


def main(namesrv: str, topic: str) -> None:
    spark = session("count-by-tag", master="local[2]", spark__sql__shuffle__partitions="2")
    stream = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    counts = stream.groupBy("tags").count()
    query = counts.writeStream.format("console").outputMode("complete").start()
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3])
