"""Brokers that were slow or failed are avoided for a while, longer the slower they were.

Pure: callers pass the time, in milliseconds.
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

LATENCIES_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
PAUSES_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
"""java: a broker with this latency is avoided for the time at the same index."""

FAILURE_COUNTS_AS_MS: Final = 10000


def pause_ms(latency_ms: float) -> int:
    """How long a broker with this latency is avoided."""
    index = bisect_right(LATENCIES_MS, latency_ms) - 1
    return PAUSES_MS[index] if index >= 0 else 0


@dataclass(slots=True)
class _Fault:
    until_ms: float
    is_reachable: bool


class BrokerFaults:
    def __init__(self) -> None:
        self.known: dict[str, _Fault] = {}

    def __repr__(self) -> str:
        return f"<BrokerFaults {sorted(self.known)}>"

    @property
    def is_empty(self) -> bool:
        return not self.known

    def answered(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        if latency_ms < LATENCIES_MS[0] and not self.known:
            return
        self._note(broker_name, pause_ms(latency_ms), now_ms, is_reachable=True)

    def failed(self, broker_name: str, now_ms: float, *, is_reachable: bool) -> None:
        self._note(broker_name, pause_ms(FAILURE_COUNTS_AS_MS), now_ms, is_reachable=is_reachable)

    def _note(self, broker_name: str, for_ms: int, now_ms: float, *, is_reachable: bool) -> None:
        # A broker that is gone never answers again, and would keep quick sends off for good.
        for name in [name for name, fault in self.known.items() if fault.until_ms <= now_ms]:
            del self.known[name]
        fault = self.known.get(broker_name)
        if fault is None:
            if for_ms > 0:
                self.known[broker_name] = _Fault(now_ms + for_ms, is_reachable)
            return
        # java: a quick answer does not shorten a pause
        fault.until_ms = max(fault.until_ms, now_ms + for_ms)
        fault.is_reachable = is_reachable

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        fault = self.known.get(broker_name)
        return fault is None or fault.until_ms <= now_ms

    def is_reachable(self, broker_name: str) -> bool:
        fault = self.known.get(broker_name)
        return fault is None or fault.is_reachable
