"""Bodies as JSON: a value becomes bytes, bytes become a value of a type; msgspec does both.

Types are whatever msgspec knows (Struct, dataclass, attrs, TypedDict, dict, list, datetime, …) and pydantic's
models. Nothing in a message says that its body is JSON: readers choose.
"""

from collections.abc import Hashable
from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from pyromq.errors import BadBody, BadMessage

T = TypeVar("T")

_SHOWN_BYTES = 64


def encode_json(value: object) -> bytes:
    """Raises BadMessage for a value that is no JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise BadMessage("the value is bytes already: send Message(topic, body)")
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadMessage(f"a {type(value).__name__} cannot be encoded as JSON: {problem}") from None


def decode_json(body: bytes, type_: type[T], what: str) -> T:
    """Raises BadBody with `what`, the reason, and the beginning of the body."""
    try:
        return cast(T, _decoder(cast(Hashable, type_)).decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        shown = f"{body[:_SHOWN_BYTES]!r}{'…' if len(body) > _SHOWN_BYTES else ''}"
        raise BadBody(f"the body of {what} does not fit {_name(type_)}: {problem}; it is {shown}") from None


def _to_builtins(value: Any) -> Any:
    """For pydantic, which msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError("use a msgspec.Struct, a dataclass, or dicts and lists")


def _from_builtins(type_: Any, value: Any) -> Any:
    if hasattr(type_, "model_validate"):
        return type_.model_validate(value)
    raise TypeError(f"{_name(type_)} cannot be decoded from JSON")


_encoder = msgspec.json.Encoder(enc_hook=_to_builtins)


@lru_cache(maxsize=512)
def _decoder(type_: Hashable) -> msgspec.json.Decoder[Any]:
    try:
        return msgspec.json.Decoder(type_, dec_hook=_from_builtins)
    except TypeError as problem:
        raise TypeError(f"{_name(type_)} cannot be decoded from JSON: {problem}") from None


def check_type(type_: object) -> None:
    """Raises TypeError for a type that cannot be decoded, before the first message comes."""
    _decoder(type_)


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)
