"""Limits on what a peer may ask of an HTTP/2 server; each limit says what happens beyond it."""

import msgspec


class Http2Limits(msgspec.Struct, frozen=True, kw_only=True):
    max_concurrent_streams: int = 1024
    """Further streams are refused; the peer may try them again."""

    max_frame_bytes: int = 16_384
    """A larger frame ends the connection."""

    stream_window_bytes: int = 1024 * 1024
    """How much a peer may send on a stream before this side has read it."""

    connection_window_bytes: int = 4 * 1024 * 1024
    """The same for all streams of a connection together."""

    max_header_block_bytes: int = 32 * 1024
    """A longer header block, of HEADERS and CONTINUATION frames, ends the connection."""

    max_header_list_bytes: int = 64 * 1024
    """A header list that is longer once decoded ends the connection."""

    max_resets: int = 200
    """Number of requests that may be reset at once. `resets_per_s` more may be reset in each second, and one
    more for each answer. Beyond that the connection ends: opening and resetting streams all the time is an
    attack."""

    resets_per_s: float = 50.0

    max_idle_frames: int = 2000
    """Number of frames that carry nothing (pings, settings, empty data, tiny window updates) that are served
    at once. `idle_frames_per_s` more are served in each second, and some more for each request and answer.
    Beyond that the connection ends."""

    idle_frames_per_s: float = 500.0
