"""What clients did and saw in a run, and what the cluster holds at its end: plain values, nothing else.

Bodies are unique. Times are seconds since the beginning of the run.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Log = Mapping[int, Mapping[int, str]]
"""By queue and queue offset: the bodies."""


class Sent(NamedTuple):
    """One send. Without an offset it was not acknowledged; nobody knows whether it is stored."""

    body: str
    producer: str
    queue: int
    began: float
    ended: float
    offset: int | None = None


class Delivered(NamedTuple):
    """A consumer of a group began with a message; a retry has the queue and the offset of the retry."""

    body: str
    group: str
    queue: int
    offset: int
    at: float
    is_retry: bool = False


class Fault(NamedTuple):
    """Something was broken from `began` to `ended`."""

    name: str
    began: float
    ended: float


@dataclass(slots=True)
class History:
    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    """In the order of delivery."""
    faults: list[Fault] = field(default_factory=list)
    logs: dict[str, Log] = field(default_factory=dict)
    """By broker: what is stored at the end, wherever an acknowledged message must be."""
    decided: list[str] = field(default_factory=list)
    """Acknowledged half messages and timed messages; the body tells what must become of them."""
    copies: dict[str, Counter[str]] = field(default_factory=dict)
    """By broker: how often their topic has each body at the end."""
    stores_once: bool = True
    """Whether all brokers recognize a send that is repeated."""
    groups: dict[str, bool] = field(default_factory=dict)
    """The groups that read everything to its end, and whether they read in order."""
    broken: list[str] = field(default_factory=list)
    """Invariants that did not hold, as sentences."""
    ended: float = 0.0

    @property
    def due(self) -> set[str]:
        """What was acknowledged and is not rolled back."""
        return {body for body in self.decided if not body.startswith("rollback")}
