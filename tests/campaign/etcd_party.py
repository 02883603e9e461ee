"""A real etcd among the parties of a cluster: the controllers keep their decisions in it."""

import asyncio
from pathlib import Path

from tests.campaign.network import OWN_HOST, Network
from tests.campaign.parties import Party, Program, Running
from tests.support.etcd import etcd_command


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
