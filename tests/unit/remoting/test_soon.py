"""Callbacks for the end of a turn: in order, what they cause in the same go, and none stops the others."""

import asyncio
import gc
import weakref
from typing import Any

from pyromq.remoting import soon
from pyromq.remoting.soon import soon_of


async def test_callbacks_and_those_they_cause_run_in_one_turn() -> None:
    loop = asyncio.get_running_loop()
    seen: list[object] = []

    def first() -> None:
        seen.append("first")
        soon_of(loop).call(lambda: seen.append("caused"))

    soon_of(loop).call(first)
    soon_of(loop).call(lambda: seen.append("second"))
    loop.call_soon(lambda: seen.append("next turn"))
    assert seen == []
    await asyncio.sleep(0)
    assert seen == ["first", "second", "caused", "next turn"]


async def test_a_callback_that_fails_is_told_to_the_loop_and_stops_no_other() -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    seen: list[str] = []
    soon_of(loop).call(lambda: 1 / 0)
    soon_of(loop).call(lambda: seen.append("after"))
    await asyncio.sleep(0)
    assert seen == ["after"]
    assert isinstance(told[0]["exception"], ZeroDivisionError)


async def test_callbacks_without_end_leave_turns_to_others() -> None:
    loop = asyncio.get_running_loop()
    count = 0

    def again() -> None:
        nonlocal count
        count += 1
        if count < 3 * soon._MAX_AT_ONCE:
            soon_of(loop).call(again)

    soon_of(loop).call(again)
    await asyncio.sleep(0)
    assert count == soon._MAX_AT_ONCE
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert count == 3 * soon._MAX_AT_ONCE


def test_a_loop_that_has_ended_is_not_kept() -> None:
    async def use() -> "weakref.ref[asyncio.AbstractEventLoop]":
        loop = asyncio.get_running_loop()
        soon_of(loop).call(lambda: None)
        await asyncio.sleep(0)
        return weakref.ref(loop)

    used = asyncio.run(use())
    gc.collect()
    assert used() is None
