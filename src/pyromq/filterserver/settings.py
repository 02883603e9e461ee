"""The settings of a filter server: Apache's keys under Apache's names, and a few of ours."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from pyromq.config.inert import InertKey, inert_keys
from pyromq.config.kinds import NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes
from pyromq.config.options import setting
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.filterserver.filter_process import FilterLimits
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.settings import ServerSettings

_KIB = 1024
_MIB = 1024 * _KIB


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class FilterServerSettings(ServerSettings):
    PART: ClassVar[str] = "filtersrv"
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("server", "filtersrv")

    # Where it is
    broker_address: str = setting("127.0.0.1:10911", "Address of the broker whose messages it filters. mqfiltersrv takes the port from listenPort if it reads the broker's file.", key="connectWhichBroker", local=True)
    host: str = setting("", "Address that consumers connect to. Default: the first address of the machine.", key="filterServerIP", local=True)
    listen_port: int = setting(0, "TCP port to listen on. 0 lets the system choose. listenPort is the broker's.", key="filterServerPort", check=PORT)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping filter server waits for requests in flight.", key="shutdownWaitTimeSeconds", check=NOT_NEGATIVE)

    # What filters may do
    takes_filters: bool = setting(False, "Run filters that consumers upload. If false, this server runs none.", key="clientUploadFilterClassEnable", local=True)
    filter_cpu_ms: Millis = setting(500, "CPU time that a filter may use for the messages of one pull.", key="filterCpuMillis", check=POSITIVE, local=True)
    filter_wait_ms: Millis = setting(10_000, "How long a filter may take for the messages of one pull, however little CPU time it uses.", key="filterWaitMillis", check=POSITIVE, local=True)
    filter_memory_bytes: SizeBytes = setting(64 * _MIB, "Memory that a filter may use, beyond that of an idle interpreter (about 30 MiB).", key="filterMemoryBytes", check=POSITIVE, local=True)
    filter_source_bytes: SizeBytes = setting(256 * _KIB, "Maximum size of a filter: of its source, or of its module in WebAssembly.", key="filterSourceBytes", check=POSITIVE, local=True)
    max_filters: int = setting(32, "Maximum number of filters. Each has its own process.", key="filterMaxNums", check=POSITIVE, local=True)
    filter_rest_seconds: Seconds = setting(30, "How long a filter that took too much stays ended before it runs again.", key="filterRestSeconds", check=POSITIVE, local=True)
    filter_idle_seconds: Seconds = setting(600, "Forget a filter that has not been used or uploaded for this long.", key="filterIdleSeconds", check=POSITIVE, local=True)

    # Being observed
    metrics_port: int = setting(0, "HTTP port for metrics and health. 0 lets the system choose.", key="filterServerMetricsPort", check=PORT)
    metrics_address: str = setting("127.0.0.1", "Address of the HTTP port for metrics and health.", key="filterServerMetricsHost", local=True)
    # fmt: on

    def __repr__(self) -> str:
        return f"<FilterServerSettings of {self.broker_address}>"

    def verify_together(self) -> None:
        super().verify_together()
        try:
            parse_address(self.broker_address)
        except ConnectFailed:
            raise ConfigError("connectWhichBroker", self.broker_address, "host:port") from None
        if self.authentication and self.auth_config_path is None:
            expected = "the directory of the broker's access.json, because authenticationEnabled=true"
            raise ConfigError("authConfigPath", "", expected)

    @property
    def filter_limits(self) -> FilterLimits:
        return FilterLimits(self.filter_cpu_ms / 1000, self.filter_wait_ms / 1000, self.filter_memory_bytes)
