"""Rates of counters and histories of gauges that are read repeatedly, kept short, for drawing."""

from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

REMEMBERED = 30


class Rates(Generic[K]):
    """The growth of several counters per second, between two readings."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._last: dict[K, float] = {}
        self._last_s: float | None = None
        self._histories: dict[K, deque[float]] = {}

    def __repr__(self) -> str:
        return f"<Rates of {len(self._last)} counters>"

    def read(self, counters: Mapping[K, float], now_s: float) -> None:
        """Take a reading; a counter that fell was reset and counts as still, a missing one is dropped."""
        elapsed_s = None if self._last_s is None else now_s - self._last_s
        for key, value in counters.items():
            history = self._histories.setdefault(key, deque(maxlen=self._remembered))
            if elapsed_s is not None and elapsed_s > 0 and key in self._last:
                history.append(max(0.0, value - self._last[key]) / elapsed_s)
        for gone in self._histories.keys() - counters.keys():
            del self._histories[gone]
        self._last, self._last_s = dict(counters), now_s

    def rate(self, key: K) -> float | None:
        """The rate between the last two readings, if there were two."""
        history = self._histories.get(key)
        return history[-1] if history else None

    def history(self, key: K) -> list[float]:
        """The latest rates, oldest first."""
        return list(self._histories.get(key, ()))


class GaugeHistories(Generic[K]):
    """The latest values of several gauges, such as the lag of groups, for drawing."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._remembered = remembered
        self._values: dict[K, deque[float]] = {}

    def __repr__(self) -> str:
        return f"<GaugeHistories of {len(self._values)} gauges>"

    def read(self, gauges: Mapping[K, float]) -> None:
        """Take a reading; a missing gauge is dropped."""
        for key, value in gauges.items():
            self._values.setdefault(key, deque(maxlen=self._remembered)).append(value)
        for gone in self._values.keys() - gauges.keys():
            del self._values[gone]

    def history(self, key: K) -> list[float]:
        """The latest values, oldest first."""
        return list(self._values.get(key, ()))
