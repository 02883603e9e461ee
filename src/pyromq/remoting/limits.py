"""The limits of a server; each one says what happens beyond it."""

from dataclasses import dataclass

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    max_frame_bytes: int = 16 * _MEBIBYTE
    """A larger frame closes its connection; a larger answer becomes SYSTEM_ERROR."""

    max_in_flight_per_connection: int = 1024
    """Further requests that may have to wait are answered SYSTEM_BUSY."""

    max_in_flight_bytes_per_connection: int = 64 * _MEBIBYTE
    """Further requests that may have to wait are answered SYSTEM_BUSY, and reading is paused."""

    max_in_flight: int = 65_536
    """Further requests that may have to wait are answered SYSTEM_BUSY on every connection."""

    max_in_flight_bytes: int = 512 * _MEBIBYTE
    """Further requests that may have to wait are answered SYSTEM_BUSY on every connection."""

    max_partial_bytes: int = 256 * _MEBIBYTE
    """Bytes of unfinished frames on all connections; beyond it the connection with the largest one is
    closed."""

    write_high_water_bytes: int = 256 * 1024
    """While more than this is unsent to a peer, reading from it is paused, and calls to it wait."""

    max_unsent_bytes_per_connection: int = 64 * _MEBIBYTE
    """A connection with more unsent bytes is closed: its peer does not read."""

    max_connections: int = 0
    """Further connections are closed at once; 0 sets no limit."""

    idle_s: float = 120.0
    """A connection that is idle for this long is closed."""

    handshake_s: float = 10.0
    """A TLS handshake or PROXY preamble that takes longer closes its connection."""
