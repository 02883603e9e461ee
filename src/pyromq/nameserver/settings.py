"""The settings of a name server: Apache's keys under Apache's names, and a few of ours.

A key of `namesrv.properties` has the meaning that it has in Apache's name server.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from pyromq.config.inert import InertKey, inert_keys
from pyromq.config.kinds import HOST, NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds
from pyromq.config.options import setting
from pyromq.errors import ConfigError
from pyromq.protocol.requests.topics import MAX_QUEUES_PER_TOPIC
from pyromq.remoting.exporter_settings import MetricsExporter
from pyromq.remoting.settings import ServerSettings, addresses_in

_MIB = 1024 * 1024


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class NameServerSettings(ServerSettings):
    PART: ClassVar[str] = "namesrv"
    NEVER_CHANGEABLE: ClassVar[frozenset[str]] = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("server", "namesrv")

    # Where it listens
    listen_port: int = setting(9876, "TCP port to listen on. 0 lets the system choose.", check=PORT)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping name server waits for requests in flight.", key="shutdownWaitTimeSeconds", mutable=True, check=NOT_NEGATIVE)

    # Routes and brokers
    broker_expiry_ms: Millis = setting(120_000, "Time without a heartbeat after which a broker is removed, unless it announces a different timeout.", key="brokerExpiryMillis", mutable=True, check=POSITIVE)
    scan_interval_ms: Millis = setting(5000, "How often the name server checks for expired brokers.", key="scanNotActiveBrokerInterval", mutable=True, check=POSITIVE)
    delete_topic_with_broker_registration: bool = setting(False, "Remove a topic's queues on a broker when the broker's registration no longer lists it.", mutable=True)
    guard_live_brokers: bool = setting(True, "Prevent other hosts from replacing or unregistering a live broker. A higher state version, assigned by a controller, overrides this.", mutable=True)
    max_topics_per_broker: int = setting(250_000, "Maximum number of topics in a registration. Larger registrations are refused.", mutable=True, check=POSITIVE)
    max_queues_per_topic: int = setting(MAX_QUEUES_PER_TOPIC, "Maximum number of queues of a topic on one broker. Topics with more queues, or a negative number, are not registered.", mutable=True, check=POSITIVE)
    return_order_topic_config_to_broker: bool = setting(True, "Include the configuration of ordered topics in answers to registrations.", mutable=True)
    order_message_enable: bool = setting(False, "Include the queue layout of ordered topics in answers to route queries.", mutable=True)
    support_acting_master: bool = setting(False, "Present a replica as acting master in routes while the master is away.", mutable=True)
    notify_min_broker_id_changed: bool = setting(False, "Notify brokers when the lowest broker id of their group changes.", mutable=True)
    enable_all_topic_list: bool = setting(True, "Let clients list all topics.", mutable=True)
    enable_topic_list: bool = setting(True, "Let clients list the topics of a cluster or unit.", mutable=True)
    need_wait_for_service: bool = setting(False, "Refuse route queries for a while after start-up, while brokers register.", mutable=True)
    wait_seconds_for_service: Seconds = setting(45, "How long route queries are refused after start-up, with needWaitForService.", mutable=True, check=NOT_NEGATIVE)

    # A controller in the same process
    enable_controller_in_namesrv: bool = setting(False, "Run a controller in this process. The controller reads its settings from the same file and listens on its port in controllerDLegerPeers.")

    # Cluster test: unknown routes come from another environment
    cluster_test: bool = setting(False, "Query unknown routes from the name servers of another environment.")
    cluster_test_namesrv_addr: str = setting("", "Name servers of the other environment (see clusterTest), as host:port;host:port.", local=True)
    product_env_name: str = setting("center", "Unit name of the other environment (see clusterTest).")

    # Files
    kv_config_path: Path = setting(Path("~/namesrv/kvConfig.json"), "File for key-value configuration.")
    config_store_path: Path = setting(Path("~/namesrv/namesrv.properties"), "File for settings changed over the network. The file given with -c takes precedence.")
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Being observed
    metrics_exporter: str = setting("DISABLE", "Where metrics go besides the HTTP port of metricsPort. OTLP_GRPC: sent to an OpenTelemetry collector. LOG: written to the log. DISABLE: nowhere else. Several are separated by commas.", key="metricsExporterType")
    metrics_port: int | None = setting(None, "HTTP port for metrics and health. 0 lets the system choose. If empty, there is no such port.", check=PORT)
    metrics_address: str = setting("127.0.0.1", "Address of the HTTP port for metrics and health.", check=HOST)
    # fmt: on

    def __repr__(self) -> str:
        return f"<NameServerSettings {self.bind_address}:{self.listen_port} tls={self.tls_mode}>"

    def verify_together(self) -> None:
        super().verify_together()
        if self.cluster_test and not self.cluster_test_name_servers:
            raise ConfigError("clusterTestNamesrvAddr", "", "host:port;host:port, because clusterTest is true")

    @property
    def metric_exporters(self) -> frozenset[MetricsExporter]:
        named = super().metric_exporters
        if self.metrics_port is not None:
            return named | {"PROM"}
        # A controller in this process reads the same key, and has its own port.
        if "PROM" in named and not self.enable_controller_in_namesrv:
            raise ConfigError("metricsPort", "", "a port, because metricsExporterType names PROM")
        return named - {"PROM"}

    @property
    def cluster_test_name_servers(self) -> tuple[str, ...]:
        return addresses_in(self.cluster_test_namesrv_addr, key="clusterTestNamesrvAddr")
