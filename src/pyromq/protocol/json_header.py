"""The JSON form of a header: one object, nulls left out, extension fields as strings.

Anything a peer may write is either read or is a `RemoteProtocolError`.
"""

import json
from typing import Any

import msgspec

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.body import Int32
from pyromq.protocol.codes import Language
from pyromq.protocol.frame import MAX_FIELDS, Frame, HeaderForm

_LANGUAGE_NAMES = {int(language): language.name for language in Language}
_LANGUAGE_CODES = {language.name: int(language) for language in Language}

_MAX_LENIENT_BYTES = 128 * 1024
"""A header that the C decoder cannot read takes fifty times as long."""


class _ReadHeader(msgspec.Struct, gc=False):
    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    version: Int32 = 0
    language: str | None = None
    remark: str | None = None
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)


class _WrittenHeader(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    # java: fastjson writes the keys in alphabetical order and leaves out nulls
    code: int
    ext: dict[str, str] | None = msgspec.field(name="extFields", default=None)
    flag: int
    language: str
    opaque: int
    remark: str | None = None
    form: str = msgspec.field(name="serializeTypeCurrentRPC")
    version: int


_decoder = msgspec.json.Decoder(_ReadHeader, strict=False)
_encode = msgspec.json.Encoder().encode


def decode_json_header(data: bytes | bytearray) -> Frame:
    try:
        header = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        header = _decode_leniently(data)
    if header.ext is not None and len(header.ext) > MAX_FIELDS:
        raise RemoteProtocolError(f"header with {len(header.ext)} fields; {MAX_FIELDS} are allowed")
    return Frame(
        header.code,
        header.opaque,
        header.flag,
        language_code(header.language),
        header.version,
        header.remark,
        header.ext or {},
        b"",
        HeaderForm.JSON,
    )


def language_code(name: str | None) -> int:
    return _LANGUAGE_CODES.get(name or "", Language.OTHER)


def _decode_leniently(data: bytes | bytearray) -> _ReadHeader:
    """The slow path for headers that strict JSON rejects but Java's peers accept: raw control characters
    inside strings, extension values that are numbers, null extension values."""
    if len(data) > _MAX_LENIENT_BYTES:
        raise RemoteProtocolError(f"odd JSON header of {len(data)} bytes; {_MAX_LENIENT_BYTES} are allowed")
    try:
        document = json.loads(data, strict=False)
        if not isinstance(document, dict):
            raise RemoteProtocolError("the header is not a JSON object")
        ext = document.get("extFields")
        if isinstance(ext, dict):
            document["extFields"] = {key: _as_text(value) for key, value in ext.items() if value is not None}
        header = msgspec.convert(document, _ReadHeader, strict=False)
        # json.loads accepts a lone surrogate, which could never be written again.
        for text in (header.remark, *(header.ext or {}), *(header.ext or {}).values()):
            if text is not None:
                text.encode()
    except (ValueError, RecursionError, msgspec.MsgspecError) as problem:
        raise RemoteProtocolError(f"unreadable JSON header: {problem}") from None
    return header


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    raise RemoteProtocolError("an extension field is neither text nor a number")


def encode_json_header(frame: Frame) -> bytes:
    try:
        return _encode(
            _WrittenHeader(
                code=frame.code,
                ext=frame.ext or None,
                flag=frame.flag,
                language=_LANGUAGE_NAMES.get(frame.language, "OTHER"),
                opaque=frame.opaque,
                remark=frame.remark,
                form="JSON",
                version=frame.version,
            )
        )
    except (UnicodeEncodeError, msgspec.MsgspecError, OverflowError) as problem:
        raise LocalProtocolError(f"header cannot be written as JSON: {problem}") from None
