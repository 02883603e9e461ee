"""A real etcd among the parties of a cluster: the controllers keep their decisions in it."""

import asyncio
import signal
from asyncio.subprocess import Process
from pathlib import Path

from tests.campaign.network import OWN_HOST, Network
from tests.campaign.parties import Party
from tests.support.etcd import etcd_command

_LOOK_S = 0.05


class EtcdParty(Party):
    def __init__(self, name: str, directory: Path, network: Network, port: int, peer_port: int) -> None:
        super().__init__(name, "etcd", directory, network)
        self._port = port
        self._peer_port = peer_port

    def _command(self) -> list[str]:
        return etcd_command(self.directory, f"http://{OWN_HOST}:{self._port}", self._peer_port)

    async def _comes_up(self, process: Process) -> bool:
        while process.returncode is None:
            try:
                _, writer = await asyncio.open_connection(OWN_HOST, self._port)
            except OSError:
                await asyncio.sleep(_LOOK_S)
                continue
            writer.close()
            return True
        return False

    def _ask_to_stop(self) -> None:
        self._signal(signal.SIGTERM)

    def tell(self, command: str) -> None:
        """Its clock and its disk are the machine's."""
