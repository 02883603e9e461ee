"""Dead letters: messages that groups could not consume, by group, topic and reason, with samples.

RocketMQ stores no reason. A dead letter with the maximum number of attempts has used up its retries; one with
fewer was given up by its consumer. The trace, if there is one, shows how the last attempt ended.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql.window import Window

from pyromq.protocol.dead_letters import SETTLED
from pyromq.protocol.names import DLQ_PREFIX
from pyromq.protocol.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC
from pyromq.spark.pipelines.trace import consumptions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_RETRIES: Final = 16
"""The retries of a group that was given no other number."""

COLUMNS: Final = (
    "key string, value binary, topic string, brokerName string, queueId int, offset bigint, "
    "timestamp timestamp, bornTimestamp timestamp, tags string, properties map<string,string>, "
    "msgId string, reconsumeTimes int, logOffset bigint"
)

_OUTCOMES: Final = {1: "timed out", 2: "raised", 3: "returned nothing", 4: "failed"}


def selected(groups: tuple[str, ...]) -> dict[str, str]:
    """The option that reads the dead letters of these groups, or of all."""
    if groups:
        return {"subscribe": ",".join(f"{DLQ_PREFIX}{group}" for group in groups)}
    return {"subscribePattern": f"{DLQ_PREFIX}.*"}


def read_dead_letters(
    spark: "SparkSession",
    options: Mapping[str, str],
    groups: tuple[str, ...] = (),
    max_retries: int = MAX_RETRIES,
) -> "DataFrame":
    frame = spark.read.format("rocketmq").options(**selected(groups) | dict(options)).schema(COLUMNS).load()
    return described(frame, max_retries)


def described(letters: "DataFrame", max_retries: int = MAX_RETRIES) -> "DataFrame":
    """Messages of dead-letter topics with group, origin, attempts and reason."""
    origin = fn.coalesce(*[fn.col("properties")[name] for name in (DLQ_ORIGIN_TOPIC, RETRY_TOPIC)])
    reason = fn.when(fn.col("attempts") > max_retries, "retries used up").otherwise("given up")
    letters = letters.where(fn.col("properties")[SETTLED].isNull())
    # This does not look at the frame's columns: declarative pipelines forbid it.
    return letters.withColumnRenamed("reconsumeTimes", "attempts").withColumns(
        {
            "group": fn.substring("topic", len(DLQ_PREFIX) + 1, 255),
            "origin": fn.coalesce(origin, fn.lit("unknown")),
            "reason": reason,
        }
    )


def with_outcomes(letters: "DataFrame", traces: "DataFrame") -> "DataFrame":
    """Reasons with what the trace says about each letter's last attempt."""
    names = fn.create_map(*[fn.lit(each) for pair in _OUTCOMES.items() for each in pair])
    ended = consumptions(traces).where("NOT is_ok").groupBy("group", fn.col("id").alias("msgId"))
    last = ended.agg(fn.max_by(names[fn.col("outcome")], "begun_ms").alias("outcome"))
    joined = letters.join(last, ["group", "msgId"], "left")
    return joined.withColumn("reason", fn.concat_ws(": ", "reason", "outcome")).drop("outcome")


def summarized(letters: "DataFrame") -> "DataFrame":
    return (
        letters.groupBy("group", "origin", "reason")
        .agg(
            fn.count(fn.lit(1)).alias("letters"),
            fn.max("attempts").alias("attempts"),
            fn.min("timestamp").alias("first"),
            fn.max("timestamp").alias("last"),
        )
        .orderBy(fn.desc("letters"), "group", "origin", "reason")
    )


def samples(letters: "DataFrame", each: int) -> "DataFrame":
    """The newest letters of each group, origin and reason."""
    newest = Window.partitionBy("group", "origin", "reason").orderBy(fn.desc("timestamp"), fn.desc("offset"))
    numbered = letters.withColumn("number", fn.row_number().over(newest)).where(f"number <= {each}")
    return numbered.select(
        "group", "origin", "reason", "msgId", "key", "tags", "attempts", "timestamp", "value"
    ).orderBy("group", "origin", "reason", fn.desc("timestamp"))
