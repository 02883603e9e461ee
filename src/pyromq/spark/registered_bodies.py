"""Bodies that name a schema of a registry, as JSON for people: Avro, Protobuf and JSON, each by its schema.

Nothing is lost on the way: bytes are written in base64, times in ISO 8601, and numbers as they are.
"""

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time
from typing import Any, NamedTuple

from pyromq.errors import ConfigError, RemoteProtocolError
from pyromq.spark.avro import registered_avro_reader
from pyromq.spark.protobuf import unpacked_path
from pyromq.spark.protobuf_schema import message_at, schema_file
from pyromq.spark.registry import RegisteredSchema, Registry, unframed

_Reader = Callable[[bytes], tuple[str, str]]
"""Gives the name of the type, and the value as JSON."""


class RegisteredBody(NamedTuple):
    schema_id: int
    kind: str
    """AVRO, PROTOBUF or JSON."""
    name: str
    text: str


class RegisteredBodies:
    """`timeout_s` is for each of the registry's answers. Safe to use from several threads."""

    def __init__(self, url: str, auth: str | None, timeout_s: float) -> None:
        self._registry = Registry(url, auth, timeout_s=timeout_s, attempts=1)
        self._readers: dict[int, tuple[str, _Reader]] = {}

    def __repr__(self) -> str:
        return f"<RegisteredBodies {self._registry!r}>"

    def decode(self, body: bytes) -> RegisteredBody | None:
        """None if a body names no schema. `PyroError` says why one that does cannot be read."""
        if len(body) < 5 or body[0] != 0:
            return None
        number, value = unframed(body)
        if number not in self._readers:
            found = self._registry.schema(number)
            self._readers[number] = found.kind, _reader(found)
        kind, read = self._readers[number]
        name, text = read(value)
        return RegisteredBody(number, kind, name, text)


def _reader(schema: RegisteredSchema) -> _Reader:
    match schema.kind:
        case "AVRO":
            return _avro(schema)
        case "PROTOBUF":
            return _protobuf(schema)
        case "JSON":
            return _json
    raise RemoteProtocolError(f"schema {schema.id} is {schema.kind}, expected AVRO, PROTOBUF or JSON")


def _avro(schema: RegisteredSchema) -> _Reader:
    try:
        read = registered_avro_reader(schema)
    except ImportError as problem:
        raise ConfigError(
            "schemaRegistry", schema.kind, f"pip install 'pyromq[schemas]' ({problem})"
        ) from None
    declared = json.loads(schema.text)
    name = declared.get("name", declared.get("type", "")) if isinstance(declared, dict) else declared
    return lambda body: (str(name), json.dumps(read(body), default=_plain, ensure_ascii=False))


def _protobuf(schema: RegisteredSchema) -> _Reader:
    file = schema_file(schema.text, schema.references)

    def read(body: bytes) -> tuple[str, str]:
        from google.protobuf.json_format import MessageToJson, SerializeToJsonError
        from google.protobuf.message import DecodeError
        from google.protobuf.message_factory import GetMessageClass

        path, start = unpacked_path(body)
        message = message_at(file, path)
        try:
            value = GetMessageClass(message).FromString(body[start:])
            text = MessageToJson(value, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
        except (DecodeError, SerializeToJsonError) as problem:
            raise RemoteProtocolError(f"not a {message.full_name}: {problem}") from None
        return message.full_name, text

    return read


def _json(body: bytes) -> tuple[str, str]:
    try:
        return "", body.decode()
    except UnicodeDecodeError as problem:
        raise RemoteProtocolError(f"not a text: {problem}") from None


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, datetime | date | time) else str(value)
