"""The JSON of bodies. Everything odd about Java's JSON lives here and in the `fastjson_` files.

What is standard JSON of the declared type costs one call into C; only oddities cost time in Python.
"""

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol import (
    fastjson_fitting,
    fastjson_keys,
    fastjson_reader,
    fastjson_references,
    fastjson_writer,
)

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """What Java writes for the same object, in fastjson's dialect."""
    return _write(value, strict=False)


def encode_strict(value: Any) -> bytes:
    """Standard JSON in ASCII, which clients ask for by name or by a version from 4.9.4 on."""
    return fastjson_writer.escape_to_ascii(_write(value, strict=True))


def _write(value: Any, *, strict: bool) -> bytes:
    try:
        return fastjson_writer.write(value, strict=strict)
    except (
        msgspec.MsgspecError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as problem:
        raise LocalProtocolError(f"{type(value).__name__} is no body: {problem}") from problem


def decode(data: bytes, type_: type[T]) -> T:
    """Read either form; `RemoteProtocolError`, and nothing else, if that cannot be done."""
    plan = _plan(cast(Hashable, type_))
    try:
        return cast(T, plan.decode(data))
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise RemoteProtocolError(f"{plan.name}: {problem}") from None
    except RemoteProtocolError as problem:
        raise RemoteProtocolError(f"{plan.name}: {problem}") from None


class _Plan:
    """How to read one type, worked out once."""

    def __init__(self, type_: Any) -> None:
        self.name = getattr(type_, "__name__", str(type_))
        self._type = type_
        declared = inspect.type_info(type_)
        self._fit = fastjson_fitting.fitting(declared)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(type_, strict=False)
        # The decoder in C would pass over these without a word.
        self._needs_python = [fastjson_references.MARK, *sorted(_alias_marks(declared))]

    def decode(self, data: bytes) -> Any:
        standard = None
        if not any(mark in data for mark in self._needs_python):
            try:
                return self._decoder.decode(data)
            except msgspec.ValidationError:
                pass
            except msgspec.DecodeError:
                standard = fastjson_keys.as_standard_json(data)
                if standard is not None:
                    try:
                        return self._decoder.decode(standard)
                    except msgspec.DecodeError:
                        pass
        plain = fastjson_reader.read(data, standard)
        return msgspec.convert(self._fit(plain), self._type, strict=False)


@cache
def _plan(type_: Any) -> _Plan:
    return _Plan(type_)


def _alias_marks(declared: inspect.Type) -> set[bytes]:
    """The quoted aliases of every struct within a type."""
    marks: set[bytes] = set()
    match declared:
        case inspect.StructType(cls=cls, fields=fields):
            marks.update(b'"' + alias.encode() + b'"' for alias in fastjson_fitting.wire_aliases(cls))
            for field in fields:
                marks |= _alias_marks(field.type)
        case inspect.DictType(value_type=value_type):
            marks |= _alias_marks(value_type)
        case inspect.CollectionType(item_type=item_type):
            marks |= _alias_marks(item_type)
        case inspect.UnionType(types=types):
            for choice in types:
                marks |= _alias_marks(choice)
        case _:
            pass
    return marks
