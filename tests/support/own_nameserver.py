"""Our NameServer as a process of its own, on a free port, with its files in a temporary directory."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 15.0


class OwnNameServer:
    """`with OwnNameServer() as server: server.address`; the process is gone when the block ends."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pyromq-namesrv-"))
        values = {
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "kvConfigPath": str(self.home / "kvConfig.json"),
            **(settings or {}),
        }
        conf = self.home / "namesrv.conf"
        conf.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
        self._command = [
            sys.executable,
            "-c",
            "from pyromq.apps.namesrv import main; main()",
            "-c",
            str(conf),
        ]
        self._errors = (self.home / "stderr.log").open("wb")
        self._process: subprocess.Popen[str] | None = None
        self.address = ""
        self.port = 0

    def __repr__(self) -> str:
        return f"<OwnNameServer {self.address or 'not started'}>"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def output(self) -> str:
        """What it has logged so far."""
        return (self.home / "stderr.log").read_text(errors="replace")

    def __enter__(self) -> OwnNameServer:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=self.home
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "boot success" in line:
                self.port = int(line.rsplit(":", 1)[1])
                self.address = f"127.0.0.1:{self.port}"
                return self
        self.kill()
        raise RuntimeError(f"the name server did not start: {self.output()}")

    def terminate(self) -> int:
        """Ask for a clean stop; its exit status."""
        assert self._process is not None
        self._process.terminate()
        status = self._process.wait(STOP_TIMEOUT_S)
        self._close()
        return status

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)
        self._close()

    def _close(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
