"""A lake: archived messages in Parquet files, with the journal of the query that writes them inside.

A plain lake has a directory by topic, day and batch. A batch is replaced as a whole when it is written again,
so every reader sees each message once, whatever died while it was being written. A Delta or Iceberg table has
the number of its last batch in its own metadata, and a batch is entered once.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from pyromq.errors import ConfigError
from pyromq.spark.ddl import parse_type
from pyromq.spark.offsets import ends_of
from pyromq.spark.pipelines.grown_schema import plain
from pyromq.spark.queues import Queue
from pyromq.spark.schema import DEFAULT_COLUMNS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
    from pyromq.spark.pipelines.lake_files import DataFile

PARTITIONS = {"topic": "string", "day": "date", "batch": "int"}
"""The columns that plain lakes have in their paths. Spark would guess their types: topics may be numbers."""

PLAIN, DELTA, ICEBERG = FORMATS = ("parquet", "delta", "iceberg")
_ALL_COLUMNS = ", ".join(f"{name} {type_}" for name, type_ in {**DEFAULT_COLUMNS, **PARTITIONS}.items())
_METADATA = {DELTA: "_delta_log", ICEBERG: "metadata"}
"""The directory in a lake that makes it a table."""


class LakeTable(Protocol):
    """One version of a table; `enter` makes the next."""

    @property
    def is_there(self) -> bool: ...
    @property
    def batch(self) -> int: ...
    def enter(self, files: "list[DataFile]", schema: StructType, batch: int) -> None: ...
    def schema(self) -> StructType: ...
    def read(self, spark: "SparkSession", schema: StructType) -> "DataFrame": ...
    def compact(self, spark: "SparkSession", target_bytes: int) -> tuple[int, int]: ...
    def forget(self, rows: "ForgottenRows") -> int: ...
    def expire(self, keep: "timedelta") -> int: ...
    def remove_orphans(self, keep: "timedelta") -> int: ...
    def apply(
        self,
        changes: "pa.Table",
        keys: "Sequence[str]",
        batch: int,
        *,
        cleared: bool,
        partition_by: "Sequence[str]" = (),
    ) -> None: ...
    def stored(
        self, changes: "pa.Table", keys: "Sequence[str]", columns: "Collection[str]"
    ) -> "pa.Table": ...


def checkpoint_of(lake: str) -> str:
    """The checkpoint lies in the lake: one without the other would double or lose messages."""
    return f"{lake.rstrip('/')}/_checkpoint"


def form_of(spark: "SparkSession", lake: str) -> str:
    """The format that a lake has; `PLAIN` also if nothing is there."""
    return next((form for form, inside in _METADATA.items() if _names(spark, f"{lake}/{inside}")), PLAIN)


def table_at(lake: str, form: str) -> LakeTable:
    try:
        if form == DELTA:
            from pyromq.spark.pipelines.delta_lake import DeltaLake

            return DeltaLake(lake)
        from pyromq.spark.pipelines.iceberg_lake import IcebergLake

        return IcebergLake(lake)
    except ImportError as problem:
        raise ConfigError("format", form, f"pip install 'pyromq[lakehouse]' ({problem})") from None


def keep_batch(frame: "DataFrame", batch: int, lake: str, form: str = PLAIN) -> None:
    """Write one batch of messages, in place of what an earlier attempt may have left of it."""
    from pyromq.spark.pipelines.lake_files import DAY, with_times_in_micros, write_files

    days = frame.selectExpr("*", f"{DAY} as day", f"{batch} as batch")
    if form == PLAIN:
        writer = with_times_in_micros(days).write.mode("overwrite")
        writer.option("partitionOverwriteMode", "dynamic").partitionBy(*PARTITIONS).parquet(lake)
        return
    table = table_at(lake, form)
    if table.batch >= batch:
        return  # Only the journal of the query does not know it yet.
    files = write_files(days, lake, f"data/batch-{batch}")
    if files:
        table.enter(files, plain(days.schema), batch)


@dataclass(frozen=True, slots=True)
class Archived:
    """How far a lake reaches: its last finished batch, and where that one ends in each queue."""

    batch: int
    positions: dict[Queue, int]
    table: LakeTable | None = None


def archived(spark: "SparkSession", lake: str) -> Archived | None:
    """The finished part; None if there is none."""
    journal = checkpoint_of(lake)
    # Before the table is looked at: of these batches it has all rows, and does not know those without any.
    last = max(map(int, _names(spark, f"{journal}/commits")), default=-1)
    form = form_of(spark, lake)
    table = None if form == PLAIN else table_at(lake, form)
    if table is not None:
        last = max(last, table.batch)
    if last < 0:
        return None
    text = spark.read.text(f"{journal}/offsets/{last}", wholetext=True).first()
    assert text is not None
    # A line with the format, one with settings, then one for each source; there is only one.
    offset = json.loads(text.value.split("\n")[2])
    return Archived(last, ends_of(offset), table)


def read_lake(spark: "SparkSession", lake: str) -> "DataFrame":
    """All finished batches."""
    reach = archived(spark, lake)
    if reach is None:
        raise ConfigError("lake", lake, "a lake that `pyromq pipeline archive` has written to")
    return finished(spark, lake, reach)


def finished(
    spark: "SparkSession", lake: str, reach: Archived, schema: StructType | None = None
) -> "DataFrame":
    """The finished batches; fields of `schema` that some of them lack are null there."""
    if reach.table is not None:
        return reach.table.read(spark, schema if schema is not None else reach.table.schema())
    columns = lake_schema(spark, lake, reach) if schema is None else schema
    if not _plain_schema(spark, lake).fields:  # no topic had a message yet
        return spark.createDataFrame([], _ALL_COLUMNS if schema is None else schema)
    return spark.read.schema(_with_partitions(columns)).parquet(lake).where(f"batch <= {reach.batch}")


def lake_schema(spark: "SparkSession", lake: str, reach: Archived) -> StructType:
    """The columns of its rows, of all batches; none if it has no rows."""
    if reach.table is not None:
        return reach.table.schema()
    columns = _plain_schema(spark, lake, merge=True)
    return _with_partitions(columns) if columns.fields else columns


def _with_partitions(columns: StructType) -> StructType:
    inside = [field for field in columns.fields if field.name not in PARTITIONS]
    return StructType(
        [*inside, *(StructField(name, parse_type(type_)) for name, type_ in PARTITIONS.items())]
    )


def enter_catalog(lake: str, form: str, name: str) -> None:
    """Have the Iceberg table that is made there be in a catalog."""
    if form != ICEBERG:
        raise ConfigError("catalog", name, f"an Iceberg table; {lake} is {form}")
    from pyromq.spark.pipelines.catalogs import enter_catalog as enter

    enter(lake, name)


def checked_form(spark: "SparkSession", lake: str, form: str | None, journal: str | None = None) -> str:
    """The format to write: the one that the lake has. Refuses to write among files of others.

    Files without a journal would be taken for batches of this query, and be replaced.
    """
    journal = journal or checkpoint_of(lake)
    from pyromq.spark.pipelines.lake_files import PART

    there = form_of(spark, lake)
    columns = _plain_schema(spark, lake).names if there == PLAIN else []
    if not _names(spark, f"{journal}/offsets"):
        if there != PLAIN or columns:
            raise ConfigError(
                "lake", lake, f"an empty directory, or a lake with its {journal.rpartition('/')[2]}"
            )
        return form or PLAIN
    # Of a table whose first batch has not been entered there may be files, but nothing else.
    is_made = there != PLAIN or (bool(columns) and PART not in columns)
    if is_made and form not in (None, there):
        raise ConfigError("format", form, f"{there}, the format that {lake} has")
    return there if is_made else form or PLAIN


def _plain_schema(spark: "SparkSession", lake: str, *, merge: bool = False) -> StructType:
    """The columns of the files in a directory: of all, or just of one; none if there are no files."""
    try:
        return spark.read.option("mergeSchema", merge).parquet(lake).schema
    except AnalysisException:
        return StructType()


def _names(spark: "SparkSession", directory: str) -> list[str]:
    try:
        files = spark.read.format("binaryFile").load(directory).select("path").collect()
    except AnalysisException:
        return []
    return [row.path.rpartition("/")[2] for row in files]


def condition(
    where: str = "true",
    *,
    topics: tuple[str, ...] = (),
    since: str | None = None,
    until: str | None = None,
) -> str:
    """A selection from a lake, as SQL; raises ConfigError if Spark does not understand a time."""
    parts = [f"({where})"]
    if topics:
        parts.append(f"topic IN ({', '.join(map(_quoted, topics))})")
    for name, moment, compares in (("since", since, ">="), ("until", until, "<")):
        if moment is not None:
            _check_moment(name, moment)
            parts.append(f"timestamp {compares} timestamp({_quoted(moment)})")
    return " AND ".join(parts)


def _check_moment(name: str, text: str) -> None:
    understood = SparkSession.active().sql("SELECT try_cast(:text AS timestamp)", {"text": text}).collect()
    if understood[0][0] is None:
        raise ConfigError(name, text, "a time like 2030-12-31T23:59")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
