"""The binary form of a header, which RocketMQ calls ROCKETMQ.

    code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4 | remark
    | extension length 4 | ( key length 2 | key | value length 4 | value )*

An empty text and an absent one are the same thing in this form.
"""

from collections.abc import Mapping
from struct import Struct

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.frame import MAX_FIELDS, RESPONSE_FLAG, Frame, HeaderForm

_FIXED = Struct(">hBhiii")
_INT = Struct(">i")
_KEY_LENGTH = Struct(">h")

_MAX_KEY_BYTES = 0x7FFF
_MIN_FIELD_BYTES = _KEY_LENGTH.size + _INT.size

# java: request codes are cut to 16 bits here, so that the codes of pops and of lite topics arrive as other
# numbers, which Apache's servers do not know. No other request has these numbers, so we restore the codes.
_WIDE_CODES = (*range(200050, 200057), *range(200070, 200080), 200151)
_CUT_CODES = {code & 0xFFFF: code for code in _WIDE_CODES}


def decode_binary_header(data: bytes | bytearray | memoryview) -> Frame:
    try:
        code, language, version, opaque, flag, remark_length = _FIXED.unpack_from(data)
        position = _FIXED.size
        end = position + remark_length
        if remark_length < 0 or end + 4 > len(data):
            raise RemoteProtocolError(f"remark of {remark_length} bytes in a header of {len(data)}")
        remark = str(data[position:end], "utf-8") if remark_length else None
        (ext_length,) = _INT.unpack_from(data, end)
        position = end + 4
        if ext_length < 0 or position + ext_length > len(data):
            raise RemoteProtocolError(f"extension block of {ext_length} bytes in a header of {len(data)}")
        ext = _decode_ext(data, position, position + ext_length) if ext_length else {}
    except RemoteProtocolError:
        raise
    except (
        Exception
    ) as problem:  # struct.error and UnicodeDecodeError: the header ends too soon or is not text
        raise RemoteProtocolError(f"unreadable binary header: {problem}") from None
    if not flag & RESPONSE_FLAG:
        code = _CUT_CODES.get(code, code)
    return Frame(code, opaque, flag, language, version, remark, ext, b"", HeaderForm.BINARY)


def _decode_ext(data: bytes | bytearray | memoryview, position: int, end: int) -> dict[str, str]:
    ext: dict[str, str] = {}
    if end - position > _MIN_FIELD_BYTES * MAX_FIELDS:
        _check_count(data, position, end)
    while position < end:
        (key_length,) = _KEY_LENGTH.unpack_from(data, position)
        value_at = position + 2 + key_length
        if key_length < 0 or value_at + 4 > end:
            raise RemoteProtocolError(f"extension key of {key_length} bytes runs over its block")
        (value_length,) = _INT.unpack_from(data, value_at)
        next_at = value_at + 4 + value_length
        if value_length < 0 or next_at > end:
            raise RemoteProtocolError(f"extension value of {value_length} bytes runs over its block")
        if key_length and value_length:
            ext[str(data[position + 2 : value_at], "utf-8")] = str(data[value_at + 4 : next_at], "utf-8")
        position = next_at
    return ext


def _check_count(data: bytes | bytearray | memoryview, position: int, end: int) -> None:
    """Check the number of fields; called for long blocks only, because a short one cannot have too many."""
    for _ in range(MAX_FIELDS):
        if position >= end:
            return
        (key_length,) = _KEY_LENGTH.unpack_from(data, position)
        (value_length,) = _INT.unpack_from(data, position + 2 + max(key_length, 0))
        position += _MIN_FIELD_BYTES + max(key_length, 0) + max(value_length, 0)
    if position < end:
        raise RemoteProtocolError(f"header with more than {MAX_FIELDS} fields")


def encode_binary_header(frame: Frame) -> bytes:
    try:
        remark = (frame.remark or "").encode()
        block = encode_ext(frame.ext)
        code = frame.code & 0xFFFF
        fixed = _FIXED.pack(
            code - 0x10000 if code & 0x8000 else code,
            frame.language,
            frame.version,
            frame.opaque,
            frame.flag,
            len(remark),
        )
    except LocalProtocolError:
        raise
    except Exception as problem:  # struct.error and UnicodeEncodeError
        raise LocalProtocolError(f"header cannot be written in binary: {problem}") from None
    return b"".join((fixed, remark, _INT.pack(len(block)), block))


def encode_ext(ext: Mapping[str, str]) -> bytes:
    """The extension fields without the total length."""
    entries: list[bytes] = []
    for key, value in ext.items():
        key_bytes = key.encode()
        value_bytes = value.encode()
        if len(key_bytes) > _MAX_KEY_BYTES:
            raise LocalProtocolError(f"extension key of {len(key_bytes)} bytes is too long")
        entries += (_KEY_LENGTH.pack(len(key_bytes)), key_bytes, _INT.pack(len(value_bytes)), value_bytes)
    return b"".join(entries)
