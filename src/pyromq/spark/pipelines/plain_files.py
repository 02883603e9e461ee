"""The files of a plain lake. Nothing but their directories says which are valid, so each is replaced in one
step: a reader sees it as it was, or as it is then.
"""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileInfo, FileSelector, FileSystem, LocalFileSystem

from pyromq.spark.object_stores import arrow_files
from pyromq.spark.pipelines.forgotten_rows import ForgottenRows
from pyromq.spark.pipelines.lake_files import absolute

_STAGING: Final = ".spark-staging"
_REPLACING: Final = ".replacing-"
_OF_TOPICS: Final = "topic="


def forget(lake: str, rows: ForgottenRows) -> int:
    """Take rows out of all files; how many they were."""
    system, root = arrow_files(absolute(lake))
    count = 0
    for info in _files(system, root):
        name = info.path.removeprefix(f"{root}/")
        if not name.startswith(_OF_TOPICS) or not name.endswith(".parquet"):
            continue
        with pq.ParquetFile(info.path, filesystem=system) as file:
            columns = rows.columns(file.schema_arrow)
            if not pc.any(rows.among(file.read(columns))).as_py():
                continue
            here, codec = file.read(), _codec(file)
        stays = here.filter(pc.invert(pc.fill_null(rows.among(here), False)))
        _replace(system, root, info.path, stays, codec)
        count += here.num_rows - stays.num_rows
    return count


def remove_orphans(lake: str, keep: timedelta) -> int:
    """Remove what runs that died have left behind so long ago; how many files they were."""
    system, root = arrow_files(absolute(lake))
    before, count = datetime.now(UTC) - keep, 0
    for info in _files(system, root):
        name = info.path.removeprefix(f"{root}/")
        if name.startswith((_STAGING, _REPLACING)) and info.mtime < before:
            system.delete_file(info.path)
            count += 1
    return count


def _files(system: FileSystem, root: str) -> list[FileInfo]:
    found = system.get_file_info(FileSelector(root, recursive=True, allow_not_found=True))
    return sorted((info for info in found if info.is_file), key=lambda info: info.path)


def _codec(file: pq.ParquetFile) -> str:
    if not file.metadata.num_row_groups:
        return "none"
    return str(file.metadata.row_group(0).column(0).compression).lower().replace("uncompressed", "none")


def _replace(system: FileSystem, root: str, path: str, rows: pa.Table, codec: str) -> None:
    if not isinstance(system, LocalFileSystem):
        # An object is replaced when it is complete.
        pq.write_table(rows, path, filesystem=system, compression=codec)
        return
    new = f"{root}/{_REPLACING}{uuid.uuid4()}"
    pq.write_table(rows, new, filesystem=system, compression=codec)
    directory, _, name = path.rpartition("/")
    checksum = f"{directory}/.{name}.crc"  # Spark's, of the old file
    if system.get_file_info(checksum).is_file:
        system.delete_file(checksum)
    system.move(new, path)
