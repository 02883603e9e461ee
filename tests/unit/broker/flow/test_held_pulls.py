"""Whoever waits is woken by the queues it waits for, answered once, and forgotten everywhere."""

import asyncio

import pytest
from tests.support.loop import turn_until

from pyromq.broker.flow.held_pulls import HeldPulls
from pyromq.broker.flow.held_requests import HeldOutcome
from pyromq.clock import ManualClock
from pyromq.remoting.slices import Slices
from pyromq.store.results import QueueAdvance


class Held:
    """`looks`: whether each look was the last chance."""

    def __init__(self, *outcomes: HeldOutcome) -> None:
        self.looks: list[bool] = []
        self._outcomes = list(outcomes)

    def __call__(self, is_last: bool) -> HeldOutcome:
        self.looks.append(is_last)
        return self._outcomes.pop(0) if self._outcomes else HeldOutcome.ANSWERED


def held_pulls() -> HeldPulls:
    return HeldPulls(Slices(ManualClock()))


def more_in(topic: str, queue_id: int) -> QueueAdvance:
    return QueueAdvance(topic, queue_id, 1)


async def test_a_pull_of_several_queues_is_woken_by_any_of_them() -> None:
    pulls, held = held_pulls(), Held(HeldOutcome.WAITS, HeldOutcome.ANSWERED)
    pulls.hold([("T", 0), ("T", 1), ("%RETRY%g", 0)], held, 60)
    pulls.advanced(more_in("U", 0))
    assert held.looks == []
    pulls.advanced(more_in("%RETRY%g", 0))
    assert (held.looks, pulls.held_count) == ([False], 1)
    pulls.advanced(more_in("T", 1))
    assert (held.looks, pulls.held_count) == ([False, False], 0)


async def test_a_pull_that_was_answered_is_forgotten_in_all_its_queues() -> None:
    pulls, held = held_pulls(), Held()
    pulls.hold([("T", 0), ("T", 1)], held, 60, owner="c")
    pulls.advanced(more_in("T", 0))
    pulls.advanced(more_in("T", 1))
    pulls.release("T")
    pulls.release_owner("c")
    pulls.release_all()
    assert held.looks == [False]
    assert repr(pulls) == "<HeldPulls held=0 queues=0>"


async def test_releasing_a_topic_gives_a_pull_of_several_queues_one_last_chance() -> None:
    pulls, held = held_pulls(), Held()
    pulls.hold([("T", 0), ("T", 1), ("U", 0)], held, 60)
    pulls.release("T")
    assert (held.looks, pulls.held_count) == ([True], 0)


async def test_the_time_out_gives_one_last_chance() -> None:
    pulls, done = held_pulls(), asyncio.Event()

    def held(is_last: bool) -> HeldOutcome:
        assert is_last
        done.set()
        return HeldOutcome.ANSWERED

    pulls.hold([("T", 0)], held, 0)
    await done.wait()
    assert pulls.held_count == 0


@pytest.mark.parametrize(("timeout_s", "limit_s"), [(1e15, 0), (60, 0), (-1e15, 600)])
async def test_no_pull_is_held_longer_than_the_limit_or_less_than_no_time(
    timeout_s: float, limit_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyromq.broker.flow.held_requests.MAX_HOLD_S", limit_s)
    pulls, held = held_pulls(), Held()
    pulls.hold([("T", 0)], held, timeout_s)
    await turn_until(lambda: held.looks == [True])
    assert pulls.held_count == 0
