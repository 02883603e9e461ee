"""A lake: Parquet by topic, day and batch, with the journal of the query that writes it inside.

A batch is replaced as a whole when it is written again, so every reader sees each message once, whatever
died while it was being written. A batch that the journal calls finished never changes again.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from pyromq.errors import ConfigError
from pyromq.spark.queues import Queue, flatten

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PARTITIONS = ("topic", "day", "batch")


@dataclass(frozen=True, slots=True)
class Archived:
    """How far a lake reaches: its last finished batch, and where that one ends in each queue."""

    batch: int
    positions: dict[Queue, int]


def checkpoint_of(lake: str) -> str:
    """The checkpoint lies in the lake: one without the other would double or lose messages."""
    return f"{lake.rstrip('/')}/_checkpoint"


def keep_batch(frame: "DataFrame", batch: int, lake: str) -> None:
    """Write one batch of messages, in place of what an earlier attempt may have left of it."""
    days = frame.selectExpr("*", "to_date(timestamp) as day", f"{batch} as batch")
    writer = days.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*PARTITIONS).parquet(lake)


def archived(spark: "SparkSession", lake: str) -> Archived | None:
    """The finished part; None if there is none."""
    journal = checkpoint_of(lake)
    batches = _names(spark, f"{journal}/commits")
    if not batches:
        return None
    last = max(map(int, batches))
    text = spark.read.text(f"{journal}/offsets/{last}", wholetext=True).first()
    assert text is not None
    # A line with the format, one with settings, then one for each source; there is only one.
    offset = json.loads(text.value.split("\n")[2])
    return Archived(last, flatten(offset["q"]))


def read_lake(spark: "SparkSession", lake: str) -> "DataFrame":
    """All finished batches."""
    reach = archived(spark, lake)
    if reach is None:
        raise ConfigError("lake", lake, "a lake that `pyromq pipeline archive` has written to")
    return finished(spark, lake, reach)


def finished(spark: "SparkSession", lake: str, reach: Archived) -> "DataFrame":
    return spark.read.parquet(lake).where(f"batch <= {reach.batch}")


def refuse_strays(spark: "SparkSession", lake: str) -> None:
    """Files without a journal would be taken for batches of this query, and be replaced."""
    if _names(spark, f"{checkpoint_of(lake)}/offsets"):
        return
    try:
        spark.read.parquet(lake)
    except AnalysisException:
        return  # nothing is there
    raise ConfigError("lake", lake, "an empty directory, or a lake with its _checkpoint")


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
