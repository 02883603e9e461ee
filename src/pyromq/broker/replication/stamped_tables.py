"""One order for all that is replicated: the tables of a replica never run ahead of its log.

The offset of a group, the progress of delays, the position of half messages: each says what was done with
records of the log, and what was done is in the log itself. So the master stamps its tables with the end of
its log, read after the tables. The replica uses them when its own log has reached the stamp. Tables that
still wait when a broker becomes master are dropped: with older ones a message may be delivered again, and
none is lost.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper


@dataclass(frozen=True, slots=True)
class StampedTables:
    """A master's tables as they were when its log ended at `log_end`, or before; None: nothing new."""

    log_end: int
    offsets: ConsumerOffsetSerializeWrapper | None = None
    delays: DelayOffsetSerializeWrapper | None = None
    resets: ConsumerOffsetSerializeWrapper | None = None
    """They come with the offsets."""
    is_complete: bool = True
    """Whether an offset that the table lacks is to go."""

    def followed_by(self, later: "StampedTables") -> "StampedTables":
        if later.offsets is None:
            later = replace(later, offsets=self.offsets, resets=self.resets)
        return replace(later, delays=later.delays or self.delays)


class WaitingTables:
    """Tables in the order of their stamps, until the log is there.

    Only the first and the last are kept: the first, so that a log that is always a little behind does not
    keep all of them waiting.
    """

    def __init__(self, reached: Callable[[], int], use: Callable[[StampedTables], None]) -> None:
        """`reached`: up to where this broker has the log of its master."""
        self._reached = reached
        self._use = use
        self._first: StampedTables | None = None
        self._last: StampedTables | None = None

    def __repr__(self) -> str:
        stamps = [each.log_end for each in (self._first, self._last) if each is not None]
        return f"<WaitingTables for {stamps} at {self._reached()}>"

    def add(self, tables: StampedTables) -> None:
        if self._first is None:
            self._first = tables
        else:
            self._last = tables if self._last is None else self._last.followed_by(tables)
        self.use()

    def use(self) -> None:
        """The log may have grown."""
        while self._first is not None and self._first.log_end <= self._reached():
            tables, self._first, self._last = self._first, self._last, None
            self._use(tables)

    def drop(self) -> None:
        self._first = self._last = None
