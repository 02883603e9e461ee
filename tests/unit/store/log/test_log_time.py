"""The log's time: it follows the clock, never runs back, and believes no leap before it has stood."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.small_stores import append, dispatch_all, read_queue, small_settings

from pyromq.clock import ManualClock, SystemClock
from pyromq.filesystem import Files
from pyromq.store.log.commit_log import CommitLog
from pyromq.store.log.log_time import CONFIRMED_AFTER_S, LogTime
from pyromq.store.message_store import MessageStore

DAY_S = 86_400


def log_time(clock: ManualClock, newest_ms: int = 0) -> LogTime:
    log = CommitLog(Files(), Path("nowhere"), 8192, preallocate=False, warm_up=False)
    log.last_store_timestamp = newest_ms
    return LogTime(clock, log)


def test_it_is_the_clock_as_long_as_nothing_is_odd() -> None:
    clock = ManualClock()
    time = log_time(clock, clock.now_ms() - 1000)
    for _ in range(100):
        clock.advance(10)
        assert time.now_ms() == time.cautious_ms() == clock.now_ms()
    assert time.take_notices() == []


def test_a_clock_that_is_adjusted_little_by_little_is_followed() -> None:
    clock = ManualClock()
    time = log_time(clock)
    for drift in [0.0005] * 500 + [-0.0005] * 500:
        clock.advance(1)
        clock.set_ahead(drift)
        assert abs(time.now_ms() - clock.now_ms()) <= 1
    assert time.take_notices() == []
    assert time.leap_count == 0


def test_a_clock_set_back_is_waited_for_at_nearly_full_pace() -> None:
    clock = ManualClock()
    time = log_time(clock)
    start_ms = time.now_ms()
    clock.set_ahead(-100)
    for _ in range(1000):
        clock.advance(1)
        time.look()
    assert time.now_ms() == pytest.approx(start_ms + 950_000, abs=10)
    assert time.cautious_ms() == clock.now_ms()
    for _ in range(1100):
        clock.advance(1)
        time.look()
    assert time.now_ms() == clock.now_ms()
    behind, again = time.take_notices()
    assert "1.7 minutes behind" in behind
    assert "agrees" in again
    assert time.take_notices() == []


def test_a_clock_set_ahead_by_little_is_followed_at_once_and_that_is_remembered() -> None:
    clock = ManualClock()
    time = log_time(clock)
    before_ms = time.now_ms()
    clock.set_ahead(40)
    assert time.now_ms() == clock.now_ms()
    assert time.leapt_since(before_ms) == 40_000
    assert time.leapt_since(before_ms + 1) == 0


def test_a_clock_set_ahead_for_a_moment_is_not_believed() -> None:
    clock = ManualClock()
    time = log_time(clock)
    right_ms = clock.now_ms()
    clock.set_ahead(5 * DAY_S)
    for _ in range(14):
        clock.advance(1)
        assert time.now_ms() == time.cautious_ms() == clock.now_ms() - 5 * DAY_S * 1000
    clock.set_ahead(-5 * DAY_S)
    assert time.now_ms() == time.cautious_ms() == clock.now_ms() == right_ms + 14_000
    assert "jumped ahead by 5 days" in time.take_notices()[0]
    assert time.leap_count == 0


def test_a_leap_is_believed_when_it_has_stood() -> None:
    clock = ManualClock()
    time = log_time(clock)
    clock.set_ahead(5 * DAY_S)
    time.look()
    clock.advance(CONFIRMED_AFTER_S - 1)
    assert time.now_ms() < clock.now_ms()
    clock.advance(1)
    assert time.now_ms() == time.cautious_ms() == clock.now_ms()
    assert "follows it now" in time.take_notices()[-1]


def test_time_that_passed_while_the_machine_was_suspended_is_no_leap() -> None:
    clock = ManualClock()
    time = log_time(clock)
    clock.suspend(5 * DAY_S)
    assert time.now_ms() == time.cautious_ms() == clock.now_ms()
    assert (time.take_notices(), time.leap_count) == ([], 0)


def test_another_leap_meanwhile_is_doubted_anew() -> None:
    clock = ManualClock()
    time = log_time(clock)
    for _ in range(3):
        clock.set_ahead(DAY_S)
        time.look()
        clock.advance(CONFIRMED_AFTER_S - 1)
        assert time.now_ms() < clock.now_ms()
    assert time.leap_count == 0


def test_at_the_start_a_gap_to_the_newest_message_is_doubted_for_deletions_alone() -> None:
    clock = ManualClock()
    time = log_time(clock, clock.now_ms() - 5 * DAY_S * 1000)
    clock.advance(CONFIRMED_AFTER_S - 1)
    assert time.now_ms() == clock.now_ms()
    assert time.cautious_ms() == clock.now_ms() - 5 * DAY_S * 1000
    clock.advance(1)
    assert time.cautious_ms() == clock.now_ms()
    assert "5 days old" in time.take_notices()[0]


def test_a_start_behind_the_newest_message_goes_on_from_there() -> None:
    clock = ManualClock()
    newest_ms = clock.now_ms() + 7_200_000
    time = log_time(clock, newest_ms)
    clock.advance(100)
    assert time.now_ms() == newest_ms + 95_000
    assert time.cautious_ms() == clock.now_ms()


@given(
    st.lists(
        st.tuples(st.floats(0, 2000), st.one_of(st.just(0.0), st.floats(-DAY_S, DAY_S), st.floats(-1, 1))),
        max_size=60,
    )
)
def test_it_never_runs_back_and_is_never_later_than_time_and_leaps_that_were_followed(
    steps: list[tuple[float, float]],
) -> None:
    clock = ManualClock()
    time = log_time(clock)
    start_ms = before_ms = time.now_ms()
    passed_s = 0.0
    for seconds, set_ahead_s in steps:
        clock.advance(seconds)
        clock.set_ahead(set_ahead_s)
        passed_s += seconds
        now_ms = time.now_ms()
        assert now_ms >= before_ms
        before_ms = now_ms
        # Small adjustments are followed without being called leaps.
        adjusted_ms = 101 * len(steps) + passed_s
        assert now_ms - start_ms - time.leapt_since(start_ms) <= passed_s * 1000 + adjusted_ms
        assert time.cautious_ms() <= clock.now_ms()


def test_messages_are_stamped_with_it(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False) as store:
        start_ms = clock.now_ms()
        stamps = []
        for set_ahead_s in (0, -7200, 0, 7200, 5 * DAY_S, -5 * DAY_S):
            clock.set_ahead(set_ahead_s)
            clock.advance(10)
            stamps.append(append(store, b"x").store_timestamp - start_ms)
        dispatch_all(store)
        assert stamps == [10_000, 19_500, 29_000, 40_000, 50_000, 60_000]
        assert [each.store_timestamp - start_ms for each in read_queue(store)] == stamps


def test_the_machines_own_clock_is_used_as_it_is_for_a_second(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        before_ms = SystemClock().now_ms()
        stamp = append(store, b"x").store_timestamp
        assert before_ms <= stamp <= SystemClock().now_ms()
        log = store._log
        assert log.wall_until_ms - log.wall_from_ms == 1000
        # What the window does not hold is asked about.
        log.wall_from_ms = log.wall_until_ms = 0
        assert before_ms <= append(store, b"y").store_timestamp <= SystemClock().now_ms()
        assert log.wall_until_ms > 0
