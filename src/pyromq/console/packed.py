"""MessagePack bodies: those that are not text and are a whole map with names as keys. And what reading JSON
must not lose.
"""

import json
from typing import Any

import msgspec


def packed_map(body: bytes) -> dict[Any, Any] | None:
    """The map in a MessagePack body; None if it is something else."""
    try:
        found = msgspec.msgpack.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None
    return found if isinstance(found, dict) and found and all(isinstance(key, str) for key in found) else None


def unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of JSON; ValueError if a name is there twice, for one of the values would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is there twice")
    return found


def as_json(value: Any, *, indent: int | None = None) -> str:
    """As text for people: what JSON does not have is written as Python does."""
    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return f"Ext({value.code}, {value.data!r})" if isinstance(value, msgspec.msgpack.Ext) else value
