"""Pulls that wait for messages, by queue.

A message wakes only the pulls that wait for its queue. A held pull costs its memory and one timer, and ends
with its connection. Pulls that wake together run in time slices, so that they do not block the event loop.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from pyromq.remoting.slices import Slices
from pyromq.store.results import QueueAdvance

K = TypeVar("K", bound=Hashable)

MAX_HOLD_S: Final = 600.0


class Outcome(Enum):
    """The outcome of an attempt to answer a held pull."""

    ANSWERED = 1
    WAITS = 2
    """No message matched; the pull keeps waiting."""
    GOES_ON = 3
    """The slice ended before all messages were examined."""
    LEFT_SOME = 4
    """Answered, and another one may find something, too. Only pops leave some."""


Queue = tuple[str, int]
"""Topic and queue id."""

Attempt = Callable[[bool], Outcome]
"""Try to answer a held pull. True means: last chance, answer in any case."""


@dataclass(slots=True, eq=False)
class _Held:
    attempt: Attempt
    queues: tuple[Queue, ...]
    owner: Hashable
    timer: asyncio.TimerHandle | None = None
    """None once the pull no longer waits."""
    is_due: bool = False
    """Whether it already waits for its slice."""


class HeldPulls:
    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[Queue, dict[_Held, None]] = {}
        self._owned: dict[Hashable, dict[_Held, None]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<HeldPulls held={self._count} queues={len(self._waiting)}>"

    @property
    def held_count(self) -> int:
        return self._count

    def hold(
        self, queues: Iterable[Queue], attempt: Attempt, timeout_s: float, owner: Hashable = None
    ) -> None:
        """Try again when one of the queues has new messages, and for the last time after the time-out or when
        the owner leaves."""
        held = _Held(attempt, tuple(queues), owner)
        # java: a pull is held as long as it asks for; but one that is answered sooner is just repeated
        wait_s = min(max(timeout_s, 0), MAX_HOLD_S)
        held.timer = self._loop.call_later(wait_s, self._expire, held)
        for queue in held.queues:
            self._waiting.setdefault(queue, {})[held] = None
        self._owned.setdefault(owner, {})[held] = None
        self._count += 1

    def advanced(self, advance: QueueAdvance) -> None:
        """A queue has new messages."""
        waiting = self._waiting.get((advance.topic, advance.queue_id))
        if waiting is not None:
            for held in list(waiting):
                if not held.is_due:
                    held.is_due = True
                    self._slices.run(partial(self._look, held))

    def _look(self, held: _Held) -> bool:
        if held.timer is not None:
            outcome = held.attempt(False)
            if outcome is Outcome.GOES_ON:
                return False
            if outcome is Outcome.ANSWERED:
                self._forget(held)
        held.is_due = False
        return True

    def release(self, topic: str) -> None:
        """Answer all pulls of a topic, because it changed or was deleted."""
        for key in [key for key in self._waiting if key[0] == topic]:
            for held in list(self._waiting.get(key, ())):
                self._expire(held)

    def release_owner(self, owner: Hashable) -> None:
        """Answer all pulls of this owner."""
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
        if held.timer is None:
            return
        held.timer.cancel()
        held.timer = None
        self._count -= 1
        for queue in held.queues:
            _take_out(self._waiting, queue, held)
        _take_out(self._owned, held.owner, held)


def _take_out(table: dict[K, dict[_Held, None]], key: K, held: _Held) -> None:
    waiting = table[key]
    waiting.pop(held, None)
    if not waiting:
        del table[key]
