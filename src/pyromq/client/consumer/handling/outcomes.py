"""The exceptions by which a handler asks for a retry, or gives a message up."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeAlias

from pyromq.chance import random
from pyromq.errors import PyroError

TO_DEAD_LETTERS = -1
BROKER_DECIDES = 0

Delay: TypeAlias = int | timedelta
"""When a failed message is delivered again: after a delay level of the broker, or after a time."""

LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""The delay levels of brokers, by default."""


def is_given_up(delay: Delay) -> bool:
    return isinstance(delay, int) and delay < 0


def level_for(delay: timedelta) -> int:
    """The first level that waits as long, for brokers without timers."""
    seconds = delay.total_seconds()
    return next((level for level, each_s in enumerate(LEVELS_S, 1) if each_s >= seconds), len(LEVELS_S))


@dataclass(frozen=True, slots=True)
class Backoff:
    """Each retry waits twice as long as the one before, and a random part of `jitter` more or less."""

    first_s: float
    max_s: float
    jitter: float

    def after(self, failures: int) -> timedelta:
        """`failures`: how often the message was delivered before."""
        seconds = min(self.first_s * 2.0 ** min(failures, 60), self.max_s)
        return timedelta(seconds=seconds * (1 + self.jitter * (2 * random() - 1)))


class RetryLater(PyroError):
    """Raised by a handler that wants its messages again after a certain delay.

    Any other exception asks for a retry, too. `delay_level` is one of the broker's levels (by default 1 is a
    second, 18 are two hours). With 0 the broker waits longer each time; with a negative level the message
    goes to the dead letters of the group, and a level above the broker's highest means the highest. `delay`
    is a time instead; a broker without timers takes the next longer level.
    `only`: the messages of a batch that failed, or copies of them; the others are done. If one of them is not
    in the batch, all of it failed.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay: timedelta | None = None,
        delay_level: int = BROKER_DECIDES,
        only: Collection[Any] | None = None,
    ) -> None:
        super().__init__(reason or "the handler asked for a retry")
        if delay is not None and (not issubclass(type(delay), timedelta) or delay < timedelta()):
            raise TypeError(f"delay must be a timedelta of 0 or more, not {delay!r}")
        if delay is not None and delay_level != BROKER_DECIDES:
            raise ValueError("set only one of delay and delay_level")
        if type(delay_level) is not int:
            raise TypeError(f"delay_level must be an int, not {delay_level!r}")
        if only is not None and not only:
            raise ValueError("only must have the messages that failed: return if none did")
        self.delay_level = delay_level
        self.delay = delay
        self.only = only

    @property
    def wanted(self) -> Delay:
        return self.delay_level if self.delay is None else self.delay


class GiveUp(RetryLater):
    """Raised by a handler if a retry would not help: the message goes to the dead letters at once."""

    def __init__(self, reason: str = "", *, only: Collection[Any] | None = None) -> None:
        super().__init__(reason or "the handler gave the message up", delay_level=TO_DEAD_LETTERS, only=only)
