"""Waiting for a cluster that is not there yet: a client may be started before its name servers."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pyromq.errors import TransportError

T = TypeVar("T")

_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 1.0


async def patiently(
    ask: Callable[[], Awaitable[T]],
    timeout_s: float,
    on_wait: Callable[[TransportError], None] = lambda _: None,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """The answer; while no server can be reached, ask again after growing pauses until the time is up.

    A server with a certificate that is not trusted is not asked again. `on_wait` is called once, before the
    first pause. `pause` may end early if there is news.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await ask()
        except TransportError as problem:
            is_final = isinstance(problem.__cause__, ssl.SSLCertVerificationError)
            if is_final or loop.time() + pause_s >= deadline:
                raise
            if pause_s == _FIRST_PAUSE_S:
                on_wait(problem)
        await pause(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
