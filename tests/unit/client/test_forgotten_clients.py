"""Clients that nobody closed: what they held goes with their event loop."""

import asyncio
import gc
import weakref

from pyromq.aio import Producer


async def leave_open() -> "weakref.ref[asyncio.AbstractEventLoop]":
    await Producer("orders", "127.0.0.1:9").start()
    return weakref.ref(asyncio.get_running_loop())


def test_a_client_that_was_not_closed_is_forgotten_when_the_next_loop_has_one() -> None:
    first = asyncio.run(leave_open())
    asyncio.run(leave_open())
    gc.collect()
    assert first() is None
