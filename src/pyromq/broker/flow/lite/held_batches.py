"""Batches that groups have popped from light queues and not acknowledged: one of each queue at a time.

A queue is held until all messages of its batch are acknowledged, or until those that are not are visible
again. The same attempt of a consumer may pop again before: its answer was lost. This is in memory only: after
a restart, or when another broker has led, the messages are popped again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

Key = tuple[str, str]
"""A light queue and a group."""


@dataclass(slots=True, eq=False)
class HeldBatch:
    offsets: Sequence[int]
    pop_ms: int
    until_ms: int
    """When they are visible again, unless `visible_ms` has another time."""
    attempt_id: str | None
    counts: dict[int, int]
    """How often messages were popped before."""
    acknowledged: set[int] = field(default_factory=set)
    """Also those of earlier batches, behind the first one that is not."""
    visible_ms: dict[int, int] = field(default_factory=dict)
    is_suspended: bool = False
    """Whether its next delivery does not count as another attempt."""
    alarm_ms: int = 0
    """When its visibility is checked next; 0 if no check is planned."""

    @property
    def unacknowledged(self) -> list[int]:
        return [offset for offset in self.offsets if offset not in self.acknowledged]

    @property
    def free_at_ms(self) -> int:
        """When the last message that is not acknowledged is visible again."""
        visible = self.visible_ms
        if not visible:
            return self.until_ms
        return max((visible.get(each, self.until_ms) for each in self.unacknowledged), default=0)


class HeldBatches:
    def __init__(self) -> None:
        self._held: dict[Key, HeldBatch] = {}

    def __repr__(self) -> str:
        return f"<HeldBatches {len(self._held)}>"

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key) -> HeldBatch | None:
        return self._held.get(key)

    def is_free(self, key: Key, now_ms: int, attempt_id: str | None) -> bool:
        """Whether the group may pop from the queue now."""
        held = self._held.get(key)
        if held is None or (attempt_id is not None and attempt_id == held.attempt_id):
            return True
        return held.free_at_ms <= now_ms

    def popped(
        self, key: Key, offsets: Sequence[int], now_ms: int, invisible_ms: int, attempt_id: str | None
    ) -> HeldBatch:
        before = self._held.get(key)
        counts: dict[int, int] = {}
        acknowledged: set[int] = set()
        if before is not None:
            is_same = attempt_id is not None and attempt_id == before.attempt_id
            step = 0 if is_same or before.is_suspended else 1
            again = set(before.offsets)
            counts = {each: before.counts.get(each, 0) + step for each in offsets if each in again}
            acknowledged = {each for each in before.acknowledged if each > offsets[0]}
        held = self._held[key] = HeldBatch(
            offsets, now_ms, now_ms + invisible_ms, attempt_id, counts, acknowledged
        )
        return held

    def acknowledge(self, key: Key, offset: int, pop_ms: int) -> int | None:
        """The offset that the group has consumed up to now; None if it does not hold this message by this
        pop."""
        held = self._held.get(key)
        if held is None or held.pop_ms != pop_ms or offset not in held.offsets:
            return None
        held.acknowledged.add(offset)
        left = held.unacknowledged
        if left:
            return left[0]
        del self._held[key]
        end = held.offsets[-1] + 1
        while end in held.acknowledged:
            end += 1
        return end

    def hide(self, key: Key, offset: int, pop_ms: int, visible_ms: int, *, suspends: bool) -> bool:
        """Let a held message be visible at another time; with `suspends` all that are held with it."""
        held = self._held.get(key)
        if held is None or held.pop_ms != pop_ms or offset not in held.offsets:
            return False
        if suspends:
            held.is_suspended = True
            held.visible_ms = dict.fromkeys(held.offsets, visible_ms)
        else:
            held.visible_ms[offset] = visible_ms
        return True

    def forget(self, key: Key) -> None:
        self._held.pop(key, None)

    def forget_all(self) -> list[Key]:
        """Whose they were."""
        keys = list(self._held)
        self._held.clear()
        return keys
