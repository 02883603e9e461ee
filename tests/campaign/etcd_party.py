"""A real etcd among the parties of a cluster: the controllers keep their decisions in it."""

import asyncio
import signal
from asyncio.subprocess import Process
from pathlib import Path

from tests.campaign.network import OWN_HOST, Network
from tests.campaign.parties import Party, Running
from tests.support.etcd import etcd_command

_LOOK_S = 0.05


class EtcdParty(Party):
    def __init__(self, name: str, directory: Path, network: Network, port: int, peer_port: int) -> None:
        super().__init__(name, "etcd", directory, network)
        self._port = port
        self._peer_port = peer_port

    async def _launch(self) -> Running:
        command = etcd_command(self.directory, f"http://{OWN_HOST}:{self._port}", self._peer_port)
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                # The machine never loses its power, and a busy disk would be a fault that nobody planned.
                *(*command, "--unsafe-no-fsync"),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return Program(process, self._port)


class Program:
    """Any program that listens on a port when it is up."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self._port = port
        self.pid = process.pid

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
