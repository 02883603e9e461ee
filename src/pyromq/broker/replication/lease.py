"""How long a master may continue alone: until a controller may have given its place to another broker.

A controller replaces a master from which it has heard nothing for the heartbeat time-out. A master reckons
from when it sent the last heartbeat that was answered, on its own clock, so its time is over first; time in
which its machine was suspended counts. Once it is over, answered heartbeats prove nothing: the controller
must say that this broker is still the master.
"""

from pyromq.clock import Clock

_MARGIN = 0.95
"""Two clocks do not run at the same pace."""
_NEVER = float("-inf")


class Lease:
    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s * _MARGIN
        self._sent_at = _NEVER
        self._suspended_at = _NEVER
        self._kept: float | None = None
        """The last heartbeat before the connection was lost, while the lease was held."""
        self._is_doubtful = True

    def __repr__(self) -> str:
        return f"<Lease {self.left_s:.1f} s left{' doubtful' if self._is_doubtful else ''}>"

    @property
    def left_s(self) -> float:
        return self._sent_at + self._timeout_s - self._clock.since_boot()

    @property
    def is_held(self) -> bool:
        return not self._is_doubtful and self.left_s > 0

    def renew(self, sent_at: float) -> None:
        """The leading controller has answered a heartbeat."""
        if sent_at <= self._suspended_at:
            return  # over the connection that is lost
        if self.left_s <= 0:
            self._is_doubtful = True
            self._kept = None
        self._sent_at = max(self._sent_at, sent_at)

    def ask(self) -> float:
        """The controller is asked who is master: remember what this returns for `confirm`."""
        return self._sent_at

    def confirm(self, asked: float) -> None:
        """The controller has said that this broker is the master. It had heard the heartbeat of then."""
        if asked + self._timeout_s > self._clock.since_boot():
            self._is_doubtful = False
            self._kept = None

    def doubt(self) -> None:
        """A new epoch has begun: the controller is to say once more that it is this broker's."""
        self._is_doubtful = True
        self._kept = None

    def suspend(self) -> None:
        """The connection to the controller was lost. It may take that for the end of this broker."""
        if self.is_held:
            self._kept = self._sent_at
        self._is_doubtful = True
        self._sent_at = _NEVER
        self._suspended_at = self._clock.since_boot()

    def resume(self) -> None:
        """It turned out that no controller was there to notice."""
        if self._kept is not None:
            self._sent_at, self._kept = max(self._sent_at, self._kept), None
            self._is_doubtful = False
