"""A connection between two parts of one process: bytes are handed over, without a socket.

Both ends are ordinary transports, so everything that holds on a socket holds here: limits, admission,
back-pressure, and the end of one side is the end of the other.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from pyromq.remoting.connection import Connection
from pyromq.remoting.soon import soon_of

_HIGH_WATER_BYTES = 64 * 1024


class InProcessServer(Protocol):
    """A server that takes connections from its own process."""

    def accept(self, source: str) -> Connection:
        """The server's side of a new connection; raises ConnectFailed if it takes none now."""
        ...


Find = Callable[[str], InProcessServer | None]
"""The server that listens on an address, if it is in this process."""


def connect(near: asyncio.Protocol, far: asyncio.Protocol) -> None:
    """Open a connection; `far` is the side of the server."""
    one, other = _End(near), _End(far)
    one.other, other.other = other, one
    far.connection_made(other)
    near.connection_made(one)


class _End(asyncio.Transport):
    other: "_End"

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._soon = soon_of(self._loop)
        self._inbox: list[bytes] = []
        self._inbox_bytes = 0
        self._high_water_bytes = _HIGH_WATER_BYTES
        self._is_planned = self._is_reading_paused = self._is_writing_paused = False
        self._is_closing = self._is_over = False

    def __repr__(self) -> str:
        state = "over" if self._is_over else "closing" if self._is_closing else "open"
        return f"<_End {state} inbox_bytes={self._inbox_bytes}>"

    # Writing: into the inbox of the other end

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_closing and len(data):
            self.other._take(data)

    def writelines(self, list_of_data: Any) -> None:
        for each in list_of_data:
            self.write(each)

    def get_write_buffer_size(self) -> int:
        return self.other._inbox_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_water_bytes = _HIGH_WATER_BYTES if high is None else high

    def _take(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        # Buffers of others, such as the mapped log, are copied: they may change.
        self._inbox.append(data if type(data) is bytes else bytes(data))
        self._inbox_bytes += len(data)
        if not self._is_planned and not self._is_reading_paused:
            self._plan()
        writer = self.other
        if self._inbox_bytes > writer._high_water_bytes and not writer._is_writing_paused:
            writer._is_writing_paused = True
            writer._protocol.pause_writing()

    # Reading: everything that came in one turn of the loop arrives together, at its end

    def _plan(self) -> None:
        self._is_planned = True
        self._soon.call(self._deliver)

    def _deliver(self) -> None:
        self._is_planned = False
        # An end that does not read until its answers are read cannot wait for a reader that is gone.
        is_stuck = self._is_writing_paused and self.other._is_over
        if self._is_over or (self._is_reading_paused and not is_stuck):
            return
        if self._inbox and not self._is_closing:
            pieces, self._inbox, self._inbox_bytes = self._inbox, [], 0
            writer = self.other
            if writer._is_writing_paused:
                writer._is_writing_paused = False
                if not writer._is_over:
                    writer._protocol.resume_writing()
            self._protocol.data_received(pieces[0] if len(pieces) == 1 else b"".join(pieces))
            if self._inbox:
                return  # it is planned already
        if self.other._is_closing:
            self._end()

    def pause_reading(self) -> None:
        self._is_reading_paused = True

    def resume_reading(self) -> None:
        if self._is_reading_paused:
            self._is_reading_paused = False
            if not self._is_planned and (self._inbox or self.other._is_closing):
                self._plan()

    def is_reading(self) -> bool:
        return not self._is_reading_paused and not self._is_closing

    # The end

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        """The other end still gets what was written."""
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._end)
            if not self.other._is_planned:
                self.other._plan()

    def abort(self) -> None:
        self.other._inbox.clear()
        self.other._inbox_bytes = 0
        self.close()

    def _end(self) -> None:
        self._is_closing = True
        if self._is_over:
            return
        self._is_over = True
        self._inbox.clear()
        self._inbox_bytes = 0
        self._protocol.connection_lost(None)
        if not self.other._is_over and not self.other._is_planned:
            self.other._plan()
