"""Times in buckets that grow with the time: any number of them in little memory, to within two per cent."""

from collections import Counter
from math import frexp

_STEPS = 32
"""Buckets for each doubling."""


class Latencies:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self.count = 0
        self.max_ms = 0.0
        self._sum_ms = 0.0

    def __repr__(self) -> str:
        return f"<Latencies of {self.count}, at most {self.max_ms:.3f} ms>"

    def add(self, ms: float) -> None:
        fraction, power = frexp(max(ms, 1e-6))
        self._counts[power * _STEPS + int((fraction - 0.5) * 2 * _STEPS)] += 1
        self.count += 1
        self._sum_ms += ms
        self.max_ms = max(self.max_ms, ms)

    @property
    def mean_ms(self) -> float:
        return self._sum_ms / self.count if self.count else 0.0

    def at(self, share: float) -> float:
        """The time within which this share of all ended."""
        left = share * self.count
        for bucket, count in sorted(self._counts.items()):
            left -= count
            if left <= 1e-9:
                return min(_end_ms(bucket), self.max_ms)
        return self.max_ms

    def doublings(self) -> list[tuple[float, int]]:
        """For each power of two, in milliseconds: how many took less, but not less than the one before."""
        powers: Counter[int] = Counter()
        for bucket, count in self._counts.items():
            powers[bucket // _STEPS] += count
        if not powers:
            return []
        return [(2.0**power, powers[power]) for power in range(min(powers), max(powers) + 1)]


def _end_ms(bucket: int) -> float:
    power, step = divmod(bucket, _STEPS)
    return float((0.5 + (step + 1) / (2 * _STEPS)) * 2.0**power)
