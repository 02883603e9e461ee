"""A thread with its own event loop and connections, for answers that take long to decode.

Apache's brokers report the lag of all groups in JSON with objects as keys: decoding takes hundreds of
milliseconds, which the pages must not wait for.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pyromq.admin.cluster import Cluster

T = TypeVar("T")


class Aside:
    """`async with Aside(cluster) as aside: await aside.run(question)`, where `question(cluster)` asks."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster.copy()
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> "Aside":
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="console-aside", daemon=True)
        self._thread.start()
        await self._call(self._cluster.__aenter__())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._call(self._cluster.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        await asyncio.to_thread(self._thread.join)
        self._loop.close()

    async def run(self, question: Callable[[Cluster], Awaitable[T]]) -> T:
        """Ask and decode over there; one question at a time, so that decoding takes one core at most."""
        async with self._turn:
            return await self._call(question(self._cluster))

    async def _call(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(wait(), self._loop))
