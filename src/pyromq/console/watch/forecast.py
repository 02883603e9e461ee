"""Forecasts from the last minutes of a figure. Pure: readings in, a forecast or None out.

A slope is the median of the slopes between all pairs of readings (Theil and Sen): a few odd readings do not
move it. A forecast says how well it fits; a poor one is shown in grey, or not at all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

import msgspec

Readings = Sequence[tuple[float, float]]
"""Times in seconds, and values."""

MIN_READINGS = 4
MAX_READINGS = 30
"""More are thinned out: the number of pairs grows with the square."""
MIN_DISK_HISTORY_S = 600.0
"""A disk fills in bursts: a minute of it says nothing about hours."""
POOR_FIT = 0.5
_HORIZON_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Slope:
    """Growth per second. `fit` is 1 if every reading lies on the line, 0 if the line explains nothing."""

    per_s: float
    fit: float

    @property
    def is_poor(self) -> bool:
        return self.fit < POOR_FIT


class LagForecast(msgspec.Struct, frozen=True, gc=False):
    """`caught_up_ms` is the time at which a shrinking lag ends, None if it does not shrink."""

    per_s: float
    caught_up_ms: int | None
    is_poor: bool

    @property
    def grows(self) -> bool:
        return self.per_s > 0


class LossClock(msgspec.Struct, frozen=True, gc=False):
    """Retention deletes the group's oldest unread message at `at_ms`, if nothing changes."""

    at_ms: int
    is_poor: bool


@dataclass(frozen=True, slots=True)
class FullDisk:
    """The disk reaches `limit` (a ratio) at `at_ms`, if it fills as it does now. None: not known yet."""

    at_ms: int | None
    limit: float
    is_poor: bool


def slope(readings: Readings) -> Slope | None:
    """The robust slope of readings; None if there are too few, or all of one moment."""
    points = thinned(readings)
    if len(points) < MIN_READINGS:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(points, 2) if b[0] != a[0]]
    if not slopes:
        return None
    per_s = median(slopes)
    base = median(value - per_s * at for at, value in points)
    middle = median(value for _, value in points)
    off_line = median(abs(value - (base + per_s * at)) for at, value in points)
    off_level = median(abs(value - middle) for _, value in points)
    if off_level <= 1e-9 * max(1.0, abs(middle)):
        return Slope(per_s, 1.0)
    return Slope(per_s, max(0.0, 1.0 - off_line / off_level))


def thinned(readings: Readings) -> list[tuple[float, float]]:
    """At most `MAX_READINGS`, spread evenly, with the newest; readings that are not numbers are omitted."""
    points = [point for point in readings if math.isfinite(point[1])]
    if len(points) <= MAX_READINGS:
        return points
    step = (len(points) - 1) / (MAX_READINGS - 1)
    return [points[round(index * step)] for index in range(MAX_READINGS)]


def lag_forecast(readings: Readings, now_ms: int) -> LagForecast | None:
    """When a group has caught up, or how fast its lag grows; None if nothing can be said."""
    found = slope(readings)
    if found is None:
        return None
    lag = readings[-1][1]
    left_s = lag / -found.per_s if found.per_s < 0 else math.inf
    caught_up_ms = now_ms + round(left_s * 1000) if lag > 0 and left_s <= _HORIZON_S else None
    return LagForecast(found.per_s, caught_up_ms, found.is_poor)


def loss_clock(ages_s: Readings, retention_s: float, now_ms: int) -> LossClock | None:
    """When retention passes a group's offset; None if it does not.

    `ages_s` are the latest ages of the group's oldest unread message. A group that stands still ages by one
    second a second; one that catches up grows younger, and is never passed.
    """
    if not ages_s or retention_s <= 0:
        return None
    age_s = ages_s[-1][1]
    if age_s >= retention_s:
        return LossClock(now_ms, is_poor=False)
    found = slope(ages_s)
    # A message ages by a second a second at most: a faster growth is an offset that was moved back.
    growth = 1.0 if found is None else min(1.0, found.per_s)
    if growth <= 0:
        return None
    left_s = (retention_s - age_s) / growth
    if left_s > _HORIZON_S:
        return None
    return LossClock(now_ms + round(left_s * 1000), is_poor=found is None or found.is_poor)


def retention_passes(retention_s: float, span_s: float | None, *, is_cleaning_early: bool) -> float:
    """How old a message gets. While a full disk makes the broker delete early, that is the span that its log
    has now, and not what its settings promise."""
    if is_cleaning_early and span_s is not None:
        return min(retention_s, span_s) if retention_s > 0 else span_s
    return retention_s


def full_disk(ratios: Readings, limit: float, now_ms: int) -> FullDisk | None:
    """When a disk reaches a limit; None if it does not within a week."""
    if not ratios:
        return None
    if ratios[-1][1] >= limit:
        return FullDisk(now_ms, limit, is_poor=False)
    if ratios[-1][0] - ratios[0][0] < MIN_DISK_HISTORY_S:
        return FullDisk(None, limit, is_poor=True)
    found = slope(ratios)
    if found is None or found.per_s <= 0:
        return None
    left_s = (limit - ratios[-1][1]) / found.per_s
    return FullDisk(now_ms + round(left_s * 1000), limit, found.is_poor) if left_s <= _HORIZON_S else None
