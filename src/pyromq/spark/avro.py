"""Avro bodies: one record each, no file around them; fastavro reads and writes them.

With a registry a body begins with the id of the schema that it was written with; a reader takes from it the
fields that it knows.
"""

import json
from collections.abc import Callable
from io import BytesIO
from struct import error
from typing import Any

from pyromq.errors import BadMessage, ConfigError, RemoteProtocolError
from pyromq.spark.registry import RegisteredSchema, Texts, framed

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
_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_LOGICAL_DDL = {"timestamp-millis": "timestamp", "timestamp-micros": "timestamp", "date": "date"}


def avro_to_ddl(text: str, references: Texts = ()) -> str:
    """The type Spark gives to values of an Avro schema."""
    return _ddl(_parse(text, references), text)


def avro_reader(text: str, references: Texts = ()) -> Callable[[bytes], Any]:
    """Reads whole bodies; `RemoteProtocolError` if one is not what the schema says."""
    from fastavro import schemaless_reader

    schema = _compiled(text, references)

    def whole(body: bytes) -> Any:
        stream = BytesIO(body)
        try:
            value = schemaless_reader(stream, schema, None)
        except (EOFError, LookupError, ArithmeticError, ValueError, error) as problem:
            raise RemoteProtocolError(f"not an Avro value of the schema: {problem!r}") from None
        if stream.tell() != len(body):
            raise RemoteProtocolError(f"{len(body) - stream.tell()} bytes are left behind an Avro value")
        return value

    return whole


def registered_avro_reader(schema: RegisteredSchema) -> Callable[[bytes], Any]:
    """Reads what follows the id of this schema."""
    return avro_reader(schema.text, schema.references)


def avro_writer(found: RegisteredSchema) -> Callable[[Any], bytes]:
    """Writes values as bodies, with the id of the schema before them."""
    from fastavro import schemaless_writer

    schema = _compiled(found.text, found.references)

    def written(value: Any) -> bytes:
        stream = BytesIO()
        try:
            schemaless_writer(stream, schema, value)
        except (TypeError, AttributeError, ValueError, LookupError, ArithmeticError) as problem:
            raise BadMessage(f"the row {value!r:.200} does not fit the Avro schema: {problem}") from None
        return framed(found.id, stream.getvalue())

    return written


def _compiled(text: str, references: Texts) -> Any:
    """The schema as fastavro wants it, without logical types that columns do not have."""
    from fastavro import parse_schema

    _parse(text, references)
    named: dict[str, Any] = {}
    for _, other in references:
        parse_schema(_without_unknown(json.loads(other)), named)
    return parse_schema(_without_unknown(json.loads(text)), named)


def _without_unknown(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_unknown(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("logicalType") in (None, "decimal", *_LOGICAL_DDL)
    return {
        name: _without_unknown(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
        if known or name != "logicalType"
    }


def _parse(text: str, references: Texts) -> Any:
    known: dict[str, Any] = {}
    try:
        for _, other in references:
            _spelled_out(json.loads(other), known, "")
        schema = _spelled_out(json.loads(text), known, "")
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
    """The type that a union holds besides null."""
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
