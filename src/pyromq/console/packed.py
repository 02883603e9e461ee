"""MessagePack bodies: what is no text, and is a whole map with names as keys, is taken for one."""

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


def as_json(value: Any, *, indent: int | None = None) -> str:
    """As text for people: what JSON does not have is written as Python does."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=str)
