"""Frames for people: some rows on the terminal, all of them in files, without control characters."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as fn
from rich.table import Table

from pyromq.spark.pipelines.display import stdout

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PREVIEW_CHARACTERS = 60


def show_frame(frame: "DataFrame", title: str, limit: int) -> None:
    """The first rows, and whether there are more."""
    # Spark writes times in the time zone of the session, Python in that of the machine.
    columns = [(fn.col(f"`{name}`"), type_) for name, type_ in frame.dtypes]
    texts = [column.cast("string") if type_ == "timestamp" else column for column, type_ in columns]
    rows = frame.limit(limit + 1).select(*texts).collect()
    stdout().print(table_of(title, frame.columns, [[cell(value) for value in row] for row in rows[:limit]]))
    if len(rows) > limit:
        stdout().print(f"there are more; raise --limit above {limit}")


def table_of(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    return table


def cell(value: Any) -> str:
    """A value in a table: bytes as text if they are text, and no control characters."""
    if value is None:
        return ""
    if isinstance(value, bytes | bytearray):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return f"({len(value)} bytes)"
    if isinstance(value, float):
        return f"{value:,.1f}"
    text = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in str(value))
    return text if len(text) <= _PREVIEW_CHARACTERS else text[: _PREVIEW_CHARACTERS - 1] + "…"


def flat(frame: "DataFrame") -> "DataFrame":
    """The rows as CSV can hold them: values as text, no maps."""
    kept = [name for name, type_ in frame.dtypes if not type_.startswith(("map", "array", "struct"))]
    types = dict(frame.dtypes)
    return frame.select(*[fn.col(name).cast("string") if types[name] == "binary" else name for name in kept])


def write_counted(frame: "DataFrame", path: str, form: str) -> int:
    """Write a frame to files that are not there yet; how many rows it had."""
    seen = Observation()
    counted = frame.observe(seen, fn.count(fn.lit(1)).alias("rows"))
    writer = counted.write.format(form)
    if form == "csv":
        writer = writer.option("header", "true")
    writer.save(path)
    return int(seen.get["rows"])
