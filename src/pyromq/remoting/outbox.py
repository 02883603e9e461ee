"""What one connection sends: whatever comes together in one turn of the loop leaves in one write."""

import asyncio

from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import encode_head
from pyromq.remoting.limits import ServerLimits

_COPIED_BYTES = 16 * 1024

NOT_CONNECTED = asyncio.Transport()
"""Stands where the transport will be."""


class Outbox:
    __slots__ = ("_is_closed", "_is_corked", "_limits", "_pieces", "_writable", "size_bytes", "transport")

    def __init__(self, limits: ServerLimits) -> None:
        self.transport: asyncio.Transport = NOT_CONNECTED
        self.size_bytes = 0
        """How much was put in and is not written yet."""
        self._limits = limits
        self._pieces: list[bytes | memoryview] = []
        self._is_corked = False
        self._is_closed = False
        self._writable: asyncio.Event | None = None

    @property
    def is_full(self) -> bool:
        """Whether this is enough for one write."""
        return self.size_bytes >= self._limits.write_high_water_bytes

    def put(self, piece: bytes | memoryview) -> None:
        """Send whole frames, or the next part of one, with whatever else leaves next."""
        self._pieces.append(piece)
        self.size_bytes += len(piece)

    def put_frame(self, frame: Frame) -> None:
        """Raises LocalProtocolError if it is too large to be sent."""
        body = frame.body
        self.put(encode_head(frame, len(body), self._limits.max_frame_bytes))
        if body:
            self.put(body)

    def cork(self) -> bool:
        """Promise to flush later; False if that was promised already."""
        was_corked = self._is_corked
        self._is_corked = True
        return not was_corked

    def flush(self) -> bool:
        """Write everything; whether there was anything to write."""
        self._is_corked = False
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
            # Copying much into one piece costs more than handing over the pieces.
            self.transport.writelines(pieces)
        return True

    def close(self) -> None:
        """Drop what is left, and whatever comes after it."""
        self._is_closed = True
        self._pieces.clear()
        self.size_bytes = 0

    # The transport says when it holds too much, and when there is room again.

    @property
    def is_blocked(self) -> bool:
        """Whether much waits to be sent because the peer does not read, or reads slowly."""
        return self._writable is not None

    def block(self) -> None:
        self._writable = asyncio.Event()

    def unblock(self) -> None:
        if self._writable is not None:
            self._writable.set()
            self._writable = None

    async def wait_writable(self) -> None:
        while self._writable is not None:
            await self._writable.wait()
