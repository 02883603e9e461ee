"""Rows of an Iceberg table by their keys: where they are, and one commit that replaces them.

A row is taken away by its position, in a delete file. The driver reads the columns of the keys, of files that
may have one of them by what the table knows of their least and greatest values. No file is written anew.
pyiceberg reads delete files but writes none; this is the only place that knows how it writes snapshots.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import (
    ArrowScan,
    _dataframe_to_data_files,
    _read_all_delete_files,
    parquet_files_to_data_files,
)
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _FastAppendFiles, _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import PrimitiveType

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_PATH_ID, _POSITION_ID = 2147483546, 2147483545
"""Iceberg's numbers of the columns of a delete file."""
_DELETES = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POSITION_ID)}),
    ]
)
_ROW = "__row"


class Found(NamedTuple):
    file: DataFile
    positions: pa.Array


def find(table: Table, changes: pa.Table, keys: Sequence[str]) -> Iterator[Found]:
    """The rows that have the key of a change, file by file, without those that are gone already."""
    tasks = list(tasks_near(table, changes, keys))
    gone = _read_all_delete_files(table.io, tasks)
    for task in tasks:
        rows = pa.Table.from_batches(batches(table, [FileScanTask(task.file)], keys))
        rows = rows.cast(pa.schema([changes.schema.field(name) for name in rows.column_names]))
        found = with_keys(rows, changes, keys)
        for positions in gone.get(task.file.file_path, ()):
            found = found.filter(pc.invert(pc.is_in(found, value_set=positions.cast(pa.int64()))))
        if len(found):
            yield Found(task.file, found.sort())


def tasks_near(table: Table, changes: pa.Table, keys: Sequence[str]) -> Iterator[FileScanTask]:
    """The files that may have rows with the keys of the changes."""
    schema = table.schema()
    wanted = [_Wanted(schema, changes[key], key) for key in keys]
    for task in table.scan().plan_files():
        if all(each.may_be_in(task.file) for each in wanted):
            yield task


def batches(table: Table, tasks: Sequence[FileScanTask], columns: Sequence[str]) -> list[pa.RecordBatch]:
    """Some columns of files; without delete files, the place of a row here is that in its file."""
    fields = table.schema().select(*columns)
    scan = ArrowScan(table.metadata, table.io, fields, AlwaysTrue())
    found = list(scan.to_record_batches(tasks))
    return found or pa.Table.from_pylist([], fields.as_arrow()).to_batches()


def with_keys(rows: pa.Table, changes: pa.Table, keys: Sequence[str]) -> pa.Array:
    """The places of rows whose keys are among those of the changes; null and NaN are ordinary values."""
    # A join finds neither null nor NaN, so each value of a key stands for its number among the changes'.
    known = {key: changes[key].unique() for key in keys}
    numbers = {key: pc.index_in(rows[key], value_set=known[key]) for key in keys}
    numbers[_ROW] = pa.array(np.arange(rows.num_rows))
    changed = pa.table({key: pc.index_in(changes[key], value_set=known[key]) for key in keys})
    found = pa.table(numbers).join(changed, list(keys), join_type="left semi")[_ROW]
    return found.combine_chunks()


class _Wanted:
    """The values of one key, as far as a file's least and greatest value can be compared with them."""

    def __init__(self, schema: "Schema", values: pa.ChunkedArray, name: str) -> None:
        field = schema.find_field(name)
        self._id = field.field_id
        self._type = field.field_type
        is_null = pc.is_null(values, nan_is_null=True)
        # Null and NaN are not between two values.
        self._is_everywhere = not isinstance(self._type, PrimitiveType) or pc.any(is_null).as_py()
        self._is_everywhere |= pa.types.is_floating(values.type)
        self._values = values.unique().sort()

    def may_be_in(self, file: DataFile) -> bool:
        least, most = ((bounds or {}).get(self._id) for bounds in (file.lower_bounds, file.upper_bounds))
        if self._is_everywhere or least is None or most is None:
            return True
        assert isinstance(self._type, PrimitiveType)
        low, high = (self._scalar(from_bytes(self._type, each)) for each in (least, most))
        is_between = pc.and_(pc.greater_equal(self._values, low), pc.less_equal(self._values, high))
        return bool(pc.any(is_between).as_py())

    def _scalar(self, value: Any) -> pa.Scalar:
        type_ = self._values.type
        if pa.types.is_integer(type_):
            return pa.scalar(value)
        if isinstance(value, int):  # dates and times are numbers there
            return pa.scalar(value, pa.int32() if pa.types.is_date(type_) else pa.int64()).cast(type_)
        return pa.scalar(value, type_)


class RowChanges(_FastAppendFiles):
    """The snapshot: new data files, and files with the positions of rows that are gone."""

    def __init__(self, transaction: Transaction, table: Table) -> None:
        super().__init__(Operation.OVERWRITE, transaction, table.io)
        self._table = table
        self._deletes: list[DataFile] = []

    def add(self, rows: pa.Table) -> None:
        if rows.num_rows:
            metadata = self._transaction.table_metadata
            for file in _dataframe_to_data_files(metadata, rows, self._io, write_uuid=self.commit_uuid):
                self.append_data_file(file)

    def take_away(self, found: Sequence[Found]) -> None:
        """One delete file for each partition: readers find them by it."""
        partitions: dict[tuple[int, Any], list[Found]] = {}
        for each in found:
            partitions.setdefault((each.file.spec_id or 0, each.file.partition), []).append(each)
        for (spec, partition), inside in partitions.items():
            inside.sort(key=lambda each: each.file.file_path)
            paths = [pa.array([each.file.file_path]).take(_zeros(len(each.positions))) for each in inside]
            rows = pa.table(
                [pa.chunked_array(paths), pa.chunked_array([each.positions for each in inside])],
                schema=_DELETES,
            )
            bounds = (inside[0].file.file_path, inside[-1].file.file_path)
            self._deletes.append(self._written(rows, spec, partition, bounds))

    def _written(self, rows: pa.Table, spec: int, partition: Any, bounds: tuple[str, str]) -> DataFile:
        place = self._table.location_provider().new_data_location(f"deletes-{uuid.uuid4()}.parquet")
        output = self._io.new_output(place)
        with output.create(overwrite=True) as stream:
            pq.write_table(rows, stream)
        file = DataFile.from_args(
            content=DataFileContent.POSITION_DELETES,
            file_path=place,
            file_format=FileFormat.PARQUET,
            partition=partition,
            record_count=rows.num_rows,
            file_size_in_bytes=len(output),
            lower_bounds={_PATH_ID: bounds[0].encode()},
            upper_bounds={_PATH_ID: bounds[1].encode()},
        )
        file.spec_id = spec
        return file

    def _manifests(self) -> list[ManifestFile]:
        manifests = super()._manifests()
        for spec in sorted({file.spec_id or 0 for file in self._deletes}):
            output = self.new_manifest_output()
            entries = [file for file in self._deletes if (file.spec_id or 0) == spec]
            with _DeleteManifest(
                self.spec(spec), self.schema(), output, self._snapshot_id, self._compression
            ) as writer:
                for file in entries:
                    added = ManifestEntryStatus.ADDED
                    writer.add(
                        ManifestEntry.from_args(status=added, snapshot_id=self._snapshot_id, data_file=file)
                    )
            manifests.append(writer.to_manifest_file())
        return manifests

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        data = self._added_data_files
        self._added_data_files = [*data, *self._deletes]
        try:
            return super()._summary(snapshot_properties)
        finally:
            self._added_data_files = data


class Rewritten(_OverwriteFiles):
    """The snapshot with the same rows in other files."""

    def __init__(
        self,
        transaction: Transaction,
        table: Table,
        tasks: Collection[FileScanTask],
        old: Collection[FileScanTask],
    ) -> None:
        """`old`: those of all `tasks` whose files are replaced."""
        super().__init__(Operation.OVERWRITE, transaction, table.io)
        self._table = table
        replaced = {task.file.file_path for task in old}
        stay = (task for task in tasks if task.file.file_path not in replaced)
        self._needed = {file.file_path for task in stay for file in task.delete_files}
        for task in old:
            self.delete_data_file(task.file)

    def add(self, rows: pa.Table) -> int:
        """Write rows; how many files that makes."""
        made = 0
        for file in _dataframe_to_data_files(self._transaction.table_metadata, rows, self._io):
            self.append_data_file(file)
            made += 1
        return made

    def enter(self, paths: Sequence[str]) -> int:
        """Enter files that are written already."""
        files = parquet_files_to_data_files(self._io, self._transaction.table_metadata, iter(paths))
        for file in files:
            self.append_data_file(file)
        return len(paths)

    def join(self, tasks: Sequence[FileScanTask], target_bytes: int) -> int:
        """Write the remaining rows of files of one partition; how many files that makes."""
        names, made = [field.name for field in self._transaction.table_metadata.schema().fields], 0
        for some in _bins(tasks, target_bytes):
            rows = pa.Table.from_batches(batches(self._table, some, names))
            made += self.add(rows) if rows.num_rows else 0
        return made

    def _existing_manifests(self) -> list[ManifestFile]:
        """Without those whose delete files concern no file any more."""
        return [
            each
            for each in super()._existing_manifests()
            if each.content == ManifestContent.DATA
            or any(
                entry.data_file.file_path in self._needed
                for entry in each.fetch_manifest_entry(self._io, discard_deleted=True)
            )
        ]


def _bins(tasks: Sequence[FileScanTask], target_bytes: int) -> Iterator[list[FileScanTask]]:
    some: list[FileScanTask] = []
    for task in tasks:
        if some and sum(each.file.file_size_in_bytes for each in [*some, task]) > target_bytes:
            yield some
            some = []
        some.append(task)
    yield some


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, np.int64))
