"""The exceptions by which a handler asks for a retry, or gives a message up."""

from collections.abc import Collection
from typing import Any

from pyromq.errors import PyroError

TO_DEAD_LETTERS = -1
BROKER_DECIDES = 0


class RetryLater(PyroError):
    """Raised by a handler that wants its messages again after a certain delay.

    Any other exception asks for a retry, too. `delay_level` is one of the broker's levels (by default 1 is a
    second, 18 are two hours). With 0 the broker waits longer each time; with a negative level the message
    goes to the dead letters of the group, and a level above the broker's highest means the highest.
    `only`: the messages of a batch that failed, or copies of them; the others are done. If one of them is not
    in the batch, all of it failed.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_level: int = BROKER_DECIDES,
        only: Collection[Any] | None = None,
    ) -> None:
        super().__init__(reason or "the handler asked for a retry")
        if type(delay_level) is not int:
            raise TypeError(f"delay_level must be an int, not {delay_level!r}")
        if only is not None and not only:
            raise ValueError("only must have the messages that failed: return if none did")
        self.delay_level = delay_level
        self.only = only


class GiveUp(RetryLater):
    """Raised by a handler if a retry would not help: the message goes to the dead letters at once."""

    def __init__(self, reason: str = "", *, only: Collection[Any] | None = None) -> None:
        super().__init__(reason or "the handler gave the message up", delay_level=TO_DEAD_LETTERS, only=only)
