"""Iceberg tables that are directories: `metadata/vN.metadata.json` is the N-th version; there is no catalog.

Every reader of Iceberg finds such a table by its path. A version is made by a hard link, which only one
writer can make: so the directory must be on a disk of this machine, or on one that is mounted.
"""

import os
import uuid
from pathlib import Path

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.io import load_file_io
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import TableRequirement, TableUpdate, update_table_metadata
from pyiceberg.typedef import Identifier


class DirectoryCatalog(NoopCatalog):
    """One table, in one directory."""

    def __init__(self, directory: Path) -> None:
        super().__init__(str(directory))
        self._directory = directory
        self._metadata = directory / "metadata"

    def make_table(self, schema: Schema, spec: PartitionSpec) -> Table:
        self._metadata.mkdir(parents=True, exist_ok=True)
        location = str(self._directory)
        self._write(0, new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, location))
        return self.load_table(location)

    def load_table(self, identifier: str | Identifier) -> Table:
        version = self._version()
        if version < 0:
            raise NoSuchTableError(f"{self._directory} has no Iceberg table")
        path = self._path(version)
        io = load_file_io({}, path)
        metadata = FromInputFile.table_metadata(io.new_input(path))
        return Table((self._directory.name,), metadata, path, io, self)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        current = self.load_table(table.name())
        for requirement in requirements:
            requirement.validate(current.metadata)
        before = current.metadata_location
        metadata = update_table_metadata(current.metadata, updates, metadata_location=before)
        path = self._write(int(Path(before).name[1:].partition(".")[0]) + 1, metadata)
        return CommitTableResponse.model_validate({"metadata": metadata, "metadata-location": path})

    def _version(self) -> int:
        """The newest: the hint, which is written last, may be behind it."""
        hint = self._metadata / "version-hint.text"
        version = int(hint.read_text()) if hint.exists() else -1
        while Path(self._path(version + 1)).exists():
            version += 1
        return version

    def _path(self, version: int) -> str:
        return str(self._metadata / f"v{version}.metadata.json")

    def _write(self, version: int, metadata: TableMetadata) -> str:
        scratch = self._metadata / f"{uuid.uuid4()}.tmp"
        with scratch.open("w") as file:
            file.write(metadata.model_dump_json())
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(scratch, self._path(version))
        except FileExistsError:
            raise CommitFailedException(f"{self._directory} has version {version} already") from None
        finally:
            scratch.unlink()
        fresh = self._metadata / f"{uuid.uuid4()}.hint"
        fresh.write_text(str(version))
        fresh.replace(self._metadata / "version-hint.text")
        return self._path(version)
