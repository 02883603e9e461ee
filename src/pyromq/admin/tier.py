"""The lake tier of brokers: what is on their disks, what is in the tier, and how far uploads are behind."""

from collections.abc import Mapping

import msgspec


class TierStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The tier of a broker, by its own words. Offsets are those of the log."""

    place: str
    log_start: int
    log_end: int
    """Of this disk."""
    tier_begin: int
    tier_end: int
    """Of the tier."""
    segments: int
    log_bytes: int
    """Of the log in the tier, as it was on the disk."""
    packed_bytes: int
    first_ms: int | None
    """When the oldest message in the tier was stored."""
    lag_bytes: int
    lag_s: int
    """For how long the oldest file has been waiting for its upload."""
    writes: int
    reads: int
    written_bytes: int
    read_bytes: int
    """Requests to the object store, and bytes, since the start of the broker."""
    epoch: int
    writer: str
    """Which process has claimed the tier: a broker's name and a random number."""
    is_owner: bool
    """Whether it is this one."""
    problem: str

    @property
    def ratio(self) -> float | None:
        """How many times smaller packing made it."""
        return self.log_bytes / self.packed_bytes if self.packed_bytes else None


def status_of(figures: Mapping[str, str]) -> TierStatus | None:
    """From the figures of a broker; None if it has no tier, or is older than these figures."""
    if "tierPlace" not in figures:
        return None

    def number(name: str) -> int:
        text = figures.get(name, "")
        return int(text) if text.lstrip("-").isdigit() else 0

    return TierStatus(
        place=figures["tierPlace"],
        log_start=number("commitLogMinOffset"),
        log_end=number("commitLogMaxOffset"),
        tier_begin=number("tierBegin"),
        tier_end=number("tierEnd"),
        segments=number("tierSegments"),
        log_bytes=number("tierLogBytes"),
        packed_bytes=number("tierBytes"),
        first_ms=number("tierFirstMs") or None,
        lag_bytes=number("tierLagBytes"),
        lag_s=number("tierLagSeconds"),
        writes=number("tierWrites"),
        reads=number("tierReads"),
        written_bytes=number("tierWrittenBytes"),
        read_bytes=number("tierReadBytes"),
        epoch=number("tierEpoch"),
        writer=figures.get("tierWriter", ""),
        is_owner=figures.get("tierIsOwner") == "true",
        problem=figures.get("tierProblem", ""),
    )
