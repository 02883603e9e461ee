"""Pulls that wait for messages, by the queue they wait for.

A message wakes only those who wait for its queue. An idle wait costs its memory and one timer, and ends with
whoever waits. However many wake at once, or have much to look through, they take only slices of the loop.
"""

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from functools import partial

from pyromq.remoting.slices import Slices
from pyromq.store.dispatch import Arrival


class Outcome(Enum):
    """What became of an attempt to answer a held pull."""

    ANSWERED = 1
    WAITS = 2
    """Everything was looked at, and nothing was wanted."""
    GOES_ON = 3
    """The slice was over before everything was looked at."""


Attempt = Callable[[bool], Outcome]
"""Try to answer a held pull. True means: this is the last chance, answer."""


@dataclass(slots=True, eq=False)
class _Held:
    attempt: Attempt
    key: tuple[str, int]
    owner: Hashable
    timer: asyncio.TimerHandle | None = None
    is_due: bool = False
    """It waits for its slice already."""


class Arrivals:
    def __init__(self, slices: Slices) -> None:
        self._slices = slices
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
                if not held.is_due:
                    held.is_due = True
                    self._slices.run(partial(self._look, held))

    def _look(self, held: _Held) -> bool:
        if held in self._waiting.get(held.key, ()):
            outcome = held.attempt(False)
            if outcome is Outcome.GOES_ON:
                return False
            if outcome is Outcome.ANSWERED:
                self._forget(held)
        held.is_due = False
        return True

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
        self._slices.run(partial(self._look_for_the_last_time, held))

    def _look_for_the_last_time(self, held: _Held) -> bool:
        held.attempt(True)
        return True

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
