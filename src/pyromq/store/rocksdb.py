"""Directories of RocksDB that Apache's broker left: this broker cannot read them.

Queues in RocksDB are built again from the log. Tables are nowhere else: without them topics would be unknown,
and groups would begin like new ones. Popped messages that wait for their acknowledgement would be lost.
"""

from pathlib import Path
from typing import Final

from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.filenames import StorePaths

_TABLES: Final = ("topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb")
_POPS: Final = "kvStore"
_CURRENT: Final = "CURRENT"


def is_rocksdb(files: Files, directory: Path) -> bool:
    return files.size(directory / _CURRENT) is not None


def refuse_rocksdb(files: Files, paths: StorePaths) -> None:
    """Raises StoreError if Apache's broker kept in RocksDB what cannot be rebuilt."""
    config, pops = paths.config, paths.root / _POPS
    if is_rocksdb(files, pops):
        raise StoreError(
            f"{pops}: Apache's broker kept popped messages in RocksDB (popConsumerKVServiceEnable=true),"
            " which is not supported: let it write them to its log (mqadmin exportPopRecord), stop"
            " it, and move this directory away"
        )
    found = [str(config / name) for name in _TABLES if is_rocksdb(files, config / name)]
    if found:
        raise StoreError(
            f"{', '.join(found)}: Apache's broker kept its tables in RocksDB (storeType=defaultRocksDB),"
            " which is not supported: let it write topics.json, subscriptionGroup.json and"
            " consumerOffset.json (Apache's mqadmin rocksDBConfigToJson), stop it, and move these directories"
            " away"
        )
