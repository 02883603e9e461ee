"""Adapts plain values to a declared type as leniently as fastjson does, before they are converted to it.

A null field keeps its default. An enum is its name in any letter case, or its position; an unknown name is
null. Text is accepted for numbers, and numbers and booleans for text.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from enum import EnumMeta
from typing import Any

import msgspec
from msgspec import inspect

from pyromq.errors import RemoteProtocolError
from pyromq.protocol import fastjson_reader
from pyromq.protocol.fastjson_reader import ObjectKey
from pyromq.protocol.fastjson_references import path_of

Fit = Callable[[Any], Any]

_TRUTHS = {"true": True, "1": True, "y": True, "t": True, "false": False, "0": False, "n": False, "f": False}


def fitting(declared: inspect.Type) -> Fit:
    """A function that adapts a plain value so that `msgspec.convert` can turn it into `declared`."""
    match declared:
        case inspect.StructType():
            return _fit_struct(declared)
        case inspect.DictType(key_type=key_type, value_type=value_type):
            return _fit_dict(key_type, value_type)
        case inspect.CollectionType(item_type=item_type):
            return _fit_items(item_type)
        case inspect.UnionType():
            return _fit_union(declared)
        case inspect.EnumType(cls=enum):
            return _fit_enum(enum)
        case inspect.IntType():
            return _fit_int
        case inspect.FloatType():
            return _fit_float
        case inspect.BoolType():
            return _fit_bool
        case inspect.StrType():
            return _fit_str
        case inspect.BytesType():
            return _fit_bytes
        case _:
            return _fit_anything


def wire_aliases(declared: type) -> Mapping[str, str]:
    aliases: Mapping[str, str] = getattr(declared, "wire_aliases", {})
    return aliases


def _fit_struct(declared: inspect.StructType) -> Fit:
    fits = {field.encode_name: fitting(field.type) for field in declared.fields}
    optional = {field.encode_name for field in declared.fields if _takes_none(field.type)}
    aliases = wire_aliases(declared.cls)

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        fitted: dict[str, Any] = {}
        for key, member in value.items():
            name = key
            if key not in fits:
                name = aliases.get(key)
                if name is None or name in value:
                    continue
            content = fits[name](member)
            if content is not None or name in optional:
                fitted[name] = content
        return fitted

    return fit


def _fit_dict(key_type: inspect.Type, value_type: inspect.Type) -> Fit:
    fit_value = fitting(value_type)
    keeps_none = _takes_none(value_type)
    fit_key = _object_key(key_type) if isinstance(key_type, inspect.StructType) else _text_key

    def fit(value: Any) -> Any:
        if not isinstance(value, dict):
            return None if value == "" else value
        fitted = {}
        for key, member in value.items():
            content = fit_value(member)
            name = fit_key(key)
            if name is not None and (content is not None or keeps_none):
                fitted[name] = content
        return fitted

    return fit


def _text_key(key: str | ObjectKey) -> str:
    if isinstance(key, ObjectKey):
        raise RemoteProtocolError("an object is the key of a map that has none")
    return key


def _object_key(key_type: inspect.StructType) -> Callable[[str | ObjectKey], Any]:
    fit_members = fitting(key_type)
    decoder = msgspec.json.Decoder(key_type.cls, strict=False)

    def fit_key(key: str | ObjectKey) -> Any:
        members: Any
        if isinstance(key, ObjectKey):
            members = key.members
        else:
            # java: an object may also stand as text within a quoted key
            try:
                return decoder.decode(key)
            except msgspec.DecodeError:
                members = fastjson_reader.read(key.encode())
        if members is None or path_of(members) is not None:
            # java: a key that stood in full before looks like the other keys of its map
            return None
        return msgspec.convert(fit_members(members), key_type.cls, strict=False)

    return fit_key


def _fit_items(item_type: inspect.Type) -> Fit:
    fit_item = fitting(item_type)
    keeps_none = _takes_none(item_type)

    def fit(value: Any) -> Any:
        if not isinstance(value, list):
            return None if value == "" else value
        fitted = [fit_item(item) for item in value]
        return fitted if keeps_none else [item for item in fitted if item is not None]

    return fit


def _fit_union(declared: inspect.UnionType) -> Fit:
    choices = [choice for choice in declared.types if not isinstance(choice, inspect.NoneType)]
    return fitting(choices[0]) if len(choices) == 1 else _fit_anything


def _fit_enum(enum: EnumMeta) -> Fit:
    members: list[Any] = list(enum)
    by_name = {member.name.upper(): member.value for member in members}

    def fit(value: Any) -> Any:
        if isinstance(value, str):
            return by_name.get(value.upper())
        if isinstance(value, int) and 0 <= value < len(members):
            return members[value].value
        return value

    return fit


def _fit_int(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    if isinstance(value, str):
        # java: leading zeros and a plus are allowed
        text = value.strip()
        sign, digits = (text[0], text[1:]) if text[:1] in ("-", "+") else ("", text)
        if digits.isascii() and digits.isdigit() and len(digits) <= fastjson_reader.MAX_DIGITS:
            return int(sign + digits)
        return None if text in ("", "null") else value
    return value


def _fit_float(value: Any) -> Any:
    return None if value in ("", "null") else value


def _fit_bool(value: Any) -> Any:
    if isinstance(value, str):
        return None if value in ("", "null") else _TRUTHS.get(value.lower(), value)
    if isinstance(value, int):
        # java: any other number than 1 is false
        return value == 1
    return value


def _fit_str(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _fit_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.rstrip("=") + "=" * (-len(value.rstrip("=")) % 4)
    if isinstance(value, list) and all(isinstance(item, int) and -128 <= item <= 255 for item in value):
        return b64encode(bytes(item & 0xFF for item in value)).decode()
    return value


def _fit_anything(value: Any) -> Any:
    if isinstance(value, dict):
        return {_text_key(key): _fit_anything(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_fit_anything(item) for item in value]
    return value


def _takes_none(declared: inspect.Type) -> bool:
    if isinstance(declared, inspect.UnionType):
        return declared.includes_none
    return isinstance(declared, inspect.NoneType | inspect.AnyType)
