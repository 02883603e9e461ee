"""Time as a dependency.

Everything that measures time takes a `Clock`, so that tests can control it.
"""

import time
from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall-clock milliseconds since the epoch, for messages and files."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for deadlines."""
        ...


def elapsed_ms(clock: Clock) -> int:
    """Whole milliseconds of the monotonic clock, for tables that store how long ago something happened."""
    return int(clock.monotonic() * 1000)


def clock_of(loop: object) -> Clock:
    """The clock of an event loop that has one, as simulated loops do; else the machine's."""
    own: Clock | None = getattr(loop, "clock", None)
    return own if own is not None else SystemClock()


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Called for every message: without a Python function around it.
    monotonic = staticmethod(time.monotonic)


class ManualClock:
    """A clock that only moves when told to."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def set_ahead(self, seconds: float) -> None:
        """Set the wall clock, as an operator or a time service would; no time passes."""
        self._now_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds
