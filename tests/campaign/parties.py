"""The servers of a cluster as processes that can be killed, stopped, started again and told things."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from tests.campaign.forks import Forked
from tests.campaign.network import OWN_HOST, Network

START_TIMEOUT_S = 60.0
_RESTART_S = 0.2
_LOOK_S = 0.05


class Running(Protocol):
    """A process."""

    @property
    def pid(self) -> int: ...

    @property
    def is_over(self) -> bool: ...

    async def comes_up(self) -> bool:
        """Wait until it serves; False if it has ended."""
        ...

    async def ends(self) -> None: ...

    def tell(self, command: str) -> None: ...


class Party:
    """One server. Its directory, and what it wrote to stderr, stay when it ends."""

    start_timeout_s = START_TIMEOUT_S

    def __init__(self, name: str, kind: str, directory: Path, network: Network, **settings: Any) -> None:
        self.name = name
        self.kind = kind
        self.directory = directory
        self.settings = settings
        self._network = network
        self._running: Running | None = None
        self.starts = 0

    def __repr__(self) -> str:
        return f"<Party {self.name} {'up' if self.is_up else 'down'} starts={self.starts}>"

    @property
    def is_up(self) -> bool:
        return self._running is not None and not self._running.is_over

    @property
    def log(self) -> Path:
        return self.directory.parent / f"{self.name}.log"

    async def _launch(self) -> Running:
        settings = self.settings | {"directory": str(self.directory)}
        return Forked(self.kind, settings, self.log)

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        async with asyncio.timeout(self.start_timeout_s):
            while not await self._comes_up():
                # A controller ends if it cannot reach its etcd; whoever supervises it starts it again.
                if self.kind != "controller":
                    raise RuntimeError(f"{self.name} did not start, see {self.log}")
                await asyncio.sleep(_RESTART_S)

    async def _comes_up(self) -> bool:
        self._running = await self._launch()
        self.starts += 1
        self._network.runs_as(self._running.pid, self.name)
        return await self._running.comes_up()

    async def kill(self) -> None:
        self._signal(signal.SIGKILL)
        if self._running is not None:
            await self._running.ends()

    async def stop(self) -> None:
        """As an operator would; killed if it takes too long."""
        self.resume()
        self.tell("stop")
        if self._running is not None:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await self._running.ends()
            except TimeoutError:
                await self.kill()
                raise RuntimeError(f"{self.name} did not stop, see {self.log}") from None

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tell(self, command: str) -> None:
        if self._running is not None and not self._running.is_over:
            self._running.tell(command)

    def _signal(self, number: signal.Signals) -> None:
        if self._running is not None and not self._running.is_over:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._running.pid, number)


class Program:
    """Any program that listens on a port when it is up."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self._port = port
        self.pid = process.pid

    @classmethod
    async def start(
        cls, command: Sequence[str], port: int, log: Path, env: Mapping[str, str] | None = None
    ) -> Self:
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *command, stdout=output, stderr=output, start_new_session=True, env=env
            )
        return cls(process, port)

    @property
    def is_over(self) -> bool:
        return self._process.returncode is not None

    async def comes_up(self) -> bool:
        while not self.is_over:
            try:
                _, writer = await asyncio.open_connection(OWN_HOST, self._port)
            except OSError:
                await asyncio.sleep(_LOOK_S)
                continue
            writer.close()
            return True
        return False

    async def ends(self) -> None:
        await self._process.wait()

    def tell(self, command: str) -> None:
        """Its clock and its disk are the machine's."""
        if command == "stop":
            self._process.send_signal(signal.SIGTERM)
