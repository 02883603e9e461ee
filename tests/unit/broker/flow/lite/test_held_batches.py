"""Batches of light queues that groups hold: what is out, what is consumed, and when it is free again."""

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.broker.flow.lite.held_batches import HeldBatches

KEY = ("%LMQ%$parent$a", "group")


def test_a_group_has_consumed_up_to_the_first_message_that_is_not_acknowledged() -> None:
    batches = HeldBatches()
    batches.popped(KEY, [3, 4, 5], 100, 50, None)
    assert batches.acknowledge(KEY, 4, 100) == 3
    assert batches.acknowledge(KEY, 3, 100) == 5
    assert batches.acknowledge(KEY, 5, 100) == 6
    assert batches.get(KEY) is None
    assert batches.acknowledge(KEY, 5, 100) is None


def test_a_queue_is_free_when_the_last_message_that_is_not_acknowledged_is_visible() -> None:
    batches = HeldBatches()
    batches.popped(KEY, [0, 1], 100, 1000, None)
    assert batches.hide(KEY, 0, 100, 150, suspends=False)
    assert not batches.is_free(KEY, 1099, None)
    batches.acknowledge(KEY, 1, 100)
    assert not batches.is_free(KEY, 149, None)
    assert batches.is_free(KEY, 150, None)


def test_what_was_acknowledged_behind_a_failed_message_is_not_forgotten() -> None:
    batches = HeldBatches()
    batches.popped(KEY, [0, 1, 2, 3], 100, 50, None)
    for offset in (1, 3):
        batches.acknowledge(KEY, offset, 100)
    again = batches.popped(KEY, [0, 2], 200, 50, None)
    assert again.counts == {0: 1, 2: 1}
    assert again.acknowledged == {1, 3}
    assert batches.acknowledge(KEY, 2, 200) == 0
    assert batches.acknowledge(KEY, 0, 200) == 4


def test_another_pop_does_not_acknowledge_or_hide() -> None:
    batches = HeldBatches()
    batches.popped(KEY, [0], 100, 50, None)
    assert batches.acknowledge(KEY, 0, 99) is None
    assert batches.acknowledge(KEY, 1, 100) is None
    assert not batches.hide(KEY, 0, 99, 500, suspends=False)


def test_a_suspended_batch_and_a_lost_answer_count_no_attempt() -> None:
    batches = HeldBatches()
    batches.popped(KEY, [0], 100, 50, "x")
    assert batches.is_free(KEY, 101, "x")
    assert not batches.is_free(KEY, 101, "y")
    assert batches.popped(KEY, [0], 110, 50, "x").counts == {0: 0}
    batches.hide(KEY, 0, 110, 120, suspends=True)
    assert batches.popped(KEY, [0], 120, 50, "y").counts == {0: 0}
    assert batches.popped(KEY, [0], 300, 50, "z").counts == {0: 1}


@given(st.data(), st.integers(1, 12))
@settings(max_examples=examples(200), deadline=None)
def test_every_message_is_consumed_once_whatever_fails(data: st.DataObject, count: int) -> None:
    """A queue is read from the group's offset; each round acknowledges some of what it got."""
    batches, place, acknowledged, now_ms = HeldBatches(), 0, set[int](), 0
    rounds = 0
    while place < count:
        rounds += 1
        assert rounds <= 2 * count + 1
        now_ms += 100
        held = batches.get(KEY)
        done = held.acknowledged if held is not None else set[int]()
        limit = data.draw(st.integers(1, count))
        offsets = [each for each in range(place, min(place + limit, count)) if each not in done]
        assert offsets[0] == place
        batches.popped(KEY, offsets, now_ms, 50, None)
        # The first always succeeds, or it would take for ever.
        good = [offsets[0], *(each for each in offsets[1:] if data.draw(st.booleans()))]
        for offset in data.draw(st.permutations(good)):
            acknowledged.add(offset)
            consumed = batches.acknowledge(KEY, offset, now_ms)
            assert consumed is not None
            assert consumed >= place
            assert set(range(consumed)) <= acknowledged
            place = consumed
    assert acknowledged == set(range(count))
