"""The settings of the gRPC front: the keys of rmq-proxy.json, and a few of ours."""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from pyromq.config.inert import InertKey, inert_keys
from pyromq.config.kinds import NOT_NEGATIVE, PORT, POSITIVE, Millis, Seconds, SizeBytes, between
from pyromq.config.options import setting
from pyromq.errors import ConfigError
from pyromq.remoting.settings import ServerSettings, addresses_in

ProxyMode = Literal["CLUSTER", "LOCAL"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]

_MIB = 1024 * 1024
_ORIGIN = re.compile(r"https?://[a-z0-9.\-\[\]:]+")


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class ProxySettings(ServerSettings):
    PART: ClassVar[str] = "proxy"
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("proxy")
    # By the names in 5.0 and 5.1: a certificate that is not read would be replaced by one made at the start.
    RENAMED: ClassVar[Mapping[str, str]] = {
        "grpcClientConsumerLongPollingTimeoutMillis": "grpcClientConsumerMaxLongPollingTimeoutMillis",
        "grpcTlsCertPath": "tlsCertPath",
        "grpcTlsKeyPath": "tlsKeyPath",
        "grpcTlsTestModeEnable": "tlsTestModeEnable",
        "renewSliceTimeMillis": "defaultInvisibleTimeMills",
        "subscriptionGroupConfigCacheExpiredInSeconds": "subscriptionGroupConfigCacheRefreshSeconds",
        "topicConfigCacheExpiredInSeconds": "topicConfigCacheRefreshSeconds",
        "topicRouteServiceCacheExpiredInSeconds": "topicRouteServiceCacheRefreshSeconds",
    }

    # Where it listens, and for whom
    listen_port: int = setting(8081, "TCP port for gRPC, with or without TLS. 0 lets the system choose.", key="grpcServerPort", check=PORT)
    second_port: int | None = setting(None, "Second TCP port for gRPC, as in Apache's proxy. If empty, there is none. Clients of the remoting protocol connect to brokers instead.", key="remotingListenPort", check=PORT)
    mode: ProxyMode = setting("CLUSTER", "CLUSTER serves the brokers known to the name servers. LOCAL starts a broker in the same process and serves it.", key="proxyMode", local=True)
    namesrv_addr: str = setting("", "Addresses of the name servers, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    broker_config_path: Path | None = setting(None, "Properties file of the broker that runs in LOCAL mode.")
    uses_port_of_request: bool = setting(False, "Return the port that the client used in routes, instead of grpcServerPort. Useful behind a mapped port.", key="useEndpointPortFromRequest")
    max_streams_per_address: int = setting(2000, "Maximum number of open telemetry streams of clients at one address that have not proved who they are. Further streams are refused with RESOURCE_EXHAUSTED. 0 means no limit.", check=NOT_NEGATIVE)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping proxy waits for requests in flight.", key="grpcShutdownTimeSeconds", check=NOT_NEGATIVE)

    # Sessions and messages over HTTP
    http_enable: bool = setting(False, "Serve sessions and messages over HTTP/1.1 and HTTP/2 as well, on the same ports. It needs the package wsproto: pip install 'pyromq[http]'.", local=True)
    http_allowed_origins: str = setting("", "Origins of web pages that may use HTTP here, as https://host:port, separated by commas. * allows every page. Pages of the front's own origin always may.", local=True)
    http_allow_plain_passwords: bool = setting(False, "Accept the passwords of users over HTTP without TLS from other machines. Only useful behind a proxy that ends TLS.", local=True)
    http_max_connections: int = setting(10_000, "Maximum number of HTTP/1.1 connections, and of open HTTP requests on HTTP/2 connections, together. Further requests get the status 503.", check=POSITIVE)
    http_ping_seconds: Seconds = setting(15, "How often a reader of a session that has no new messages gets a sign of life.", check=between(1, 300))
    http_stall_seconds: Seconds = setting(30, "Close HTTP connections whose peer reads nothing of its answer for this long.", check=POSITIVE)
    http_token_max_seconds: Seconds = setting(86_400, "Longest validity of a token for a session.", check=POSITIVE)

    # TLS
    tls_generates: bool = setting(True, "Without certificate files, serve TLS with a certificate generated at start-up. Clients in Java, Go and C# use TLS by default and accept any certificate.", key="tlsTestModeEnable", local=True)
    tls_cert_path: Path | None = setting(None, "Certificate chain of this server, PEM.", key="tlsCertPath")
    tls_key_path: Path | None = setting(None, "Private key of this server, PEM.", key="tlsKeyPath")
    tls_key_password: str | None = setting(None, "Password of the private key in tlsKeyPath.", key="tlsKeyPassword", secret=True)

    # Messages
    max_request_bytes: SizeBytes = setting(130 * _MIB, "Maximum size of a request. Larger requests are refused.", key="grpcMaxInboundMessageSize", check=POSITIVE)
    max_message_bytes: SizeBytes = setting(4 * _MIB, "Maximum size of a message body. 0 means no limit.", key="maxMessageSize", check=NOT_NEGATIVE)
    refuses_empty_bodies: bool = setting(True, "Refuse messages without a body.", key="enableMessageBodyEmptyCheck")
    max_user_property_bytes: SizeBytes = setting(16384, "Maximum size of a message's properties, tag and keys together. 0 means no limit.", key="maxUserPropertySize", check=NOT_NEGATIVE)
    user_property_max_num: int = setting(128, "Maximum number of properties of a message.", check=POSITIVE)
    max_message_group_size: int = setting(64, "Size in bytes that the name of a message group must stay below.", check=POSITIVE)
    max_lite_topic_bytes: int = setting(64, "Maximum size of the name of a lite topic, in bytes.", key="maxLiteTopicSize", check=between(1, 255))
    checks_message_types: bool = setting(True, "Refuse messages whose type differs from the type of their topic.", key="enableTopicMessageTypeCheck")
    max_delay_ms: Millis = setting(86_400_000, "Maximum time between a send and its delivery time. 0 means no limit.", key="maxDelayTimeMills", check=NOT_NEGATIVE)
    max_transaction_recovery_seconds: Seconds = setting(3600, "Maximum time that a transaction may request before its first check.", key="maxTransactionRecoverySecond", check=POSITIVE)

    # Times
    send_timeout_ms: Millis = setting(2000, "How long the proxy waits for a broker to answer a request.", key="brokerCallTimeoutMillis", check=POSITIVE)
    default_invisible_ms: Millis = setting(60_000, "Invisible time of messages that are renewed automatically.", key="defaultInvisibleTimeMills", check=POSITIVE)
    min_invisible_ms: Millis = setting(10_000, "Shortest invisible time that a consumer may request.", key="minInvisibleTimeMillsForRecv", check=POSITIVE)
    max_invisible_ms: Millis = setting(43_200_000, "Longest invisible time that a consumer may request.", key="maxInvisibleTimeMills", check=POSITIVE)
    min_polling_ms: Millis = setting(5000, "Shortest time that a receive waits for messages.", key="grpcClientConsumerMinLongPollingTimeoutMillis", check=POSITIVE)
    max_polling_ms: Millis = setting(20_000, "Longest time that a receive waits for messages.", key="grpcClientConsumerMaxLongPollingTimeoutMillis", check=POSITIVE)
    max_receive_batch: int = setting(32, "Maximum number of messages in one receive.", key="grpcClientConsumerLongPollingBatchSize", check=POSITIVE)
    client_expiry_ms: Millis = setting(120_000, "Forget a client after this time without a heartbeat.", key="channelExpiredTimeout", check=POSITIVE)
    idle_ms: Millis = setting(120_000, "Close connections without a call for this long.", key="grpcClientIdleTimeMills", check=POSITIVE)
    cache_refresh_seconds: Seconds = setting(20, "How long the settings of topics and groups are cached.", key="topicConfigCacheRefreshSeconds", check=POSITIVE)
    transaction_expiry_ms: Millis = setting(30_000, "How long an open transaction can be ended through this proxy without a check.", key="transactionDataExpireMillis", check=POSITIVE)
    relay_timeout_seconds: Seconds = setting(5, "How long the proxy waits for a client to answer an operator's request.", key="grpcProxyRelayRequestTimeoutInSeconds", check=POSITIVE)

    # Settings that clients get
    producer_max_attempts: int = setting(3, "Number of attempts that producers make to send a message.", key="grpcClientProducerMaxAttempts", check=POSITIVE)
    producer_backoff_initial_ms: Millis = setting(10, "How long producers wait before their second attempt.", key="grpcClientProducerBackoffInitialMillis", check=POSITIVE)
    producer_backoff_max_ms: Millis = setting(1000, "Longest time that producers wait between attempts.", key="grpcClientProducerBackoffMaxMillis", check=POSITIVE)
    producer_backoff_multiplier: int = setting(2, "Factor by which the wait between a producer's attempts grows.", key="grpcClientProducerBackoffMultiplier", check=POSITIVE)

    # Renewal of invisible messages
    renews: bool = setting(True, "Keep messages of push consumers invisible while they are handled.", key="enableProxyAutoRenew")
    renew_ahead_ms: Millis = setting(10_000, "Renew messages that would become visible within this time.", key="renewAheadTimeMillis", check=POSITIVE)
    renew_interval_ms: Millis = setting(5000, "How often the proxy looks for messages to renew.", key="renewSchedulePeriodMillis", check=POSITIVE)
    renew_max_ms: Millis = setting(10_800_000, "Longest time after its receipt that a message is renewed.", key="renewMaxTimeMillis", check=POSITIVE)
    max_renew_retries: int = setting(3, "Consecutive failures after which a message is no longer renewed.", key="maxRenewRetryTimes", check=POSITIVE)
    invisible_when_gone_ms: Millis = setting(1000, "Time after which messages of a lost client become visible again.", key="invisibleTimeMillisWhenClear", check=POSITIVE)

    # Metrics
    metrics_port: int = setting(5557, "HTTP port for metrics and health. 0 lets the system choose. In LOCAL mode the broker has a separate port.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("127.0.0.1", "Address of the HTTP port for metrics and health.", key="metricsPromExporterHost", local=True)
    cluster_name: str = setting("DefaultCluster", "Name of the cluster, used as a label of metrics.", key="rocketMQClusterName")

    # The log
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "Directory of proxy.log. If empty, the proxy logs to the console only.")
    log_level: LogLevel = setting("INFO", "Minimum level of log messages.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "Size at which the log file is rotated.", check=POSITIVE)
    log_backups: int = setting(5, "Number of rotated log files to keep.", check=NOT_NEGATIVE)
    # fmt: on

    def __repr__(self) -> str:
        return f"<ProxySettings {self.mode} {self.bind_address}:{self.listen_port}>"

    def verify_together(self) -> None:
        super().verify_together()
        addresses_in(self.namesrv_addr, key="namesrvAddr")
        _ = self.origins  # reading them checks them
        if self.min_polling_ms > self.max_polling_ms:
            raise ConfigError(
                "grpcClientConsumerMinLongPollingTimeoutMillis", self.min_polling_ms, f"at most {self.max_polling_ms}"
            )

    @property
    def origins(self) -> frozenset[str]:
        """The origins of pages that may use HTTP. Raises ConfigError."""
        found = frozenset(filter(None, (each.strip() for each in self.http_allowed_origins.split(","))))
        for each in found:
            if each != "*" and not _ORIGIN.fullmatch(each):
                raise ConfigError("httpAllowedOrigins", each, "https://host, https://host:port or *")
        return found

    @property
    def offers_tls(self) -> bool:
        """Whether TLS is not disabled, and there is a certificate or will be one."""
        return self.tls_mode != "disabled" and (self.tls_cert_path is not None or self.tls_generates)

    @property
    def is_local(self) -> bool:
        return self.mode == "LOCAL"
