"""The settings of the gRPC front: the keys of rmq-proxy.json, and a few of our own."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.config.inert import InertKey
from pyromq.config.kinds import NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes
from pyromq.config.options import setting
from pyromq.errors import ConfigError
from pyromq.proxy.inert_keys import INERT_KEYS, RENAMED_KEYS
from pyromq.remoting.settings import ServerSettings, addresses_in

ProxyMode = Literal["CLUSTER", "LOCAL"]
MetricsExporter = Literal["DISABLE", "PROM"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_MIB = 1024 * 1024


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ProxySettings(ServerSettings):
    PART: ClassVar[str] = "proxy"
    INERT: ClassVar[Mapping[str, InertKey]] = INERT_KEYS
    RENAMED: ClassVar[Mapping[str, str]] = RENAMED_KEYS

    # Where it listens, and for whom
    listen_port: int = setting(8081, "The TCP port for gRPC, with TLS and without; 0 lets the system choose one.", key="grpcServerPort", check=PORT)
    second_port: int | None = setting(None, "Another TCP port for gRPC, where Apache's proxy forwards it; empty opens none. Clients of the other protocol speak to brokers.", key="remotingListenPort", check=PORT)
    mode: ProxyMode = setting("CLUSTER", "CLUSTER serves the brokers that the name servers know; LOCAL starts a broker in the same process and serves it.", key="proxyMode", local=True)
    namesrv_addr: str = setting("", "The name servers, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    broker_config_path: Path | None = setting(None, "The properties file of the broker that LOCAL starts.")
    uses_port_of_request: bool = setting(False, "Routes name the port that the client asked, not grpcServerPort: for fronts behind a mapped port.", key="useEndpointPortFromRequest")
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping proxy waits for requests in flight.", key="grpcShutdownTimeSeconds", check=NOT_NEGATIVE)

    # TLS
    tls_generates: bool = setting(True, "Without certificate files, serve TLS with a certificate made at the start: clients in Java, Go and C# use TLS by default and accept any.", key="tlsTestModeEnable", local=True)
    tls_cert_path: Path | None = setting(None, "The server's certificate chain, PEM.", key="tlsCertPath")
    tls_key_path: Path | None = setting(None, "The server's private key, PEM.", key="tlsKeyPath")
    tls_key_password: str | None = setting(None, "The password of the private key.", key="tlsKeyPassword", secret=True)

    # Messages
    max_request_bytes: SizeBytes = setting(130 * _MIB, "The size limit of a request; a larger one is refused.", key="grpcMaxInboundMessageSize", check=POSITIVE)
    max_message_bytes: SizeBytes = setting(4 * _MIB, "The size limit of a message body; 0 means no limit.", key="maxMessageSize", check=NOT_NEGATIVE)
    refuses_empty_bodies: bool = setting(True, "Messages without a body are refused.", key="enableMessageBodyEmptyCheck")
    max_user_property_bytes: SizeBytes = setting(16384, "The size limit of a message's properties, tag and keys together; 0 means no limit.", key="maxUserPropertySize", check=NOT_NEGATIVE)
    user_property_max_num: int = setting(128, "The limit of properties of a message.", check=POSITIVE)
    max_message_group_size: int = setting(64, "A message group must have fewer bytes than this.", check=POSITIVE)
    checks_message_types: bool = setting(True, "A message must be of its topic's type.", key="enableTopicMessageTypeCheck")
    max_delay_ms: Millis = setting(86_400_000, "How far ahead a delivery time may be; 0 means no limit.", key="maxDelayTimeMills", check=NOT_NEGATIVE)
    max_transaction_recovery_seconds: Seconds = setting(3600, "The longest time that a transaction may ask for before its first check.", key="maxTransactionRecoverySecond", check=POSITIVE)

    # Times
    send_timeout_ms: Millis = setting(2000, "How long a broker may take for one request.", key="brokerCallTimeoutMillis", check=POSITIVE)
    default_invisible_ms: Millis = setting(60_000, "How long messages are invisible that are renewed automatically.", key="defaultInvisibleTimeMills", check=POSITIVE)
    min_invisible_ms: Millis = setting(10_000, "The shortest invisible time that a consumer may ask for.", key="minInvisibleTimeMillsForRecv", check=POSITIVE)
    max_invisible_ms: Millis = setting(43_200_000, "The longest invisible time that a consumer may ask for.", key="maxInvisibleTimeMills", check=POSITIVE)
    min_polling_ms: Millis = setting(5000, "The shortest time for which a receive waits.", key="grpcClientConsumerMinLongPollingTimeoutMillis", check=POSITIVE)
    max_polling_ms: Millis = setting(20_000, "The longest time for which a receive waits.", key="grpcClientConsumerMaxLongPollingTimeoutMillis", check=POSITIVE)
    max_receive_batch: int = setting(32, "The limit of messages in one receive.", key="grpcClientConsumerLongPollingBatchSize", check=POSITIVE)
    client_expiry_ms: Millis = setting(120_000, "A client without a heartbeat for this long is forgotten.", key="channelExpiredTimeout", check=POSITIVE)
    idle_ms: Millis = setting(120_000, "A connection without a call for this long is closed.", key="grpcClientIdleTimeMills", check=POSITIVE)
    cache_refresh_seconds: Seconds = setting(20, "How long the settings of topics and groups are used before they are asked for again.", key="topicConfigCacheRefreshSeconds", check=POSITIVE)
    transaction_expiry_ms: Millis = setting(30_000, "How long an unfinished transaction can be ended here without a check.", key="transactionDataExpireMillis", check=POSITIVE)
    relay_timeout_seconds: Seconds = setting(5, "How long a client may take to answer a question of an operator.", key="grpcProxyRelayRequestTimeoutInSeconds", check=POSITIVE)

    # What clients are told
    producer_max_attempts: int = setting(3, "How often a producer tries to send.", key="grpcClientProducerMaxAttempts", check=POSITIVE)
    producer_backoff_initial_ms: Millis = setting(10, "A producer's wait before its second attempt.", key="grpcClientProducerBackoffInitialMillis", check=POSITIVE)
    producer_backoff_max_ms: Millis = setting(1000, "A producer's longest wait between attempts.", key="grpcClientProducerBackoffMaxMillis", check=POSITIVE)
    producer_backoff_multiplier: int = setting(2, "By what a producer's wait grows.", key="grpcClientProducerBackoffMultiplier", check=POSITIVE)

    # Renewal of invisible messages
    renews: bool = setting(True, "Messages of push consumers stay invisible while they are handled.", key="enableProxyAutoRenew")
    renew_ahead_ms: Millis = setting(10_000, "Messages are renewed when they would become visible within this time.", key="renewAheadTimeMillis", check=POSITIVE)
    renew_interval_ms: Millis = setting(5000, "How often the proxy looks for messages to renew.", key="renewSchedulePeriodMillis", check=POSITIVE)
    renew_max_ms: Millis = setting(10_800_000, "A message is renewed for at most this time after it was received.", key="renewMaxTimeMillis", check=POSITIVE)
    max_renew_retries: int = setting(3, "After so many failures in a row a message is not renewed any more.", key="maxRenewRetryTimes", check=POSITIVE)
    invisible_when_gone_ms: Millis = setting(1000, "Messages of a client that is gone become visible after this time.", key="invisibleTimeMillisWhenClear", check=POSITIVE)

    # Metrics
    metrics_exporter: MetricsExporter = setting("DISABLE", "PROM serves metrics over HTTP; RocketMQ's other exporters are refused.", key="metricsExporterType")
    metrics_port: int = setting(5557, "The HTTP port for metrics and health; 0 lets the system choose one. In LOCAL mode the broker has one of its own.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("127.0.0.1", "The address of that HTTP port.", key="metricsPromExporterHost", local=True)
    cluster_name: str = setting("DefaultCluster", "The name of the cluster, a label of metrics.", key="rocketMQClusterName")

    # The log
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "The directory of proxy.log; empty writes to the console only.")
    log_level: LogLevel = setting("INFO", "The lowest level of log lines that are written.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "The log file is rotated at this size.", check=POSITIVE)
    log_backups: int = setting(5, "How many rotated log files are kept.", check=NOT_NEGATIVE)
    # fmt: on

    def __repr__(self) -> str:
        return f"<ProxySettings {self.mode} {self.bind_address}:{self.listen_port}>"

    def verify_together(self) -> None:
        super().verify_together()
        addresses_in(self.namesrv_addr, key="namesrvAddr")
        if self.min_polling_ms > self.max_polling_ms:
            raise ConfigError(
                "grpcClientConsumerMinLongPollingTimeoutMillis", self.min_polling_ms, f"at most {self.max_polling_ms}"
            )

    @property
    def offers_tls(self) -> bool:
        """Whether TLS is not disabled, and there is a certificate or will be one."""
        return self.tls_mode != "disabled" and (self.tls_cert_path is not None or self.tls_generates)

    @property
    def is_local(self) -> bool:
        return self.mode == "LOCAL"
