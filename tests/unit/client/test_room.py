"""Room for so many messages and bytes."""

import asyncio

import pytest

from pyromq.client.room import Room


async def entering(room: Room, size_bytes: int) -> "asyncio.Task[None]":
    task = asyncio.create_task(room.enter(size_bytes))
    await asyncio.sleep(0)
    return task


async def test_the_count_is_bounded() -> None:
    room = Room(2, 1000)
    assert room.try_enter(1)
    assert room.try_enter(1)
    assert not room.try_enter(1)
    waiting = await entering(room, 1)
    assert not waiting.done()
    room.leave(1)
    await waiting
    assert (room.count, room.size_bytes, room.waiting) == (2, 2, 0)


async def test_the_bytes_are_bounded() -> None:
    room = Room(100, 10)
    assert room.try_enter(6)
    assert not room.try_enter(5)
    assert room.try_enter(4)


async def test_one_that_is_too_large_is_let_in_alone() -> None:
    room = Room(100, 10)
    assert room.try_enter(50)
    assert not room.try_enter(1)
    room.leave(50)
    assert room.try_enter(1)
    assert not room.try_enter(50)


async def test_who_came_first_is_let_in_first() -> None:
    room = Room(100, 10)
    await room.enter(10)
    large, small = await entering(room, 9), await entering(room, 1)
    assert not room.try_enter(0), "nobody overtakes those who wait"
    room.leave(10)
    await large
    await small
    assert room.size_bytes == 10


async def test_who_gives_up_makes_way() -> None:
    room = Room(100, 10)
    await room.enter(5)
    large, small = await entering(room, 9), await entering(room, 1)
    large.cancel()
    with pytest.raises(asyncio.CancelledError):
        await large
    await small
    assert (room.count, room.size_bytes) == (2, 6)


async def test_who_gives_up_when_let_in_leaves_again() -> None:
    room = Room(1, 10)
    await room.enter(1)
    waiting = await entering(room, 1)
    room.leave(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert (room.count, room.size_bytes) == (0, 0)


async def test_one_can_wait_until_all_have_left() -> None:
    room = Room(2, 10)
    await room.wait_empty()
    await room.enter(1)
    await room.enter(1)
    waiting = [asyncio.create_task(room.wait_empty()) for _ in range(2)]
    third = await entering(room, 1)
    room.leave(1)
    await third
    room.leave(1)
    assert not any(task.done() for task in waiting)
    room.leave(1)
    await asyncio.gather(*waiting)
    assert repr(room) == "<Room count=0 bytes=0 waiting=0>"
