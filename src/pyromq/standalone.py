"""A whole cluster in one process: a name server and a broker that know each other, nothing to configure."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pyromq.broker.broker import Broker
from pyromq.broker.settings import BrokerConfiguration, BrokerSettings
from pyromq.clock import Clock
from pyromq.nameserver.nameserver import NameServer
from pyromq.nameserver.settings import NameServerSettings
from pyromq.remoting.addresses import format_address
from pyromq.store.settings import StoreSettings

LOG_SEGMENT_BYTES = 64 * 1024 * 1024
"""Small enough for a laptop: a log file takes its whole size from the start."""

_SHUTDOWN_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneSettings:
    """What one may want to choose; a port of 0 is chosen by the system.

    `broker` and `store_settings` take any other setting by its name in Python.
    """

    store: Path
    host: str = "127.0.0.1"
    namesrv_port: int = 9876
    broker_port: int = 10911
    flush: Literal["async", "sync"] = "async"
    broker_name: str = "broker-a"
    broker: dict[str, Any] = field(default_factory=dict)
    store_settings: dict[str, Any] = field(default_factory=dict)

    def name_server_settings(self) -> NameServerSettings:
        return NameServerSettings(
            bind_address=self.host,
            listen_port=self.namesrv_port,
            kv_config_path=self.store / "namesrv" / "kvConfig.json",
            config_store_path=self.store / "namesrv" / "namesrv.properties",
            shutdown_wait_seconds=_SHUTDOWN_S,
            log_dir=None,
        )

    def broker_configuration(self, namesrv_address: str) -> BrokerConfiguration:
        chosen: dict[str, Any] = {
            "broker_name": self.broker_name,
            "broker_ip1": self.host,
            "bind_address": self.host,
            "listen_port": self.broker_port,
            "namesrv_addr": namesrv_address,
            "shutdown_wait_seconds": _SHUTDOWN_S,
            "sql_filters": True,
            "trace_topic_enabled": True,
            "log_dir": None,
        }
        stored: dict[str, Any] = {
            "root": self.store,
            "flush_disk_type": "SYNC_FLUSH" if self.flush == "sync" else "ASYNC_FLUSH",
            "log_segment_bytes": LOG_SEGMENT_BYTES,
        }
        return BrokerConfiguration(
            BrokerSettings(**chosen | self.broker), StoreSettings(**stored | self.store_settings)
        )


class Standalone:
    """`async with Standalone(settings) as cluster: cluster.namesrv`."""

    def __init__(self, settings: StandaloneSettings, *, clock: Clock | None = None) -> None:
        self.settings = settings
        self._clock = clock
        self._name_server = NameServer(settings.name_server_settings(), clock=clock)
        self._broker: Broker | None = None

    def __repr__(self) -> str:
        return f"<Standalone {self._name_server!r} {self._broker!r}>"

    @property
    def namesrv(self) -> str:
        """The address that clients are given."""
        return format_address(*self._name_server.address)

    @property
    def name_server(self) -> NameServer:
        return self._name_server

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "the cluster has not been started"
        return self._broker

    async def start(self) -> None:
        await self._name_server.start()
        self._broker = Broker(self.settings.broker_configuration(self.namesrv), clock=self._clock)
        try:
            await self._broker.start()
        except BaseException:
            await self._name_server.stop()
            raise

    async def run_until_stopped(self) -> None:
        await asyncio.gather(self.broker.run_until_stopped(), self._name_server.run_until_stopped())

    async def stop(self) -> None:
        """The broker first, so that it can say goodbye."""
        await self.broker.stop()
        await self._name_server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
