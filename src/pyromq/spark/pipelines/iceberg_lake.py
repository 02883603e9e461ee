"""A lake as an Iceberg table, also in an object store. pyiceberg writes its metadata, so no jars are needed.

The number of the last batch is a property of the table, set in the commit that enters the files of the batch.
"""

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression, In, IsNaN, IsNull, Or
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.lake_files import (
    DELETED,
    DataFile,
    absolute,
    check_partitions,
    distinctive,
    write_files,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LAST_BATCH = "pyromq.batch"


class IcebergLake:
    def __init__(self, lake: str) -> None:
        self._location = absolute(lake)
        self._catalog = DirectoryCatalog(self._location)
        self._table: Table | None = None
        with suppress(NoSuchTableError):
            self._table = self._catalog.load_table(())

    def __repr__(self) -> str:
        return f"<IcebergLake {self._location} batch={self.batch}>"

    @property
    def is_there(self) -> bool:
        return self._table is not None

    @property
    def batch(self) -> int:
        """The last batch in it; -1 if it has none."""
        return -1 if self._table is None else int(self._table.properties.get(LAST_BATCH, -1))

    def enter(self, files: list[DataFile], schema: "StructType", batch: int) -> None:
        """Add the files of a batch; columns that the table does not have yet become columns of it."""
        if self._table is None:
            self._table = self._make(schema)
        is_wider = grown(self.schema(), schema) != self.schema()
        with self._table.transaction() as transaction:
            if is_wider:
                with transaction.update_schema() as update:
                    update.union_by_name(_arrow(schema))
            transaction.add_files([self._path(file) for file in files], check_duplicate_files=False)
            transaction.set_properties({LAST_BATCH: str(batch)})

    def apply(
        self,
        changes: "pa.Table",
        keys: "Sequence[str]",
        batch: int,
        *,
        cleared: bool,
        partition_by: "Sequence[str]" = (),
    ) -> None:
        """Put rows in the place of those with the same keys, or take these away; once for each batch."""
        rows = changes.filter(pc.invert(changes[DELETED])).drop_columns([DELETED])
        check_partitions(partition_by, rows.schema, self._partitions())
        if self._table is None:
            fields = assign_fresh_schema_ids(DirectoryCatalog._convert_schema_if_needed(rows.schema))
            by = [
                PartitionField(fields.find_field(name).field_id, 1000 + place, IdentityTransform(), name)
                for place, name in enumerate(partition_by)
            ]
            self._table = self._catalog.make_table(fields, PartitionSpec(*by))
        near: BooleanExpression = AlwaysTrue()
        if not cleared:
            near = _near(changes, keys)
        found = self._table.scan(row_filter=near).to_arrow()
        found = found.cast(pa.schema([rows.schema.field(name) for name in found.column_names]))
        with self._table.transaction() as transaction:
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
            if found.num_rows:
                transaction.delete(near)
            if not cleared:
                rows = pa.concat_tables([rows, _without(found, changes, keys)], promote_options="default")
            if rows.num_rows:
                transaction.append(rows)
            transaction.set_properties({LAST_BATCH: str(batch)})

    def stored(self, changes: pa.Table, keys: "Sequence[str]", columns: "Collection[str]") -> pa.Table:
        """Keys and some columns of the rows with the keys of the changes, and perhaps of others."""
        table = self._known()
        known = [name for name in table.schema().as_arrow().names if name in {*keys, *columns}]
        rows = table.scan(row_filter=_near(changes, keys), selected_fields=tuple(known)).to_arrow()
        return rows.cast(pa.schema([changes.schema.field(name) for name in rows.column_names]))

    def schema(self) -> "StructType":
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._known().schema().as_arrow())

    def read(self, spark: "SparkSession", schema: "StructType") -> "DataFrame":
        """The rows of this version of the table."""
        tasks = list(self._known().scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError("lake", self._location, "an Iceberg table without delete files")
        return spark.read.schema(schema).parquet(*[task.file.file_path for task in tasks])

    def compact(self, spark: "SparkSession", target_bytes: int) -> tuple[int, int]:
        """Make few large files of many small ones; how many were replaced by how many."""
        table = self._known()
        if self._partitions() != ["topic", "timestamp"]:
            raise ConfigError("lake", self._location, "a lake that `pyromq pipeline archive` has written to")
        small: dict[str, list[IcebergFile]] = {}
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < target_bytes:
                small.setdefault(str(task.file.partition), []).append(task.file)
        old = [file for files in small.values() if len(files) > 1 for file in files]
        if not old:
            return 0, 0
        rows = spark.read.schema(self.schema()).parquet(*[file.file_path for file in old])
        tasks = max(1, round(sum(file.file_size_in_bytes for file in old) / target_bytes))
        place = f"data/compacted-{uuid.uuid4()}"
        new = write_files(rows.repartition(tasks, "topic", "day"), self._location, place)
        with table.transaction() as transaction, transaction.update_snapshot().overwrite() as snapshot:
            for file in old:
                snapshot.delete_data_file(file)
            paths = iter([self._path(file) for file in new])
            for file in parquet_files_to_data_files(table.io, transaction.table_metadata, paths):
                snapshot.append_data_file(file)
        return len(old), len(new)

    def _make(self, schema: "StructType") -> Table:
        fields = assign_fresh_schema_ids(DirectoryCatalog._convert_schema_if_needed(_arrow(schema)))
        by_topic = PartitionField(fields.find_field("topic").field_id, 1000, IdentityTransform(), "topic")
        by_day = PartitionField(fields.find_field("timestamp").field_id, 1001, DayTransform(), "stored_day")
        return self._catalog.make_table(fields, PartitionSpec(by_topic, by_day))

    def _partitions(self) -> list[str] | None:
        """The columns by which it is partitioned; None if it is not there."""
        if self._table is None:
            return None
        schema = self._table.schema()
        return [schema.find_column_name(field.source_id) or "" for field in self._table.spec().fields]

    def _path(self, file: DataFile) -> str:
        return f"{self._location}/{file.path}"

    def _known(self) -> Table:
        if self._table is None:
            raise ConfigError("lake", self._location, "a lake that `pyromq pipeline archive` has written to")
        return self._table


def _arrow(schema: "StructType") -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _near(changes: pa.Table, keys: "Sequence[str]") -> BooleanExpression:
    """Holds for the rows with the keys of the changes, and perhaps for others: expressions know no pairs."""
    column = distinctive(changes, keys)
    values = changes[column].unique()
    is_plain = pc.invert(pc.is_null(values, nan_is_null=True))
    near: BooleanExpression = In(column, values.filter(is_plain).to_pylist())  # type: ignore[call-arg, arg-type]
    if values.null_count:
        near = Or(near, IsNull(column))  # type: ignore[call-arg, arg-type]
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        near = Or(near, IsNaN(column))  # type: ignore[call-arg, arg-type]
    return near


def _without(rows: pa.Table, changes: pa.Table, keys: "Sequence[str]") -> pa.Table:
    """The rows with keys that the changes do not have."""
    # A join finds neither null nor NaN, so each value of a key stands for its number among the changes'.
    known = {key: changes[key].unique() for key in keys}
    numbers = {key: pc.index_in(rows[key], value_set=known[key]) for key in keys}
    numbers[DELETED] = pa.array(range(rows.num_rows), pa.int64())
    changed = pa.table({key: pc.index_in(changes[key], value_set=known[key]) for key in keys})
    kept = pa.table(numbers).join(changed, list(keys), join_type="left anti")
    return rows.take(kept[DELETED])
