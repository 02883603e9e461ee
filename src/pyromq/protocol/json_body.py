"""The JSON of bodies. Java's deviations from standard JSON are handled here and in the `fastjson_` files.

Standard JSON of the declared type takes one call into C; only deviations take time in Python.
"""

from collections.abc import Hashable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar, cast

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


class DecodeBudget(NamedTuple):
    """How much may be decoded at once, while other requests wait.

    Standard JSON of the declared type takes a tenth of a microsecond per value. Odd keys, references and
    undeclared types take ten times as long, and the parser in Python takes a microsecond per byte.
    """

    size_bytes: int
    values: int
    odd_size_bytes: int
    odd_values: int
    parsed_bytes: int

    def check(self, data: bytes) -> None:
        if len(data) > self.size_bytes:
            raise RemoteProtocolError(f"JSON of {len(data)} bytes; {self.size_bytes} are allowed")
        self._check_values(data, self.values, "JSON")

    def check_odd(self, data: bytes) -> None:
        if len(data) > self.odd_size_bytes:
            raise RemoteProtocolError(f"odd JSON of {len(data)} bytes; {self.odd_size_bytes} are allowed")
        self._check_values(data, self.odd_values, "odd JSON")

    def _check_values(self, data: bytes, limit: int, what: str) -> None:
        if len(data) <= limit:
            return
        values = 0
        for start in range(0, len(data), _COUNTED_BYTES):
            end = start + _COUNTED_BYTES
            values += sum(data.count(mark, start, end) for mark in (b",", b"{", b"["))
            if values > limit:
                raise RemoteProtocolError(f"{what} with more than {limit} values: {limit} are allowed")


_ANY = 2**62
_COUNTED_BYTES = 256 * 1024
OWN: Final = DecodeBudget(_ANY, _ANY, _ANY, _ANY, parsed_bytes=fastjson_reader.MAX_ODD_BYTES)
"""For our own files, and for answers to our requests."""

REQUEST: Final = DecodeBudget(
    size_bytes=8 * 1024 * 1024,
    values=200_000,
    odd_size_bytes=256 * 1024,
    odd_values=20_000,
    parsed_bytes=32 * 1024,
)
"""For requests, which anyone may send and which delay others while they are decoded: about 20 ms."""


def encode(value: Any) -> bytes:
    """The bytes that Java writes for the same object, in fastjson's dialect."""
    return _write(value, strict=False)


def encode_in_pieces(value: msgspec.Struct, entries_per_piece: int = 50) -> Iterator[bytes]:
    """The same bytes as `encode`, bit by bit: long maps and lists take time; others may work meanwhile."""
    opened = b"{"
    for name, key in _keys(type(value)):
        member = getattr(value, name)
        if member is None:
            continue
        yield opened + key + b":"
        opened = b","
        if isinstance(member, dict) and len(member) > entries_per_piece:
            separator = b"{"
            entries = iter(member.items())
            while piece := dict(islice(entries, entries_per_piece)):
                yield separator + encode(piece)[1:-1]
                separator = b","
            yield b"}"
        elif isinstance(member, list) and len(member) > entries_per_piece:
            for start in range(0, len(member), entries_per_piece):
                yield (b"," if start else b"[") + encode(member[start : start + entries_per_piece])[1:-1]
            yield b"]"
        else:
            yield encode(member)
    yield b"{}" if opened == b"{" else b"}"


@cache
def _keys(body_type: type[msgspec.Struct]) -> list[tuple[str, bytes]]:
    """The fields in the order of their keys, each with its key as it is written."""
    fields = sorted(msgspec.structs.fields(body_type), key=lambda field: field.encode_name)
    return [(field.name, encode(field.encode_name)) for field in fields]


def encode_strict(value: Any) -> bytes:
    """Standard JSON in ASCII, which clients request by a field or by a version from 4.9.4 on."""
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
        raise LocalProtocolError(
            f"{type(value).__name__} cannot be encoded as a body: {problem}"
        ) from problem


def decode(data: bytes, type_: type[T], budget: DecodeBudget = OWN) -> T:
    """Decode either form; raises RemoteProtocolError and nothing else."""
    plan = _plan(cast(Hashable, type_))
    try:
        return cast(T, plan.decode(data, budget))
    except (msgspec.MsgspecError, ValueError, RecursionError, RemoteProtocolError) as problem:
        raise RemoteProtocolError(f"{plan.name}: {problem}") from None


class _Plan:
    """How to decode one type, computed once."""

    def __init__(self, type_: Any) -> None:
        self.name = getattr(type_, "__name__", str(type_))
        self._type = type_
        declared = inspect.type_info(type_)
        self._fit = fastjson_fitting.fitting(declared)
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(type_, strict=False)
        # The C decoder would silently ignore these.
        self._needs_python = [fastjson_references.MARK, *sorted(_alias_marks(declared))]

    def decode(self, data: bytes, budget: DecodeBudget) -> Any:
        budget.check(data)
        standard = None
        for mark in self._needs_python:
            if mark in data:
                break
        else:
            try:
                return self._decoder.decode(data)
            except msgspec.ValidationError:
                pass
            except msgspec.DecodeError:
                budget.check_odd(data)
                standard = fastjson_keys.as_standard_json(data)
                if standard is not None:
                    try:
                        return self._decoder.decode(standard)
                    except msgspec.DecodeError:
                        pass
        budget.check_odd(data)
        plain = fastjson_reader.read(data, standard, budget.parsed_bytes)
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
