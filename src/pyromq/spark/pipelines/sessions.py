"""Sessions, which are lite topics, into a Delta or Iceberg table: a row for each, as far as it has come.

A row is known by where its first message is in the parent topic. A lite topic that has expired begins again
at offset 0, and so does its next row. A batch is one commit, which has its number: a batch that is repeated
after a crash changes nothing.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyromq.errors import ConfigError
from pyromq.protocol.names import LITE_PREFIX
from pyromq.protocol.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET, LITE_KIND
from pyromq.spark.ddl import parse_type
from pyromq.spark.options import read_options
from pyromq.spark.pipelines import lake as lakes
from pyromq.spark.pipelines.lake_files import DELETED
from pyromq.spark.pipelines.tallies import Show, Tally, unseen, watch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MESSAGES_PER_BATCH = 100_000
"""The size of a batch, unless the options set it: its rows pass through the driver."""

TEXT, BODIES, NONE = CONTENTS = ("text", "bodies", "none")

_CLAIM, _STOP, _END = "claim", "stop", "end"
_NAME: Final = ("topic", "session", "brokerName", "queueId")
_KEY: Final = (*_NAME, "offset")
_COLUMNS: Final = (
    "topic string, session string, brokerName string, queueId int, offset bigint, first timestamp,"
    " last timestamp, messages bigint, next bigint, ended boolean"
)
_CONTENT: Final = {
    TEXT: ", text string",
    BODIES: ", bodies array<struct<offset: bigint, timestamp: timestamp, kind: string, body: binary>>",
    NONE: "",
}
_READ: Final = (
    "topic string, liteTopic string, brokerName string, queueId int, offset bigint, timestamp timestamp,"
    " properties map<string,string>, value binary"
)

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """The kind of a table; None: as it is, or Delta and with texts if it is new."""

    form: str | None = None
    """delta or iceberg."""
    catalog: str | None = None
    """The catalog of a new Iceberg table, and its name there, like `prod.chats.sessions`."""
    content: str | None = None
    """`text`: the bodies of a session joined, `bodies`: a list of them, `none`: neither."""


def keep_sessions(
    spark: "SparkSession",
    options: Mapping[str, str],
    place: str,
    *,
    table: SessionTable | None = None,
    trigger: Mapping[str, Any] | None = None,
    show: Show = unseen,
) -> Tally:
    """Bring the table in the directory `place` up to date, or keep doing so with a `trigger`.

    Messages of the selected topics that belong to no lite topic are omitted.
    """
    wanted = table or SessionTable()
    given = checked(options, content=wanted.content)
    journal = f"{place.rstrip('/')}/_sessions"
    form = wanted.form or (lakes.ICEBERG if wanted.catalog else None)
    form = lakes.checked_form(spark, place, form, journal)
    form = lakes.DELTA if form == lakes.PLAIN else form
    if wanted.catalog is not None:
        lakes.enter_catalog(place, form, wanted.catalog)
    stream = spark.readStream.format("rocketmq").options(**given).schema(_READ).load()
    apply: Callable[[DataFrame, int], None] = partial(
        _apply_batch, place=place, form=form, content=wanted.content
    )
    writer = stream.writeStream.foreachBatch(apply).option("checkpointLocation", journal)
    return watch("sessions", writer.trigger(**(trigger or {"availableNow": True})).start(), show)


def checked(options: Mapping[str, str], *, content: str | None = None) -> dict[str, str]:
    """The options with their defaults; needs no Spark."""
    if content not in (None, *CONTENTS):
        raise ConfigError("content", content, f"one of {', '.join(CONTENTS)}")
    given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(MESSAGES_PER_BATCH)} | dict(options)
    read_options(given, streaming=True)
    return given


def _apply_batch(frame: "DataFrame", batch: int, place: str, form: str, content: str | None) -> None:
    table = lakes.table_at(place, form)
    if table.batch >= batch:
        return  # Only the journal of the query does not know it yet.
    there = _content_of(table.schema().names) if table.is_there else None
    if there is not None and content not in (None, there):
        raise ConfigError("content", content, f"{there}, which the table in {place} has")
    content = there or content or TEXT
    columns = parse_type(f"struct<{_COLUMNS}{_CONTENT[content]}>")
    assert isinstance(columns, StructType)
    schema = to_arrow_schema(columns, timezone="UTC")
    parts = _parts(frame, content).toArrow().to_pylist()
    if not parts:
        return
    parts.sort(key=itemgetter(*_KEY))
    asked = _rows(parts, schema)
    known = table.stored(asked, _NAME, columns.names).to_pylist() if table.is_there else []
    table.apply(_rows(list(_grown(parts, known)), schema), _KEY, batch, cleared=False)


def _content_of(names: Sequence[str]) -> str:
    return next((content for content in (TEXT, BODIES) if content in names), NONE)


def _rows(rows: list[Row], schema: pa.Schema) -> pa.Table:
    """As changes of a table."""
    found = pa.Table.from_pylist(rows, schema=schema)
    return found.append_column(DELETED, pa.repeat(False, found.num_rows))


def _parts(frame: "DataFrame", content: str) -> "DataFrame":
    """The part of each session in a batch, as a row: the same columns, and `place`, its own first offset."""
    kind = fn.col("properties")[LITE_KIND]
    messages = frame.where("liteTopic IS NOT NULL").select(
        "topic",
        fn.col("liteTopic").alias("session"),
        "brokerName",
        "queueId",
        "offset",
        "timestamp",
        kind.alias("kind"),
        _place_in_session().alias("place"),
        fn.col("value").alias("body"),
    )
    in_order = Window.partitionBy(*_NAME).orderBy("offset")
    begins = fn.col("place") <= fn.lag("place").over(in_order)
    messages = messages.withColumn("begins", fn.coalesce(begins, fn.lit(False)).cast("int"))
    messages = messages.withColumn("part", fn.sum("begins").over(in_order))
    found = messages.groupBy(*_NAME, "part").agg(
        fn.min("offset").alias("offset"),
        fn.min("timestamp").alias("first"),
        fn.max("timestamp").alias("last"),
        fn.count(fn.lit(1)).alias("messages"),
        fn.min("place").alias("place"),
        (fn.max("place") + 1).alias("next"),
        fn.coalesce(fn.max_by("kind", "offset") == _END, fn.lit(False)).alias("ended"),
        *_joined(content),
    )
    return found.drop("part")


def _place_in_session() -> "Column":
    """The offset of a message in its lite topic, among those that it has in light queues."""
    names, offsets = (
        fn.split(fn.col("properties")[name], ",") for name in (INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET)
    )
    light_queue = fn.concat(fn.lit(LITE_PREFIX), "topic", fn.lit("$"), "liteTopic")
    at = fn.nullif(fn.array_position(names, light_queue).cast("int"), fn.lit(0))
    return fn.try_element_at(offsets, at).try_cast("bigint")


def _joined(content: str) -> "list[Column]":
    if content == NONE:
        return []
    if content == BODIES:
        each = fn.struct("offset", "timestamp", "kind", "body")
        in_order = fn.array_sort(fn.collect_list(each.alias("each")))
        return [in_order.alias("bodies")]
    shown = fn.make_valid_utf8(fn.col("body").cast("string"))
    # Who signals without a text says the kind itself, because brokers take no message without a body.
    is_signal = fn.col("kind").isin(_CLAIM, _STOP) | (fn.col("kind") == shown)
    each = fn.struct("offset", shown.alias("text"))
    spoken = fn.array_sort(fn.collect_list(fn.when(~fn.coalesce(is_signal, fn.lit(False)), each)))
    return [fn.array_join(fn.transform(spoken, lambda one: one["text"]), "").alias("text")]


def _grown(parts: list[Row], known: list[Row]) -> Iterator[Row]:
    """The rows of a table after the parts of a batch, which are in the order of their queues."""
    name = itemgetter(*_NAME)
    newest: dict[tuple[Any, ...], Row] = {}
    for row in known:
        there = newest.setdefault(name(row), row)
        if there["offset"] < row["offset"]:
            newest[name(row)] = row
    for session, found in groupby(parts, name):
        for number, part in enumerate(found):
            before = None if number else newest.get(session)  # a second part has begun again
            yield part if before is None or not _goes_on(before, part) else _together(before, part)


def _goes_on(row: Row, part: Row) -> bool:
    return row["next"] is None or part["place"] is None or part["place"] >= row["next"]


def _together(row: Row, part: Row) -> Row:
    more = {name: row[name] + part[name] for name in (TEXT, BODIES) if name in row}
    return row | {
        "first": min(row["first"], part["first"]),
        "last": max(row["last"], part["last"]),
        "messages": row["messages"] + part["messages"],
        "next": row["next"] if part["next"] is None else part["next"],
        "ended": part["ended"],
        **more,
    }
