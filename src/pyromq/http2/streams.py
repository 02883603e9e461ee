"""One stream of a connection, and the two ways to break a rule: on a stream, or on the whole connection."""

from collections import deque

from pyromq.http2.frames import ErrorCode


class BrokenConnection(Exception):
    def __init__(self, code: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class BrokenStream(Exception):
    def __init__(self, stream_id: int, code: ErrorCode) -> None:
        super().__init__(stream_id, code)
        self.stream_id = stream_id
        self.code = code


class Stream:
    __slots__ = (
        "expected_bytes",
        "has_peer_ended",
        "is_held",
        "receive_window",
        "send_window",
        "trailers",
        "waiting",
    )

    def __init__(self, send_window: int, receive_window: int, has_peer_ended: bool = False) -> None:
        self.send_window = send_window
        self.receive_window = receive_window
        self.has_peer_ended = has_peer_ended
        self.expected_bytes: int | None = None
        self.is_held = False
        """Whether the peer's window does not grow again."""
        self.waiting: deque[bytes] | None = None
        """Data that waits for the peer's window."""
        self.trailers: bytes | None = None
        """The header block that ends the stream after the waiting data."""
