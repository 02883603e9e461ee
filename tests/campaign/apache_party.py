"""A broker of Apache among the parties of a cluster, under the same controller as ours.

It keeps Apache's promises, not ours: what it loses as master is its own. Its clock and its disk are the
machine's.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from tests.campaign.network import OWN_HOST, Network
from tests.campaign.parties import Party, Running
from tests.support.apache import ApacheBroker
from tests.support.apache_releases import APACHE_5
from tests.support.broker_cluster import BROKER_NAME, CLUSTER

_LOOK_S = 0.01

_SAFE: Mapping[str, str] = {
    "enableControllerMode": "true",
    "brokerRole": "SLAVE",
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": "2",
}
_HURRIED: Mapping[str, str] = {
    "brokerHeartbeatInterval": "500",
    "brokerNotActiveTimeoutMillis": "3000",
    "controllerHeartBeatTimeoutMills": "3000",
    "syncBrokerMetadataPeriod": "1000",
    "syncControllerMetadataPeriod": "2000",
    "haMaxTimeSlaveNotCatchup": "2000",
    "checkSyncStateSetPeriod": "500",
    "haSendHeartbeatInterval": "1000",
    "haHousekeepingInterval": "5000",
    "slaveTimeout": "1000",
}


class ApacheParty(Party):
    start_timeout_s = 300.0  # A JVM, on a busy machine.

    def __init__(
        self,
        name: str,
        directory: Path,
        network: Network,
        *,
        port: int,
        host: str,
        names: str,
        controllers: str,
        is_hurried: bool,
    ) -> None:
        """`host` is where the others find it. Its HA port takes all addresses of the machine, so there is no
        room for a relay."""
        super().__init__(name, "broker", directory, network)
        addresses = {"controllerAddr": controllers, "brokerIP1": host, "brokerIP2": OWN_HOST}
        settings = {**_SAFE, **addresses, **(_HURRIED if is_hurried else {})}
        self.broker = ApacheBroker(
            *(APACHE_5, names, directory / "store", BROKER_NAME, CLUSTER, -1, port), settings=settings
        )

    async def _launch(self) -> Running:
        running = _Jvm(self.broker)
        while not self.broker.running and not running.has_failed:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)  # The network wants to know its process.
        return running


class _Jvm:
    """One life of the broker."""

    def __init__(self, broker: ApacheBroker) -> None:
        self._broker = broker
        self._ending: asyncio.Task[None] | None = None
        self._starting = asyncio.create_task(asyncio.to_thread(broker.start))

    @property
    def has_failed(self) -> bool:
        return self._starting.done()

    @property
    def pid(self) -> int:
        return self._broker.pid or 0

    @property
    def is_over(self) -> bool:
        return not self._broker.running

    async def comes_up(self) -> bool:
        await self._starting
        return True

    async def ends(self) -> None:
        while self._broker.running:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    def tell(self, command: str) -> None:
        if command == "stop":
            self._ending = asyncio.create_task(asyncio.to_thread(self._broker.terminate))
