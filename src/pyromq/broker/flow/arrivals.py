"""Pulls that wait for messages, by the queue they wait for.

A message wakes only those who wait for its queue. An idle wait costs its memory and one timer, and ends with
whoever waits.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pyromq.store.dispatch import Arrival

Attempt = Callable[[bool], bool]
"""Try to answer a held pull; says whether that was done. True means: this is the last chance, answer."""


@dataclass(slots=True, eq=False)
class _Held:
    attempt: Attempt
    key: tuple[str, int]
    owner: Hashable
    timer: asyncio.TimerHandle | None = None


class Arrivals:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[str, int], dict[_Held, None]] = {}
        self._owned: dict[Hashable, dict[_Held, None]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Arrivals held={self._count} queues={len(self._waiting)}>"

    @property
    def held_count(self) -> int:
        return self._count

    def hold(
        self, topic: str, queue_id: int, attempt: Attempt, timeout_s: float, owner: Hashable = None
    ) -> None:
        """Try again on each arrival in a queue, and once more after the time-out or when its owner goes."""
        held = _Held(attempt, (topic, queue_id), owner)
        held.timer = self._loop.call_later(timeout_s, self._expire, held)
        self._waiting.setdefault(held.key, {})[held] = None
        self._owned.setdefault(owner, {})[held] = None
        self._count += 1

    def arrived(self, arrival: Arrival) -> None:
        waiting = self._waiting.get((arrival.topic, arrival.queue_id))
        if waiting is not None:
            for held in list(waiting):
                if held in waiting and held.attempt(False):
                    self._forget(held)

    def release(self, topic: str) -> None:
        """Let everyone go who waits for a topic, because it changed or went away."""
        for key in [key for key in self._waiting if key[0] == topic]:
            for held in list(self._waiting.get(key, ())):
                self._expire(held)

    def release_owner(self, owner: Hashable) -> None:
        """Let everyone go who waits for this owner's sake."""
        for held in list(self._owned.get(owner, ())):
            self._expire(held)

    def release_all(self) -> None:
        for waiting in list(self._waiting.values()):
            for held in list(waiting):
                self._expire(held)

    def _expire(self, held: _Held) -> None:
        self._forget(held)
        held.attempt(True)

    def _forget(self, held: _Held) -> None:
        waiting = self._waiting.get(held.key)
        if waiting is None or held not in waiting:
            return
        del waiting[held]
        self._count -= 1
        if not waiting:
            del self._waiting[held.key]
        owned = self._owned[held.owner]
        del owned[held]
        if not owned:
            del self._owned[held.owner]
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
