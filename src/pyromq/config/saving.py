"""Changes in memory first, then on disk, and only then confirmed; many changes, one write."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from pyromq.config.durable_file import DurableFile
from pyromq.errors import StoreError

_log = logging.getLogger(__name__)


class Saving:
    """Writes the newest content to a file, on a thread of its own.

    Changes that come while a write is under way wait for one more write that covers them all.
    """

    def __init__(self, file: DurableFile, content: Callable[[], bytes]) -> None:
        self._file = file
        self._content = content
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"save-{file.path.name}")
        self._wanted = 0
        self._attempted = 0
        self._write: asyncio.Task[str] | None = None
        self.writes = 0

    def __repr__(self) -> str:
        return f"<Saving {self._file.path} writes={self.writes} unwritten={self._wanted - self._attempted}>"

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
            await asyncio.get_running_loop().run_in_executor(self._thread, self._file.save, content)
        except OSError as problem:
            _log.error("could not write file=%s: %s", self._file.path, problem)
            return f"{self._file.path} was not written: {problem.strerror}"
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
