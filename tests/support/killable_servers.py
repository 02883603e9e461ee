"""A name server and two brokers as processes of their own, for programs that do without an event loop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyromq.admin.brokers import statuses
from pyromq.admin.cluster import Cluster
from pyromq.errors import PyroError
from pyromq.testing.held_ports import held_port

BROKERS = ("broker-0", "broker-1")
NAME_SERVER = "namesrv"


class KillableServers:
    def __init__(self, place: Path, ports: dict[str, int]) -> None:
        self.namesrv = f"127.0.0.1:{ports[NAME_SERVER]}"
        self._commands = {NAME_SERVER: ["namesrv", "--port", str(ports[NAME_SERVER])]}
        for name in BROKERS:
            broker = ["broker", "-n", self.namesrv, "--port", str(ports[name]), "--store", str(place / name)]
            self._commands[name] = [*broker, "-o", f"brokerName={name}", "-o", "brokerIP1=127.0.0.1"]
        self._place = place
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in self._commands:
            self.start(name)

    def start(self, name: str) -> None:
        with (self._place / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "pyromq", *self._commands[name]]
            self._running[name] = subprocess.Popen(
                [*command, "--log-dir", str(self._place / f"{name}-logs")], stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        process = self._running.pop(name)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)

    def are_up(self) -> bool:
        """Whether the name server knows both brokers."""

        async def known() -> set[str]:
            async with Cluster(self.namesrv) as cluster:
                return {each.member.broker_name for each in await statuses(cluster) if each.figures}

        try:
            return asyncio.run(known()) == set(BROKERS)
        except PyroError:
            return False


@contextmanager
def killable_servers(place: Path) -> Iterator[KillableServers]:
    with ExitStack() as held:
        ports = {NAME_SERVER: held.enter_context(held_port())}
        for name in BROKERS:
            ports[name] = held.enter_context(held_port((0, 1, -2)))
        servers = KillableServers(place, ports)
        try:
            yield servers
        finally:
            servers.kill_all()
