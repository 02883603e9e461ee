"""Events: actions of the peer of an HTTP/2 connection."""

from typing import TypeAlias

import msgspec

from pyromq.http2.hpack import Header


class RequestReceived(msgspec.Struct, gc=False):
    """The headers of a new stream."""

    stream_id: int
    headers: list[Header]
    has_ended: bool


class WholeRequest(msgspec.Struct, gc=False):
    """A new stream and all that it brings: its headers, and its body in one piece."""

    stream_id: int
    headers: list[Header]
    data: bytes


class DataReceived(msgspec.Struct, gc=False):
    """A part of a request's body; trailers count as an empty one."""

    stream_id: int
    data: bytes
    has_ended: bool


class StreamReset(msgspec.Struct, gc=False):
    """The stream is over: the peer reset it, or broke a rule on it."""

    stream_id: int
    code: int


class StreamDrained(msgspec.Struct, gc=False):
    """Everything that was sent on this stream, and had to wait for the peer's window, is in the output."""

    stream_id: int


class ConnectionEnded(msgspec.Struct, gc=False):
    """The connection is over: close it after the output is written."""

    code: int
    reason: str


class PeerLeaving(msgspec.Struct, gc=False):
    """The peer opens no more streams."""


Event: TypeAlias = (
    RequestReceived
    | WholeRequest
    | DataReceived
    | StreamReset
    | StreamDrained
    | ConnectionEnded
    | PeerLeaving
)
