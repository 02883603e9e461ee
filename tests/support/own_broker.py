"""Our broker as a process of its own, on free ports, with its files in a temporary directory."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

STOP_TIMEOUT_S: Final = 30.0


class OwnBroker:
    """`with OwnBroker(name_servers) as broker: broker.address`; the process is gone when the block ends."""

    def __init__(
        self,
        name_servers: str,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="pyromq-broker-"))
        self.name = name
        self.store = self.home / "store"
        values = {
            "brokerClusterName": cluster,
            "brokerName": name,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": "0",
            "namesrvAddr": name_servers,
            "storePathRootDir": str(self.store),
            "mappedFileSizeCommitLog": str(16 << 20),
            "registerNameServerPeriod": "10000",
            "enablePropertyFilter": "true",
            "traceTopicEnable": "true",
            "diskMaxUsedSpaceRatio": "95",
            "logDir": "",
            **(settings or {}),
        }
        conf = self.home / "broker.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
        self._command = [sys.executable, "-c", "from pyromq.apps.broker import main; main()", "-c", str(conf)]
        self._errors = (self.home / "stderr.log").open("wb")
        self._process: subprocess.Popen[str] | None = None
        self.address = ""
        self.port = 0

    def __repr__(self) -> str:
        return f"<OwnBroker {self.name} {self.address or 'not started'}>"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def output(self) -> str:
        """What it has logged so far."""
        return (self.home / "stderr.log").read_text(errors="replace")

    def __enter__(self) -> OwnBroker:
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.PIPE, stderr=self._errors, text=True, cwd=self.home
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if found := re.search(r", (\S+)\] boot success", line):
                self.address = found[1]
                self.port = int(self.address.rpartition(":")[2])
                return self
        self.kill()
        raise RuntimeError(f"the broker did not start: {self.output()}")

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
