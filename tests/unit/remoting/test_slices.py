"""Long work in slices: how much of it each turn of the loop takes."""

import asyncio

import pytest

from pyromq.clock import ManualClock
from pyromq.remoting.slices import Slices


class Work:
    """Pieces that take 0.15 ms each, done as long as the slice lasts."""

    def __init__(self, slices: Slices, clock: ManualClock, pieces: int) -> None:
        self._slices = slices
        self._clock = clock
        self._left = pieces
        self.done_in_steps: list[int] = []

    def __call__(self) -> bool:
        done = 0
        while self._left and (not done or not self._slices.is_over()):
            self._clock.advance(0.00015)
            self._left -= 1
            done += 1
        self.done_in_steps.append(done)
        return not self._left


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_short_work_is_done_at_once(clock: ManualClock) -> None:
    slices = Slices(clock)
    work = Work(slices, clock, 3)
    slices.run(work)
    assert work.done_in_steps == [3]
    assert (slices.waiting, slices.pauses) == (0, 0)


async def two_turns() -> None:
    """Between two slices there is a turn for others."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_long_work_takes_one_slice_of_every_second_turn(clock: ManualClock) -> None:
    slices = Slices(clock)
    work = Work(slices, clock, 10)
    slices.run(work)
    assert work.done_in_steps == [4]
    await asyncio.sleep(0)
    assert work.done_in_steps == [4], "this turn is for others"
    await asyncio.sleep(0)
    assert work.done_in_steps == [4, 4]
    await two_turns()
    assert work.done_in_steps == [4, 4, 2]
    assert (slices.waiting, slices.pauses) == (0, 2)


async def test_a_slice_lasts_as_long_as_others_took_but_at_most_four_milliseconds(clock: ManualClock) -> None:
    slices = Slices(clock)
    work = Work(slices, clock, 60)
    slices.run(work)
    clock.advance(0.0009)
    await two_turns()
    assert work.done_in_steps == [4, 7], "1 ms, of which the first slice took 0.1"
    clock.advance(1)
    await two_turns()
    assert work.done_in_steps == [4, 7, 27]
    await two_turns()
    assert work.done_in_steps == [4, 7, 27, 4]


async def test_the_first_slice_after_a_rest_is_a_short_one(clock: ManualClock) -> None:
    slices = Slices(clock)
    slices.run(Work(slices, clock, 1))
    await two_turns()
    clock.advance(1)
    work = Work(slices, clock, 10)
    slices.run(work)
    assert work.done_in_steps == [4]


async def test_many_share_one_slice_and_take_turns(clock: ManualClock) -> None:
    slices = Slices(clock)
    works = [Work(slices, clock, 6) for _ in range(3)]
    for work in works:
        slices.run(work)
    assert [work.done_in_steps for work in works] == [[4], [], []]
    await two_turns()
    assert [work.done_in_steps for work in works] == [[4, 2], [2], []]
    await two_turns()
    assert [work.done_in_steps for work in works] == [[4, 2], [2], [4]]
    await two_turns()
    assert [work.done_in_steps for work in works] == [[4, 2], [2, 4], [4]]
    await two_turns()
    assert [work.done_in_steps for work in works] == [[4, 2], [2, 4], [4, 2]]


async def test_a_coroutine_pauses_when_its_slice_is_over_and_others_run_in_between(
    clock: ManualClock,
) -> None:
    slices = Slices(clock)
    seen: list[int] = []
    turns = 0

    async def spread() -> None:
        async for number in slices.spread(range(20)):
            clock.advance(0.00015)
            seen.append(number)

    async def count_turns() -> None:
        nonlocal turns
        while len(seen) < 20:
            turns += 1
            await asyncio.sleep(0)

    await asyncio.gather(spread(), count_turns())
    assert seen == list(range(20))
    assert slices.pauses == 4
    assert turns > 4


async def test_coroutines_that_wait_do_not_starve_each_other(clock: ManualClock) -> None:
    slices = Slices(clock)
    order: list[str] = []

    async def spread(name: str) -> None:
        async for _ in slices.spread(range(8)):
            clock.advance(0.00015)
            order.append(name)

    await asyncio.gather(spread("a"), spread("b"), spread("c"))
    assert sorted(order) == ["a"] * 8 + ["b"] * 8 + ["c"] * 8
    turns = ["".join(order[at : at + 4]) for at in range(0, 24, 4)]
    assert turns == ["aaaa", "aaaa", "bbbb", "cccc", "bbbb", "cccc"]


async def test_the_slice_of_a_coroutine_begins_when_it_runs(clock: ManualClock) -> None:
    slices = Slices(clock)
    waiting = True

    async def wait() -> bool:
        nonlocal waiting
        await slices.wait_for_turn()
        waiting = False
        return slices.is_over()

    async def others() -> None:
        while waiting:
            clock.advance(0.02)
            await asyncio.sleep(0)

    slices.run(Work(slices, clock, 4))
    assert not (await asyncio.gather(wait(), others()))[0]


async def test_a_coroutine_that_is_cancelled_before_its_slice_leaves_it_to_others(clock: ManualClock) -> None:
    slices = Slices(clock)
    slices.run(Work(slices, clock, 4))
    waiting = asyncio.create_task(slices.wait_for_turn())
    await asyncio.sleep(0)
    work = Work(slices, clock, 2)
    slices.run(work)
    await asyncio.sleep(0)  # the coroutine has been woken
    waiting.cancel()
    await two_turns()
    assert work.done_in_steps == [2]


async def test_a_step_that_fails_does_not_stop_those_behind_it(clock: ManualClock) -> None:
    slices = Slices(clock)
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    slices.run(Work(slices, clock, 4))
    slices.run(lambda: 1 // 0 > 0)
    work = Work(slices, clock, 2)
    slices.run(work)
    await two_turns()
    await two_turns()
    assert work.done_in_steps == [2]
    assert [type(failure) for failure in failures] == [ZeroDivisionError]
