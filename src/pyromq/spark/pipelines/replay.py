"""A lake back into topics: archived messages are sent again, oldest first, no faster than asked.

A batch of the lake is the unit of work. With a checkpoint a replay that was interrupted continues with the
batch it was at, whose messages get the same ids again.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as fn
from pyspark.sql.types import BinaryType, StringType

from pyromq.clock import Clock, SystemClock
from pyromq.errors import ConfigError
from pyromq.protocol.requests.routes import GetClusterInfo
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.options import write_options
from pyromq.spark.pipelines.lake import read_lake
from pyromq.spark.pipelines.tallies import Show, Tally, unseen

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

ORDER = ("timestamp", "topic", "brokerName", "queueId", "offset")
WRITTEN = ("key", "tags", "properties", "topic")

_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_JOURNAL = "batch int, replay string, what string"
_STEPS_PER_S = 5
"""How often a second a limited replay sends something."""


def replay(
    spark: "SparkSession",
    lake: str,
    options: Mapping[str, str],
    *,
    where: str = "true",
    rows_per_s: int | None = None,
    keeps_queues: bool = False,
    checkpoint: str | None = None,
    show: Show = unseen,
) -> Tally:
    """Send the archived messages for which `where` holds to the option `topic`, or each to its own topic.

    `keeps_queues`: to the queue with the number it had, on its broker if one of that name is here; the topic
    must have that many.
    """
    chosen = read_lake(spark, lake).where(where)
    what = in_words(lake, options, where, keeps_queues=keeps_queues)
    journal = ReplayJournal(spark, checkpoint, what) if checkpoint is not None else None
    done = journal.last_batch if journal is not None else -1
    name = journal.name if journal is not None else uuid.uuid4().hex
    sizes = chosen.where(f"batch > {done}").groupBy("batch").count().orderBy("batch").collect()
    columns: list[str | Column] = [_body(chosen, lake), *WRITTEN]
    if keeps_queues:
        columns += ["queueId", _broker(options)]
    tally = Tally(expected=sum(size["count"] for size in sizes))
    for batch, rows in sizes:
        # One task, because only one keeps the order; it is the sorting that is work, and that is shared.
        ordered = chosen.where(f"batch = {batch}").orderBy(*ORDER).coalesce(1).select(*columns)
        _send(ordered, dict(options) | {"idPrefix": f"{name}:{batch}"}, rows_per_s)
        if journal is not None:
            journal.finish(batch)
        tally.rows_in += rows
        tally.rows_out += rows
        tally.batches += 1
        tally.tick()
        show({"replay": tally})
    show({"replay": tally})
    return tally


def _body(rows: "DataFrame", lake: str) -> "Column":
    """The bodies as they were sent. Archives of earlier releases have only values of some messages."""
    value = rows.schema["value"].dataType
    if "body" not in rows.columns:
        if not isinstance(value, BinaryType | StringType):
            expected = "an archive with the column body: a value is not the whole body"
            raise ConfigError("lake", lake, expected)
        return fn.col("value")
    if isinstance(value, BinaryType | StringType):
        return fn.coalesce("body", fn.col("value").cast("binary")).alias("value")
    lost = "a message has no body: an earlier release archived its value only. Choose others with `where`"
    return fn.coalesce("body", fn.raise_error(lost).cast("binary")).alias("value")


def _broker(options: Mapping[str, str]) -> "Column":
    """The broker that a message was on; null if there is none of its name: then the number has to do."""
    cluster = SparkCluster(write_options(options).access)
    try:
        known = cluster.ask_name_server(GetClusterInfo()).body.broker_addr_table
    finally:
        cluster.close()
    name = fn.col("brokerName")
    return fn.when(name.isin(list(known)), name).alias("brokerName")


def in_words(
    lake: str, options: Mapping[str, str], where: str = "true", *, keeps_queues: bool = False
) -> str:
    """A replay's input and target: only a replay with the same ones continues it."""
    target = dict(options).get("topic", "the topics they came from")
    queues = " and the queues they had" if keeps_queues else ""
    return f"messages of {lake.rstrip('/')} where {where}, to {target}{queues}"


def _send(frame: "DataFrame", options: Mapping[str, str], rows_per_s: int | None) -> None:
    spark = frame.sparkSession
    usual = spark.conf.get(_ARROW_ROWS)
    if rows_per_s is not None:
        frame = frame.mapInArrow(partial(pace, rows_per_s=rows_per_s), frame.schema)
        # Spark collects that many rows before it hands them on.
        spark.conf.set(_ARROW_ROWS, max(rows_per_s // _STEPS_PER_S, 1))
    try:
        frame.write.format("rocketmq").options(**options).mode("append").save()
    finally:
        spark.conf.set(_ARROW_ROWS, usual or 10_000)


def pace(
    batches: "Iterator[pa.RecordBatch]",
    rows_per_s: int,
    clock: Clock | None = None,
    wait: Callable[[float], object] | None = None,
) -> "Iterator[pa.RecordBatch]":
    """The same rows, no sooner than the rate allows."""
    clock = clock if clock is not None else SystemClock()
    wait = wait if wait is not None else threading.Event().wait
    started, rows = clock.monotonic(), 0
    for batch in batches:
        early_s = started + rows / rows_per_s - clock.monotonic()
        if early_s > 0:
            wait(early_s)
        rows += batch.num_rows
        yield batch


class ReplayJournal:
    """Which batches of what have been sent: a little table, on any file system that Spark can write to."""

    def __init__(self, spark: "SparkSession", path: str, what: str) -> None:
        """Raises ConfigError if the table is about something else than `what`."""
        self._spark = spark
        self._path = path
        self._what = what
        try:
            rows = spark.read.schema(_JOURNAL).parquet(path).orderBy("batch").collect()
        except AnalysisException:
            rows = []
        self.last_batch: int = rows[-1].batch if rows else -1
        self.name: str = rows[-1].replay if rows else uuid.uuid4().hex
        # Earlier releases did not write what it was.
        if (begun := rows[-1].what if rows else None) not in (None, what):
            raise ConfigError("checkpoint", path, f"a new directory for {what}; this one is for {begun}")
        if not rows:
            self.finish(-1)

    def __repr__(self) -> str:
        return f"<ReplayJournal {self._path} last_batch={self.last_batch}>"

    def finish(self, batch: int) -> None:
        values = {"batch": fn.lit(batch), "replay": fn.lit(self.name), "what": fn.lit(self._what)}
        row = self._spark.range(1, numPartitions=1).select(
            *[each.alias(name) for name, each in values.items()]
        )
        row.write.mode("append").parquet(self._path)
        self.last_batch = batch
