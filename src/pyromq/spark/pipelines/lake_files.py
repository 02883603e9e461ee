"""Parquet files for a table: executors write them, the driver enters them into the table's metadata.

A file holds messages of one topic and one day. All columns are inside: no reader has to look at paths. What
an attempt that died has left in a place is replaced by the next one.
"""

import os
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem

from pyromq.errors import ConfigError
from pyromq.object_stores import checked
from pyromq.spark.object_stores import arrow_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

DAY = "date_from_unix_date(cast(floor(unix_millis(timestamp) / 86400000) as int))"
"""The day of a message in UTC, whatever the time zone of the session is."""

PART = "part"
"""The column that sorts rows into files."""

DELETED = "__deleted"
"""The column that says of a change that its row is gone."""

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_COUNTED = ("timestamp", "offset", "queueId", "batch")
"""Columns whose least and greatest values tables want to know."""


class DataFile(NamedTuple):
    path: str
    """Below the table."""
    size: int
    rows: int
    topic: str
    day: date
    least: dict[str, Any]
    most: dict[str, Any]


def with_times_in_micros(frame: "DataFrame") -> "DataFrame":
    """By default, Spark writes times in an outdated form that other readers do not expect."""
    frame.sparkSession.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    return frame


def write_files(frame: "DataFrame", lake: str, place: str) -> list[DataFile]:
    """Write a frame with a column `day` to a directory below the lake."""
    # Topics have characters that paths do not, so they are written as digits.
    split = with_times_in_micros(frame).selectExpr("*", f"concat(hex(topic), '-', day) AS {PART}")
    split.write.mode("overwrite").partitionBy(PART).parquet(f"{lake}/{place}")
    return files_in(lake, place)


def files_in(lake: str, place: str) -> list[DataFile]:
    """The files that executors have written to a directory below the lake."""
    system, root = arrow_files(absolute(lake))
    found = system.get_file_info(FileSelector(f"{root}/{place}", recursive=True, allow_not_found=True))
    files = sorted((info.path, info.size) for info in found if info.path.endswith(".parquet"))
    return [_data_file(system, path, size, path.removeprefix(f"{root}/")) for path, size in files]


def absolute(lake: str) -> str:
    """The libraries of tables want whole paths or URIs."""
    return checked(lake) if "://" in lake else os.path.abspath(lake)


def distinctive(rows: pa.Table, keys: "Sequence[str]") -> str:
    """The key that distinguishes most rows."""
    return max(keys, key=lambda key: len(rows[key].unique()))


def check_partitions(wanted: "Sequence[str]", columns: pa.Schema, there: "Sequence[str] | None") -> None:
    """`there`: the columns by which the table is partitioned, if there is one."""
    names = [name for name in columns.names if name != DELETED]
    for name in wanted:
        if name not in names:
            raise ConfigError("partition_by", name, f"one of the columns {', '.join(names)}")
        type_ = columns.field(name).type
        # Bytes in a path would not be found again.
        if pa.types.is_nested(type_) or pa.types.is_binary(type_):
            raise ConfigError("partition_by", name, f"a column of texts, numbers or times; it has {type_}")
    if wanted and there is not None and list(wanted) != list(there):
        by = f"by {', '.join(there)}" if there else "not at all"
        raise ConfigError("partition_by", ", ".join(wanted), f"the table as it is, which is partitioned {by}")


def _data_file(system: FileSystem, path: str, size: int, name: str) -> DataFile:
    digits, _, day = path.rpartition(f"/{PART}=")[2].partition("/")[0].partition("-")
    footer = pq.read_metadata(path, filesystem=system)
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    for index in range(footer.num_columns):
        column = footer.schema.column(index).path
        found = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if column in _COUNTED and found and all(each is not None and each.has_min_max for each in found):
            least[column] = min(_plain(each.min) for each in found)
            most[column] = max(_plain(each.max) for each in found)
    topic = bytes.fromhex(digits).decode()
    return DataFile(name, size, footer.num_rows, topic, date.fromisoformat(day), least, most)


def _plain(value: Any) -> Any:
    """Times as tables write them, in milliseconds, as messages have them."""
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return value
