"""Avro bodies: one record each, written with one known schema, no file around them.

The schema is compiled once into nested readers; a reader takes bytes and a position and gives a value and the
position behind it.
"""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from struct import Struct, error
from typing import Any

from pyromq.errors import ConfigError, RemoteProtocolError

Reader = Callable[[bytes, int], tuple[Any, int]]

_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1)
_DDL = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
}
_LOGICAL_DDL = {"timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date"}


def avro_to_ddl(text: str) -> str:
    """The type Spark gives to values of an Avro schema."""
    return _ddl(_parse(text), text)


def avro_reader(text: str) -> Callable[[bytes], Any]:
    """Reads whole bodies; `RemoteProtocolError` if one is not what the schema says."""
    read = _reader(_parse(text))

    def whole(body: bytes) -> Any:
        try:
            value, end = read(body, 0)
        except (IndexError, error, UnicodeDecodeError, OverflowError) as problem:
            raise RemoteProtocolError(f"not an Avro value of the schema: {problem}") from None
        if end != len(body):
            raise RemoteProtocolError(f"{len(body) - end} bytes are left behind an Avro value")
        return value

    return whole


def _parse(text: str) -> Any:
    try:
        schema = _spelled_out(json.loads(text), {}, "")
    except (KeyError, TypeError, AttributeError) as problem:
        raise ConfigError("valueSchema", text, f"an Avro schema ({problem!r})") from None
    except ValueError as problem:
        raise ConfigError("valueSchema", text, f"an Avro schema in JSON ({problem})") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ConfigError("valueSchema", text, "an Avro schema of type record")
    return schema


def _spelled_out(schema: Any, known: dict[str, Any], namespace: str) -> Any:
    """The same schema with what names stand for in their places."""
    if isinstance(schema, list):
        return [_spelled_out(choice, known, namespace) for choice in schema]
    if isinstance(schema, str):
        if schema in _PRIMITIVES:
            return schema
        full = schema if "." in schema else f"{namespace}.{schema}"
        if known.get(full, "") is None:
            raise ValueError(f"{schema} contains itself, which columns cannot")
        if full not in known:
            raise ValueError(f"{schema} is not a type")
        return known[full]
    kind = schema["type"]
    if not isinstance(kind, str):
        return _spelled_out(kind, known, namespace)
    if kind in ("array", "map"):
        inner = "items" if kind == "array" else "values"
        return schema | {inner: _spelled_out(schema[inner], known, namespace)}
    if kind not in ("record", "enum", "fixed"):
        return schema if kind in _PRIMITIVES else _spelled_out(kind, known, namespace)
    name = str(schema["name"])
    namespace = name.rpartition(".")[0] or schema.get("namespace", namespace)
    full = f"{namespace}.{name.rpartition('.')[2]}"
    known[full] = None
    if kind == "record":
        fields = [
            field | {"type": _spelled_out(field["type"], known, namespace)} for field in schema["fields"]
        ]
        schema = schema | {"fields": fields}
    known[full] = schema
    return schema


def _kind(schema: Any) -> tuple[str, dict[str, Any]]:
    if isinstance(schema, str):
        return schema, {}
    return ("union", {}) if isinstance(schema, list) else (schema["type"], schema)


def _chosen(schema: list[Any], text: str) -> Any:
    """What a union holds besides null."""
    others = [choice for choice in schema if choice != "null"]
    if len(others) != 1:
        raise ConfigError("valueSchema", text, "unions of null and one other type only")
    return others[0]


def _ddl(schema: Any, text: str) -> str:
    kind, details = _kind(schema)
    if kind == "union":
        return _ddl(_chosen(schema, text), text)
    if kind == "record":
        fields = ", ".join(f"`{field['name']}`: {_ddl(field['type'], text)}" for field in details["fields"])
        return f"struct<{fields}>"
    if kind == "array":
        return f"array<{_ddl(details['items'], text)}>"
    if kind == "map":
        return f"map<string, {_ddl(details['values'], text)}>"
    logical = details.get("logicalType", "")
    if logical == "decimal":
        return f"decimal({details['precision']}, {details.get('scale', 0)})"
    if logical in _LOGICAL_DDL:
        return _LOGICAL_DDL[logical]
    if kind not in _DDL:
        raise ConfigError("valueSchema", text, f"types that columns have; {kind!r} is none")
    return _DDL[kind]


def _read_long(data: bytes, at: int) -> tuple[int, int]:
    shift = number = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _read_long(data, at)
    if size < 0 or at + size > len(data):
        raise IndexError(f"{size} bytes at {at} of {len(data)}")
    return data[at : at + size], at + size


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _read_bytes(data, at)
    return raw.decode(), at


def _read_float(data: bytes, at: int) -> tuple[float, int]:
    return _FLOAT.unpack_from(data, at)[0], at + 4


def _read_double(data: bytes, at: int) -> tuple[float, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


_PRIMITIVES: dict[str, Reader] = {
    "null": lambda data, at: (None, at),
    "boolean": lambda data, at: (data[at] != 0, at + 1),
    "int": _read_long,
    "long": _read_long,
    "float": _read_float,
    "double": _read_double,
    "bytes": _read_bytes,
    "string": _read_string,
}


def _reader(schema: Any) -> Reader:
    kind, details = _kind(schema)
    if kind == "union":
        return _union([_reader(choice) for choice in schema])
    if kind == "record":
        return _record([(field["name"], _reader(field["type"])) for field in details["fields"]])
    if kind == "array":
        return _array(_reader(details["items"]))
    if kind == "map":
        pairs = _array(_pair(_reader(details["values"])))
        return lambda data, at: _as_dict(*pairs(data, at))
    if kind == "enum":
        symbols: list[str] = details["symbols"]
        return _converted(_read_long, lambda index: _one_of(symbols, index))
    read = _fixed(details["size"]) if kind == "fixed" else _PRIMITIVES[kind]
    logical = details.get("logicalType", "")
    if logical == "timestamp-millis":
        return _converted(read, lambda ms: _EPOCH + timedelta(milliseconds=ms))
    if logical == "timestamp-micros":
        return _converted(read, lambda us: _EPOCH + timedelta(microseconds=us))
    if logical == "date":
        return _converted(read, lambda days: _DAY_ZERO + timedelta(days=days))
    if logical == "decimal":
        scale = details.get("scale", 0)
        return _converted(read, lambda raw: Decimal(int.from_bytes(raw, "big", signed=True)).scaleb(-scale))
    return read


def _converted(read: Reader, convert: Callable[[Any], Any]) -> Reader:
    def converted(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read(data, at)
        return convert(value), at

    return converted


def _fixed(size: int) -> Reader:
    def fixed(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise IndexError(f"{size} bytes at {at} of {len(data)}")
        return data[at : at + size], at + size

    return fixed


def _union(choices: list[Reader]) -> Reader:
    def union(data: bytes, at: int) -> tuple[Any, int]:
        index, at = _read_long(data, at)
        read: Reader = _one_of(choices, index)
        return read(data, at)

    return union


def _one_of(choices: list[Any], index: int) -> Any:
    if index < 0:
        raise IndexError(f"choice {index}")
    return choices[index]


def _record(fields: list[tuple[str, Reader]]) -> Reader:
    def record(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, read in fields:
            values[name], at = read(data, at)
        return values, at

    return record


def _array(item: Reader) -> Reader:
    def array(data: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _read_long(data, at)
            if count == 0:
                return items, at
            if count < 0:  # a block that tells its size in bytes as well
                count = -count
                _, at = _read_long(data, at)
            for _ in range(count):
                value, at = item(data, at)
                items.append(value)

    return array


def _pair(value: Reader) -> Reader:
    def pair(data: bytes, at: int) -> tuple[tuple[str, Any], int]:
        name, at = _read_string(data, at)
        content, at = value(data, at)
        return (name, content), at

    return pair


def _as_dict(pairs: list[tuple[str, Any]], at: int) -> tuple[dict[str, Any], int]:
    return dict(pairs), at
