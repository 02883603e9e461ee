"""Opening the object store that a setting names: a directory, or the URI of a bucket."""

from pathlib import Path

from pyromq.errors import ConfigError
from pyromq.filesystem import Files
from pyromq.object_stores import checked, is_object_store, object_store
from pyromq.tier.directory_objects import DirectoryObjects
from pyromq.tier.names import prefix
from pyromq.tier.objects import Objects
from pyromq.tier.stored_objects import StoredObjects

_NEEDED = "pip install 'pyromq[tier]'"
_RETRY_S = 10.0
"""Whoever asked waits, and asks again later."""


def open_objects(
    place: str,
    cluster: str,
    broker: str,
    *,
    endpoint: str = "",
    upload_concurrency: int = 4,
    files: Files | None = None,
    key: str = "tieredStoreFilePath",
) -> Objects:
    """The objects of one broker name. Raises ConfigError; the store itself is not asked yet."""
    below = prefix(cluster, broker)
    place = checked(place, key)
    if not is_object_store(place):
        if "://" in place:
            raise ConfigError(key, place, "a directory, or s3://bucket/path, gs://… or abfss://…")
        return DirectoryObjects(Path(place).expanduser() / below, files)
    whole = f"{place}/{below}"
    store = object_store(whole, key, _NEEDED, endpoint or None, _RETRY_S)
    return StoredObjects(store, whole, upload_concurrency=upload_concurrency)
