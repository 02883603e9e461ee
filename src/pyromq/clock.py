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
        """Seconds that never go backwards, for deadlines. They stand still while the machine is suspended."""
        ...

    def since_boot(self) -> float:
        """Seconds that also pass while the machine is suspended, for leases: others count them, too."""
        ...


def elapsed_ms(clock: Clock) -> int:
    """Whole milliseconds of the monotonic clock, for tables that store how long ago something happened."""
    return int(clock.monotonic() * 1000)


def clock_of(loop: object) -> Clock:
    """The clock of an event loop that has one, as simulated loops do; else the one of the process."""
    own: Clock | None = getattr(loop, "clock", None)
    return own if own is not None else _of_process


def use_in_process(clock: Clock) -> None:
    """Clients that start from now on have this clock; for tests."""
    global _of_process
    _of_process = clock


_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Without a CLOCK_BOOTTIME, as on macOS, that one keeps running while the machine is suspended."""


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # Called for every message: without a Python function around it.
    monotonic = staticmethod(time.monotonic)

    def since_boot(self) -> float:
        return time.clock_gettime(_SINCE_BOOT)


_of_process: Clock = SystemClock()


class TravellingClock(SystemClock):
    """The machine's clocks, except that `advance` skips time, as if the machine had been suspended."""

    def __init__(self) -> None:
        self._skipped_s = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + round(self._skipped_s * 1000)

    def since_boot(self) -> float:
        return super().since_boot() + self._skipped_s

    def advance(self, seconds: float) -> None:
        self._skipped_s += seconds


class ManualClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic = 1000.0
        self._suspended = 0.0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._monotonic

    def since_boot(self) -> float:
        return self._monotonic + self._suspended

    def suspend(self, seconds: float) -> None:
        """The machine sleeps: time passes, and no program notices."""
        self._now_ms += round(seconds * 1000)
        self._suspended += seconds

    def set_ahead(self, seconds: float) -> None:
        """Set the wall clock, as an operator or a time service would; no time passes."""
        self._now_ms += round(seconds * 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now_ms += round(seconds * 1000)
        self._monotonic += seconds
