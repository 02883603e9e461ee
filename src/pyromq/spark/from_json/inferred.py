"""The type of JSON documents, as Spark's DDL, from a sample of them. Objects are structures, texts stay text.

A field that has different types in different documents is text, which `from_json` makes of every value.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

_INT64: Final = range(-(2**63), 2**63)
_MAX_DIGITS: Final = 38
_WIDER: Final = ("bigint", f"decimal({_MAX_DIGITS},0)", "double")
"""Numbers: each of these holds the ones before it."""

_UNKNOWN: Final = ""
"""Only null was seen."""

Found = str | list[Any] | dict[str, Any]
"""The name of a plain type, an array of one type, or a structure."""


def inferred_fields(documents: Iterable[bytes]) -> str | None:
    """DDL of the fields that objects among the documents have; None if there are none."""
    whole: Found = _UNKNOWN
    for document in documents:
        try:
            value = msgspec.json.decode(document)
        except (msgspec.DecodeError, RecursionError):
            continue
        if isinstance(value, dict):
            whole = _merged(whole, _found(value))
    return _fields(whole, ", ", " ") or None if isinstance(whole, dict) else None


def _found(value: Any) -> Found:
    match value:
        case None:
            return _UNKNOWN
        case bool():
            return "boolean"
        case int():
            if value in _INT64:
                return _WIDER[0]
            return _WIDER[1] if len(str(abs(value))) <= _MAX_DIGITS else "string"
        case float():
            return _WIDER[2]
        case str():
            return "string"
        case list():
            element: Found = _UNKNOWN
            for each in value:
                element = _merged(element, _found(each))
            return [element]
    return {name: _found(each) for name, each in value.items()}


def _merged(one: Found, other: Found) -> Found:
    if one == other or other == _UNKNOWN:
        return one
    if one == _UNKNOWN:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        names = {**one, **other}
        return {name: _merged(one.get(name, _UNKNOWN), other.get(name, _UNKNOWN)) for name in names}
    if isinstance(one, list) and isinstance(other, list):
        return [_merged(one[0], other[0])]
    if one in _WIDER and other in _WIDER:
        return max(one, other, key=_WIDER.index)
    return "string"


def _ddl(found: Found) -> str:
    if isinstance(found, list):
        return f"array<{_ddl(found[0])}>"
    if isinstance(found, dict):
        fields = _fields(found, ",", ":")
        return f"struct<{fields}>" if fields else "string"
    return found or "string"


def _fields(found: Mapping[str, Found], between: str, behind_name: str) -> str:
    """Sorted by their names. A field without a name cannot be written as DDL."""
    quoted = (("`{}`".format(name.replace("`", "``")), found[name]) for name in sorted(found) if name)
    return between.join(f"{name}{behind_name}{_ddl(type_)}" for name, type_ in quoted)
