"""Processes that start in no time: forks of one process that has imported everything and done nothing yet.

Imports would take most of the machine if brokers die every second.
"""

import asyncio
import multiprocessing
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.campaign import server

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([server.__name__])


class Forked:
    """A server, from its start on."""

    def __init__(self, kind: str, settings: dict[str, Any], log: Path) -> None:
        self._pipe, its_end = _FORKS.Pipe()
        self._process = _FORKS.Process(target=server.run, args=(kind, settings, str(log), its_end))
        self._process.start()
        its_end.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self._spoke = asyncio.Event()
        self._ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe.fileno(), self._heard)
        self._loop.add_reader(self._process.sentinel, self._has_ended)

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    def _heard(self) -> None:
        """It is up, or the pipe is at its end."""
        self._loop.remove_reader(self._pipe.fileno())
        self._spoke.set()

    def _has_ended(self) -> None:
        self._loop.remove_reader(self._process.sentinel)
        self._ended.set()
        self._process.join()

    async def comes_up(self) -> bool:
        await self._spoke.wait()
        with suppress(EOFError, OSError):
            return bool(self._pipe.recv() == server.READY)
        return False

    async def ends(self) -> None:
        await self._ended.wait()

    def tell(self, command: str) -> None:
        with suppress(OSError):  # it is ending
            self._pipe.send(command)
