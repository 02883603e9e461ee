"""Changes in memory first, then on disk, and only then confirmed; many changes, one write."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Generic, TypeVar

from pyromq.errors import ConfigError, StoreError

_log = logging.getLogger(__name__)

C = TypeVar("C")


class Saving(Generic[C]):
    """Writes the newest content to a file, on its own thread.

    `content` is asked on the event loop, `write` is called on the thread.

    Changes that come while a write is under way wait for one more write that covers them all.
    """

    def __init__(self, path: Path, content: Callable[[], C], write: Callable[[C], None]) -> None:
        self._path = path
        self._content = content
        self._put = write
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"save-{path.name}")
        self._wanted = 0
        self._attempted = 0
        self._write: asyncio.Task[str] | None = None
        self.writes = 0

    def __repr__(self) -> str:
        return f"<Saving {self._path} writes={self.writes} unwritten={self._wanted - self._attempted}>"

    async def save(self) -> None:
        """Return when everything up to this call is on disk; raises StoreError if that failed."""
        self._wanted += 1
        mine = self._wanted
        problem = ""
        while self._attempted < mine:
            if self._write is None:
                self._write = asyncio.create_task(self._write_once())
            # A caller that leaves does not take the write away from the others.
            problem = await asyncio.shield(self._write)
        if problem:
            raise StoreError(problem)

    async def _write_once(self) -> str:
        covers = self._wanted
        try:
            content = self._content()
            await asyncio.get_running_loop().run_in_executor(self._thread, self._put, content)
        except (OSError, ConfigError) as problem:
            _log.error("could not write file=%s: %s", self._path, problem)
            reason = problem.strerror if isinstance(problem, OSError) else problem
            return f"{self._path} was not written: {reason}"
        else:
            self.writes += 1
            return ""
        finally:
            self._attempted = covers
            self._write = None

    async def close(self) -> None:
        if self._write is not None:
            await asyncio.wait([self._write])
        self._thread.shutdown()
