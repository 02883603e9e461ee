"""Maintenance of a lake or a table: few large files, no old versions, and nothing of those who ask
to be forgotten.

Others may write meanwhile. Files that a version needs are not removed; those that no version knows only when
they are so old that no commit can be waiting for them.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyromq.spark.pipelines.compact import TARGET_BYTES
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.lake import PLAIN, form_of, table_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP: Final = timedelta(days=7)
"""Readers that began before have ended, and the table as it was then is no longer needed."""

MIN_ORPHAN_AGE: Final = timedelta(days=1)
"""A batch takes less time from its first file to its commit."""


class Maintained(NamedTuple):
    forgotten: int
    """Rows."""
    replaced: int
    """Files that were joined, and files that this made."""
    made: int
    expired: int
    """Files that only old versions needed."""
    orphans: int
    """Files that no version has ever known."""


def maintain(
    spark: "SparkSession",
    lake: str,
    *,
    target_bytes: int = TARGET_BYTES,
    keep: timedelta = KEEP,
    forget: Mapping[str, Sequence[str]] | None = None,
) -> Maintained:
    """Forget rows, join small files, and remove what is older than `keep` and not needed any more.

    `forget` has values of columns: rows with one of them go. They are gone from the disk as well once the
    versions that had them are older than `keep`. A plain lake has no versions, and its files are not joined.
    """
    rows = ForgottenRows(forget) if forget else None
    orphan_age = max(keep, MIN_ORPHAN_AGE)
    form = form_of(spark, lake)
    if form == PLAIN:
        from pyromq.spark.pipelines import plain_files

        forgotten = 0 if rows is None else plain_files.forget(lake, rows)
        return Maintained(forgotten, 0, 0, 0, plain_files.remove_orphans(lake, orphan_age))
    table = table_at(lake, form)
    forgotten = 0 if rows is None else table.forget(rows)
    replaced, made = table.compact(spark, target_bytes)
    return Maintained(forgotten, replaced, made, table.expire(keep), table.remove_orphans(orphan_age))
