"""Forecasts: a line is found through odd readings, and nothing is promised that the readings do not show."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.console.watch.forecast import (
    MAX_READINGS,
    FullDisk,
    full_disk,
    lag_forecast,
    loss_clock,
    retention_passes,
    slope,
    thinned,
)

NOW_MS = 1_700_000_000_000
HOUR_S = 3600.0


def line(per_s: float, start: float, count: int = 20) -> list[tuple[float, float]]:
    return [(index * 5.0, start + per_s * index * 5.0) for index in range(count)]


@settings(max_examples=examples(100))
@given(st.floats(-1e6, 1e6), st.floats(-1e9, 1e9), st.integers(4, 100))
def test_the_slope_of_a_line_is_found_exactly(per_s: float, start: float, count: int) -> None:
    found = slope(line(per_s, start, count))
    assert found is not None
    assert abs(found.per_s - per_s) <= 1e-6 * max(1.0, abs(per_s), abs(start))


@settings(max_examples=examples(100))
@given(
    st.integers(-1000, 1000),
    st.lists(
        st.tuples(st.integers(0, 19), st.integers(-(10**9), 10**9)), max_size=5, unique_by=lambda e: e[0]
    ),
)
def test_a_quarter_of_odd_readings_does_not_move_the_slope_much(
    per_s: int, odd: list[tuple[int, int]]
) -> None:
    readings = line(float(per_s), 1e6)
    for index, value in odd:
        readings[index] = readings[index][0], float(value)
    found = slope(readings)
    assert found is not None
    assert abs(found.per_s - per_s) <= 1e-6 * max(1.0, abs(per_s)) or len(odd) > 5


@settings(max_examples=examples(100))
@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(allow_nan=True)), max_size=200))
def test_any_readings_give_a_fit_between_0_and_1_or_nothing(readings: list[tuple[float, float]]) -> None:
    assert len(thinned(readings)) <= MAX_READINGS
    bounded = [(at, value) for at, value in readings if abs(value) < 1e12 or value != value]
    found = slope(bounded)
    assert found is None or 0.0 <= found.fit <= 1.0


def test_a_shrinking_lag_is_caught_up_where_its_line_meets_zero() -> None:
    readings = line(-10.0, 1000.0)
    forecast = lag_forecast(readings, NOW_MS)
    assert forecast is not None
    assert not forecast.is_poor
    assert not forecast.grows
    assert forecast.caught_up_ms == NOW_MS + round(readings[-1][1] / 10.0 * 1000)


def test_a_growing_lag_is_never_caught_up() -> None:
    forecast = lag_forecast(line(120.0, 5.0), NOW_MS)
    assert forecast is not None
    assert forecast.grows
    assert forecast.caught_up_ms is None
    assert round(forecast.per_s) == 120


def test_a_few_readings_are_no_forecast() -> None:
    assert lag_forecast(line(1.0, 1.0, count=3), NOW_MS) is None


def test_noise_is_a_poor_fit() -> None:
    noisy = [(index * 5.0, float(index * 7919 % 1000)) for index in range(30)]
    forecast = lag_forecast(noisy, NOW_MS)
    assert forecast is not None
    assert forecast.is_poor


def test_a_group_that_stands_still_loses_its_oldest_message_when_retention_reaches_it() -> None:
    clock = loss_clock(line(1.0, 70 * HOUR_S), 72 * HOUR_S, NOW_MS)
    assert clock is not None
    assert not clock.is_poor
    assert abs(clock.at_ms - NOW_MS - (2 * HOUR_S - 95.0) * 1000) < 1000


def test_a_group_that_reads_at_half_speed_has_twice_the_time() -> None:
    still, half = (loss_clock(line(speed, 71 * HOUR_S), 72 * HOUR_S, NOW_MS) for speed in (1.0, 0.5))
    assert still is not None
    assert half is not None
    assert half.at_ms - NOW_MS > 1.9 * (still.at_ms - NOW_MS)


def test_a_group_that_catches_up_loses_nothing() -> None:
    assert loss_clock(line(-0.5, 71 * HOUR_S), 72 * HOUR_S, NOW_MS) is None


def test_a_group_behind_retention_loses_now() -> None:
    clock = loss_clock([(0.0, 80 * HOUR_S)], 72 * HOUR_S, NOW_MS)
    assert clock is not None
    assert clock.at_ms == NOW_MS
    assert not clock.is_poor


def test_an_offset_moved_back_does_not_speed_up_time() -> None:
    clock = loss_clock(line(50.0, 1.0), 72 * HOUR_S, NOW_MS)
    assert clock is not None
    assert clock.at_ms - NOW_MS >= (72 * HOUR_S - 5000) * 1000


def test_without_retention_nothing_is_lost() -> None:
    assert loss_clock(line(1.0, 1.0), 0.0, NOW_MS) is None


def test_a_full_disk_shortens_retention_to_what_the_log_has() -> None:
    assert retention_passes(72 * HOUR_S, 10 * HOUR_S, is_cleaning_early=False) == 72 * HOUR_S
    assert retention_passes(72 * HOUR_S, 10 * HOUR_S, is_cleaning_early=True) == 10 * HOUR_S


@settings(max_examples=examples(100))
@given(st.floats(0.0, 0.7), st.floats(1e-7, 1e-4))
def test_a_disk_that_fills_is_full_where_its_line_meets_the_limit(start: float, per_s: float) -> None:
    readings = line(per_s, start, count=150)
    full = full_disk(readings, 0.75, NOW_MS)
    left_s = (0.75 - readings[-1][1]) / per_s
    if left_s <= 0:
        assert full is not None
        assert full.at_ms == NOW_MS
    elif left_s < 6 * 86_400:
        assert full is not None
        assert full.at_ms is not None
        assert abs(full.at_ms - NOW_MS - left_s * 1000) < 1000 + left_s * 10
    assert full_disk(line(-per_s, start, count=150), 0.75, NOW_MS) is None


def test_a_disk_over_its_limit_is_full_now() -> None:
    full = full_disk([(0.0, 0.8)], 0.75, NOW_MS)
    assert full is not None
    assert full.at_ms == NOW_MS


def test_a_minute_of_history_says_nothing_about_a_disk() -> None:
    assert full_disk(line(1e-4, 0.1, count=13), 0.75, NOW_MS) == FullDisk(None, 0.75, is_poor=True)
