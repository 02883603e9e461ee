"""The frames of HTTP/2 (RFC 9113, section 6): their header, their types, their flags and the error codes."""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
MAX_WINDOW: Final = 2**31 - 1
MIN_FRAME_BYTES: Final = 16_384
MAX_FRAME_BYTES: Final = 2**24 - 1

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    range(10)
)

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6
ENABLE_CONNECT_PROTOCOL: Final = 8

_HEADER = struct.Struct(">HBBBI")
SETTING: Final = struct.Struct(">HI")
NUMBER: Final = struct.Struct(">I")
LAST_STREAM_AND_CODE: Final = struct.Struct(">II")


class ErrorCode(IntEnum):
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11
    INADEQUATE_SECURITY = 12
    HTTP_1_1_REQUIRED = 13


def frame(kind: int, flags: int, stream_id: int, payload: bytes = b"") -> bytes:
    return head(len(payload), kind, flags, stream_id) + payload


def head(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    """A frame without its payload."""
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream_id)


def answer(stream_id: int, headers: bytes, data: bytes, trailers: bytes) -> bytes:
    """The frames of a whole answer."""
    return b"".join(
        (
            head(len(headers), HEADERS, END_HEADERS, stream_id),
            headers,
            head(len(data), DATA, 0, stream_id),
            data,
            head(len(trailers), HEADERS, END_HEADERS | END_STREAM, stream_id),
            trailers,
        )
    )


def read_header(data: bytes | bytearray, position: int) -> tuple[int, int, int, int]:
    """Length, type, flags and stream."""
    high, low, kind, flags, stream_id = _HEADER.unpack_from(data, position)
    return high << 8 | low, kind, flags, stream_id & 0x7FFFFFFF


def settings(values: dict[int, int]) -> bytes:
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(*each) for each in values.items()))


def window_update(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, NUMBER.pack(increment))


def rst_stream(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, NUMBER.pack(code))


def goaway(last_stream_id: int, code: int, text: str = "") -> bytes:
    return frame(GOAWAY, 0, 0, LAST_STREAM_AND_CODE.pack(last_stream_id, code) + text.encode())
