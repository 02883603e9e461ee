"""A Delta table that follows a table of a database: `python examples/spark_cdc.py`.

1. A thousand changes of customers go to a topic, in Debezium's format, those of one customer to one queue.
2. Each micro-batch merges the last change of each customer into the table. A batch that is repeated after a
   crash changes nothing, as the last changes are the same.
3. The table has the rows of the database.

It needs delta-rs: `pip install 'pyromq[lakehouse]'`.
"""

import random
import tempfile

from deltalake import DeltaTable, Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, max_by

from pyromq import Message, Producer
from pyromq.spark import session
from pyromq.testing import cluster

CHANGES, CUSTOMERS = 1000, 50
CITIES = ("Accra", "Lima", "Oslo", "Pune")
FIELDS = ("id", "name", "city")
ROW = "struct<id: bigint, name: string, city: string>"

Customers = dict[int, dict[str, object]]


def send_changes(namesrv: str) -> Customers:
    """Insert, update and delete, as an application does; what the database has in the end."""
    chance = random.Random(2026)
    database: Customers = {}
    with Producer("debezium", namesrv=namesrv) as producer:
        for number in range(CHANGES):
            id_ = chance.randrange(CUSTOMERS)
            before, after = database.get(id_), None
            if before is None or chance.random() < 0.8:
                after = {"id": id_, "name": f"name {number}", "city": chance.choice(CITIES)}
                database[id_] = after
            else:
                del database[id_]
            change = {
                "op": "c" if before is None else "d" if after is None else "u",
                "before": before,
                "after": after,
            }
            producer.send(Message.of("Customers", change), sharding_key=str(id_))
    return database


def follow(spark: SparkSession, namesrv: str, directory: str) -> None:
    """Apply the changes that are there now."""
    changes = (
        spark.readStream.format("rocketmq")
        .option("namesrv", namesrv)
        .option("subscribe", "Customers")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .option("valueFormat", "json")
        .option("valueSchema", f"op string, before {ROW}, after {ROW}")
        .load()
    )

    def apply(frame: DataFrame, batch: int) -> None:
        id_ = expr("coalesce(value.after.id, value.before.id)").alias("id")
        last = frame.groupBy(id_).agg(max_by("value", "offset").alias("change"))
        rows = last.selectExpr(
            "id", "change.after.name", "change.after.city", "change.op = 'd' AS gone"
        ).toArrow()
        table = DeltaTable.create(directory, Schema.from_arrow(rows.select(FIELDS).schema), mode="ignore")
        values = {field: f"new.{field}" for field in FIELDS}
        merge = table.merge(rows, "old.id = new.id", source_alias="new", target_alias="old")
        merge = merge.when_matched_delete("new.gone").when_matched_update(values)
        merge.when_not_matched_insert(values, "NOT new.gone").execute()

    writer = changes.writeStream.foreachBatch(apply).option("checkpointLocation", f"{directory}/_checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


def main(spark: SparkSession, namesrv: str, directory: str) -> None:
    database = send_changes(namesrv)
    follow(spark, namesrv, directory)
    table = DeltaTable(directory)
    rows = {row["id"]: row for row in table.to_pyarrow_table().to_pylist()}
    print(f"{CHANGES} changes: version {table.version()} of the table has {len(rows)} customers")
    print("The table has the rows of the database." if rows == database else "They differ.")


if __name__ == "__main__":
    with (
        cluster() as running,
        tempfile.TemporaryDirectory() as directory,
        session("cdc", master="local[2]", spark__sql__shuffle__partitions="2") as spark,
    ):
        main(spark, running.namesrv, directory)
