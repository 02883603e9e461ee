"""One valid document whose fields all fit their types. Everything else is `Unfit`, and read by `exact.py`."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from pyromq.spark.from_json.scalars import MOST_DIGITS, Fit, Number, scalar_fit
from pyromq.spark.from_json.times import Zone
from pyromq.spark.from_json.unfit import Unfit


def plain_reader(type_: pa.StructType, zone: Zone) -> Callable[[str], Any]:
    decode = json.JSONDecoder(
        object_pairs_hook=_object, parse_int=_integer, parse_float=_number, parse_constant=Number
    ).raw_decode
    fit = _fit(type_, zone)

    def read(text: str) -> Any:
        try:
            # What follows the document does not matter.
            document, _ = decode(text.lstrip(" \t\r\n"))
        except (ValueError, RecursionError) as problem:
            raise Unfit(str(problem)) from None
        if document is None:
            raise Unfit("the document is not an object")
        return fit(document)

    return read


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Unfit("a name twice")
    return fields


def _integer(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise Unfit("a long number")
    return int(text)


def _number(text: str) -> Number:
    if len(text) > MOST_DIGITS:
        raise Unfit("a long number")
    return Number(text)


def _fit(type_: pa.DataType, zone: Zone) -> Fit:
    types = pa.types
    if types.is_struct(type_):
        fields = [(field.name, _fit(field.type, zone)) for field in type_]
        return _given(dict, lambda value: {name: fit(value.get(name)) for name, fit in fields})
    if types.is_list(type_):
        item = _fit(type_.value_type, zone)
        return _given(list, lambda value: [item(each) for each in value])
    if types.is_map(type_):
        content, name_fit = _fit(type_.item_type, zone), scalar_fit(pa.string(), zone)
        return _given(dict, lambda value: [(name_fit(name), content(each)) for name, each in value.items()])
    fit = scalar_fit(type_, zone)
    is_text = types.is_string(type_)

    def scalar(value: Any) -> Any:
        if value is None:
            return None
        if not is_text and isinstance(value, dict | list):
            raise Unfit("several values in place of one")
        return fit(value)

    return scalar


def _given(kind: type, fit: Fit) -> Fit:
    def given(value: Any) -> Any:
        if value is None:
            return None
        if type(value) is not kind:
            raise Unfit(f"not {kind.__name__}")
        return fit(value)

    return given
