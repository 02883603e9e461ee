"""Values written as Java's fastjson writes them, without spaces, or as standard JSON in ASCII.

A writer is compiled once per type. Whatever standard JSON can say is left to the encoder in C; only numeric
keys, objects as keys and fractions go through Python.

java: members in the order of their names; null members left out, empty collections not; numeric keys without
quotes; objects as keys; fractions as `Double.toString` has them, NaN as null; never a reference.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from enum import Flag, auto
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

Write = Callable[[Any], bytes]

_NULL = b'":null'

_encode: Write = msgspec.json.Encoder().encode
_encode_sorted: Write = msgspec.json.Encoder(order="sorted").encode


def write(value: Any, *, strict: bool) -> bytes:
    if isinstance(value, msgspec.Struct):
        return _struct_writer(type(value), strict)(value)
    if isinstance(value, dict):
        return _write_members(value, strict)
    if isinstance(value, list | tuple | set | frozenset):
        if all(type(item) is str for item in value):
            return _encode(value)
        return b"[" + b",".join([write(item, strict=strict) for item in value]) + b"]"
    if isinstance(value, float) and not strict:
        return write_double(value)
    return _encode(value)


def _write_members(members: dict[Any, Any], strict: bool) -> bytes:
    written = []
    for key, value in members.items():
        if value is not None:
            name = _write_key(key, strict) if isinstance(key, int | msgspec.Struct) else _encode(key)
            written.append(name + b":" + write(value, strict=strict))
    return b"{" + b",".join(written) + b"}"


def _write_key(key: int | msgspec.Struct, strict: bool) -> bytes:
    text = write(key, strict=strict)
    return _encode(text.decode()) if strict else text


@cache
def _struct_writer(type_: type[msgspec.Struct], strict: bool) -> Write:
    plan = _Plan(strict)
    write_all = plan.writer(inspect.type_info(type_))
    if not plan.nullable:
        return write_all
    # A quote within a string is escaped: one that follows `,` or `{` and precedes a letter opens a name.
    nullable = frozenset(plan.nullable)

    def write_without_nulls(value: Any) -> bytes:
        written = write_all(value)
        at = written.find(_NULL)
        while at >= 0:
            opens = written.rfind(b'"', 0, at)
            before, member = written[opens - 1 : opens], written[opens : at + len(_NULL)]
            if before not in (b",", b"{") or written[opens + 1 : at] not in nullable:
                at = written.find(_NULL, at + 1)
                continue
            # Where one is, there are more: plain replacements take a tenth of the time of a pattern.
            if before == b",":
                written = written.replace(b"," + member, b"")
            else:
                written = written.replace(b"{" + member + b",", b"{").replace(b"{" + member + b"}", b"{}")
            at = written.find(_NULL, opens - 1)
        return written

    return write_without_nulls


class _Trait(Flag):
    """Facts about a type that the encoder in C needs, or its limits."""

    NONE = 0
    UNORDERED = auto()
    """It has a struct whose fields are not declared in the order of their names."""
    NUMERIC_KEYS = auto()
    """It has maps whose keys are numbers in quotes, which cannot be sorted in C."""
    ODD = auto()
    """It is not standard JSON."""


class _Plan:
    def __init__(self, strict: bool) -> None:
        self._strict = strict
        self.nullable: set[bytes] = set()

    def writer(self, declared: inspect.Type) -> Write:
        traits = self._traits(declared)
        if _Trait.ODD not in traits:
            if _Trait.UNORDERED not in traits:
                return _encode
            if _Trait.NUMERIC_KEYS not in traits:
                return _encode_sorted
        match declared:
            case inspect.StructType():
                return self._struct(declared)
            case inspect.DictType(key_type=key_type, value_type=value_type):
                return self._dict(key_type, value_type)
            case inspect.CollectionType(item_type=item_type):
                return _array(self.writer(item_type))
            case inspect.UnionType(types=types):
                choices = [choice for choice in types if not isinstance(choice, inspect.NoneType)]
                if len(choices) == 1:
                    return _unless_null(self.writer(choices[0]))
            case inspect.FloatType():
                return write_double
            case _:
                pass
        return lambda value: write(value, strict=self._strict)

    def _traits(self, declared: inspect.Type) -> _Trait:
        match declared:
            case inspect.StructType(fields=fields):
                names = [field.encode_name for field in fields]
                traits = _Trait.NONE if names == sorted(names) else _Trait.UNORDERED
                for field in fields:
                    traits |= self._traits(field.type)
                    if isinstance(field.type, inspect.UnionType) and field.type.includes_none:
                        self.nullable.add(field.encode_name.encode())
                return traits
            case inspect.DictType(key_type=key_type, value_type=value_type):
                traits = self._traits(value_type)
                if isinstance(key_type, inspect.IntType):
                    traits |= _Trait.NUMERIC_KEYS if self._strict else _Trait.ODD
                elif not isinstance(key_type, inspect.StrType | inspect.EnumType):
                    traits |= _Trait.ODD
                return traits
            case inspect.CollectionType(item_type=item_type):
                return self._traits(item_type)
            case inspect.UnionType(types=types):
                traits = _Trait.NONE
                for choice in types:
                    traits |= self._traits(choice)
                return traits
            case inspect.FloatType():
                return _Trait.NONE if self._strict else _Trait.ODD
            case (
                inspect.StrType()
                | inspect.IntType()
                | inspect.BoolType()
                | inspect.BytesType()
                | inspect.EnumType()
                | inspect.NoneType()
            ):
                return _Trait.NONE
            case _:
                return _Trait.ODD

    def _struct(self, declared: inspect.StructType) -> Write:
        in_order = sorted(declared.fields, key=lambda field: field.encode_name)
        members = [
            (field.name, b'"' + field.encode_name.encode() + b'":', self.writer(field.type))
            for field in in_order
        ]

        def write_struct(value: Any) -> bytes:
            written = []
            for name, prefix, write_content in members:
                content = getattr(value, name)
                if content is not None:
                    written.append(prefix + write_content(content))
            return b"{" + b",".join(written) + b"}"

        return write_struct

    def _dict(self, key_type: inspect.Type, value_type: inspect.Type) -> Write:
        write_value = self.writer(value_type)
        strict = self._strict
        write_key: Write
        if isinstance(key_type, inspect.IntType) and not strict:
            if isinstance(value_type, inspect.IntType):
                return _without_quotes
            write_key = _encode
        elif isinstance(key_type, inspect.StructType):
            write_object = self.writer(key_type)
            write_key = (lambda key: _encode(write_object(key).decode())) if strict else write_object
        elif isinstance(key_type, inspect.IntType):
            write_key = _quoted
        else:
            write_key = _encode

        def write_dict(value: Any) -> bytes:
            written = [
                write_key(key) + b":" + write_value(member)
                for key, member in value.items()
                if member is not None
            ]
            return b"{" + b",".join(written) + b"}"

        return write_dict


def _without_quotes(value: Any) -> bytes:
    """Numbers by numbers: nothing but the keys is in quotes."""
    return _encode(value).replace(b'"', b"")


def _quoted(key: int) -> bytes:
    return b'"%d"' % key


def _array(write_item: Write) -> Write:
    def write_array(value: Any) -> bytes:
        return b"[" + b",".join([write_item(item) for item in value]) + b"]"

    return write_array


def _unless_null(write_content: Write) -> Write:
    def write_or_null(value: Any) -> bytes:
        return b"null" if value is None else write_content(value)

    return write_or_null


def write_double(value: float) -> bytes:
    if not math.isfinite(value):
        return b"null"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value)).encode()
    sign, digits, exponent = Decimal(repr(float(value))).normalize().as_tuple()
    first, *others = map(str, digits)
    power = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{first}.{''.join(others) or '0'}E{power}".encode()


_NOT_PRINTABLE_ASCII = re.compile("[^\0-\x7e]")


def escape_to_ascii(written: bytes) -> bytes:
    """Non-ASCII characters stand only within strings, where an escape may stand for them."""
    if written.isascii() and b"\x7f" not in written:
        return written
    return _NOT_PRINTABLE_ASCII.sub(_escape, written.decode()).encode()


def _escape(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04X}" for at in range(0, len(units), 2))
