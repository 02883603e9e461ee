"""Cron expressions: when their next time comes."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.client.cron import Cron
from pyromq.errors import ConfigError


def times(expression: str, after: str, count: int = 3, tz: str = "UTC") -> list[str]:
    """The next times, in the zone."""
    zone = ZoneInfo(tz)
    cron = Cron(expression, tz)
    at_ms = round(datetime.fromisoformat(after).replace(tzinfo=zone).timestamp() * 1000)
    found = []
    for _ in range(count):
        at_ms = cron.next_after(at_ms)
        found.append(datetime.fromtimestamp(at_ms / 1000, zone).strftime("%Y-%m-%d %H:%M%z"))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-01-30 03:01", "2026-01-30 03:02", "2026-01-30 03:03"]),
        ("0 3 * * *", ["2026-01-31 03:00", "2026-02-01 03:00", "2026-02-02 03:00"]),
        ("*/20 4 * * *", ["2026-01-30 04:00", "2026-01-30 04:20", "2026-01-30 04:40"]),
        ("50/5 * * * *", ["2026-01-30 03:50", "2026-01-30 03:55", "2026-01-30 04:50"]),
        ("0 9-17/4 * * MON-fri", ["2026-01-30 09:00", "2026-01-30 13:00", "2026-01-30 17:00"]),
        ("30 6 * * 7", ["2026-02-01 06:30", "2026-02-08 06:30", "2026-02-15 06:30"]),
        ("0 0 31 * *", ["2026-01-31 00:00", "2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 29 feb *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 13 * fri", ["2026-02-06 00:00", "2026-02-13 00:00", "2026-02-20 00:00"]),
        ("0 0 1 jan,jul *", ["2026-07-01 00:00", "2027-01-01 00:00", "2027-07-01 00:00"]),
    ],
)
def test_the_next_times_follow_from_the_expression(expression: str, expected: list[str]) -> None:
    assert times(expression, "2026-01-30 03:00") == [f"{each}+0000" for each in expected]


def test_a_fixed_hour_is_that_of_the_zone_and_runs_once_a_day_whatever_the_clocks_do() -> None:
    assert times("30 2 * * *", "2026-03-28 00:00", tz="Europe/Berlin") == [
        "2026-03-28 02:30+0100",
        "2026-03-29 03:30+0200",  # 02:30 does not exist
        "2026-03-30 02:30+0200",
    ]
    assert times("30 2 * * *", "2026-10-24 03:00", 2, tz="Europe/Berlin") == [
        "2026-10-25 02:30+0200",  # and not again an hour later
        "2026-10-26 02:30+0100",
    ]


def test_every_hour_goes_on_when_the_clocks_are_set_back() -> None:
    assert times("0 * * * *", "2026-10-25 01:00", tz="Europe/Berlin") == [
        "2026-10-25 02:00+0200",
        "2026-10-25 02:00+0100",
        "2026-10-25 03:00+0100",
    ]
    assert times("0 */2 * * *", "2026-03-29 00:00", 2, tz="Europe/Berlin") == [
        "2026-03-29 04:00+0200",
        "2026-03-29 06:00+0200",
    ]


@settings(max_examples=examples(100))
@given(
    st.integers(0, 4 * 10**12), st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Sao_Paulo"])
)
def test_a_time_comes_after_and_is_the_next_after_all_that_lies_between(at_ms: int, tz: str) -> None:
    cron = Cron("15 */3 * * *", tz)
    found = cron.next_after(at_ms)
    assert at_ms < found <= at_ms + timedelta(hours=5) // timedelta(milliseconds=1)
    assert cron.next_after(found - 1) == cron.next_after((at_ms + found) // 2) == found
    assert datetime.fromtimestamp(found / 1000, UTC).second == 0


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("0 3 * *", "five fields"),
        ("60 * * * *", "a minute from 0 to 59"),
        ("0 3 * * xyz", "a day of the week"),
        ("0 5-3 * * *", "begins before it ends"),
        ("*/0 * * * *", "a step of 1 or more"),
        ("0 0 30 2 *", "a time that comes"),
        (None, "five fields"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Cron(expression)
