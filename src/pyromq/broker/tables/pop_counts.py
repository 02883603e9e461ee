"""Counts of pops: messages in flight by queue, and records of the revive log, since the start."""

from collections import Counter
from typing import Literal

RecordKind = Literal["CK", "ACK"]


class PopCounts:
    def __init__(self) -> None:
        self.in_flight: Counter[tuple[str, str, int]] = Counter()
        """Messages popped and neither acknowledged nor revived, by topic, group and queue id."""
        self.written: Counter[tuple[str, str, RecordKind, str]] = Counter()
        """Records written to the revive log, by group, topic, kind and status."""
        self.read: Counter[tuple[str, str, RecordKind, str]] = Counter()
        """Records read from the revive log, by group, topic, kind and queue id."""
        self.revived: Counter[tuple[str, str, str]] = Counter()
        """Messages put back for another delivery, by group, topic and status."""

    def __repr__(self) -> str:
        return f"<PopCounts in_flight={self.in_flight.total()} revived={self.revived.total()}>"

    def ended(self, topic: str, group: str, queue_id: int, messages: int = 1) -> None:
        """Messages are no longer in flight; more than are known may be, after a restart."""
        key = topic, group, queue_id
        left = self.in_flight[key] - messages
        if left > 0:
            self.in_flight[key] = left
        else:
            del self.in_flight[key]
