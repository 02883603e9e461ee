"""Codecs: a value becomes the bytes of a body, and bytes become a value of a type.

`JSON`, the default, and `MSGPACK` take whatever msgspec knows (Struct, dataclass, attrs, TypedDict, dict,
list, datetime, …) and pydantic's models; Protobuf messages have their own form in both. Nothing in a message
says how its body was encoded: readers choose.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Protocol, TypeVar, cast

import msgspec

from pyromq.config.kinds import Check
from pyromq.errors import BadBody, BadMessage

T = TypeVar("T")

_SHOWN_BYTES = 64


class Codec(Protocol):
    """How bodies are written and read: `JSON`, `MSGPACK`, or your own, as for a schema registry."""

    def encode(self, value: object) -> bytes:
        """Raises TypeError or ValueError for a value that it cannot write."""
        ...

    def decode(self, body: bytes, type_: type[T]) -> T:
        """Raises ValueError for a body that does not fit, which no retry would change; after any other error
        the message is tried again."""
        ...


class _MsgspecCodec:
    """A codec for what msgspec knows, for pydantic's models and for Protobuf messages."""

    def __init__(self, name: str, encode: Callable[[object], bytes], decoder: Callable[..., Any]) -> None:
        self._name = name
        self._encode = encode
        self.decoder = decoder

    def __repr__(self) -> str:
        return self._name

    def encode(self, value: object) -> bytes:
        if hasattr(value, "SerializeToString"):
            return cast(bytes, value.SerializeToString())
        return self._encode(value)

    def decode(self, body: bytes, type_: type[T]) -> T:
        try:
            return cast(T, _reader(self, cast(Hashable, type_))(body))
        except msgspec.DecodeError as problem:
            raise ValueError(str(problem)) from None


@lru_cache(maxsize=512)
def _reader(codec: _MsgspecCodec, type_: Any) -> Callable[[bytes], Any]:
    if hasattr(type_, "FromString"):
        return _protobuf_reader(type_)
    try:
        return cast(Callable[[bytes], Any], codec.decoder(type_, dec_hook=_from_builtins).decode)
    except TypeError as problem:
        raise TypeError(f"{_name(type_)} cannot be decoded from {codec}: {problem}") from None


def _protobuf_reader(type_: Any) -> Callable[[bytes], Any]:
    def read(body: bytes) -> Any:
        try:
            return type_.FromString(body)
        except Exception as problem:  # its own error, which only protobuf itself could name
            raise ValueError(str(problem)) from None

    return read


def _to_builtins(value: Any) -> Any:
    """For pydantic, which msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError("use a msgspec.Struct, a dataclass, or dicts and lists")


def _from_builtins(type_: Any, value: Any) -> Any:
    if hasattr(type_, "model_validate"):
        return type_.model_validate(value)
    raise TypeError(f"{_name(type_)} cannot be decoded")


JSON: Codec = _MsgspecCodec("JSON", msgspec.json.Encoder(enc_hook=_to_builtins).encode, msgspec.json.Decoder)
MSGPACK: Codec = _MsgspecCodec(
    "MessagePack", msgspec.msgpack.Encoder(enc_hook=_to_builtins).encode, msgspec.msgpack.Decoder
)

IS_CODEC: Check[object] = Check(
    "JSON, MSGPACK, or an object with `encode` and `decode`",
    lambda value: callable(getattr(value, "encode", None)) and callable(getattr(value, "decode", None)),
)


def encode_body(codec: Codec, value: object) -> bytes:
    """Raises BadMessage for a value that the codec cannot write."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise BadMessage("the value is bytes already: send Message(topic, body)")
    try:
        return codec.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise BadMessage(f"a {type(value).__name__} cannot be encoded as {codec!r}: {problem}") from None


def decode_body(codec: Codec, body: bytes, type_: type[T], what: str) -> T:
    """Raises BadBody with `what`, the reason, and the beginning of the body."""
    try:
        return codec.decode(body, type_)
    except (ValueError, RecursionError) as problem:
        shown = f"{body[:_SHOWN_BYTES]!r}{'…' if len(body) > _SHOWN_BYTES else ''}"
        raise BadBody(f"the body of {what} does not fit {_name(type_)}: {problem}; it is {shown}") from None


def check_type(codec: Codec, type_: object) -> None:
    """Raises TypeError for a type that cannot be decoded, before the first message comes."""
    if isinstance(codec, _MsgspecCodec):
        _reader(codec, type_)


def _name(type_: Any) -> str:
    return getattr(type_, "__name__", None) or str(type_)
