"""The life of a server: it is started once, runs background tasks, and is stopped once.

`async with` starts and stops it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Self

from pyromq.errors import StateError


class Lifetime(ABC):
    def __init__(self) -> None:
        self._background: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._stopped = asyncio.Event()

    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def stop(self) -> None: ...

    def _run_in_background(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        return task

    def _begin_stop(self) -> bool:
        """False if it was not started, or is being stopped already."""
        if not self._background or self._is_stopping:
            return False
        self._is_stopping = True
        return True

    async def run_until_stopped(self) -> None:
        """Return after `stop`; raises the error if the background work fails."""
        if not self._background:
            raise StateError(f"{type(self).__name__} has not been started")
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            done, _ = await asyncio.wait({stopped, *self._background}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if not self._is_stopping:
            for task in done & self._background:
                task.result()
        await self._stopped.wait()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


async def end(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel tasks, and return when they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
