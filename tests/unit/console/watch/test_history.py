"""Rings against a plain dict: the newest value of each step, for an hour and for a day."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.console.watch.history import DAY_STEPS, HOUR_STEPS, Histories, History, Ring

ADVANCES = st.lists(st.tuples(st.integers(-20, 200), st.integers(-1000, 1000)), min_size=1, max_size=60)


@settings(max_examples=examples(200))
@given(ADVANCES)
def test_a_ring_has_the_newest_value_of_each_of_its_last_steps(advances: list[tuple[int, int]]) -> None:
    ring, model, at_s, last = Ring(5, 10), {}, 1_000, -1
    for forward, value in advances:
        at_s = max(0, at_s + forward)
        ring.put(at_s, float(value))
        if at_s // 5 >= last:
            last = at_s // 5
            model[last] = float(value)
    wanted = [(step * 5.0, value) for step, value in sorted(model.items()) if step > last - 10]
    assert ring.readings() == wanted
    since_s = (last - 3) * 5.0
    assert ring.readings(since_s) == [each for each in wanted if each[0] >= since_s]


def test_an_hour_of_steps_and_a_day_of_minutes_are_kept() -> None:
    history = History()
    for step in range(2 * DAY_STEPS * 12):
        history.put(step * 5.0, 7.0)
    assert len(history.hour.readings()) == HOUR_STEPS
    assert len(history.day.readings()) == DAY_STEPS


def test_a_minute_is_the_mean_of_its_steps() -> None:
    history = History()
    for step, value in enumerate((1.0, 2.0, 3.0)):
        history.put(600.0 + step * 5, value)
    assert history.day.readings() == [(600.0, 2.0)]


@settings(max_examples=examples(100))
@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 4000))
def test_a_sample_ends_with_the_newest_value_and_has_no_more_points_than_asked_for(
    count: int, points: int, span_s: int
) -> None:
    ring = Ring(5, HOUR_STEPS)
    for step in range(count):
        ring.put(step * 5.0, float(step))
    sample = ring.sampled(points, float(span_s))
    assert sample[-1] == count - 1
    assert len(sample) <= points
    assert sample == sorted(set(sample))


def test_histories_are_bounded_and_forget_what_is_gone() -> None:
    histories: Histories[str] = Histories(2)
    for name in ("a", "b", "c"):
        histories.put(name, 5.0, 1.0)
    assert set(histories) == {"a", "b"}
    histories.forget("a")
    histories.put("c", 5.0, 1.0)
    assert set(histories) == {"b", "c"}
