"""Everything that can be set on a broker: Apache's keys under Apache's names, and a few of our own.

A key of `broker.conf` means here what it means to Apache's broker. The store's keys are the store's settings;
one file feeds both, see `load_broker`. What has no counterpart here is in `inert_keys`.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

from pyromq.broker.inert_keys import INERT_KEYS
from pyromq.cluster.local_address import local_address
from pyromq.config import properties
from pyromq.config.kinds import NOT_NEGATIVE, PORT, POSITIVE, Check, Millis, Seconds, SizeBytes, between
from pyromq.config.loading import Layer, NoEffect, load
from pyromq.config.settings import Notice, UnknownKey, setting, unknown_key
from pyromq.errors import ConfigError
from pyromq.protocol.names import MASTER_ID
from pyromq.remoting.settings import ServerSettings, addresses_in
from pyromq.store.settings import StoreSettings

BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
MetricsExporter = Literal["DISABLE", "OTLP_GRPC", "PROM", "LOG"]

_VIP_PORT_DISTANCE = 2
_MIN_REGISTRATION_MS = 10_000
_MAX_REGISTRATION_MS = 60_000

_MAIN_PORT: Check[int] = Check("between 3 and 65535, or 0", lambda port: port == 0 or 3 <= port <= 65535)
_NAME: Check[str] = Check("that is not empty", bool)
_SHORT_TEXT: Check[str] = Check(
    "of at most 255 printable characters", lambda text: len(text) <= 255 and text.isprintable()
)
"""It becomes part of every message."""
_MIB = 1024 * 1024


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class BrokerSettings(ServerSettings):
    PART: ClassVar[str] = "broker"
    INERT: ClassVar[Mapping[str, str]] = INERT_KEYS

    # Who it is
    broker_name: str = setting("", "The name that a master and its replicas share; nothing takes the host's name.")
    broker_cluster_name: str = setting("DefaultCluster", "The cluster it belongs to.", check=_NAME)
    broker_id: int = setting(MASTER_ID, "Which replica this is: 0 is the master, and a master has 0 whatever stands here.", check=NOT_NEGATIVE)
    broker_role: BrokerRole = setting("ASYNC_MASTER", "Whether it is a master, and whether sends wait for replicas.")
    broker_ip1: str = setting("", "The address that clients are told; nothing takes the machine's first one.", key="brokerIP1", local=True)
    broker_ip2: str = setting("", "The address that replicas are told; nothing takes brokerIP1.", key="brokerIP2", local=True)
    ha_listen_port: int = setting(0, "The port that replicas are told; 0 takes the one after listenPort.", check=PORT)
    namesrv_addr: str = setting("", "The name servers, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    broker_permission: int = setting(6, "What this broker allows: 4 reading, 2 writing, 6 both.", mutable=True, check=between(0, 7))
    rocketmq_home: Path | None = setting(None, "The installation directory that RocketMQ's scripts know.", environment="ROCKETMQ_HOME", has_effect=False)

    # Where it listens
    listen_port: int = setting(10911, "The TCP port to listen on, and the one two below it; 0 lets the system choose one.", check=_MAIN_PORT, local=True)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping broker waits for requests in flight.", key="shutdownWaitTimeSeconds", check=NOT_NEGATIVE)
    connect_timeout_ms: Millis = setting(3000, "How long opening a connection to another server may take.", key="connectTimeoutMillis", check=POSITIVE)

    # Limits
    max_in_flight_per_connection: int = setting(32_768, "Requests of one connection that may wait for their answer; further ones are answered SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_total: int = setting(131_072, "Requests of all connections that may wait for their answer; further ones are answered SYSTEM_BUSY.", check=POSITIVE)

    # Name servers
    register_period_ms: Millis = setting(30_000, "How often it registers with all name servers; at least 10 s and at most 60 s.", key="registerNameServerPeriod", mutable=True, check=POSITIVE)
    register_timeout_ms: Millis = setting(24_000, "How long each name server may take to answer a registration.", key="registerBrokerTimeoutMills", mutable=True, check=POSITIVE)
    force_register: bool = setting(True, "It registers each time, whether or not a name server knows its topics already.", mutable=True)
    compressed_register: bool = setting(False, "Registrations are compressed.", mutable=True)
    heartbeat_interval_ms: Millis = setting(1000, "How often it tells name servers that it is alive; 0 leaves it to the registrations.", key="brokerHeartbeatInterval", check=NOT_NEGATIVE)
    not_active_timeout_ms: Millis = setting(10_000, "Name servers may drop it after this much silence; announced to those that know such heartbeats.", key="brokerNotActiveTimeoutMillis", check=POSITIVE)
    split_registration: bool = setting(False, "A registration of very many topics goes out in parts.", key="enableSplitRegistration", mutable=True)
    split_registration_topics: int = setting(800, "Topics in one part of a registration.", key="splitRegistrationSize", mutable=True, check=POSITIVE)

    # Topics and groups
    auto_create_topics: bool = setting(True, "A topic that is sent to is created if it does not exist.", key="autoCreateTopicEnable", mutable=True)
    default_topic_queues: int = setting(8, "Queues that a topic created this way may have.", key="defaultTopicQueueNums", mutable=True, check=POSITIVE)
    cluster_topic: bool = setting(True, "There is a topic with the name of the cluster, for asking after its brokers.", key="clusterTopicEnable")
    broker_topic: bool = setting(True, "There is a topic with the name of the broker.", key="brokerTopicEnable")
    auto_create_groups: bool = setting(True, "A consumer group is created when a consumer first appears as one.", key="autoCreateSubscriptionGroup", mutable=True)
    trace_topic_enabled: bool = setting(False, "There is a topic for message traces.", key="traceTopicEnable")
    trace_topic: str = setting("RMQ_SYS_TRACE_TOPIC", "The topic for message traces.", key="msgTraceTopicName")
    trace_on: bool = setting(True, "Producers and consumers are told that traces are wanted.", mutable=True)
    region_id: str = setting("DefaultRegion", "The region that producers and consumers are told for their traces.", mutable=True, check=_SHORT_TEXT)
    validate_system_topics: bool = setting(True, "Nobody may change a system topic.", key="validateSystemTopicWhenUpdateTopic", mutable=True)
    mixed_message_types: bool = setting(False, "A topic may hold every type of message, whatever type it was made for.", key="enableMixedMessageType", mutable=True)

    clear_retry_topics: bool = setting(True, "Deleting a topic deletes the retry topics of groups that popped from it.", key="clearRetryTopicWhenDeleteTopic", mutable=True)

    # Sending
    reject_transaction_messages: bool = setting(False, "Messages of transactions are refused.", key="rejectTransactionMessage", mutable=True)
    start_accept_send_ms: Millis = setting(0, "Sends are refused before this time, in milliseconds since 1970.", key="startAcceptSendRequestTimeStamp", mutable=True)
    store_replies: bool = setting(True, "Replies to requests are stored as well as handed on.", key="storeReplyMessageEnable", mutable=True)
    fast_failure: bool = setting(True, "Requests that have waited too long are answered SYSTEM_BUSY instead of being served.", key="brokerFastFailureEnable", mutable=True)
    send_wait_limit_ms: Millis = setting(200, "A send may have waited this long before it is served.", key="waitTimeMillsInSendQueue", mutable=True, check=POSITIVE)
    append_stall_limit_ms: Millis = setting(1000, "While an append takes longer than this, sends are refused.", key="osPageCacheBusyTimeOutMills", mutable=True, check=POSITIVE)

    # Consuming
    long_polling: bool = setting(True, "A pull that finds nothing waits as long as the consumer allows.", key="longPollingEnable", mutable=True)
    short_polling_ms: Millis = setting(1000, "How long such a pull waits without long polling.", key="shortPollingTimeMills", mutable=True, check=POSITIVE)
    lite_pull: bool = setting(True, "Lite pulls are served.", key="litePullMessageEnable", mutable=True)
    reject_pull_consumers: bool = setting(False, "Consumers that pull by themselves are refused.", key="rejectPullConsumerEnable", mutable=True)
    slave_read: bool = setting(False, "Consumers far behind are sent to a replica.", key="slaveReadEnable", mutable=True)
    sql_filters: bool = setting(False, "Consumers may filter by SQL92 expressions.", key="enablePropertyFilter", mutable=True)
    filter_retries: bool = setting(False, "Retries of a group that filters them by an expression pass by the one for their own topic.", key="filterSupportRetry", mutable=True)
    dead_filter_ms: Millis = setting(24 * 3_600_000, "How long the filter of a group that is gone is kept.", key="filterDataCleanTimeSpan", mutable=True, check=POSITIVE)
    stop_slow_groups: bool = setting(False, "Groups that read too far behind the end of the log may not consume until somebody lets them again.", key="disableConsumeIfConsumerReadSlowly", mutable=True)
    slow_group_bytes: SizeBytes = setting(16 * 1024 * _MIB, "How far behind that is.", key="consumerFallbehindThreshold", mutable=True, check=NOT_NEGATIVE)

    # Clients and offsets
    client_expiry_ms: Millis = setting(120_000, "A client silent for this long is dropped.", key="channelExpiredTimeout", mutable=True, check=POSITIVE)
    notify_members: bool = setting(True, "Consumers are told when members of their group come or go.", key="notifyConsumerIdsChangedEnable", mutable=True)
    notify_members_at_once: bool = setting(True, "They are told at once, and not every 15 s.", key="realTimeNotifyConsumerChange", mutable=True)
    register_producers: bool = setting(True, "Producers are remembered; without it only where messages of transactions are accepted.", key="enableRegisterProducer", mutable=True)
    flush_offsets_ms: Millis = setting(5000, "How often offsets of consumers are written to disk.", key="flushConsumerOffsetInterval", check=POSITIVE)
    server_side_reset: bool = setting(True, "A reset of offsets takes effect on the broker, at the next pull.", key="useServerSideResetOffset")
    commits_per_version: int = setting(500, "Commits of offsets after which their table counts as changed.", key="consumerOffsetUpdateVersionStep", check=POSITIVE)
    flush_delay_offsets_ms: Millis = setting(10_000, "How often the progress of delayed messages is written to disk.", key="flushDelayOffsetInterval", check=POSITIVE)
    deliveries_per_version: int = setting(200, "Deliveries of delayed messages after which their table counts as changed.", key="delayOffsetUpdateVersionStep", check=POSITIVE)
    queue_lock_expiry_ms: Millis = setting(60_000, "A queue locked for ordered consumption is free again after this long without renewal.", key="rocketmq.broker.rebalance.lockMaxLiveTime", check=POSITIVE)

    # Changing settings over the network
    config_path: Path | None = setting(None, "Where settings changed over the network are written; the file given with -c takes its place.", key="brokerConfigPath")
    config_black_list: str = setting("configBlackList;brokerConfigPath", "Keys, parted by semicolons, that nobody may change over the network.", local=True)

    # Being observed
    metrics_exporter: MetricsExporter = setting("DISABLE", "PROM serves metrics over HTTP; the other exporters serve nothing here.", key="metricsExporterType")
    metrics_port: int = setting(5557, "The HTTP port for metrics and health; 0 lets the system choose one.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("", "The address that HTTP port listens on; nothing takes brokerIP1.", key="metricsPromExporterHost", local=True)
    metrics_labels: str = setting("", "Labels for every metric, as name:value,name:value.", key="metricsLabel")
    log_dir: Path | None = setting(Path("~/logs/rocketmqlogs"), "The directory of broker.log; nothing writes to the console only.")
    log_level: LogLevel = setting("INFO", "The least severe log lines that are written.")
    log_max_bytes: SizeBytes = setting(100 * _MIB, "The log file is rotated when it would grow beyond this size.", check=POSITIVE)
    log_backups: int = setting(5, "How many rotated log files are kept.", check=NOT_NEGATIVE)

    # TLS towards name servers
    tls_enable: bool = setting(False, "Name servers are spoken to over TLS.", key="tls.enable")
    tls_client_cert_path: Path | None = setting(None, "Certificate chain shown to name servers, PEM.", key="tls.client.certPath")
    tls_client_key_path: Path | None = setting(None, "Its private key, PEM.", key="tls.client.keyPath")
    tls_client_key_password: str | None = setting(None, "The password of that key.", key="tls.client.keyPassword", secret=True)
    tls_client_trust_cert_path: Path | None = setting(None, "The certificates that those of name servers are checked against, PEM.", key="tls.client.trustCertPath")
    tls_client_auth_server: bool = setting(False, "Certificates of name servers are checked.", key="tls.client.authServer")

    # What would change the meaning of everything, and is not there yet
    acl_enable: bool = setting(False, "Clients must sign their requests; refused as long as there is no access control here.", local=True)
    authentication: bool = setting(False, "Clients must say who they are; refused as long as there is no access control here.", key="authenticationEnabled", local=True)
    authorization: bool = setting(False, "Clients may do what policies allow; refused as long as there is no access control here.", key="authorizationEnabled", local=True)
    first_user: str | None = setting(None, "The first user of access control.", key="initAuthenticationUser", secret=True, has_effect=False)
    inner_credentials: str | None = setting(None, "By what brokers know each other under access control.", key="innerClientAuthenticationCredentials", secret=True, has_effect=False)
    dledger_log: bool = setting(False, "The log is kept by a quorum of brokers; refused, there is no such log here.", key="enableDLegerCommitLog")
    controller_mode: bool = setting(False, "A controller elects the master; refused as long as there is no replication here.", key="enableControllerMode")
    # fmt: on

    def __post_init__(self) -> None:
        # What this machine is called is looked up here, so that everyone else finds the names filled in.
        self._fill("broker_name", self.broker_name or socket.gethostname())
        self._fill("broker_ip1", self.broker_ip1 or local_address())
        self._fill("broker_ip2", self.broker_ip2 or self.broker_ip1)
        if self.broker_role != "SLAVE":
            self._fill("broker_id", MASTER_ID)
        super().__post_init__()

    def __repr__(self) -> str:
        return f"<BrokerSettings {self.broker_name} of {self.broker_cluster_name} on {self.bind_address}:{self.listen_port}>"

    def _fill(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def verify_together(self) -> None:
        super().verify_together()
        self._verify_role()
        _ = self.name_servers  # reading them checks them

    def _verify_role(self) -> None:
        if self.broker_role == "SLAVE":
            raise ConfigError(
                "brokerRole", "SLAVE", "ASYNC_MASTER or SYNC_MASTER, because replication is not there yet"
            )
        for key, is_on, reason in (
            ("aclEnable", self.acl_enable, "access control is not there yet"),
            ("authenticationEnabled", self.authentication, "access control is not there yet"),
            ("authorizationEnabled", self.authorization, "access control is not there yet"),
            ("enableDLegerCommitLog", self.dledger_log, "replication is not there yet"),
            ("enableControllerMode", self.controller_mode, "replication is not there yet"),
        ):
            if is_on:
                raise ConfigError(key, "true", f"false, because {reason}")

    @property
    def name_servers(self) -> tuple[str, ...]:
        return addresses_in(self.namesrv_addr, key="namesrvAddr")

    @property
    def lets_anyone_in(self) -> bool:
        return super().lets_anyone_in and not (self.acl_enable or self.authentication)

    @property
    def registration_period_s(self) -> float:
        """java: whatever is asked for, not more often than every 10 s and not less often than every 60 s."""
        period_ms = max(_MIN_REGISTRATION_MS, min(self.register_period_ms, _MAX_REGISTRATION_MS))
        return period_ms / 1000

    @property
    def unchangeable_keys(self) -> frozenset[str]:
        """Keys that a request over the network may not change."""
        return frozenset({key.strip() for key in self.config_black_list.split(";")} - {""})


def vip_port(listen_port: int) -> int:
    """java: the second port, for requests that must not wait behind pulls, is always this far away."""
    return listen_port - _VIP_PORT_DISTANCE


class BrokerConfiguration(NamedTuple):
    """The settings of a broker and of its store, which are one file to everyone outside."""

    broker: BrokerSettings
    store: StoreSettings
    notices: tuple[Notice, ...] = ()

    def as_java_dict(self) -> dict[str, str]:
        return {**self.broker.as_java_dict(), **self.store.as_java_dict()}

    def describe(self) -> str:
        """Every setting as `key=value`, one a line, sorted; secrets are masked."""
        lines = self.broker.describe().splitlines(True) + self.store.describe().splitlines(True)
        return "".join(sorted(lines))

    def to_properties_text(self) -> str:
        """The file that gives these settings again."""
        return properties.render(
            properties.parse(self.broker.to_properties_text())
            | properties.parse(self.store.to_properties_text())
        )

    def recognises(self, key: str) -> bool:
        """Whether a key is a setting, or stands in our file although it is none."""
        return self.broker.recognises(key) or self.store.recognises(key)

    def updated(self, changes: Mapping[str, str]) -> Self:
        """With some values replaced; a bad one raises ConfigError and changes nothing."""
        ours, stores = _parted(changes)
        return self._replace(broker=self.broker.updated(ours), store=self.store.updated(stores))

    def local_keys(self, changes: Iterable[str]) -> list[str]:
        """Those that nobody may change over the network."""
        changes = list(changes)
        return [*self.broker.local_keys(changes), *self.store.local_keys(changes)]

    def remarks_on(self, changes: Iterable[str]) -> list[Notice]:
        ours, stores = _parted(dict.fromkeys(changes, ""))
        return [*self.broker.remarks_on(ours), *self.store.remarks_on(stores)]


def load_broker(layers: Sequence[Layer]) -> BrokerConfiguration:
    """The settings of both parts from the same layers; each key goes to the part that knows it."""
    our_layers, store_layers = [], []
    for layer in layers:
        ours, stores = _parted(layer.values)
        our_layers.append(Layer(layer.source, ours, layer.is_file, layer.quiet))
        store_layers.append(Layer(layer.source, stores, layer.is_file, layer.quiet))
    broker = load(BrokerSettings, our_layers)
    store = load(StoreSettings, store_layers)
    notices = [_with_store_names(notice, layers) for notice in broker.notices]
    return BrokerConfiguration(broker.settings, store.settings, _with_one_list((*notices, *store.notices)))


def _parted(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What belongs to the broker, and what to its store; what nobody knows is the broker's."""
    stores = {key: text for key, text in values.items() if StoreSettings.find(key) is not None}
    return {key: text for key, text in values.items() if key not in stores}, stores


def _with_store_names(notice: Notice, layers: Sequence[Layer]) -> Notice:
    """A misspelt key may be one of the store's."""
    if not isinstance(notice, UnknownKey):
        return notice
    source = next((layer.source for layer in layers if notice.key in layer.values), "")
    return unknown_key((BrokerSettings, StoreSettings), notice.key, source)


def _with_one_list(notices: Iterable[Notice]) -> tuple[Notice, ...]:
    """The notices with the keys without effect in one."""
    others: list[Notice] = []
    keys: list[str] = []
    for notice in notices:
        if isinstance(notice, NoEffect):
            keys += notice.keys
        else:
            others.append(notice)
    if keys:
        others.append(NoEffect(f"accepted, but without effect here: {', '.join(sorted(keys))}", tuple(sorted(keys))))
    return tuple(others)
