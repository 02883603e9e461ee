"""How much of everything a server allows; each limit says what happens beyond it."""

from dataclasses import dataclass

_MEBIBYTE = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    max_frame_bytes: int = 16 * _MEBIBYTE
    """A larger frame closes its connection; a larger answer becomes SYSTEM_ERROR."""

    max_in_flight_per_connection: int = 1024
    """Further requests that may have to wait are answered SYSTEM_BUSY."""

    max_in_flight_bytes_per_connection: int = 64 * _MEBIBYTE
    """Further requests that may have to wait are answered SYSTEM_BUSY, and the socket is not read."""

    max_in_flight: int = 65_536
    """Further requests that may have to wait are answered SYSTEM_BUSY, whoever sends them."""

    max_in_flight_bytes: int = 512 * _MEBIBYTE
    """Further requests that may have to wait are answered SYSTEM_BUSY, whoever sends them."""

    max_partial_bytes: int = 256 * _MEBIBYTE
    """Frames that have not arrived completely, on all connections; beyond it the largest one is given up
    together with its connection."""

    write_high_water_bytes: int = 256 * 1024
    """While more than this waits to be sent to a peer, nothing is read from it, and calls to it wait."""

    max_unsent_bytes_per_connection: int = 64 * _MEBIBYTE
    """A peer for which more than this waits to be sent does not read: its connection is closed."""

    max_connections: int = 0
    """Further connections are closed at once; 0 sets no limit."""

    idle_s: float = 120.0
    """A connection without a read and a write for this long is closed."""

    handshake_s: float = 10.0
    """A TLS handshake or PROXY preamble that takes longer closes its connection."""
