"""When sends are refused for want of time: SYSTEM_BUSY, at once, so that producers can go elsewhere.

What a turn of the loop handles was in the sockets when the turn began. So the time since then is time that a
request has surely waited, and it grows when one append stalls or when there is more to do than time to do it.
What came later is handled in the next turn, and has not waited.
"""

from collections.abc import Callable
from typing import NoReturn

from pyromq.broker.settings import BrokerSettings
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode


class Pressure:
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        clock: Clock,
        at_turn_end: Callable[[Callable[[], None]], Callable[[], None]],
    ) -> None:
        """`at_turn_end` takes what shall be called at the end of turns, and gives what asks for it."""
        self._monotonic = clock.monotonic
        self._end_turn_soon = at_turn_end(self._end_turn)
        self._is_within_turn = False
        self._turn_began = 0.0
        self._last_send = 0.0
        self._longest_gap = 0.0
        self._limit_s = 0.0
        self._wait_limit_s = self._stall_limit_s = 0.0
        self._refused_for_waiting = self._refused_for_stalls = 0
        live.follow(self._use)

    def __repr__(self) -> str:
        return f"<Pressure refused={self._refused_for_waiting + self._refused_for_stalls}>"

    def _use(self, settings: BrokerSettings) -> None:
        never = float("inf")
        self._wait_limit_s = settings.send_wait_limit_ms / 1000 if settings.fast_failure else never
        self._stall_limit_s = settings.append_stall_limit_ms / 1000
        self._limit_s = min(self._wait_limit_s, self._stall_limit_s)

    def admit(self) -> None:
        """Count a send in; raises Refused if it has waited too long."""
        if not self.admits():
            self._refuse(self._last_send - self._turn_began)

    def admits(self) -> bool:
        """Count a send in; says no if it has waited too long."""
        now = self._monotonic()
        if not self._is_within_turn:
            self._is_within_turn = True
            self._turn_began = self._last_send = now
            self._longest_gap = 0.0
            self._end_turn_soon()
            return True
        # Between two sends of a turn lies hardly anything but an append.
        gap = now - self._last_send
        self._last_send = now
        if gap > self._longest_gap:
            self._longest_gap = gap
        return now - self._turn_began < self._limit_s

    def _refuse(self, waited_s: float) -> None:
        """java: clients and tools know these prefixes."""
        if self._longest_gap > self._stall_limit_s:
            self._refused_for_stalls += 1
            _busy("[PCBUSY_CLEAN_QUEUE]", f"an append took {self._longest_gap * 1000:.0f} ms")
        if waited_s >= self._wait_limit_s:
            self._refused_for_waiting += 1
            _busy("[TIMEOUT_CLEAN_QUEUE]", f"the request waited {waited_s * 1000:.0f} ms")

    def _end_turn(self) -> None:
        self._is_within_turn = False

    def statistics(self) -> dict[str, int]:
        return {
            "refused_for_waiting": self._refused_for_waiting,
            "refused_for_stalls": self._refused_for_stalls,
        }


def _busy(prefix: str, why: str) -> NoReturn:
    raise Refused(ResponseCode.SYSTEM_BUSY, f"{prefix}the broker is busy: {why}")
