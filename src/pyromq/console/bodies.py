"""Bodies for people: as JSON, text, MessagePack or hexadecimal, cut where they are long, never as anything
but text.
"""

import json
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import msgspec

from pyromq.console.packed import as_json, packed_map, unique_pairs
from pyromq.protocol.message import shown_message_id
from pyromq.protocol.message_id import encode_offset_message_id
from pyromq.protocol.properties import KEYS, TAGS
from pyromq.protocol.record import StoredMessage

_HEX_COLUMNS = 16
_MAX_HEX_BYTES = 16 * 1024
_LINE = 160


class ShownBody(msgspec.Struct, frozen=True):
    """`form` is json, xml, text, msgpack or hex, or the kind of a schema; `is_cut` says that the body has
    more than is shown."""

    form: str
    text: str
    size: int
    is_cut: bool


class DecodedBody(Protocol):
    """A body by its schema: the value as JSON."""

    @property
    def schema_id(self) -> int: ...

    @property
    def kind(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def text(self) -> str: ...


Decode: TypeAlias = Callable[[bytes], DecodedBody | None]
"""None for a body that names no schema; raises PyroError if it cannot be decoded. It blocks."""


def decoded_body(found: DecodedBody, masked: bytes, size: int, max_bytes: int) -> ShownBody:
    """A body that was decoded; `masked` is what may be seen of its JSON."""
    shown = shown_body(masked, max_bytes, "json")
    return ShownBody(found.kind.lower(), shown.text, size, shown.is_cut)


def shown_body(body: bytes, max_bytes: int, form: str = "") -> ShownBody:
    """A body in the form asked for, or in the one that fits."""
    if not form:
        form = fitting_form(body)
    if form == "hex":
        limit = min(max_bytes, _MAX_HEX_BYTES)
        return ShownBody("hex", _hex(body[:limit]), len(body), len(body) > limit)
    packed = packed_map(body) if form == "msgpack" else None
    if packed is not None:
        whole = as_json(packed, indent=2)
        return ShownBody("msgpack", whole[:max_bytes], len(body), len(whole) > max_bytes)
    form = "text" if form == "msgpack" else form
    text = body[:max_bytes].decode("utf-8", "replace")
    is_cut = len(body) > max_bytes
    if form == "json" and not is_cut:
        try:
            text = _indented(body)
        except (ValueError, RecursionError):
            form = "text"
    return ShownBody(form, text, len(body), is_cut)


def _indented(body: bytes) -> str:
    """The same JSON on its own lines: numbers as they are written; ValueError if it would not be the
    same."""
    numbers: dict[str, Any] = dict.fromkeys(("parse_int", "parse_float", "parse_constant"), _as_written)
    value = json.loads(body, object_pairs_hook=unique_pairs, **numbers)
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _as_written(number: str) -> msgspec.Raw:
    return msgspec.Raw(number.encode())


def fitting_form(body: bytes) -> str:
    start = body[:64].lstrip()
    if start[:1] in (b"{", b"["):
        return "json"
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return "hex" if packed_map(body) is None else "msgpack"
    if any(ord(each) < 32 and each not in "\t\n\r" for each in text[:4096]):
        return "hex" if packed_map(body) is None else "msgpack"
    return "xml" if start.startswith(b"<") else "text"


def _hex(body: bytes) -> str:
    lines = []
    for start in range(0, len(body), _HEX_COLUMNS):
        row = body[start : start + _HEX_COLUMNS]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  |{text}|")
    return "\n".join(lines)


def row_of(broker_name: str, message: StoredMessage, body: bytes | None) -> dict[str, Any]:
    """One line of a list of messages; `body` is what may be seen of it."""
    text = None if body is None else body[: _LINE * 4].decode("utf-8", "replace")
    return {
        "topic": message.topic,
        "id": shown_message_id(message),
        "offset_id": encode_offset_message_id(message.store_host, message.log_offset),
        "broker": broker_name,
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "stored_ms": message.store_timestamp,
        "tags": message.get(TAGS),
        "keys": message.get(KEYS),
        "size": len(message.body),
        "body": None if text is None else text[:_LINE],
        "is_cut": text is not None and body is not None and (len(text) > _LINE or len(body) > _LINE * 4),
    }
