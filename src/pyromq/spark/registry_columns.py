"""Columns of structures as bodies with a schema of a registry, and back.

A topic's own column `value` is read by `valueFormat=avro` and `valueFormat=protobuf`; these functions are for
writing, and for other columns.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from pyromq.spark import registry as registries
from pyromq.spark.avro import avro_to_ddl, avro_writer, registered_avro_reader
from pyromq.spark.ddl import parse_type
from pyromq.spark.protobuf import protobuf_writer, registered_protobuf_reader
from pyromq.spark.protobuf_schema import protobuf_to_ddl
from pyromq.spark.registry import RegisteredSchema, Registry, registered_reader
from pyromq.spark.values import read_one_by_one

if TYPE_CHECKING:
    from pyspark.sql import Column


def to_avro(
    column: "Column | str",
    registry: str,
    subject: str,
    *,
    schema: str | None = None,
    references: Mapping[str, str] | None = None,
    auth: str | None = None,
) -> "Column":
    """Bodies for a topic; `schema` is registered, or the latest one of the subject is used.

    `references` names the subject of each type that the schema takes from another one.

    `frame.select(to_avro(struct("id", "note"), "http://127.0.0.1:8081", "Orders-value").alias("value"))`
    """
    found = _chosen(Registry(registry, auth), subject, schema, "AVRO", references)
    return _written(column, partial(avro_writer, found))


def to_protobuf(
    column: "Column | str",
    registry: str,
    subject: str,
    *,
    schema: str | None = None,
    message: str | None = None,
    references: Mapping[str, str] | None = None,
    auth: str | None = None,
) -> "Column":
    """The same with Protobuf; `message` is the type of the bodies if it is not the first of the schema.

    `references` names the subject of each file that the schema imports.
    """
    found = _chosen(Registry(registry, auth), subject, schema, "PROTOBUF", references)
    return _written(column, partial(protobuf_writer, found, message))


def from_avro(column: "Column | str", registry: str, subject: str, *, auth: str | None = None) -> "Column":
    """Structures of the subject's latest schema from bodies, each read with its own; null if it cannot be."""
    latest = Registry(registry, auth).latest(subject)
    ddl = avro_to_ddl(latest.text, latest.references)
    return _read(column, ddl, registry, auth, "AVRO", registered_avro_reader)


def from_protobuf(
    column: "Column | str",
    registry: str,
    subject: str,
    *,
    message: str | None = None,
    auth: str | None = None,
) -> "Column":
    """The same with Protobuf; other messages than `message` are null."""
    latest = Registry(registry, auth).latest(subject)
    ddl = protobuf_to_ddl(latest.text, latest.references, message)
    reader = partial(registered_protobuf_reader, name=message)
    return _read(column, ddl, registry, auth, "PROTOBUF", reader)


def _chosen(
    known: Registry, subject: str, schema: str | None, kind: str, references: Mapping[str, str] | None
) -> RegisteredSchema:
    return known.latest(subject) if schema is None else known.register(subject, schema, kind, references)


def _written(column: "Column | str", writer: Callable[[], Callable[[Any], bytes]]) -> "Column":
    def bodies(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        write = writer()
        for rows in batches:
            yield pa.array([None if row is None else write(row) for row in rows.to_pylist()], pa.binary())

    # Its stubs know only the call that makes it warn.
    made: Column = arrow_udf(bodies, "binary")(column)  # type: ignore[call-overload]
    return made


def _read(
    column: "Column | str",
    ddl: str,
    url: str,
    auth: str | None,
    kind: str,
    reader: Callable[[RegisteredSchema], Callable[[bytes], Any]],
) -> "Column":
    type_ = parse_type(ddl)

    def rows(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        read = registered_reader(registries.registry(url, auth), kind, reader)
        arrow = to_arrow_type(type_, timezone="UTC")
        for bodies in batches:
            yield read_one_by_one(bodies, read, arrow, False)

    made: Column = arrow_udf(rows, type_)(column)  # type: ignore[call-overload]
    return made
