"""An overloaded broker refuses sends at once with SYSTEM_BUSY, so that producers can choose another broker.

A turn of the event loop handles the requests that were in the sockets when the turn began. The time since
then is therefore a lower bound for how long a request has waited. It grows when an append stalls or when the
turn has too much to do. Requests that are read in the next turn have not waited. Requests that were read
before and let other connections go first have waited since then.
"""

from collections.abc import Callable
from math import inf
from typing import NoReturn

from pyromq.broker.settings import BrokerSettings
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode


class SendThrottle:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        clock: Clock,
        at_turn_end: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """`at_turn_end(listener)` returns a function that has `listener` called at the end of this turn."""
        self._monotonic = clock.monotonic
        self._end_turn_soon = at_turn_end(self._end_turn)
        self._is_within_turn = False
        self._turn_began = 0.0
        self._last_send = 0.0
        self._longest_gap = 0.0
        self._limit_s = 0.0
        self._wait_limit_s = self._stall_limit_s = 0.0
        self._refused_for_waiting = self._refused_for_stalls = 0
        live.on_change(self._apply_settings)

    def __repr__(self) -> str:
        return f"<SendThrottle refused={self._refused_for_waiting + self._refused_for_stalls}>"

    def _apply_settings(self, settings: BrokerSettings) -> None:
        never = float("inf")
        self._wait_limit_s = settings.send_wait_limit_ms / 1000 if settings.fast_failure else never
        self._stall_limit_s = settings.append_stall_limit_ms / 1000
        self._limit_s = min(self._wait_limit_s, self._stall_limit_s)

    def admit(self, received_at: float = inf) -> None:
        """Count a send; raises Refused if it has waited too long."""
        if not self.admits(received_at):
            self._refuse(self._last_send - self._turn_began)

    def admits(self, received_at: float = inf) -> bool:
        """Count a send; False if it has waited too long."""
        now = self._monotonic()
        if not self._is_within_turn:
            self._is_within_turn = True
            self._end_turn_soon()
            if received_at > self._last_send:
                self._turn_began = self._last_send = now
                self._longest_gap = 0.0
                return True
            # It was read before the previous send was handled, and has waited since.
            # What the loop did between the turns was not an append.
            self._turn_began, self._last_send = received_at, now
        # The time between two sends of a turn is nearly all spent on one append.
        gap = now - self._last_send
        self._last_send = now
        if gap > self._longest_gap:
            self._longest_gap = gap
        return now - self._turn_began < self._limit_s

    def _refuse(self, waited_s: float) -> None:
        """java: clients and tools recognize these prefixes."""
        if self._longest_gap > self._stall_limit_s:
            self._refused_for_stalls += 1
            _busy("[PCBUSY_CLEAN_QUEUE]", f"an append took {self._longest_gap * 1000:.0f} ms")
        if waited_s >= self._wait_limit_s:
            self._refused_for_waiting += 1
            _busy("[TIMEOUT_CLEAN_QUEUE]", f"the request waited {waited_s * 1000:.0f} ms")

    def _end_turn(self) -> None:
        self._is_within_turn = False
        gap = self._monotonic() - self._last_send
        if gap > self._longest_gap:
            self._longest_gap = gap

    def statistics(self) -> dict[str, int]:
        return {
            "refused_for_waiting": self._refused_for_waiting,
            "refused_for_stalls": self._refused_for_stalls,
        }


def _busy(prefix: str, why: str) -> NoReturn:
    raise Refused(ResponseCode.SYSTEM_BUSY, f"{prefix}the broker is busy: {why}")
