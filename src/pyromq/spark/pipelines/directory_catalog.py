"""Iceberg tables that are directories: `metadata/vN.metadata.json` is the N-th version; there is no catalog.

Every reader of Iceberg finds such a table by its path. Only one writer can create a version: by a hard link
on a disk, by a rename on HDFS, by a conditional write in an object store.
"""

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier

from pyromq.spark.journal_files import journal_files
from pyromq.spark.object_stores import iceberg_properties

_HINT = "version-hint.text"


class DirectoryCatalog(NoopCatalog):
    """One table, in one directory."""

    def __init__(self, location: str) -> None:
        """`location`: a whole path or a URI."""
        super().__init__(location)
        self._location = location
        self._files = journal_files(f"{location}/metadata", "lake")

    def make_table(self, schema: Schema, spec: PartitionSpec) -> Table:
        self._write(0, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, self._location))
        return self.load_table(self._location)

    def load_table(self, identifier: str | Identifier) -> Table:
        version = self._version()
        if version < 0:
            raise NoSuchTableError(f"{self._location} has no Iceberg table")
        content = self._files.read(_name(version))
        if content is None:
            raise NoSuchTableError(f"{self._location} has lost its version {version}")
        metadata = TableMetadataUtil.parse_raw(content.decode())
        io = load_file_io(iceberg_properties(self._location), self._location)
        return Table((self._location.rpartition("/")[2],), metadata, self._path(version), io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        before = current.metadata_location
        metadata = update_table_metadata(current.metadata, updates, metadata_location=before)
        version = int(before.rpartition("/")[2][1:].partition(".")[0]) + 1
        self._write(version, metadata)
        return CommitTableResponse.model_validate(
            {"metadata": metadata, "metadata-location": self._path(version)}
        )

    def _version(self) -> int:
        """The newest: the hint, which is written last, may be behind it."""
        version = int(self._files.read(_HINT) or -1)
        while self._files.written_ms(_name(version + 1)) is not None:
            version += 1
        return version

    def _path(self, version: int) -> str:
        return f"{self._location}/metadata/{_name(version)}"

    def _write(self, version: int, metadata: TableMetadata) -> None:
        try:
            self._files.create(_name(version), metadata.model_dump_json().encode())
        except FileExistsError:
            raise CommitFailedException(f"{self._location} has version {version} already") from None
        self._files.replace(_HINT, str(version).encode())


def _name(version: int) -> str:
    return f"v{version}.metadata.json"
