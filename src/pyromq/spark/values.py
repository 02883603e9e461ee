"""Bodies as the type that was asked for: bytes, text, or the fields of a document.

What cannot be read is null, or ends the query if `valueMode` is failfast.
"""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from pyromq.errors import RemoteProtocolError
from pyromq.spark.avro import avro_reader
from pyromq.spark.options import ReadOptions

Conversion = Callable[[pa.Array], pa.Array]


def conversion(options: ReadOptions, type_: pa.DataType) -> Conversion:
    """From a column of bodies to the value column."""
    fails = options.value_mode == "failfast"
    if options.value_format == "string":
        return lambda bodies: _texts(bodies, fails)
    if options.value_format == "json":
        return lambda bodies: _documents(bodies, type_, fails)
    if options.value_format == "avro":
        read = avro_reader(options.value_schema or "")
        return lambda bodies: _one_by_one(bodies, read, type_, fails)
    return lambda bodies: bodies


def _texts(bodies: pa.Array, fails: bool) -> pa.Array:
    try:
        return bodies.cast(pa.string())
    except pa.ArrowInvalid as problem:
        if fails:
            raise RemoteProtocolError(f"a body is not UTF-8: {problem}") from None
        return pa.array([body.decode("utf-8", "replace") for body in bodies.to_pylist()], pa.string())


def _documents(bodies: pa.Array, type_: pa.StructType, fails: bool) -> pa.Array:
    """All documents in one go if each is one line; otherwise one by one."""
    if not len(bodies):
        return pa.array([], type_)
    lines = pc.binary_join_element_wise(bodies, pa.scalar(b"\n"), pa.scalar(b""))
    data = lines.buffers()[2]
    size = lines.nbytes
    fields = [type_.field(index) for index in range(type_.num_fields)]
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(data),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(size, 1024)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        table = None
    if table is None or table.num_rows != len(bodies):
        return _one_by_one(bodies, json.loads, type_, fails)
    columns = [table.column(field.name).combine_chunks() for field in fields]
    return pa.StructArray.from_arrays(columns, fields=fields)


def _one_by_one(bodies: pa.Array, read: Callable[[bytes], Any], type_: pa.DataType, fails: bool) -> pa.Array:
    documents = [_document(body, read, fails) for body in bodies.to_pylist()]
    try:
        return pa.array(documents, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as problem:
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
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        return pa.nulls(1, type_)
