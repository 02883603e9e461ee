"""The event loops that tests run on: uvloop where it installs, and asyncio's own."""

import asyncio
from collections.abc import Callable

try:
    import uvloop
except ImportError:  # not on Windows, not on PyPy
    FASTEST_LOOP: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    EVERY_LOOP = FASTEST_LOOP
else:
    FASTEST_LOOP = {"uvloop": uvloop.new_event_loop}
    EVERY_LOOP = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}


_EAGER_TURNS = 100
_PAUSE_S = 0.001


async def turn_until(condition: Callable[[], object]) -> None:
    """Let the loop turn until something is so, where nothing tells when it is; the test's timeout ends it.

    What takes longer is left in peace: a loop that spins keeps the interpreter from its other threads, and
    what waits for a flush or a start waits much longer then.
    """
    turns = 0
    while not condition():
        turns += 1
        await asyncio.sleep(0 if turns < _EAGER_TURNS else _PAUSE_S)
