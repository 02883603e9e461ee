"""The files of an Iceberg table: those that its snapshots need, and those that are no longer needed."""

from collections.abc import Iterable
from datetime import datetime

from pyarrow.fs import FileInfo, FileSelector
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from pyromq.errors import ConfigError
from pyromq.spark.object_stores import arrow_files

_DIRECTORIES = ("data", "metadata")
"""Where tables have their files. Checkpoints and dead letters are next to them."""


def needed(table: Table, snapshots: Iterable[Snapshot] | None = None) -> set[str]:
    """The paths of all files of some snapshots, or of the whole table."""
    found: set[str] = set()
    for snapshot in table.snapshots() if snapshots is None else snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in found:
                continue
            found.add(manifest.manifest_path)
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            found.update(entry.data_file.file_path for entry in entries)
    if snapshots is None:
        metadata = table.metadata
        found.update(entry.metadata_file for entry in metadata.metadata_log)
        found.update(each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
        found.add(table.metadata_location)
    return found


def remove(table: Table, paths: Iterable[str]) -> int:
    """Remove files; how many there were."""
    count = 0
    for path in sorted(paths):
        try:
            table.io.delete(path)
            count += 1
        except FileNotFoundError:
            pass  # somebody else has removed it
    return count


def orphans(table: Table, before: datetime) -> list[str]:
    """Files in the directory of a table that it does not need, and that were written before that time.

    Younger ones may be those of a commit that somebody is about to make.
    """
    location = place_of(table.location())
    system, root = arrow_files(table.location())
    there: dict[str, FileInfo] = {}
    for directory in _DIRECTORIES:
        selector = FileSelector(f"{root}/{directory}", recursive=True, allow_not_found=True)
        for info in system.get_file_info(selector):
            if info.is_file:
                there[info.path.removeprefix(f"{root}/")] = info
    known = {place_of(path).removeprefix(f"{location}/") for path in needed(table)}
    snapshot = table.current_snapshot()
    newest = needed(table, [] if snapshot is None else [snapshot])
    inside = (place_of(path) for path in newest)
    lost = [
        path for path in inside if path.startswith(f"{location}/") and path[len(location) + 1 :] not in there
    ]
    if lost:
        # Either the table is broken, or its paths are written in a way that we do not know.
        raise ConfigError("lake", table.location(), f"a table with all of its files; {lost[0]} is not there")
    unneeded = sorted(name for name, info in there.items() if name not in known and info.mtime < before)
    return [f"{table.location().rstrip('/')}/{name}" for name in unneeded if not _is_hint(name)]


def place_of(path: str) -> str:
    """Without its scheme: `s3` and `s3a`, `file:/` and nothing at all mean the same."""
    if "://" in path:
        return path.partition("://")[2].rstrip("/")
    return path.removeprefix("file:").rstrip("/")


def _is_hint(name: str) -> bool:
    return name == "metadata/version-hint.text"
