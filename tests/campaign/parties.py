"""The servers of a cluster as processes that can be killed, stopped, started again and told things."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from tests.campaign.network import Network
from tests.campaign.server import READY

ROOT = Path(__file__).parents[2]
START_TIMEOUT_S = 60.0


class Party:
    """One server. Its directory, and what it wrote to stderr, stay when it ends."""

    def __init__(self, name: str, kind: str, directory: Path, network: Network, **settings: Any) -> None:
        self.name = name
        self.kind = kind
        self.directory = directory
        self.settings = settings
        self._network = network
        self._process: Process | None = None
        self.starts = 0

    def __repr__(self) -> str:
        return f"<Party {self.name} {'up' if self.is_up else 'down'} starts={self.starts}>"

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def log(self) -> Path:
        return self.directory.parent / f"{self.name}.log"

    def _command(self) -> list[str]:
        settings = json.dumps(self.settings | {"directory": str(self.directory)})
        return [sys.executable, "-m", "tests.campaign.server", self.kind, settings]

    async def start(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                cwd=ROOT,
                start_new_session=True,  # Ctrl-C is for the campaign alone
            )
        self.starts += 1
        self._network.runs_as(self._process.pid, self.name)
        async with asyncio.timeout(START_TIMEOUT_S):
            is_up = await self._comes_up(self._process)
        if not is_up:
            raise RuntimeError(f"{self.name} did not start, see {self.log}")

    async def _comes_up(self, process: Process) -> bool:
        assert process.stdout is not None
        return (await process.stdout.readline()).decode().strip() == READY

    async def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """As an operator would; killed if it takes too long."""
        self.resume()
        self._ask_to_stop()
        if self._process is not None:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                await self.kill()
                raise RuntimeError(f"{self.name} did not stop, see {self.log}") from None

    def _ask_to_stop(self) -> None:
        self.tell("stop")

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tell(self, command: str) -> None:
        if self.is_up and self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(f"{command}\n".encode())

    def _signal(self, number: signal.Signals) -> None:
        if self.is_up and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


class Disk:
    """A small disk of its own under a directory, which can be filled: a tmpfs, if we may mount one."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        self.directory = directory
        self._size_mib = size_mib
        self._ballast = directory / "ballast"
        self.is_mounted = False

    def mount(self) -> bool:
        self.directory.mkdir(parents=True, exist_ok=True)
        if sys.platform == "linux" and os.geteuid() == 0 and shutil.which("mount"):
            option = f"size={self._size_mib}m"
            command = ["mount", "-t", "tmpfs", "-o", option, "pyromq-chaos", str(self.directory)]
            self.is_mounted = subprocess.run(command, check=False, capture_output=True).returncode == 0
        return self.is_mounted

    def fill(self) -> None:
        """Not a byte more fits."""
        with contextlib.suppress(OSError), self._ballast.open("ab", buffering=0) as ballast:
            while True:
                ballast.write(bytes(1 << 16))

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)

    def unmount(self) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self.directory)], check=False, capture_output=True)
            self.is_mounted = False
