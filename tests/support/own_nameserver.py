"""Our NameServer as a process of its own, on a free port."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.own_server import OwnServer
from tests.support.server_programs import NAME_SERVER


class OwnNameServer(OwnServer):
    """`with OwnNameServer() as server: server.address`."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME_SERVER, "namesrv")
        self.configure(
            {
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(self.home / "kvConfig.json"),
                **(settings or {}),
            }
        )
