"""Pulls that wait for messages, by queue: a message wakes only the pulls that wait for its queue."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from pyromq.broker.flow.held_requests import Attempt, HeldRequest, HeldRequests, drop
from pyromq.remoting.slices import Slices
from pyromq.store.results import QueueAdvance

Queue = tuple[str, int]
"""Topic and queue id."""


@dataclass(slots=True, eq=False)
class _HeldPull(HeldRequest):
    queues: tuple[Queue, ...] = ()


class HeldPulls(HeldRequests[_HeldPull]):
    def __init__(self, slices: Slices) -> None:
        super().__init__(slices)
        self._waiting: dict[Queue, dict[_HeldPull, None]] = {}

    def __repr__(self) -> str:
        return f"<HeldPulls held={self.held_count} queues={len(self._waiting)}>"

    def hold(
        self, queues: Iterable[Queue], attempt: Attempt, timeout_s: float, owner: Hashable = None
    ) -> None:
        """Try again when one of the queues has new messages, and for the last time after the time-out or when
        the owner leaves."""
        held = _HeldPull(attempt, owner, queues=tuple(queues))
        for queue in held.queues:
            self._waiting.setdefault(queue, {})[held] = None
        # java: a pull is held as long as it asks for; but one that is answered sooner is just repeated
        self._keep(held, timeout_s)

    def advanced(self, advance: QueueAdvance) -> None:
        """A queue has new messages."""
        waiting = self._waiting.get((advance.topic, advance.queue_id))
        if waiting is not None:
            for held in list(waiting):
                self._look_soon(held)

    def light_advanced(self, ends: Mapping[str, int]) -> None:
        """Light queues have new messages. Many may have some while few pulls wait, or the other way round."""
        waiting = self._waiting
        if len(waiting) < len(ends):
            found = [queue for queue in waiting if queue[1] == 0 and queue[0] in ends]
        else:
            found = [(name, 0) for name in ends if (name, 0) in waiting]
        for queue in found:
            for held in list(waiting[queue]):
                self._look_soon(held)

    def release(self, topic: str) -> None:
        """Answer all pulls of a topic, because it changed or was deleted."""
        self._expire_all(held for (name, _), each in self._waiting.items() if name == topic for held in each)

    def _take_out(self, held: _HeldPull) -> None:
        for queue in held.queues:
            drop(self._waiting, queue, held)
