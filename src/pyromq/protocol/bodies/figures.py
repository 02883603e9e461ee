"""The figures of a broker of ours in bulk, for consoles: only what changed since the last answer."""

from msgspec import field

from pyromq.protocol.bodies.body import Body, Int32, Int64


class StoreFigures(Body):
    """The health of a broker's store; `fault` is why it accepts no messages."""

    clean_at_percent: Int32 = 0
    clean_early_at_percent: Int32 = 0
    fault: str = ""
    index_files: Int32 = 0
    queues: Int32 = 0
    recovered: str = ""
    refuse_at_percent: Int32 = 0
    retention_hours: Int32 = 0
    segments: Int32 = 0


class Figures(Body):
    """Lists of numbers by name. An empty list means that the entry is gone; with `has_all`, entries that are
    not here are gone, too."""

    # The broker's clock when it counted, in milliseconds.
    at: Int64 = 0
    # Group: number of members, 1 if it broadcasts (-1: unknown).
    groups: dict[str, list[Int64]] = {}
    has_all: bool = False
    # `topic@group`: lag, store time of the oldest unread message (0: none), messages read since the start,
    # messages deleted unread.
    lags: dict[str, list[Int64]] = {}
    # Topic: first and next offset of queue 0, of queue 1, …
    queues: dict[str, list[Int64]] = {}
    store: StoreFigures = field(default_factory=StoreFigures)
    # Topic: messages and bytes stored since the start.
    stored: dict[str, list[Int64]] = {}
    # Topic: read queues, write queues, permission, 1 if ordered.
    topics: dict[str, list[Int64]] = {}
    # The message types of these topics, as far as they have one.
    types: dict[str, str] = {}


class RouteDigests(Body):
    """Topic → hash of its route, in hexadecimal: equal routes have equal hashes on every name server."""

    digests: dict[str, str] = {}
