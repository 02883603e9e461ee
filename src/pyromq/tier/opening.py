"""Opening the object store that a setting names: a directory, or the URI of a bucket."""

from pathlib import Path
from urllib.parse import unquote

from pyromq.errors import ConfigError, TransportError
from pyromq.filesystem import Files
from pyromq.object_stores import checked, is_object_store, object_store
from pyromq.tier.directory_objects import DirectoryObjects
from pyromq.tier.names import prefix
from pyromq.tier.objects import Objects
from pyromq.tier.stored_objects import StoredObjects, reached

_NEEDED = "pip install 'pyromq[tier]'"
_KEY = "tieredStoreFilePath"
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
    key: str = _KEY,
) -> Objects:
    """The objects of one broker name. Raises ConfigError; the store itself is not asked yet."""
    below = prefix(cluster, broker)
    place = _checked(place, key)
    if not is_object_store(place):
        return DirectoryObjects(Path(place).expanduser() / below, files)
    whole = f"{place}/{below}"
    store = object_store(whole, key, _NEEDED, endpoint or None, _RETRY_S)
    return StoredObjects(store, whole, upload_concurrency=upload_concurrency)


def brokers_at(place: str, key: str = _KEY) -> list[tuple[str, str]]:
    """Clusters and brokers whose tiers may be at a place, sorted. Raises ConfigError or TransportError."""
    place = _checked(place, key)
    found = []
    for cluster in _directories(place, "", key):
        found += [(cluster, broker) for broker in _directories(place, cluster, key)]
    return sorted((unquote(cluster), unquote(broker)) for cluster, broker in found)


def _directories(place: str, below: str, key: str) -> list[str]:
    if not is_object_store(place):
        try:
            _, names = Files().names(Path(place).expanduser() / below)
        except OSError as problem:
            raise TransportError(f"{place}: {problem}") from None
        return names
    store = object_store(place, key, _NEEDED, None, _RETRY_S)
    with reached(place):
        listed = store.list_with_delimiter(below or None)
    return [each.rpartition("/")[2] for each in listed["common_prefixes"]]


def _checked(place: str, key: str) -> str:
    place = checked(place, key)
    if "://" in place and not is_object_store(place):
        raise ConfigError(key, place, "a directory, or s3://bucket/path, gs://… or abfss://…")
    return place
