"""What may be committed, and when another pull fits."""

import asyncio

import pytest
from tests.support.held_messages import a_message, held_queue

from pyromq.client.consumer.reading.in_flight import Thresholds
from pyromq.client.consumer.reading.stats import ConsumerStats, TopicStats
from pyromq.clock import ManualClock


def test_nothing_behind_an_unfinished_message_is_committable() -> None:
    held = held_queue(5, 6, 7)
    held.done(a_message(7))
    held.done(a_message(6))
    assert held.committable == 5
    held.done(a_message(5))
    assert held.committable == 8


def test_messages_that_were_filtered_out_are_committable_at_once() -> None:
    held = held_queue(5)
    held.put([], 20)
    assert held.committable == 5
    held.done(a_message(5))
    assert held.committable == 20


def test_an_empty_queue_is_committable_where_it_was_begun() -> None:
    assert held_queue(3).committable == 3
    assert held_queue().committable == 0


def test_being_done_twice_counts_once() -> None:
    held = held_queue(1, 2)
    held.done(a_message(1))
    held.done(a_message(1))
    assert held.size_bytes == 1
    assert len(held) == 1


@pytest.mark.parametrize(
    ("thresholds", "offsets", "has_room"),
    [
        (Thresholds(messages=2), (0, 1), True),
        (Thresholds(messages=2), (0, 1, 2), False),
        (Thresholds(size_bytes=2), (0, 1), True),
        (Thresholds(size_bytes=2), (0, 1, 2), False),
        (Thresholds(span=10), (0, 10), True),
        (Thresholds(span=10), (0, 11), False),
        (Thresholds(span=None), (0, 5000), True),
    ],
)
def test_there_is_room_up_to_each_threshold(
    thresholds: Thresholds, offsets: tuple[int, ...], has_room: bool
) -> None:
    assert held_queue(*offsets, thresholds=thresholds).has_room is has_room


def test_limits_of_a_topic_are_divided_among_its_queues() -> None:
    limits = Thresholds().for_each_of(3, topic_messages=10, topic_size_bytes=2)
    assert (limits.messages, limits.size_bytes, limits.span) == (3, 1, 2000)
    assert Thresholds().for_each_of(3, None, None) == Thresholds()


async def test_a_pull_waits_until_there_is_room() -> None:
    held = held_queue(0, 1, 2, thresholds=Thresholds(messages=1))
    waiting = asyncio.create_task(held.wait_for_room())
    await asyncio.sleep(0)
    held.done(a_message(0))
    await asyncio.sleep(0)
    assert not waiting.done()
    held.done(a_message(1))
    await waiting


async def test_a_higher_threshold_makes_room_at_once() -> None:
    held = held_queue(0, 1, 2, thresholds=Thresholds(messages=1))
    waiting = asyncio.create_task(held.wait_for_room())
    await asyncio.sleep(0)
    held.thresholds = Thresholds(messages=5)
    await waiting


async def test_a_dropped_queue_keeps_nobody_waiting_and_forgets_what_it_held() -> None:
    held = held_queue(0, 1, 2, thresholds=Thresholds(messages=1))
    waiting = [asyncio.create_task(held.wait_for_room()), asyncio.create_task(held.wait_until_empty())]
    await asyncio.sleep(0)
    held.drop()
    await asyncio.gather(*waiting)
    assert len(held) == 0
    assert held.is_closing
    held.done(a_message(0))
    assert held.size_bytes == 0


def test_figures_can_be_summed_on_a_thread_while_others_come() -> None:
    stats = ConsumerStats()

    class Growing(TopicStats):
        def __getattribute__(self, name: str) -> object:
            stats.of(f"Topic {name}")  # as the loop does between two steps of another thread
            return super().__getattribute__(name)

    stats._topics["Orders"] = Growing()
    assert stats.totals().handled == 0


async def test_waiting_for_the_last_message() -> None:
    held = held_queue(0, 1)
    waiting = asyncio.create_task(held.wait_until_empty())
    await asyncio.sleep(0)
    held.done(a_message(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    held.done(a_message(0))
    await waiting


@pytest.mark.parametrize(
    ("age_s", "is_valid", "may_be_stale"),
    [(0, True, False), (30, True, False), (31, False, False), (60, False, False), (61, False, True)],
)
def test_a_lock_is_trusted_for_half_a_minute_and_lost_for_sure_after_a_whole_one(
    age_s: int, is_valid: bool, may_be_stale: bool
) -> None:
    clock = ManualClock()
    held = held_queue(0, clock=clock)
    held.lock()
    clock.advance(age_s)
    assert held.is_lock_valid is is_valid
    assert held.may_have_been_read_by_others is may_be_stale


@pytest.mark.parametrize(("ahead_s", "is_valid"), [(25, True), (600, False), (-600, True)])
def test_a_lock_runs_out_while_the_machine_is_suspended(ahead_s: int, is_valid: bool) -> None:
    clock = ManualClock()
    held = held_queue(0, clock=clock)
    held.lock()
    clock.set_ahead(ahead_s)  # the monotonic clock has stood still
    assert held.is_lock_valid is is_valid
    assert held.may_have_been_read_by_others is not is_valid
    clock.advance(31)
    assert not held.is_lock_valid


def test_a_queue_that_is_not_locked_may_be_read_by_others() -> None:
    held = held_queue(0)
    assert held.may_have_been_read_by_others
    held.lock()
    held.unlock()
    assert held.may_have_been_read_by_others
    assert not held.is_lock_valid


def test_operators_see_what_is_held() -> None:
    held = held_queue(4, 5, 9)
    info = held.info(is_ordered=False)
    assert (info.cached_msg_count, info.cached_msg_min_offset, info.cached_msg_max_offset) == (3, 4, 9)
    assert (info.commit_offset, info.transaction_msg_count) == (4, 0)
    assert held.info(is_ordered=True).transaction_msg_max_offset == 9
    assert "committable=4" in repr(held)
