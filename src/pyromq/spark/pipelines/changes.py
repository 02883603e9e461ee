"""Change events of a database into a Delta or Iceberg table: each row as it is now, by its key.

The last event of a key in a batch decides. A batch is one commit, which has its number: a batch that is
repeated after a crash changes nothing. Events of one key must be in one queue, as Debezium Server and our
sink send them.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import ArrayType, StringType, StructType

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.cluster import SparkCluster
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import ReadOptions, read_options
from pyromq.spark.pipelines import change_events
from pyromq.spark.pipelines import lake as lakes
from pyromq.spark.pipelines.grown_schema import grown, plain
from pyromq.spark.pipelines.kept_values import KEPT, PLACE, UNAVAILABLE, Placeholder, with_kept_values
from pyromq.spark.pipelines.lake_files import DELETED
from pyromq.spark.pipelines.tables_by_topic import TablesByTopic
from pyromq.spark.pipelines.tallies import Show, Tally, unseen, watch
from pyromq.spark.queues import Queue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGES_PER_BATCH = 100_000
"""The size of a batch, unless the options set it: its rows pass through the driver."""

STOP, SKIP, DEAD_LETTER = ON_ERROR = ("stop", "skip", "dead-letter")
DEAD_LETTERS = "_dead_letters"
"""The directory of a table with the messages that are not events."""

_logger = logging.getLogger(__name__)
_PLACE = "topic string, brokerName string, queueId int, offset bigint, timestamp timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    """The settings of a table, known before its events are read."""

    keys: Sequence[str] = ()
    """The columns that identify a row; without them, those that the keys of the messages name."""
    schema: str | None = None
    """DDL of the columns, for events without schemas."""
    texts: Sequence[str] = ()
    """Columns that are kept as text."""
    partition_by: Sequence[str] = ()
    """Columns by which a new table is partitioned."""


def apply_changes(
    spark: "SparkSession",
    options: Mapping[str, str],
    place: str,
    *,
    form: str | None = None,
    catalog: str | None = None,
    keys: Sequence[str] = (),
    schema: str | None = None,
    partition_by: Sequence[str] = (),
    tables: Mapping[str, TableSettings] | None = None,
    merge_topics: bool = False,
    placeholder: str = UNAVAILABLE,
    flattened: bool = False,
    texts: Sequence[str] = (),
    on_error: str = STOP,
    trigger: Mapping[str, Any] | None = None,
    show: Show = unseen,
) -> Tally:
    """Apply new events once, or keep running with a `trigger`; `place` is the directory of the table.

    `form` is delta or iceberg; without it, the format that the table has, or delta. A new Iceberg table is in
    the `catalog` if that names one, and the table, like `prod.shop.orders`. `keys` are the columns that
    identify a row; without them, those that the keys of the messages name. `schema` is DDL of the columns,
    for events without schemas. A new table is partitioned by the columns of `partition_by`.
    With `tables` there is a table for each topic, in a directory of `place`. A topic that is not in it has
    the settings of the other arguments. Without it there is one topic, or several with `merge_topics`: rows
    of different tables may have the same keys. A value that is `placeholder` is omitted by the event, and
    stays as it was. `flattened`: bodies are rows, as ExtractNewRecordState leaves them. The columns of
    `texts` are kept as text: numbers with more than 38 digits, times without an end or after the year 9999.
    `on_error`, one of `ON_ERROR`, is for messages that are not events. Dead letters are Parquet files in
    `_dead_letters` of the table, with the reason and the place of each.
    """
    if on_error not in ON_ERROR:
        raise ConfigError("on_error", on_error, f"one of {', '.join(ON_ERROR)}")
    given, parsed = checked(
        options, schema=schema, merge_topics=merge_topics, placeholder=placeholder, tables=tables
    )
    if tables is not None and catalog is not None:
        raise ConfigError("catalog", catalog, "one table; those of several topics are not in a catalog")
    journal = f"{place.rstrip('/')}/_changes"
    common = TableSettings(keys=keys, schema=schema, texts=texts, partition_by=partition_by)
    events = _Events(placeholder=placeholder, flattened=flattened, on_error=on_error)
    apply: Callable[[DataFrame, int], None]
    if tables is None:
        form = lakes.checked_form(spark, place, form or (lakes.ICEBERG if catalog else None), journal)
        chosen = events.of(common, is_ordered=len(_queues(parsed)) == 1)
        form = lakes.DELTA if form == lakes.PLAIN else form
        if catalog is not None:
            lakes.enter_catalog(place, form, catalog)
        apply = partial(_apply_batch, place=place, form=form, expected=chosen)
    else:
        ordered: dict[str, bool] = {}

        def apply_topic(frame: "DataFrame", batch: int, topic: str, place: str, form: str) -> None:
            if topic not in ordered:
                ordered[topic] = [queue.topic for queue in _queues(parsed)].count(topic) == 1
            chosen = events.of(tables.get(topic, common), is_ordered=ordered[topic])
            _apply_batch(frame, batch, place=place, form=form, expected=chosen)

        by_topic = TablesByTopic(place, journal, form, apply_topic)
        by_topic.check(sorted({queue.topic for queue in _queues(parsed)}))
        apply = by_topic.apply_batch
    stream = (
        spark.readStream.format("rocketmq")
        .options(**given)
        .schema(f"key string, value binary, {_PLACE}")
        .load()
    )
    writer = stream.writeStream.foreachBatch(apply).option("checkpointLocation", journal)
    return watch("changes", writer.trigger(**(trigger or {"availableNow": True})).start(), show)


def _queues(options: ReadOptions) -> list[Queue]:
    cluster = SparkCluster(options.access)
    try:
        return cluster.queues(options.selection)
    finally:
        cluster.close()


def checked(
    options: Mapping[str, str],
    *,
    schema: str | None = None,
    merge_topics: bool = False,
    placeholder: str = UNAVAILABLE,
    tables: Mapping[str, TableSettings] | None = None,
) -> tuple[dict[str, str], ReadOptions]:
    """The options with their defaults, as text and parsed; needs no Spark."""
    Placeholder(placeholder)
    for ddl in (schema, *(each.schema for each in (tables or {}).values())):
        if ddl is not None:
            _columns(ddl)
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(CHANGES_PER_BATCH)} | dict(options)
    parsed = read_options(given, streaming=True)
    selection = parsed.selection
    topics = selection.topics or {queue.topic for queue in selection.queues or ()}
    named = selection.pattern or ", ".join(sorted(topics))
    if tables is None and len(topics) != 1 and not merge_topics:
        expected = "one topic, or `tables` for one table each; `merge_topics` if all have rows of one table"
        raise ConfigError("topic", named, expected)
    if tables is not None and merge_topics:
        raise ConfigError("merge_topics", "true", "either `merge_topics` or `tables`, not both")
    for topic in tables or ():
        if topic not in topics and not re.fullmatch(selection.pattern or "", topic):
            raise ConfigError("tables", topic, f"topics that are read: {named}")
    return given, parsed


def _columns(ddl: str) -> StructType:
    try:
        found = parse_type(f"struct<{ddl}>")
    except ValueError as problem:
        raise ConfigError("schema", ddl, f"DDL of Spark: {problem}") from None
    assert isinstance(found, StructType)
    return plain(found)


class _Events(NamedTuple):
    """The settings for reading events."""

    placeholder: str
    flattened: bool
    on_error: str
    keys: tuple[str, ...] = ()
    declared: StructType | None = None
    is_ordered: bool = False
    """Whether all of them are in one queue."""
    texts: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()

    def of(self, table: TableSettings, *, is_ordered: bool) -> "_Events":
        return self._replace(
            keys=tuple(table.keys),
            declared=None if table.schema is None else _columns(table.schema),
            is_ordered=is_ordered,
            texts=tuple(table.texts),
            partition_by=tuple(table.partition_by),
        )

    def ways(self) -> dict[str, Any]:
        """How `change_events` reads them."""
        return {"texts": self.texts, "flattened": self.flattened}


def _apply_batch(frame: "DataFrame", batch: int, place: str, form: str, expected: _Events) -> None:
    keys, declared = expected.keys, expected.declared
    table = lakes.table_at(place, form)
    if table.batch >= batch:
        return  # Only the journal of the query does not know it yet.
    messages = frame.withColumn("at", fn.unix_micros("timestamp")).drop("timestamp").persist()
    try:
        known = table.schema() if table.is_there else None
        columns = (
            known if declared is None else declared if known is None else grown(known, declared, widens=True)
        )
        if declared is None or not keys:
            columns, keys = _found(messages, columns, expected)
        if expected.on_error != STOP:
            _set_aside(messages, batch, place, columns, expected)
        if columns is not None:
            _apply_last(messages, batch, table, columns, expected._replace(keys=keys))
    finally:
        messages.unpersist()


def _set_aside(
    messages: "DataFrame", batch: int, place: str, columns: StructType | None, expected: _Events
) -> None:
    """Say how many messages are not events, and keep them where that is asked for."""
    type_ = to_arrow_type(StructType() if columns is None else columns, timezone="UTC")
    read = partial(change_events.refused, type_=type_, placeholder=expected.placeholder, **expected.ways())
    wanted = StructType([*messages.schema.fields]).add("reason", "string")
    refused = messages.mapInArrow(read, wanted).persist()
    try:
        first = refused.orderBy("at", "queueId", "offset").first()
        if first is None:
            return
        kept = "skipped"
        if expected.on_error == DEAD_LETTER:
            kept = f"{place.rstrip('/')}/{DEAD_LETTERS}/batch={batch}"
            # A batch that is repeated replaces what an earlier attempt has left.
            refused.withColumn("timestamp", fn.timestamp_micros("at")).drop("at").coalesce(1).write.mode(
                "overwrite"
            ).parquet(kept)
        where = f"{first.topic}@{first.brokerName}:{first.queueId} offset {first.offset}"
        _logger.warning(
            "%d messages of batch %d are no change events (%s). The first one: %s: %s",
            refused.count(),
            batch,
            kept,
            where,
            first.reason,
        )
    finally:
        refused.unpersist()


def _apply_last(
    messages: "DataFrame", batch: int, table: lakes.LakeTable, columns: StructType, expected: _Events
) -> None:
    """Bring the table to the state after the last event of each key."""
    keys = expected.keys
    read = StructType().add("op", "string").add("row", columns)
    read = read.add("queue", "string").add("at", "long").add("offset", "long").add("order", "string")
    read = read.add("kept", ArrayType(StringType()))
    type_ = to_arrow_type(columns, timezone="UTC")
    events = messages.mapInArrow(
        partial(
            change_events.changes,
            type_=type_,
            placeholder=expected.placeholder,
            skips=expected.on_error != STOP,
            **expected.ways(),
        ),
        read,
    )
    events, is_cleared = behind_truncates(events, is_ordered=expected.is_ordered)
    last = last_by_key(events, keys).select("row", fn.col("op") == change_events.DELETE, "kept", "place")
    found = last.toArrow()
    rows = pa.Table.from_struct_array(found["row"]).cast(to_arrow_schema(columns, timezone="UTC"))
    for name, column in zip((DELETED, KEPT, PLACE), found.columns[1:], strict=True):
        rows = rows.append_column(name, column)
    incomplete = rows.filter(pc.greater(pc.list_value_length(rows[KEPT]), 0))
    if incomplete.num_rows:
        names = {name for names in incomplete[KEPT].to_pylist() for name in names}
        stored = None if is_cleared or not table.is_there else table.stored(incomplete, keys, names)
        rows = with_kept_values(rows, keys, stored)
    else:
        rows = rows.drop_columns([KEPT, PLACE])
    if rows.num_rows or is_cleared:
        table.apply(rows, keys, batch, cleared=is_cleared, partition_by=expected.partition_by)


def behind_truncates(events: "DataFrame", *, is_ordered: bool) -> tuple["DataFrame", bool]:
    """The events behind the last truncate, and whether there was one. `is_ordered`: all are of one queue.

    In a queue offsets decide. Among queues only the database knows which came first: by the place of each
    event in its own log. Deletes need none, because an earlier one finds nothing to delete.
    """
    is_upsert, is_delete = (fn.col("op") == op for op in (change_events.UPSERT, change_events.DELETE))
    by_queue = events.where(fn.col("op") == change_events.TRUNCATE).groupBy("queue")
    truncates = by_queue.agg(fn.max("order").alias("order"), fn.max("offset").alias("offset")).collect()
    if not truncates:
        return events, False
    last = max(truncates, key=lambda row: row.order or "")
    is_elsewhere, order = fn.col("queue") != last.queue, fn.col("order")
    is_unknown = order.isNull() | (order == fn.lit(last.order))
    # Events of other queues may be in other batches.
    if not is_ordered and (
        last.order is None or not events.where(is_elsewhere & is_upsert & is_unknown).isEmpty()
    ):
        raise RemoteProtocolError(
            f"it is unknown whether the truncate in {last.queue} at offset {last.offset} came before the"
            " events in other queues. Expected lsn, scn, pos or ts_us in the source of each, or a topic with"
            " one queue"
        )
    is_behind = (fn.col("queue") == last.queue) & (fn.col("offset") > last.offset)
    is_later = is_elsewhere & (is_delete | (order > fn.lit(last.order)))
    return events.where((is_upsert | is_delete) & (is_behind | is_later)), True


def last_by_key(events: "DataFrame", keys: Sequence[str]) -> "DataFrame":
    """The last event of each key, at place 1, and those before it back to one that leaves no value out.

    In a queue offsets decide, whatever the clock of the broker said; among queues, the latest event.
    """
    key = [fn.col("row").getField(name) for name in keys]
    back = Window.partitionBy(*key, "queue").orderBy(fn.desc("offset"))
    later = back.rowsBetween(Window.unboundedPreceding, -1)
    latest = Window.partitionBy(*key).orderBy(fn.desc("last_at"), "queue")
    events = events.withColumns(
        {
            "place": fn.row_number().over(back),
            "last_at": fn.first("at").over(back),
            "is_complete": fn.coalesce(fn.bool_or(fn.size("kept") == 0).over(later), fn.lit(False)),
        }
    )
    events = events.where("NOT is_complete").withColumn("last_queue", fn.first("queue").over(latest))
    return events.where("queue = last_queue")


def _found(
    messages: "DataFrame", columns: StructType | None, expected: _Events
) -> tuple[StructType | None, tuple[str, ...]]:
    """The columns and keys that the events themselves name; no columns if no event changes a row."""
    keys = expected.keys
    told = partial(change_events.schemas, skips=expected.on_error != STOP, **expected.ways())
    rows = messages.mapInArrow(told, "columns string, keys string").distinct().collect()
    for row in rows:
        if row.columns is not None:
            more = _columns(row.columns)
            columns = more if columns is None else grown(columns, more, widens=True)
    if rows and columns is None:
        raise ConfigError("schema", None, "DDL of the columns: the events have no schemas")
    named = {row.keys for row in rows}
    if not keys and len(named) == 1 and (only := named.pop()) is not None:
        keys = tuple(json.loads(only))
    if rows and not keys:
        raise ConfigError(
            "key", None, "the columns that identify a row: the keys of the messages do not tell"
        )
    return columns, keys
