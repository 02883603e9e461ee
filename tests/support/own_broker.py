"""Our broker as a process of its own, on free ports."""

from __future__ import annotations

from collections.abc import Mapping

from tests.support.own_server import OwnServer
from tests.support.server_programs import BROKER, Program


class OwnBroker(OwnServer):
    """`with OwnBroker(name_servers) as broker: broker.address`."""

    def __init__(
        self,
        name_servers: str,
        name: str = "broker-a",
        cluster: str = "DefaultCluster",
        settings: Mapping[str, str] | None = None,
        program: Program = BROKER,
    ) -> None:
        super().__init__(program, "broker")
        self.name = name
        self.store = self.home / "store"
        self.configure(
            {
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
                "filterSupportBody": "true",
                "traceTopicEnable": "true",
                "diskMaxUsedSpaceRatio": "95",
                "logDir": "",
                **(settings or {}),
            }
        )
