"""How long a master may go on alone: until a controller may have given its place to another broker.

A controller replaces a master from which it has heard nothing for the heartbeat time-out. A master reckons
from when it sent the last heartbeat that was answered, on its own clock, so its time is over first.
"""

from pyromq.clock import Clock

_MARGIN = 0.95
"""Two clocks do not run at the same pace."""


class Lease:
    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s * _MARGIN
        self._sent_at = float("-inf")
        self._is_suspended = False

    def __repr__(self) -> str:
        return f"<Lease {self.left_s:.1f} s left{' suspended' if self._is_suspended else ''}>"

    @property
    def left_s(self) -> float:
        return self._sent_at + self._timeout_s - self._clock.monotonic()

    @property
    def is_held(self) -> bool:
        return not self._is_suspended and self.left_s > 0

    def renew(self, sent_at: float) -> None:
        """The leading controller has answered a heartbeat."""
        self._sent_at = max(self._sent_at, sent_at)
        self._is_suspended = False

    def suspend(self) -> None:
        """The connection to the controller was lost. It may take that for the end of this broker."""
        self._is_suspended = True

    def resume(self) -> None:
        """It turned out that no controller was there to notice."""
        self._is_suspended = False
