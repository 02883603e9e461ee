"""A transport that keeps what is written and how it was asked to behave."""

import asyncio

from pyromq.protocol.frame import Frame
from pyromq.protocol.framing import FrameReader


class FakeTransport(asyncio.Transport):
    """`hold_back` plays a peer that does not read: what is written then stays unsent."""

    def __init__(self, protocol: asyncio.Protocol, peer: str = "192.0.2.1") -> None:
        super().__init__({"peername": (peer, 5000), "sockname": ("192.0.2.2", 10911)})
        self.writes: list[bytes] = []
        self._is_reading = True
        self.is_aborted = False
        self.hold_back = False
        self._protocol = protocol
        self._unsent_bytes = 0
        self._high_bytes = 65536
        self._is_closing = False
        self._reader = FrameReader()

    def frames(self) -> list[Frame]:
        """What was written since the last time."""
        data = b"".join(self.writes)
        self.writes.clear()
        return self._reader.feed(data)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))
        if self.hold_back:
            was_full = self._unsent_bytes > self._high_bytes
            self._unsent_bytes += len(data)
            if self._unsent_bytes > self._high_bytes and not was_full:
                self._protocol.pause_writing()

    def drain(self) -> None:
        """The peer reads again."""
        self.hold_back = False
        self._unsent_bytes = 0
        self._protocol.resume_writing()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high if high is not None else 65536

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True

    def is_reading(self) -> bool:
        return self._is_reading

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self.is_aborted = True
        self._end()

    def _end(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(None)

    def is_closing(self) -> bool:
        return self._is_closing
