"""A lake as a Delta table. delta-rs writes its log, so no jars are needed, and any version of Spark will do.

The commit that enters the files of a batch also has its number, as Delta's own sink for streams does: a batch
that is written again after a crash is entered once.
"""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from pyromq.errors import ConfigError
from pyromq.spark.object_stores import delta_options
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.grown_schema import grown, grows_in_map, plain
from pyromq.spark.pipelines.lake_files import DELETED, DataFile, absolute, check_partitions, distinctive

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

APPLICATION = "pyromq-archive"
PARTITIONS = ["topic", "day"]
_ATTEMPTS = 10
"""Of a commit that others forestall."""
_READ = {"timestampNtz"}
"""Features of tables that change nothing for a reader of plain files."""


@contextmanager
def _panics_are_errors() -> Iterator[None]:
    """A panic of delta-rs is not an Exception. Spark would wait for ever for a batch that ends with one."""
    try:
        yield
    except BaseException as problem:
        if type(problem).__name__ == "PanicException":
            raise DeltaError(str(problem)) from None
        raise


class DeltaLake:
    def __init__(self, lake: str) -> None:
        self._uri = absolute(lake)
        self._options = delta_options(self._uri)
        self._table = self._loaded() if self._is_there() else None

    def __repr__(self) -> str:
        return f"<DeltaLake {self._uri} batch={self.batch}>"

    @property
    def is_there(self) -> bool:
        return self._table is not None

    @property
    def batch(self) -> int:
        """The last batch in it; -1 if it has none."""
        number = None if self._table is None else self._table.transaction_version(APPLICATION)
        return -1 if number is None else number

    @contextmanager
    def _once(self, batch: int) -> Iterator[None]:
        """A commit whose answer was lost looks like that of another writer: the table knows better."""
        try:
            with _panics_are_errors():
                yield
        except DeltaError:
            if not self._is_there() or self._loaded().transaction_version(APPLICATION) != batch:
                raise
        self._table = self._loaded()

    def _is_there(self) -> bool:
        return DeltaTable.is_deltatable(self._uri, self._options)

    def _loaded(self) -> DeltaTable:
        return DeltaTable(self._uri, storage_options=self._options)

    def enter(self, files: list[DataFile], schema: "StructType", batch: int) -> None:
        """Add the files of a batch; columns that the table does not have yet become columns of it."""
        done = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
        actions: list[AddAction | RemoveAction] = [_action(file) for file in files]
        with self._once(batch):
            if self._table is None:
                create_table_with_add_actions(
                    self._uri,
                    Schema.from_json(schema.json()),
                    [_action(file) for file in files],
                    partition_by=PARTITIONS,
                    storage_options=self._options,
                    commit_properties=done,
                )
                return
            wider = grown(self.schema(), schema)
            # The only commit that may change the schema replaces files: here those of a topic that does not
            # exist.
            is_wider = wider != self.schema()
            self._table.create_write_transaction(
                actions,
                "overwrite" if is_wider else "append",
                Schema.from_json(wider.json()),
                PARTITIONS,
                [("topic", "=", "")] if is_wider else None,
                commit_properties=done,
            )

    @_panics_are_errors()
    def apply(
        self,
        changes: pa.Table,
        keys: "Sequence[str]",
        batch: int,
        *,
        cleared: bool,
        partition_by: "Sequence[str]" = (),
    ) -> None:
        """Put rows in the place of those with the same keys, or take these away; once for each batch.

        A table that is made here keeps its changes (`delta.enableChangeDataFeed`).
        """
        for name in changes.column_names:
            if "`" in name:  # delta-rs does not escape it when it merges
                raise ConfigError("column", name, "a name without ` in a Delta table; Iceberg takes any")
        there = None if self._table is None else self._table.metadata().partition_columns
        check_partitions(partition_by, changes.schema, there)
        if self._table is None:
            rows = Schema.from_arrow(changes.drop_columns([DELETED]).schema)
            self._table = DeltaTable.create(
                self._uri,
                rows,
                partition_by=list(partition_by),
                configuration={"delta.enableChangeDataFeed": "true"},
                storage_options=self._options,
            )
        self._widen(changes.schema)
        if cleared:
            self._table.delete()  # its own commit: whoever dies here does it again
        if not changes.num_rows:
            return
        merge = self._table.merge(
            changes,
            " AND ".join(_same(key, changes[key]) for key in keys),
            "new",
            "old",
            merge_schema=True,
            streamed_exec=False,  # files without these keys are omitted
            commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, batch)]),
        )
        merge.when_matched_delete(f"new.{DELETED}").when_matched_update_all(except_cols=[DELETED])
        with self._once(batch):
            merge.when_not_matched_insert_all(f"NOT new.{DELETED}", except_cols=[DELETED]).execute()

    def stored(self, changes: pa.Table, keys: "Sequence[str]", columns: "Collection[str]") -> pa.Table:
        """Keys and some columns of the rows with the keys of the changes, and perhaps of others."""
        rows = self._known().to_pyarrow_dataset()
        by = distinctive(changes, keys)
        values = changes[by].unique()
        # What files say of their least and greatest values leaves out null and NaN, and Arrow cannot compare
        # texts and bytes with it.
        is_text = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
        near = pc.field(by).isin(values) if _is_plain(changes[by]) and not is_text else None
        wanted = pa.schema([field for field in changes.schema if field.name in {*keys, *columns}])
        known = [field for field in wanted if field.name in rows.schema.names]
        found = rows.to_batches([field.name for field in known], filter=near)
        if is_text:
            found = (batch.filter(pc.is_in(batch[by], value_set=values)) for batch in found)
        return pa.Table.from_batches(
            found, rows.scanner([field.name for field in known]).projected_schema
        ).cast(pa.schema(known))

    def _widen(self, rows: pa.Schema) -> None:
        """Enter the fields that structures of the table get, in their own commit; and wider types.

        A merge that enters them would make these columns null in all rows of the files that it writes anew.
        """
        from pyspark.sql.types import ArrayType, MapType, StructType

        known = {field.name: field.dataType for field in plain(self.schema()).fields}
        wanted = Schema.from_arrow(pa.schema([field for field in rows if field.name in known]))
        new = plain(StructType.fromJson(json.loads(wanted.to_json())))
        wider = {field.name for field in new.fields if field.dataType != known[field.name]}
        promoted = {name for name in wider if not isinstance(known[name], StructType | ArrayType | MapType)}
        if promoted:
            self._rewrite(pa.schema([field for field in rows if field.name in promoted]))
            wider -= promoted
        for name in sorted(wider):
            if grows_in_map(known[name], new[name].dataType):
                expected = (
                    f"{known[name].simpleString()}: structures inside of a map cannot grow in a Delta table"
                )
                raise ConfigError(name, new[name].dataType.simpleString(), expected)
        if wider:
            self._known().alter.add_columns([field for field in wanted.fields if field.name in wider])

    def _rewrite(self, promoted: pa.Schema) -> None:
        """Write all rows anew with these types, in one commit: files of a Delta table cannot be promoted."""
        rows = self._known().to_pyarrow_dataset()
        kinds = {field.name: field.type for field in promoted}
        wide = pa.schema([field.with_type(kinds.get(field.name, field.type)) for field in rows.schema])
        batches = (batch.cast(wide) for batch in rows.to_batches())
        write_deltalake(
            self._known(),
            pa.RecordBatchReader.from_batches(wide, batches),
            mode="overwrite",
            schema_mode="overwrite",
        )
        self._table = self._loaded()

    def schema(self) -> "StructType":
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._known().schema().to_json()))

    def read(self, spark: "SparkSession", schema: "StructType") -> "DataFrame":
        """The rows of this version of the table."""
        table = self._known()
        unknown = set(table.protocol().reader_features or ()) - _READ
        if unknown:
            raise ConfigError("lake", self._uri, f"a Delta table without {', '.join(sorted(unknown))}")
        paths = table.file_uris()
        ours = [path for path in paths if path.startswith(f"{self._uri}/data/")]
        others = sorted(set(paths) - set(ours))
        frame = spark.read.schema(schema).parquet(*ours)
        if not others:
            return frame
        # Files of other writers, such as those of a compaction, have topic and day in their paths only.
        rewritten = spark.read.schema(schema).option("basePath", self._uri).parquet(*others)
        rewritten = rewritten.select(*schema.names)
        return frame.unionByName(rewritten) if ours else rewritten

    def compact(self, spark: "SparkSession", target_bytes: int) -> tuple[int, int]:
        """Make few large files of many small ones; how many were replaced by how many."""
        result = self._again(lambda table: table.optimize.compact(target_size=target_bytes))
        return result["numFilesRemoved"], result["numFilesAdded"]

    def forget(self, rows: ForgottenRows) -> int:
        """Take rows out of the table; how many they were."""
        known = pa.schema(self._known().schema().to_arrow())
        rows.columns(known)
        done = self._again(lambda table: table.delete(rows.condition(known)))
        return int(done["num_deleted_rows"] or 0)

    def expire(self, keep: timedelta) -> int:
        """Remove files that the table has not needed for so long; how many they were."""
        self._known().create_checkpoint()
        self._known().cleanup_metadata()  # as old as `delta.logRetentionDuration` says
        return self._vacuum(keep, full=False)

    def remove_orphans(self, keep: timedelta) -> int:
        """Remove what commits that never came have left behind so long ago."""
        return self._vacuum(keep, full=True)

    def _vacuum(self, keep: timedelta, *, full: bool) -> int:
        hours = math.ceil(keep / timedelta(hours=1))
        done = self._known().vacuum(hours, dry_run=False, enforce_retention_duration=False, full=full)
        self._table = self._loaded()
        return len(done)

    @_panics_are_errors()
    def _again(self, change: Callable[[DeltaTable], dict[str, Any]]) -> dict[str, Any]:
        """A commit that is worked out again if others have committed meanwhile."""
        for attempt in range(_ATTEMPTS):
            try:
                return change(self._known())
            except CommitFailedError:
                if attempt == _ATTEMPTS - 1:
                    raise
            finally:
                self._table = self._loaded()
        raise AssertionError

    def _known(self) -> DeltaTable:
        if self._table is None:
            raise ConfigError("lake", self._uri, "a lake that `pyromq pipeline archive` has written to")
        return self._table


def _same(key: str, values: pa.ChunkedArray) -> str:
    """Whether a row has the key of a change. Only `=` leaves files out; null and NaN equal nothing."""
    return (
        f"new.`{key}` = old.`{key}`"
        if _is_plain(values)
        else f"(new.`{key}` IS NOT DISTINCT FROM old.`{key}`)"
    )


def _is_plain(values: pa.ChunkedArray) -> bool:
    return not pc.any(pc.is_null(values, nan_is_null=True)).as_py()


def _action(file: DataFile) -> AddAction:
    known = {"numRecords": file.rows, "minValues": file.least, "maxValues": file.most, "nullCount": {}}
    values = {"topic": file.topic, "day": file.day.isoformat()}
    return AddAction(file.path, file.size, values, 0, True, json.dumps(known))
