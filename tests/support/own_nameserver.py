"""Our NameServer as its own process, on a free port."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.own_server import OwnServer
from tests.support.server_programs import NAME_SERVER, Program


class OwnNameServer(OwnServer):
    """`with OwnNameServer() as server: server.address`."""

    def __init__(self, settings: Mapping[str, str] | None = None, program: Program = NAME_SERVER) -> None:
        super().__init__(program, "namesrv")
        self.configure(
            {
                "bindAddress": "127.0.0.1",
                "listenPort": "0",
                "kvConfigPath": str(self.home / "kvConfig.json"),
                **(settings or {}),
            }
        )
