"""Frames on a byte stream.

    length 4 (of what follows) | header form 1 | header length 3 | header | body

The frames do not depend on how the stream is cut into pieces. Bytes that are not a frame end the stream.
"""

from struct import Struct

from pyromq.errors import LocalProtocolError, RemoteProtocolError
from pyromq.protocol.binary_header import decode_binary_header, encode_binary_header
from pyromq.protocol.direct import DirectHeaders
from pyromq.protocol.direct_answers import DirectAnswers
from pyromq.protocol.frame import Frame, HeaderForm
from pyromq.protocol.json_header import decode_json_header, encode_json_header

DEFAULT_MAX_FRAME_BYTES = 16 * 1024 * 1024
"""Includes the length field, as in Apache's decoder."""

_PREFIX = Struct(">iI")
_LENGTH = Struct(">i")
MAX_HEADER_BYTES = 1024 * 1024
"""A header is decoded at once, before its request is known. The format allows 16 MiB; the longest useful
header (32 KiB of properties, every character escaped) takes 200 KB."""

NO_LIMIT = 0x7FFFFFFF
_LARGE_BYTES = 64 * 1024


class FrameReader:
    """Takes bytes and returns frames.

    `direct`, while it is set, decodes some headers faster. `feed` returns the complete frames before any
    damage. After damage the reader is unusable: `damage` says why, and feeding it again raises. It returns at
    most `max_frames` at once; if `has_more` is true, feeding it `b""` returns the next ones.
    """

    def __init__(
        self,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
        direct: DirectHeaders | DirectAnswers | None = None,
        max_frames: int = NO_LIMIT,
    ) -> None:
        self.direct = direct
        self._max_frames = max_frames
        self.has_more = False
        self.damage: RemoteProtocolError | None = None
        self._max_frame_bytes = max_frame_bytes
        self._rest = bytearray()

    def __repr__(self) -> str:
        return f"<FrameReader buffered={len(self._rest)} damage={self.damage}>"

    @property
    def buffered_bytes(self) -> int:
        return len(self._rest)

    @property
    def missing_bytes(self) -> int:
        """How many bytes the incomplete frame still needs, as far as is known."""
        if len(self._rest) < _LENGTH.size:
            return _LENGTH.size - len(self._rest) if self._rest else 0
        return 4 + int(_LENGTH.unpack_from(self._rest)[0]) - len(self._rest)

    def take_rest(self) -> bytes:
        """Return the bytes of the incomplete frame, as if they had not been fed."""
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def feed(self, data: bytes) -> list[Frame]:
        if self.damage is not None:
            raise self.damage
        buffer: bytes | bytearray = data
        if self._rest:
            self._rest += data
            buffer = self._rest
        frames: list[Frame] = []
        try:
            position = self._take_frames(buffer, frames)
        except RemoteProtocolError as damage:
            self.damage = damage
            self._rest = bytearray()
            return frames
        if buffer is self._rest:
            del self._rest[:position]
        elif position < len(data):
            self._rest += data[position:]
        return frames

    def _take_frames(self, buffer: bytes | bytearray, frames: list[Frame]) -> int:
        position = 0
        available = len(buffer)
        self.has_more = False
        while available - position >= 8:
            if len(frames) >= self._max_frames:
                self.has_more = True
                return position
            length, form_and_header = _PREFIX.unpack_from(buffer, position)
            self._check_length(length)
            header_length = form_and_header & 0xFFFFFF
            form = form_and_header >> 24
            if header_length > length - 4:
                raise RemoteProtocolError(f"header of {header_length} bytes in a frame of {length}")
            if header_length > MAX_HEADER_BYTES:
                raise RemoteProtocolError(f"header of {header_length} bytes; {MAX_HEADER_BYTES} are allowed")
            end = position + 4 + length
            if end > available:
                if form > HeaderForm.BINARY:
                    raise RemoteProtocolError(f"unknown header form {form}")
                break
            body_at = position + 8 + header_length
            header = buffer[position + 8 : body_at]
            if form == HeaderForm.JSON:
                frame = self._decode_json(header)
            elif form == HeaderForm.BINARY:
                frame = decode_binary_header(header)
            else:
                raise RemoteProtocolError(f"unknown header form {form}")
            if body_at < end:
                is_large = end - body_at >= _LARGE_BYTES
                frame.body = _copied(buffer, body_at, end) if is_large else bytes(buffer[body_at:end])
            frames.append(frame)
            position = end
        else:
            if available - position >= 4:
                self._check_length(_LENGTH.unpack_from(buffer, position)[0])
        return position

    def _decode_json(self, header: bytes | bytearray) -> Frame:
        frame = self.direct.decode(header) if self.direct is not None else None
        return decode_json_header(header) if frame is None else frame

    def _check_length(self, length: int) -> None:
        if length < 4 or length + 4 > self._max_frame_bytes:
            raise RemoteProtocolError(
                f"frame of {length} bytes; between 4 and {self._max_frame_bytes - 4} are allowed"
            )


def _copied(buffer: bytes | bytearray, start: int, end: int) -> bytes:
    """A slice of a `bytearray` would be a copy, too: large bodies are copied once, not twice."""
    if isinstance(buffer, bytes):
        return buffer[start:end]
    with memoryview(buffer) as whole, whole[start:end] as part:
        return bytes(part)


def encode_head(frame: Frame, body_bytes: int, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> bytes:
    """The frame without its body, for callers that send the body without copying it."""
    header = encode_binary_header(frame) if frame.form == HeaderForm.BINARY else encode_json_header(frame)
    header_bytes = len(header)
    length = 4 + header_bytes + body_bytes
    if header_bytes > MAX_HEADER_BYTES:
        raise LocalProtocolError(f"header of {header_bytes} bytes; {MAX_HEADER_BYTES} are allowed")
    if length + 4 > max_frame_bytes:
        raise LocalProtocolError(f"frame of {length + 4} bytes; {max_frame_bytes} are allowed")
    return _PREFIX.pack(length, frame.form << 24 | header_bytes) + header


def encode_frame(frame: Frame, max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES) -> bytes:
    return encode_head(frame, len(frame.body), max_frame_bytes) + frame.body
