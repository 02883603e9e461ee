"""The background tasks of a consumer: started and ended with it; a task that fails is logged."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from pyromq.client.troubles import Troubles
from pyromq.errors import PyroError

_log = logging.getLogger(__name__)


class Background:
    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._troubles = Troubles(_log)
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<Background of {self._owner} tasks={sorted(task.get_name() for task in self._tasks)}>"

    def start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=f"{name} of {self._owner}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def every(self, interval_s: float, work: Callable[[], Awaitable[object] | object], name: str) -> None:
        """Call `work`, plain or async, again and again."""

        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_s)
                try:
                    result = work()
                    if isinstance(result, Awaitable):
                        await result
                except PyroError as problem:
                    self._troubles.happened(name, problem, "%s failed for %s", name, self._owner)
                else:
                    self._troubles.ended(name, "%s succeeded for %s", name, self._owner)

        self.start(repeat(), name)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("background task failed task=%s", task.get_name(), exc_info=task.exception())

    async def end(self) -> None:
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
