"""How a handler says what became of its messages: it returns, or it raises."""

from collections.abc import Collection
from typing import Any

from pyromq.errors import PyroError

TO_DEAD_LETTERS = -1
BROKER_DECIDES = 0


class RetryLater(PyroError):
    """Raised by a handler that wants messages again, and wants to say when.

    Any other exception asks for a retry, too. `delay_level` is one of the broker's levels (1 is a second, 18
    are two hours on a broker as it comes), 0 lets the broker wait longer each time, and a negative one gives
    the message up: it goes to the dead letters of the group. `only` names what failed of a batch.
    """

    def __init__(
        self,
        reason: str = "",
        *,
        delay_level: int = BROKER_DECIDES,
        only: Collection[Any] | None = None,
    ) -> None:
        super().__init__(reason or "the handler wants the message again")
        self.delay_level = delay_level
        self.only = only


class GiveUp(RetryLater):
    """Raised by a handler to which no retry would help: the message goes to the dead letters at once."""

    def __init__(self, reason: str = "", *, only: Collection[Any] | None = None) -> None:
        super().__init__(reason or "the handler gave the message up", delay_level=TO_DEAD_LETTERS, only=only)
