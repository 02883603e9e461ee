"""InFlightLimit for so many messages and bytes."""

import asyncio

import pytest

from pyromq.client.in_flight_limit import InFlightLimit


async def entering(limit: InFlightLimit, size_bytes: int) -> "asyncio.Task[None]":
    task = asyncio.create_task(limit.enter(size_bytes))
    await asyncio.sleep(0)
    return task


async def test_the_count_is_bounded() -> None:
    limit = InFlightLimit(2, 1000)
    assert limit.try_enter(1)
    assert limit.try_enter(1)
    assert not limit.try_enter(1)
    waiting = await entering(limit, 1)
    assert not waiting.done()
    limit.leave(1)
    await waiting
    assert (limit.count, limit.size_bytes, limit.waiting) == (2, 2, 0)


async def test_the_bytes_are_bounded() -> None:
    limit = InFlightLimit(100, 10)
    assert limit.try_enter(6)
    assert not limit.try_enter(5)
    assert limit.try_enter(4)


async def test_one_that_is_too_large_is_let_in_alone() -> None:
    limit = InFlightLimit(100, 10)
    assert limit.try_enter(50)
    assert not limit.try_enter(1)
    limit.leave(50)
    assert limit.try_enter(1)
    assert not limit.try_enter(50)


async def test_who_came_first_is_let_in_first() -> None:
    limit = InFlightLimit(100, 10)
    await limit.enter(10)
    large, small = await entering(limit, 9), await entering(limit, 1)
    assert not limit.try_enter(0), "nobody overtakes those who wait"
    limit.leave(10)
    await large
    await small
    assert limit.size_bytes == 10


async def test_who_gives_up_makes_way() -> None:
    limit = InFlightLimit(100, 10)
    await limit.enter(5)
    large, small = await entering(limit, 9), await entering(limit, 1)
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    await small
    assert (limit.count, limit.size_bytes) == (2, 6)


async def test_who_gives_up_when_let_in_leaves_again() -> None:
    limit = InFlightLimit(1, 10)
    await limit.enter(1)
    waiting = await entering(limit, 1)
    limit.leave(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (limit.count, limit.size_bytes) == (0, 0)


async def test_one_can_wait_until_all_have_left() -> None:
    limit = InFlightLimit(2, 10)
    await limit.wait_empty()
    await limit.enter(1)
    await limit.enter(1)
    waiting = [asyncio.create_task(limit.wait_empty()) for _ in range(2)]
    third = await entering(limit, 1)
    limit.leave(1)
    await third
    limit.leave(1)
    assert not any(task.done() for task in waiting)
    limit.leave(1)
    await asyncio.gather(*waiting)
    assert repr(limit) == "<InFlightLimit count=0 bytes=0 waiting=0>"
