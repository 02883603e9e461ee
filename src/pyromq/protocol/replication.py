"""The stream between a master and its replicas on the HA port: the bytes of the log, and acknowledgements.

A replica reports a log offset, in 8 bytes. The master answers with frames: a log offset (8 bytes), a size
(4 bytes), and that many bytes of the log. A frame of size 0 is a heartbeat. There is no handshake, no version
and no checksum, and a frame may begin and end anywhere in a record. docs/formats/replication.md has more.
"""

import struct
from collections.abc import Iterator
from typing import Final

from pyromq.errors import RemoteProtocolError

_REPORT: Final = struct.Struct(">q")
_HEADER: Final = struct.Struct(">qi")

REPORT_BYTES: Final = _REPORT.size
HEADER_BYTES: Final = _HEADER.size
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Apache's masters send 32 KiB unless their settings differ; a much larger size is not a frame."""


def encode_report(offset: int) -> bytes:
    return _REPORT.pack(offset)


def encode_header(offset: int, size_bytes: int) -> bytes:
    return _HEADER.pack(offset, size_bytes)


class ReportReader:
    """Reads what a replica sends, however the stream was split."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """The whole reports so far. Raises RemoteProtocolError for a negative offset."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % REPORT_BYTES
        self._rest = data[whole:]
        reports = [offset for (offset,) in _REPORT.iter_unpack(memoryview(data)[:whole])]
        for offset in reports:
            if offset < 0:
                raise RemoteProtocolError(f"a replica cannot report log offset {offset}: it is negative")
        return reports


class FrameCutter:
    """Reads what a master sends, however the stream was split.

    Frames are passed on in pieces as they arrive, so that a large one is never held in memory.
    """

    def __init__(self) -> None:
        self._header = b""
        self._offset = 0
        self._missing = 0
        """Bytes of the current frame that have not arrived."""

    def __repr__(self) -> str:
        return f"<FrameCutter at {self._offset}, {self._missing} bytes of the frame missing>"

    def feed(self, data: bytes | memoryview) -> Iterator[tuple[int, memoryview]]:
        """Log offset and bytes of each piece; no bytes for a heartbeat. Raises RemoteProtocolError if the
        bytes are not frames."""
        view = memoryview(data)
        position, end = 0, len(view)
        while position < end:
            if not self._missing:
                wanted = HEADER_BYTES - len(self._header)
                self._header += bytes(view[position : position + wanted])
                position = min(position + wanted, end)
                if len(self._header) < HEADER_BYTES:
                    return
                self._begin_frame()
                if not self._missing:
                    yield self._offset, view[:0]
                    continue
            piece = view[position : position + self._missing]
            if piece:
                position += len(piece)
                offset = self._offset
                self._offset += len(piece)
                self._missing -= len(piece)
                yield offset, piece

    def _begin_frame(self) -> None:
        self._offset, self._missing = _HEADER.unpack(self._header)
        self._header = b""
        if self._offset < 0 or not 0 <= self._missing <= MAX_FRAME_BYTES:
            raise RemoteProtocolError(
                f"a frame of {self._missing} bytes at log offset {self._offset}: the offset must not be"
                f" negative, the size must be between 0 and {MAX_FRAME_BYTES}; is this a master's HA port?"
            )
