"""A server of ours as a process of its own, configured by a file, all its files in a temporary directory."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tests.support.server_programs import Program, Running


class OwnServer:
    """`with … as server: server.address`; the process and its files are gone when the block ends."""

    def __init__(self, program: Program, name: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix=f"pyromq-{name}-"))
        self.address = ""
        self.port = 0
        self._program = program
        self._conf = self.home / f"{name}.conf"
        self._running: Running | None = None
        self._exits = ExitStack()
        self._exits.callback(shutil.rmtree, self.home, ignore_errors=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address or 'not started'}>"

    def configure(self, settings: Mapping[str, str]) -> None:
        """Write the file it will start with."""
        self._conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def __enter__(self) -> Self:
        with self._exits as starting:
            running = starting.enter_context(self._program.running(self.home, "-c", str(self._conf)))
            self._exits = starting.pop_all()
        self._running = running
        self.address = running.boot["address"]
        self.port = int(self.address.rpartition(":")[2])
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    @property
    def pid(self) -> int:
        return self._started.process.pid

    @property
    def _started(self) -> Running:
        assert self._running is not None, "not started"
        return self._running

    def output(self) -> str:
        """What it has logged so far."""
        return self._started.stderr()

    def terminate(self) -> int:
        """Ask for a clean stop; its exit status."""
        return self._started.stop()

    def kill(self) -> None:
        self._started.stop(signal.SIGKILL)
