"""A lake as an Iceberg table in a directory. pyiceberg writes its metadata, so no jars are needed.

The number of the last batch is a property of the table, set in the commit that enters the files of the batch.
"""

import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, IdentityTransform

from pyromq.errors import ConfigError
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.lake_files import DataFile, absolute, write_files

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LAST_BATCH = "pyromq.batch"


class IcebergLake:
    def __init__(self, lake: str) -> None:
        if "://" in lake:
            raise ConfigError("lake", lake, "a directory of this machine")
        self._directory = Path(absolute(lake))
        self._catalog = DirectoryCatalog(self._directory)
        self._table: Table | None = None
        with suppress(NoSuchTableError):
            self._table = self._catalog.load_table(())

    def __repr__(self) -> str:
        return f"<IcebergLake {self._directory} batch={self.batch}>"

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

    def schema(self) -> "StructType":
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._known().schema().as_arrow())

    def read(self, spark: "SparkSession", schema: "StructType") -> "DataFrame":
        """The rows of this version of the table."""
        tasks = list(self._known().scan().plan_files())
        if any(task.delete_files for task in tasks):
            raise ConfigError("lake", str(self._directory), "an Iceberg table without delete files")
        return spark.read.schema(schema).parquet(*[task.file.file_path for task in tasks])

    def compact(self, spark: "SparkSession", target_bytes: int) -> tuple[int, int]:
        """Make few large files of many small ones; how many were replaced by how many."""
        table = self._known()
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
        new = write_files(rows.repartition(tasks, "topic", "day"), str(self._directory), place)
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

    def _path(self, file: DataFile) -> str:
        return str(self._directory / file.path)

    def _known(self) -> Table:
        if self._table is None:
            raise ConfigError(
                "lake", str(self._directory), "a lake that `pyromq pipeline archive` has written to"
            )
        return self._table


def _arrow(schema: "StructType") -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
