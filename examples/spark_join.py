"""Two topics joined as they come: orders with the payments that follow, `python examples/spark_join.py`.

1. A shop sends an order a minute, and the bank a payment for most of them: some come too late, some never.
2. Each order is joined with its payment. An order goes out without one when the watermark says that no
   payment can come in time any more; then Spark forgets it.
"""

import tempfile
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

from pyromq import Message, Producer
from pyromq.spark import session
from pyromq.testing import cluster

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
ORDERS = 100


def send(namesrv: str) -> None:
    def order(number: int, at: datetime) -> Message:
        return Message.of("Orders", {"id": number, "cents": 100 + number, "ordered": at})

    def payment(number: int, at: datetime) -> Message:
        return Message.of("Payments", {"order_id": number, "paid": at})

    with Producer("shop", namesrv=namesrv) as producer:
        for number in range(ORDERS):
            ordered = NOON + timedelta(minutes=number)
            producer.send(order(number, ordered))
            if number % 10 == 7:
                producer.send(payment(number, ordered + timedelta(minutes=61)))
            elif number % 10 != 3:
                producer.send(payment(number, ordered + timedelta(minutes=5)))
        # With the first order of the next day, both watermarks pass what is left of this one.
        producer.send(order(ORDERS, NOON + timedelta(days=1)))
        producer.send(payment(ORDERS, NOON + timedelta(days=1)))


def main(spark: SparkSession, namesrv: str, directory: str) -> None:
    def events(topic: str, fields: str) -> DataFrame:
        stream = (
            spark.readStream.format("rocketmq")
            .option("namesrv", namesrv)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("valueFormat", "json")
            .option("valueSchema", fields)
            .load()
        )
        return stream.select("value.*")

    send(namesrv)
    orders = events("Orders", "id bigint, cents bigint, ordered timestamp")
    payments = events("Payments", "order_id bigint, paid timestamp")
    in_time = expr("id = order_id AND paid BETWEEN ordered AND ordered + INTERVAL 1 HOUR")
    joined = orders.withWatermark("ordered", "10 minutes").join(
        payments.withWatermark("paid", "10 minutes"), in_time, "leftOuter"
    )
    writer = joined.writeStream.format("parquet").option("path", directory)
    writer = writer.option("checkpointLocation", f"{directory}/_checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    totals = spark.read.parquet(directory).groupBy(expr("paid IS NOT NULL").alias("is_paid"))
    found = totals.agg(expr("count(*) AS orders"), expr("sum(cents) AS cents")).orderBy("is_paid")
    for row in found.collect():
        outcome = "paid" if row.is_paid else "not paid in time"
        print(f"{row.orders} orders of {row.cents} cents were {outcome}")


if __name__ == "__main__":
    with (
        cluster() as running,
        tempfile.TemporaryDirectory() as directory,
        session("join", master="local[2]", spark__sql__shuffle__partitions="2") as spark,
    ):
        main(spark, running.namesrv, directory)
