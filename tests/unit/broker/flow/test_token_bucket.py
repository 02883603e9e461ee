"""A bucket gives what its rate allows, whoever takes how much and when."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.broker.flow.token_bucket import TokenBucket

steps = st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5000)), max_size=60)


@settings(max_examples=examples(200))
@given(rate=st.integers(1, 10_000), steps=steps, patience_s=st.floats(0, 5))
def test_in_any_time_no_more_is_taken_than_the_rate_allows_with_a_second_and_the_debt_ahead(
    rate: int, steps: list[tuple[float, int]], patience_s: float
) -> None:
    bucket, now_s, taken, largest = TokenBucket(rate, 0.0), 0.0, 0, 0
    for pause_s, amount in steps:
        now_s += pause_s
        if bucket.debt_s(now_s) <= patience_s:
            bucket.take(amount, now_s)
            taken, largest = taken + amount, max(largest, amount)
        assert taken <= rate * (now_s + 1 + patience_s) + largest + 1e-6 * (taken + 1)
        assert bucket.level(now_s) <= rate


@settings(max_examples=examples(200))
@given(rate=st.integers(1, 10_000), steps=steps)
def test_a_debt_is_paid_after_the_time_that_it_names_and_not_before(
    rate: int, steps: list[tuple[float, int]]
) -> None:
    bucket, now_s = TokenBucket(rate, 0.0), 0.0
    for pause_s, amount in steps:
        now_s += pause_s
        bucket.take(amount, now_s)
    debt_s = bucket.debt_s(now_s)
    assert (debt_s > 0) == (bucket.level(now_s) < 0)
    if debt_s > 1e-3:
        assert bucket.debt_s(now_s + debt_s / 2) > 0
    assert bucket.debt_s(now_s + debt_s * (1 + 1e-9)) == pytest.approx(0, abs=1e-6)


def test_time_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, 100.0)
    bucket.take(10, 100.0)
    assert bucket.level(50.0) == 0
    assert bucket.level(100.5) == 5
