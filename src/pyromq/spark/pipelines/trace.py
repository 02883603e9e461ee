"""Message traces: reports of clients about sends and consumption become latencies, by topic and group.

A message on the trace topic holds records that end with U+0002, whose fields are separated by U+0001. Sends
name the topic, consumption does not: the two are joined by the id of the message they are about.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from pyromq.protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PERCENTILES: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p999": 99.9, "max": 100.0}

_RECORD_END, _SEPARATOR = "\x02", "\x01"
# java: the ordinal of a delayed message; how long it waits was the sender's wish
_DELAYED = "3"
_BOUNDARIES = tuple(range(101))


def read_messages(spark: "SparkSession", options: Mapping[str, str]) -> "DataFrame":
    given = {"subscribe": TRACE_TOPIC} | dict(options)
    reader = spark.read.format("rocketmq").options(**given)
    return reader.schema("value binary, timestamp timestamp").load()


def records(messages: "DataFrame") -> "DataFrame":
    """Messages of the trace topic, from wherever, to rows `(kind, fields)`."""
    each = fn.split(fn.col("value").cast("string"), _RECORD_END)
    split = messages.select(
        fn.explode(fn.transform(each, lambda one: fn.split(one, _SEPARATOR))).alias("fields")
    )
    return split.select(fn.col("fields")[0].alias("kind"), "fields").where("kind != ''")


def sends(rows: "DataFrame") -> "DataFrame":
    """Each message that was sent: when, by whom, to which topic, and how long its send took."""
    fields = _fields(group=3, topic=4, ids=5, kind=11)
    # java: before 4.2 there was no id of the place in the log, so what follows is counted from the end
    success = fn.when(fn.size("fields") > 13, fn.col("fields")[13]).otherwise(fn.element_at("fields", -1))
    sent = rows.where("kind = 'Pub'").select(
        *fields,
        fn.col("fields")[1].cast("long").alias("sent_ms"),
        fn.col("fields")[10].cast("long").alias("send_cost_ms"),
        (success == "true").alias("is_sent"),
    )
    # java: a batch is one record with all its ids
    return sent.withColumn("id", fn.explode(fn.split("ids", ","))).drop("ids")


def consumptions(rows: "DataFrame") -> "DataFrame":
    """Each attempt to consume a message: when it began, as which retry, how long it took, how it ended."""
    begun = rows.where("kind = 'SubBefore'").select(
        *_fields(group=3, request=4, id=5),
        fn.col("fields")[1].cast("long").alias("begun_ms"),
        fn.col("fields")[6].cast("int").alias("retry"),
    )
    ended = rows.where("kind = 'SubAfter'").select(
        *_fields(request=1, id=2),
        fn.col("fields")[3].cast("long").alias("cost_ms"),
        (fn.col("fields")[4] == "true").alias("is_ok"),
        fn.col("fields")[6].cast("int").alias("outcome"),
    )
    return begun.join(ended, ["request", "id"], "left")


def attempts(rows: "DataFrame") -> "DataFrame":
    """Each attempt together with the send of its message; delayed messages are omitted."""
    sent = sends(rows).where(f"is_sent AND kind != '{_DELAYED}'").drop("group", "is_sent", "kind")
    joined = consumptions(rows).join(sent.dropDuplicates(["id"]), "id")
    # Clocks of two machines are compared: a little before the send means at once.
    return joined.withColumn("latency_ms", fn.greatest(fn.lit(0), fn.col("begun_ms") - fn.col("sent_ms")))


def latencies(rows: "DataFrame") -> "DataFrame":
    """For each topic and group: percentiles in ms from the send of a message to its first consumption."""
    joined = attempts(rows)
    shares = fn.array(*[fn.lit(share / 100) for share in PERCENTILES.values()])
    grid = fn.array(*[fn.lit(share / 100) for share in _BOUNDARIES])
    first = fn.when(fn.col("retry") == 0, fn.col("latency_ms"))
    return (
        joined.groupBy("topic", "group")
        .agg(
            fn.count(first).alias("messages"),
            fn.percentile(first, shares).alias("latency"),
            fn.percentile("cost_ms", fn.lit(0.99)).alias("handling_p99"),
            fn.percentile("send_cost_ms", fn.lit(0.99)).alias("send_p99"),
            fn.count_if(fn.col("retry") > 0).alias("retries"),
            fn.count_if(~fn.col("is_ok")).alias("failures"),
            fn.percentile(first, grid).alias("grid"),
        )
        .select(
            "topic",
            "group",
            "messages",
            *[fn.col("latency")[at].alias(name) for at, name in enumerate(PERCENTILES)],
            "handling_p99",
            "send_p99",
            "retries",
            "failures",
            "grid",
        )
        .orderBy("topic", "group")
    )


def _fields(**places: int) -> "list[Column]":
    """java: what is missing is written as `null`"""
    return [fn.nullif(fn.col("fields")[place], fn.lit("null")).alias(name) for name, place in places.items()]
