"""A lake as an Iceberg table, also in an object store. pyiceberg writes its metadata, so no jars are needed.

The number of the last batch is a property of the table, set in the commit that enters the files of the batch.
"""

import pickle
import uuid
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    ValidationException,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import assign_fresh_schema_ids
from pyiceberg.table import FileScanTask, Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadataUtil
from pyiceberg.table.update.snapshot import ExpireSnapshots
from pyiceberg.transforms import DayTransform, IdentityTransform

from pyromq.errors import ConfigError
from pyromq.spark.pipelines import iceberg_files
from pyromq.spark.pipelines.catalogs import table_in
from pyromq.spark.pipelines.directory_catalog import DirectoryCatalog
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.grown_schema import grown
from pyromq.spark.pipelines.iceberg_rows import Rewritten, RowChanges, batches, find, tasks_near
from pyromq.spark.pipelines.lake_files import DELETED, DataFile, absolute, check_partitions, write_files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

LAST_BATCH = "pyromq.batch"
_ATTEMPTS = 10
"""Of a commit that others forestall."""
_OF_ARCHIVES = ["topic", "timestamp"]


class IcebergLake:
    def __init__(self, lake: str) -> None:
        self._location = absolute(lake)
        self._home = table_in(self._location)
        self._table: Table | None = None
        with suppress(NoSuchTableError):
            self._table = self._home.load_table()

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
        paths = [self._path(file) for file in files]

        def enter(table: Table, transaction: Transaction) -> None:
            if grown(self.schema(), schema) != self.schema():
                with transaction.update_schema() as update:
                    update.union_by_name(_arrow(schema))
            transaction.add_files(paths, check_duplicate_files=False)

        self._commit(enter, batch)

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
            self._table = self._home.make_table(fields, PartitionSpec(*by))

        def replace(table: Table, transaction: Transaction) -> None:
            with transaction.update_schema() as update:
                update.union_by_name(rows.schema)
            if cleared and any(table.scan().plan_files()):
                transaction.delete(AlwaysTrue())
            found = [] if cleared else list(find(table, changes, keys))
            if found or rows.num_rows:
                snapshot = RowChanges(transaction, table)
                with snapshot:
                    snapshot.take_away(found)
                    snapshot.add(rows)

        self._commit(replace, batch)

    def _commit(self, change: "Callable[[Table, Transaction], None]", batch: int | None = None) -> None:
        """A commit, with the number of a batch, worked out again if others have committed meanwhile."""
        for attempt in range(_ATTEMPTS):
            table = self._known()
            # pyiceberg would repeat the same commit, whatever the others have done to its rows.
            table.metadata.properties[TableProperties.COMMIT_NUM_RETRIES] = "0"
            transaction = table.transaction()
            try:
                with transaction:
                    change(table, transaction)
                    if batch is not None:
                        transaction.set_properties({LAST_BATCH: str(batch)})
                return
            except (CommitFailedException, CommitStateUnknownException, ValidationException):
                self._table = self._home.load_table()
                made = [each.snapshot_id for each in transaction._snapshot_producers]
                if made and all(self._table.metadata.snapshot_by_id(each) for each in made):
                    return  # only the answer was lost
                if attempt == _ATTEMPTS - 1 or (batch is not None and self.batch >= batch):
                    raise

    def stored(self, changes: pa.Table, keys: "Sequence[str]", columns: "Collection[str]") -> pa.Table:
        """Keys and some columns of the rows with the keys of the changes, and perhaps of others."""
        table = self._known()
        known = [name for name in table.schema().as_arrow().names if name in {*keys, *columns}]
        found = list(batches(table, list(tasks_near(table, changes, keys)), known))
        if not found:
            return pa.schema([changes.schema.field(name) for name in known]).empty_table()
        rows = pa.Table.from_batches(found)
        return rows.cast(pa.schema([changes.schema.field(name) for name in rows.column_names]))

    def schema(self) -> "StructType":
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._known().schema().as_arrow())

    def read(self, spark: "SparkSession", schema: "StructType") -> "DataFrame":
        """The rows of this version of the table."""
        return self._frame(spark, list(self._known().scan().plan_files()), schema)

    def _frame(self, spark: "SparkSession", tasks: "list[FileScanTask]", schema: "StructType") -> "DataFrame":
        whole = [task.file.file_path for task in tasks if not task.delete_files]
        rest = [task for task in tasks if task.delete_files]
        frame = spark.read.schema(schema).parquet(*whole)
        if not rest:
            return frame
        remaining = self._remaining(spark, rest, schema)
        return frame.unionByName(remaining) if whole else remaining

    def _remaining(
        self, spark: "SparkSession", tasks: "list[FileScanTask]", schema: "StructType"
    ) -> "DataFrame":
        """The rows of files that have delete files; executors read them with pyiceberg."""
        table, wanted = self._known(), _arrow(schema)
        metadata, properties, location = table.metadata.model_dump_json(), table.io.properties, self._location
        names = [name for name in schema.names if name in table.schema().as_arrow().names]

        def read(inputs: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
            known = TableMetadataUtil.parse_raw(metadata)
            there = Table((), known, "", load_file_io(properties, location), NoopCatalog(""))
            for each in inputs:
                for task in each["task"].to_pylist():
                    for found in batches(there, [pickle.loads(task)], names):
                        yield _as_rows(found, wanted)

        each = [(pickle.dumps(FileScanTask(task.file, task.delete_files)),) for task in tasks]
        inputs = spark.createDataFrame(each, "task binary").repartition(len(tasks))
        return inputs.mapInArrow(read, schema)

    def compact(self, spark: "SparkSession", target_bytes: int) -> tuple[int, int]:
        """Make few large files of many small ones and of those with deleted rows; how many of how many."""
        counts = 0, 0

        def join(table: Table, transaction: Transaction) -> None:
            nonlocal counts
            tasks = list(table.scan().plan_files())
            groups: dict[str, list[FileScanTask]] = {}
            for task in tasks:
                if task.file.file_size_in_bytes < target_bytes or task.delete_files:
                    groups.setdefault(str(task.file.partition), []).append(task)
            worth = [group for group in groups.values() if len(group) > 1 or group[0].delete_files]
            old = [task for group in worth for task in group]
            counts = 0, 0
            if not old:
                return
            files = self._joined(spark, old, target_bytes) if self._is_archive() else None
            made = 0
            snapshot = Rewritten(transaction, table, tasks, old)
            with snapshot:
                if files is None:
                    made = sum(snapshot.join(group, target_bytes) for group in worth)
                else:
                    made = snapshot.enter(files)
            counts = len(old), made

        self._commit(join)
        return counts

    def forget(self, rows: ForgottenRows) -> int:
        """Take rows out of the table, and out of all files that it has now; how many they were."""
        count = 0

        def take_away(table: Table, transaction: Transaction) -> None:
            nonlocal count
            count = 0
            columns = rows.columns(table.schema().as_arrow())
            tasks = list(table.scan().plan_files())
            # Rows that delete files hide are in their files all the same.
            old = [
                task
                for task in tasks
                if pc.any(rows.among(_read(table, FileScanTask(task.file), columns))).as_py()
            ]
            if not old:
                return
            snapshot = Rewritten(transaction, table, tasks, old)
            with snapshot:
                for task in old:
                    here = _read(table, task, self.schema().names)
                    stays = here.filter(pc.invert(pc.fill_null(rows.among(here), False)))
                    count += here.num_rows - stays.num_rows
                    if not stays.num_rows:
                        continue
                    if self._is_archive():
                        snapshot.enter([self._written(stays)])
                    else:
                        snapshot.add(stays)

        self._commit(take_away)
        return count

    def expire(self, keep: timedelta) -> int:
        """Give up older snapshots, but not the newest; how many files are gone with them."""
        before = datetime.now(UTC) - keep
        old = self._home.load_table()

        def give_up(table: Table, transaction: Transaction) -> None:
            expiry = ExpireSnapshots(transaction).older_than(before)
            if expiry._snapshot_ids_to_expire:
                expiry.commit()

        self._commit(give_up)
        self._table = self._home.load_table()
        gone = [
            each for each in old.snapshots() if self._table.metadata.snapshot_by_id(each.snapshot_id) is None
        ]
        if not gone:
            return 0
        return iceberg_files.remove(
            self._table, iceberg_files.needed(old, gone) - iceberg_files.needed(self._table)
        )

    def remove_orphans(self, keep: timedelta) -> int:
        """Remove what commits that never came have left behind so long ago."""
        table = self._known()
        return iceberg_files.remove(table, iceberg_files.orphans(table, datetime.now(UTC) - keep))

    def _joined(self, spark: "SparkSession", tasks: "list[FileScanTask]", target_bytes: int) -> "list[str]":
        """The files that executors make of those of an archive."""
        rows = self._frame(spark, tasks, self.schema())
        count = max(1, round(sum(task.file.file_size_in_bytes for task in tasks) / target_bytes))
        place = f"data/compacted-{uuid.uuid4()}"
        new = write_files(rows.repartition(count, "topic", "day"), self._location, place)
        return [self._path(file) for file in new]

    def _written(self, rows: pa.Table) -> str:
        """A file with rows of an archive; those of one file stay together."""
        path = f"{self._location}/data/{uuid.uuid4()}.parquet"
        plain = rows.cast(_arrow(self.schema()))  # without the numbers that Iceberg gives to columns
        with self._known().io.new_output(path).create() as stream:
            pq.write_table(plain, stream)
        return path

    def _make(self, schema: "StructType") -> Table:
        fields = assign_fresh_schema_ids(DirectoryCatalog._convert_schema_if_needed(_arrow(schema)))
        by_topic = PartitionField(fields.find_field("topic").field_id, 1000, IdentityTransform(), "topic")
        by_day = PartitionField(fields.find_field("timestamp").field_id, 1001, DayTransform(), "stored_day")
        return self._home.make_table(fields, PartitionSpec(by_topic, by_day))

    def _partitions(self) -> list[str] | None:
        """The columns by which it is partitioned; None if it is not there."""
        if self._table is None:
            return None
        schema = self._table.schema()
        return [schema.find_column_name(field.source_id) or "" for field in self._table.spec().fields]

    def _is_archive(self) -> bool:
        return self._partitions() == _OF_ARCHIVES

    def _path(self, file: DataFile) -> str:
        return f"{self._location}/{file.path}"

    def _known(self) -> Table:
        if self._table is None:
            raise ConfigError("lake", self._location, "a lake that `pyromq pipeline archive` has written to")
        return self._table


def _read(table: Table, task: FileScanTask, columns: "Sequence[str]") -> pa.Table:
    return pa.Table.from_batches(batches(table, [task], columns))


def _arrow(schema: "StructType") -> "pa.Schema":
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _as_rows(found: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """With the columns that a file lacks, as nulls."""
    known = set(found.schema.names)
    columns = [
        found[field.name].cast(field.type) if field.name in known else pa.nulls(len(found), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
