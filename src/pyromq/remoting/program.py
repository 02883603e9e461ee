"""The life of a server: it opens its parts, works, drains, and closes its parts in the reverse order.

It is started once and stopped once; `async with` does both.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, Protocol, Self

from pyromq.errors import StateError
from pyromq.metrics import Measured
from pyromq.remoting.exporters import Exporter

_log = logging.getLogger(__name__)

Work = Mapping[str, Coroutine[Any, Any, None]]
"""Background work by name."""


class Program(ABC):
    NAME: ClassVar[str]

    def __init__(self, exporters: Sequence[Exporter] = ()) -> None:
        self._exporters = exporters
        self._opened = AsyncExitStack()
        self._background: dict[str, asyncio.Task[None]] = {}
        self._is_stopping = False
        self._stopped = asyncio.Event()

    # What a server is made of

    @abstractmethod
    async def _open(self, opened: AsyncExitStack) -> None:
        """Open the parts and listen. `opened` closes them, in the reverse order: at the stop, or if this
        fails."""

    @abstractmethod
    def _work(self) -> Work: ...

    async def _settle(self) -> None:
        """Return when others may rely on this server, which works already."""
        return

    @abstractmethod
    async def _drain(self) -> None:
        """Accept nothing more, and finish the requests in flight."""

    def _measured(self) -> Measured | None:
        """The metrics that exporters show once the server has started."""
        return None

    def _described(self) -> str:
        """For the log."""
        return ""

    # Its life

    @property
    def metrics_address(self) -> tuple[str, int]:
        """The address of metrics and health; raises StateError if they are off."""
        for exporter in self._exporters:
            if (address := exporter.address) is not None:
                return address
        raise StateError(f"metrics are off: the settings of the {self.NAME} name no exporter that listens")

    async def start(self) -> None:
        if self._background or self._is_stopping:
            raise StateError(f"the {self.NAME} has been started already")
        async with AsyncExitStack() as opened:
            for exporter in self._exporters:
                opened.push_async_callback(exporter.stop)
                await exporter.start()
            await self._open(opened)
            for exporter in self._exporters:
                opened.push_async_callback(exporter.finish)
            self._opened = opened.pop_all()
        for name, work in self._work().items():
            self._background[name] = asyncio.create_task(work, name=name)
        try:
            await self._settle()
        except BaseException:
            await self.stop()
            raise
        if (measured := self._measured()) is not None:
            for exporter in self._exporters:
                exporter.show(measured)
        _log.info("%s started %s", self.NAME, self._described())

    async def run_until_stopped(self) -> None:
        """Return after `stop`; raises the error if the background work fails."""
        if not self._background:
            raise StateError(f"the {self.NAME} has not been started")
        working = set(self._background.values())
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            done, _ = await asyncio.wait({stopped, *working}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if not self._is_stopping:
            for task in done & working:
                task.result()
        await self._stopped.wait()

    def _begin_stop(self) -> bool:
        """False if it was not started, or is being stopped already."""
        if not self._background or self._is_stopping:
            return False
        self._is_stopping = True
        return True

    async def stop(self) -> None:
        """Finish the requests in flight, then save and close everything."""
        if self._begin_stop():
            await self._drain()
            await self._end()

    async def _end(self) -> None:
        await end(*self._background.values())
        await self._opened.aclose()
        self._stopped.set()
        _log.info("%s stopped %s", self.NAME, self._described())

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()


class Startable(Protocol):
    async def start(self) -> None:
        """Listen; raises if that is not possible."""
        ...

    async def run_until_stopped(self) -> None: ...

    async def stop(self) -> None:
        """Stop accepting, finish requests in flight, close; `run_until_stopped` returns."""
        ...


class Together:
    """Programs that are started in this order and stopped in the reverse one; the failure of one ends all.

    Each is built when those before it have started.
    """

    def __init__(self, *programs: Callable[[], Startable]) -> None:
        self._programs = programs
        self._started: list[Startable] = []

    def __repr__(self) -> str:
        return f"<Together {self._started!r}>"

    async def start(self) -> None:
        try:
            for build in self._programs:
                program = build()
                await program.start()
                self._started.append(program)
        except BaseException:
            await self.stop()
            raise

    async def run_until_stopped(self) -> None:
        async with asyncio.TaskGroup() as running:
            for program in self._started:
                running.create_task(program.run_until_stopped())

    async def stop(self) -> None:
        while self._started:
            await self._started.pop().stop()


async def end(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel tasks, and return when they have ended."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)
