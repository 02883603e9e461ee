"""Inputs and frames: any input is a stream of frames whose lengths are right, so that few inputs are wasted.

( form 1 | header length 2 | body length 2 | header | body )*    or, after 0xFF, the stream as it is
"""

import struct
from collections.abc import Iterator
from typing import Final

from tests.support.golden_frames import golden_frames

_PIECE: Final = struct.Struct(">BHH")
_PREFIX: Final = struct.Struct(">II")
_AS_IT_IS: Final = 0xFF
MAX_INPUT_BYTES: Final = 4096


def stream_of(data: bytes) -> bytes:
    frames = []
    position = 0
    while position < len(data):
        if data[position] == _AS_IT_IS:
            frames.append(data[position + 1 :])
            break
        if len(data) - position < _PIECE.size:
            break
        form, header_bytes, body_bytes = _PIECE.unpack_from(data, position)
        position += _PIECE.size
        header = data[position : position + header_bytes]
        position += len(header)
        body = data[position : position + body_bytes]
        position += len(body)
        head = _PREFIX.pack(4 + len(header) + len(body), (form & 1) << 24 | len(header))
        frames.append(head + header + body)
    return b"".join(frames)


def input_of(stream: bytes) -> bytes:
    """The input that gives this stream."""
    pieces = []
    position = 0
    while position < len(stream):
        length, form_and_header = _PREFIX.unpack_from(stream, position)
        header_bytes = form_and_header & 0xFFFFFF
        pieces.append(_PIECE.pack(form_and_header >> 24, header_bytes, length - 4 - header_bytes))
        pieces.append(stream[position + _PREFIX.size : position + 4 + length])
        position += 4 + length
    return b"".join(pieces)


def recorded_frames(*, answers: bool) -> Iterator[bytes]:
    """Frames of Java's peers that fit into an input."""
    for each in golden_frames():
        if each.answer == answers and each.length < MAX_INPUT_BYTES:
            yield each.data
