"""A real etcd among the parties of a cluster: the controllers keep their decisions in it."""

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
        # The machine never loses its power, and a busy disk would be a fault that nobody planned.
        return await Program.start([*command, "--unsafe-no-fsync"], self._port, self.log)
