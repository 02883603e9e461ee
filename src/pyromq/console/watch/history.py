"""The last hour of figures every 5 seconds, and the last day every minute, in rings of floats.

A figure takes 8.6 kB, however long the console runs. Only figures that are asked for often have a history:
those of brokers, groups, busy topics and open pages.
"""

import math
from array import array
from collections.abc import Hashable, Iterator
from typing import Final, Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)

STEP_S: Final = 5
HOUR_STEPS: Final = 3600 // STEP_S
MINUTE_S: Final = 60
DAY_STEPS: Final = 86_400 // MINUTE_S

UNTOLD: Final = math.nan


# There are thousands of these: the garbage collector does not have to look at them.


class Ring(msgspec.Struct, gc=False):
    """Values at a fixed step; a step without a reading has no value (NaN)."""

    _step_s: int
    _size: int
    _last_step: int | None = None
    _values: "array[float]" = array("f")

    def __post_init__(self) -> None:
        self._values = array("f", [UNTOLD]) * self._size

    def put(self, at_s: float, value: float) -> None:
        """Write the value of a step; a later one of the same step replaces it, an older one is dropped."""
        step = int(at_s // self._step_s)
        last = self._last_step
        if last is not None:
            if step < last:
                return
            for missed in range(max(last + 1, step - self._size + 1), step):
                self._values[missed % self._size] = UNTOLD
        self._values[step % self._size] = value
        self._last_step = step

    def sampled(self, points: int, span_s: float) -> list[float]:
        """The newest values at `points` moments of a span, oldest first, without the missing ones."""
        if self._last_step is None:
            return []
        steps = max(1, int(span_s // self._step_s) // points)
        first = max(0, self._last_step - steps * (points - 1))
        places = range(
            self._last_step - (self._last_step - first) // steps * steps, self._last_step + 1, steps
        )
        return [value for step in places if (value := self._values[step % self._size]) == value]

    def readings(self, since_s: float = -math.inf) -> list[tuple[float, float]]:
        """Times in seconds and values, oldest first, without the missing ones."""
        last = self._last_step
        if last is None:
            return []
        first = last - self._size + 1
        if since_s > -math.inf:
            first = max(first, math.ceil(since_s / self._step_s))
        first = max(0, first)
        if first > last:
            return []
        at, end = first % self._size, last % self._size + 1
        told = self._values[at:end] if at < end else self._values[at:] + self._values[:end]
        times = range(first * self._step_s, (last + 1) * self._step_s, self._step_s)
        return [(float(time_s), value) for time_s, value in zip(times, told, strict=True) if value == value]


class History(msgspec.Struct, gc=False):
    """One figure over an hour and a day; a minute has the mean of its steps."""

    hour: Ring = msgspec.field(default_factory=lambda: Ring(STEP_S, HOUR_STEPS))
    day: Ring = msgspec.field(default_factory=lambda: Ring(MINUTE_S, DAY_STEPS))
    _minute: int = -1
    _sum: float = 0.0
    _count: int = 0

    def put(self, at_s: float, value: float) -> None:
        self.hour.put(at_s, value)
        minute = int(at_s // MINUTE_S)
        if minute != self._minute:
            self._minute, self._sum, self._count = minute, 0.0, 0
        self._sum += value
        self._count += 1
        self.day.put(at_s, self._sum / self._count)


class Histories(Generic[K]):
    """Histories by name, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._histories: dict[K, History] = {}

    def __repr__(self) -> str:
        return f"<Histories {len(self)} of at most {self._limit}>"

    def __len__(self) -> int:
        return len(self._histories)

    def __iter__(self) -> Iterator[K]:
        return iter(self._histories)

    def get(self, key: K) -> History | None:
        return self._histories.get(key)

    def put(self, key: K, at_s: float, value: float) -> None:
        """Write a value; dropped if there is no history of this name and no room for another."""
        history = self._histories.get(key)
        if history is None:
            if len(self._histories) >= self._limit:
                return
            history = self._histories[key] = History()
        history.put(at_s, value)

    def forget(self, key: K) -> None:
        self._histories.pop(key, None)
