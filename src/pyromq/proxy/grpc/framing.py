"""Messages in a stream of bytes: one byte for "compressed", four for the length, then the message."""

import struct

from pyromq.proxy.grpc.status import GrpcCode, GrpcError

_PREFIX = struct.Struct(">BI")


def frame_message(message: bytes) -> bytes:
    return _PREFIX.pack(0, len(message)) + message


class MessageReader:
    """Finds the same messages however the stream is split; holds at most one message and one piece."""

    __slots__ = ("_buffer", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    @property
    def held_bytes(self) -> int:
        """The bytes of a message that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that are complete now; raises GrpcError for one that cannot be taken."""
        if not self._buffer and len(data) >= 5 and len(data) == 5 + self._size(data, 0):
            return [data[5:]]
        self._buffer += data
        found: list[bytes] = []
        position = 0
        while len(self._buffer) - position >= 5:
            end = position + 5 + self._size(self._buffer, position)
            if end > len(self._buffer):
                break
            found.append(bytes(self._buffer[position + 5 : end]))
            position = end
        del self._buffer[:position]
        return found

    def _size(self, data: bytes | bytearray, position: int) -> int:
        compressed, size = _PREFIX.unpack_from(data, position)
        if compressed:
            raise GrpcError(
                GrpcCode.UNIMPLEMENTED, "compressed messages are not supported; send them as identity"
            )
        if size > self._max_bytes:
            raise GrpcError(
                GrpcCode.RESOURCE_EXHAUSTED,
                f"a message of {size} bytes; at most {self._max_bytes} are allowed",
            )
        return int(size)
