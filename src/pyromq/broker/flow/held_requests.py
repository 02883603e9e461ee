"""Requests that wait for messages: tried again when there may be some, and for the last time when their time
is over or their owner leaves.

A held request costs its memory and one timer. Requests that wake together run in time slices, so that they do
not block the event loop.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final, Generic, TypeVar

from pyromq.remoting.channel import Channel
from pyromq.remoting.slices import Slices

MAX_HOLD_S: Final = 600.0


class HeldOutcome(Enum):
    """The outcome of an attempt to answer a held request."""

    ANSWERED = 1
    WAITS = 2
    """No message matched; the request keeps waiting."""
    GOES_ON = 3
    """The slice ended before all messages were examined."""
    LEFT_SOME = 4
    """Answered, and another one may find something, too. Only pops leave some."""


Attempt = Callable[[bool], HeldOutcome]
"""Try to answer a held request. True means: last chance, answer in any case."""


@dataclass(slots=True, eq=False)
class HeldCall:
    """An attempt for a caller who may leave. If it fails, the connection answers and logs it: one failing
    request must not break the others."""

    channel: Channel
    answered: "asyncio.Future[Any]"
    look: Attempt

    def __call__(self, is_last: bool) -> HeldOutcome:
        if not self.channel.is_open:
            self.answered.cancel()
        if not self.answered.done():
            try:
                return self.look(is_last)
            except Exception as problem:
                self.answered.set_exception(problem)
        return HeldOutcome.LEFT_SOME


@dataclass(slots=True, eq=False)
class HeldRequest:
    attempt: Attempt
    owner: Hashable
    timer: asyncio.TimerHandle | None = None
    """None once the request no longer waits."""
    is_due: bool = False
    """Whether it already waits for its slice."""


H = TypeVar("H", bound=HeldRequest)
K = TypeVar("K", bound=Hashable)


class HeldRequests(ABC, Generic[H]):
    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._loop = asyncio.get_running_loop()
        self._owned: dict[Hashable, dict[H, None]] = {}
        self.held_count = 0

    @abstractmethod
    def _take_out(self, held: H) -> None:
        """It no longer waits: nothing shall find it."""

    def _left_some(self, held: H) -> None:
        """It was answered, and left messages to others."""

    def _keep(self, held: H, timeout_s: float) -> None:
        held.timer = self._loop.call_later(min(max(timeout_s, 0), MAX_HOLD_S), self._expire, held)
        self._owned.setdefault(held.owner, {})[held] = None
        self.held_count += 1

    def _look_soon(self, held: H) -> None:
        if not held.is_due and held.timer is not None:
            held.is_due = True
            self._slices.run(partial(self._look, held))

    def _look(self, held: H) -> bool:
        if held.timer is not None:
            outcome = held.attempt(False)
            if outcome is HeldOutcome.GOES_ON:
                return False
            if outcome is not HeldOutcome.WAITS:
                self._forget(held)
            if outcome is HeldOutcome.LEFT_SOME:
                self._left_some(held)
        held.is_due = False
        return True

    def release_owner(self, owner: Hashable) -> None:
        """Answer all requests of this owner."""
        self._expire_all(self._owned.get(owner, ()))

    def release_all(self) -> None:
        self._expire_all(held for owned in self._owned.values() for held in owned)

    def _expire_all(self, all_held: Iterable[H]) -> None:
        for held in dict.fromkeys(all_held):  # some wait in several places
            self._expire(held)

    def _expire(self, held: H) -> None:
        self._forget(held)
        self._slices.run(partial(self._look_for_the_last_time, held))

    def _look_for_the_last_time(self, held: H) -> bool:
        if held.attempt(True) is HeldOutcome.LEFT_SOME:
            self._left_some(held)
        return True

    def _forget(self, held: H) -> None:
        if held.timer is not None:
            held.timer.cancel()
            held.timer = None
            self.held_count -= 1
            drop(self._owned, held.owner, held)
            self._take_out(held)


def drop(table: dict[K, dict[H, None]], key: K, held: H) -> None:
    """Take it out of what stands under a key, and the key with the last of these."""
    waiting = table[key]
    waiting.pop(held, None)
    if not waiting:
        del table[key]
