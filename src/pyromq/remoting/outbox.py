"""The bytes that one connection sends: everything from one turn of the loop goes out in one write."""

import asyncio

from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import encode_head
from pyromq.remoting.limits import ServerLimits

_COPIED_BYTES = 16 * 1024

NOT_CONNECTED = asyncio.Transport()
"""Used before there is a transport."""


class Outbox:
    __slots__ = (
        "_is_closed",
        "_limits",
        "_pieces",
        "_writable",
        "is_blocked",
        "is_corked",
        "size_bytes",
        "transport",
    )

    def __init__(self, limits: ServerLimits) -> None:
        self.transport: asyncio.Transport = NOT_CONNECTED
        self.size_bytes = 0
        """Bytes that are not written yet."""
        self.is_corked = False
        """Whether a flush is scheduled."""
        self.is_blocked = False
        """Whether the transport's buffer is full, because the peer reads slowly or not at all."""
        self._limits = limits
        self._pieces: list[bytes | memoryview] = []
        self._is_closed = False
        self._writable: asyncio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether there is enough for one write."""
        return self.size_bytes >= self._limits.write_high_water_bytes

    def put(self, piece: bytes | memoryview) -> None:
        """Queue whole frames, or the next part of one, for the next write."""
        self._pieces.append(piece)
        self.size_bytes += len(piece)

    def put_whole(self, head: bytes, body: bytes) -> None:
        """Queue a frame; a body without bytes is omitted."""
        self._pieces.append(head)
        if body:
            self._pieces.append(body)
        self.size_bytes += len(head) + len(body)

    def put_frame(self, frame: Frame) -> None:
        """Raises LocalProtocolError if it is too large to be sent."""
        body = frame.body
        head = encode_head(frame, len(body), self._limits.max_frame_bytes)
        self._pieces.append(head)
        if body:
            self._pieces.append(body)
        self.size_bytes += len(head) + len(body)

    def flush(self) -> bool:
        """Write everything; returns whether there was anything to write."""
        self.is_corked = False
        pieces = self._pieces
        if not pieces:
            return False
        size_bytes = self.size_bytes
        self._pieces = []
        self.size_bytes = 0
        if self._is_closed:
            return False
        if len(pieces) == 1:
            self.transport.write(pieces[0])
        elif size_bytes <= _COPIED_BYTES:
            self.transport.write(b"".join(pieces))
        else:
            # Joining many bytes costs more than writing the pieces.
            self.transport.writelines(pieces)
        return True

    def close(self) -> None:
        """Drop everything, now and later."""
        self._is_closed = True
        self._pieces.clear()
        self.size_bytes = 0

    # The transport says when its buffer is full, and when there is room again.

    def block(self) -> None:
        self.is_blocked = True
        self._writable = asyncio.Event()

    def unblock(self) -> None:
        self.is_blocked = False
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def wait_writable(self) -> None:
        while self._writable is not None:
            await self._writable.wait()
