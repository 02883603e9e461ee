"""JSON documents as rows of a schema, read as Spark's own `from_json` reads them.

A field that is missing, or does not fit its type, is null; so is a document that is none. Many documents are
read by Arrow at once; where that fails each is read by itself, with the same result.
"""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

Fit = Callable[[Any], Any]
"""From what `json.loads` gives to what Arrow takes; ValueError if it does not fit."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_CHARACTERS = len("2026-01-02")
_DIGITS = Context(prec=76)
_NOT_A_NUMBER = ("NaN", "Infinity", "+INF", "INF", "-Infinity", "-INF")


def read_all(bodies: pa.BinaryArray, type_: pa.StructType) -> pa.StructArray | None:
    """Every body as one document; None if that cannot be said of all of them, or not by Arrow."""
    wire = _wire_type(type_)
    if wire is None or not _are_single(bodies):
        return None
    lines = pc.binary_join_element_wise(bodies, pa.scalar(b"\n"), pa.scalar(b""))
    try:
        lines.cast(pa.string())  # what is not UTF-8 would go unnoticed until Spark meets it
        table = pyarrow.json.read_json(
            pa.BufferReader(lines.buffers()[2]),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=max(lines.nbytes, 1024)),
            parse_options=pyarrow.json.ParseOptions(
                explicit_schema=pa.schema(list(wire)), unexpected_field_behavior="ignore"
            ),
        )
        if table.num_rows != len(bodies):
            return None
        columns = [table.column(field.name).combine_chunks().cast(field.type) for field in type_]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    return pa.StructArray.from_arrays(columns, fields=list(type_))


def _are_single(bodies: pa.BinaryArray) -> bool:
    """Whether each body has the edges of an object: joined, none can then be taken for part of another."""
    _, edge_buffer, data = bodies.buffers()
    if data is None:
        return False
    edges = np.frombuffer(edge_buffer, np.int32)[bodies.offset : bodies.offset + len(bodies) + 1]
    if (edges[1:] == edges[:-1]).any():
        return False
    content = np.frombuffer(data, np.uint8)
    return bool((content[edges[:-1]] == ord("{")).all() and (content[edges[1:] - 1] == ord("}")).all())


def _wire_type(type_: pa.DataType) -> pa.DataType | None:
    """What Arrow is to look for in the text before it casts; None for what it does not read as Spark does."""
    if pa.types.is_struct(type_):
        inner = [_wire_type(field.type) for field in type_]
        if None in inner:
            return None
        return pa.struct([field.with_type(wire) for field, wire in zip(type_, inner, strict=True)])
    if pa.types.is_list(type_):
        item = _wire_type(type_.value_type)
        return None if item is None else pa.list_(item)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_decimal(type_):
        return pa.string()
    return None if pa.types.is_map(type_) or pa.types.is_binary(type_) else type_


def document_reader(type_: pa.DataType, *, fails: bool) -> Callable[[bytes], Any]:
    """Reads one body; ValueError if it is no document or, if it `fails`, does not fit."""
    fit = _fit(type_, fails)

    def read(body: bytes) -> Any:
        return fit(json.loads(body, parse_float=Decimal))

    return read


def _fit(type_: pa.DataType, fails: bool) -> Fit:
    plain = _plain(type_, fails)
    return lambda value: None if value is None else plain(value)


def _plain(type_: pa.DataType, fails: bool) -> Fit:
    types = pa.types
    if types.is_struct(type_):
        return _struct({field.name: _fit(field.type, fails) for field in type_}, fails)
    if types.is_list(type_):
        item = _fit(type_.value_type, fails)
        return lambda value: [item(each) for each in _only(list, value)]
    if types.is_map(type_):
        content = _fit(type_.item_type, fails)
        return lambda value: [(name, content(each)) for name, each in _only(dict, value).items()]
    if types.is_boolean(type_):
        return lambda value: _only(bool, value)
    if types.is_integer(type_):
        return _integer(type_.bit_width)
    if types.is_floating(type_):
        return _float
    if types.is_decimal(type_):
        return _decimal(type_.precision, type_.scale)
    if types.is_binary(type_):
        return lambda value: base64.b64decode(_only(str, value), validate=True)
    if types.is_timestamp(type_):
        return _moment if type_.tz is not None else _local_moment
    if types.is_date(type_):
        return _day
    return _text


def _only(kind: type[Any], value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value


def _struct(fields: dict[str, Fit], fails: bool) -> Fit:
    def struct(value: Any) -> dict[str, Any]:
        given = _only(dict, value)
        fitting = {}
        for name, fit in fields.items():
            try:
                fitting[name] = fit(given.get(name))
            except (ValueError, OverflowError):
                if fails:
                    raise
                fitting[name] = None
        return fitting

    return struct


def _integer(bits: int) -> Fit:
    most = 2 ** (bits - 1)

    def integer(value: Any) -> int:
        if type(value) is not int or not -most <= value < most:
            raise ValueError(f"{value!r} is no whole number of {bits} bits")
        return value

    return integer


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise ValueError(f"{value!r} is no number")
    return value


def _float(value: Any) -> float:
    return float(value if value in _NOT_A_NUMBER else _number(value))


def _decimal(precision: int, scale: int) -> Fit:
    unit, limit = Decimal(1).scaleb(-scale), Decimal(10) ** (precision - scale)

    def decimal(value: Any) -> Decimal:
        number = value if isinstance(value, str) else _number(value)
        try:
            rounded = Decimal(number).quantize(unit, ROUND_HALF_UP, _DIGITS)
            is_small = abs(rounded) < limit
        except ArithmeticError:
            raise ValueError(f"{value!r} is no decimal number") from None
        if not is_small:
            raise ValueError(f"{value!r} has more than {precision} digits")
        return rounded

    return decimal


def _moment(value: Any) -> datetime:
    if type(value) is int:
        return _EPOCH + timedelta(seconds=value)
    moment = datetime.fromisoformat(_only(str, value))
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _day(value: Any) -> date:
    text = _only(str, value)
    return date.fromisoformat(text) if len(text) <= _DAY_CHARACTERS else datetime.fromisoformat(text).date()


def _local_moment(value: Any) -> datetime:
    moment = datetime.fromisoformat(_only(str, value))
    if moment.tzinfo is not None:
        raise ValueError(f"{value!r} has a time zone")
    return moment


def _text(value: Any) -> str:
    """Whatever is not text stays JSON."""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=float)
