"""Bodies as the type that was asked for: bytes, text, or the fields of a document.

A body that cannot be read is null, or ends the query if `valueMode` is failfast.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from pyromq.errors import RemoteProtocolError
from pyromq.spark.avro import avro_reader, registered_avro_reader
from pyromq.spark.from_json.documents import Documents
from pyromq.spark.from_json.session_zone import session_zone
from pyromq.spark.from_json.times import zone_of
from pyromq.spark.new_fields import watched
from pyromq.spark.options import ReadOptions
from pyromq.spark.protobuf import protobuf_reader, registered_protobuf_reader
from pyromq.spark.registry import registered_reader, registry

Conversion = Callable[[pa.Array], pa.Array]

_UNFIT = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError)


def conversion(options: ReadOptions, type_: pa.DataType) -> Conversion:
    """From a column of bodies to the value column."""
    fails = options.value_mode == "failfast"
    if options.value_format == "string":
        return lambda bodies: _texts(bodies, fails)
    if options.value_format == "json":
        zone = zone_of(options.time_zone) if options.time_zone is not None else session_zone()
        return Documents(type_, zone, fails=fails).read
    if options.value_format in ("avro", "protobuf"):
        read = _reader(options, type_)
        return lambda bodies: read_one_by_one(bodies, read, type_, fails)
    return lambda bodies: bodies


def _reader(options: ReadOptions, type_: pa.DataType) -> Callable[[bytes], Any]:
    is_avro, schema, name = options.value_format == "avro", options.value_schema or "", options.value_message
    if options.schema_registry is None:
        return avro_reader(schema) if is_avro else protobuf_reader(schema, name=name)
    known = registry(options.schema_registry, options.schema_registry_auth)
    read = registered_avro_reader if is_avro else partial(registered_protobuf_reader, name=name)
    return registered_reader(known, options.value_format.upper(), watched(options, known, type_, read))


def _texts(bodies: pa.Array, fails: bool) -> pa.Array:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid as problem:
        if fails:
            raise RemoteProtocolError(f"a body is not UTF-8: {problem}") from None
        return pa.array([body.decode("utf-8", "replace") for body in bodies.to_pylist()], pa.string())


def read_one_by_one(
    bodies: pa.Array, read: Callable[[bytes], Any], type_: pa.DataType, fails: bool
) -> pa.Array:
    documents = [None if body is None else _document(body, read, fails) for body in bodies.to_pylist()]
    try:
        return pa.array(documents, type_)
    except _UNFIT as problem:
        if fails:
            raise RemoteProtocolError(f"a body does not fit the schema {type_}: {problem}") from None
    return pa.concat_arrays([_fitted(document, type_) for document in documents])


def _document(body: bytes, read: Callable[[bytes], Any], fails: bool) -> Any:
    try:
        return read(body)
    except (ValueError, RecursionError, RemoteProtocolError) as problem:
        if fails:
            raise RemoteProtocolError(f"the body {body[:100]!r} cannot be read: {problem}") from None
        return None


def _fitted(document: Any, type_: pa.DataType) -> pa.Array:
    try:
        return pa.array([document], type_)
    except _UNFIT:
        return pa.nulls(1, type_)
