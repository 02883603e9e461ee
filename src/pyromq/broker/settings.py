"""All settings of a broker: Apache's keys under Apache's names, and a few of our own.

A key of `broker.conf` has the same meaning as in Apache's broker. One file holds the settings of the broker
and of its store, see `load_broker`. Apache's keys without effect here are in `inert_keys`.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

from pyromq.broker.inert_keys import INERT_KEYS
from pyromq.clock import Clock
from pyromq.cluster.local_address import local_address
from pyromq.config.inert import InertKey
from pyromq.config.kinds import (
    NOT_NEGATIVE,
    PORT,
    POSITIVE,
    Check,
    Millis,
    Seconds,
    SizeBytes,
    at_least,
    between,
)
from pyromq.config.loading import Layer, load
from pyromq.config.options import setting
from pyromq.config.settings import Notice, UnknownKey, unknown_key
from pyromq.errors import ConfigError, ConnectFailed
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.replication import HEADER_BYTES
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.inert_keys import NETTY_KEYS
from pyromq.remoting.networks import Networks
from pyromq.remoting.settings import MetricsExporter, ServerSettings, addresses_in
from pyromq.remoting.tls import TlsClient, TlsOptions, TlsServer
from pyromq.store.settings import StoreSettings

BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
RequestMode = Literal["PULL", "POP"]

_VIP_PORT_DISTANCE = 2
_MIN_REGISTRATION_MS = 10_000
_MAX_REGISTRATION_MS = 60_000

_MAIN_PORT: Check[int] = Check("between 3 and 65535, or 0", lambda port: port == 0 or 3 <= port <= 65535)
_NAME: Check[str] = Check("that is not empty", bool)
_SHORT_TEXT: Check[str] = Check(
    "of at most 255 printable characters", lambda text: len(text) <= 255 and text.isprintable()
)
"""The broker writes it into every message."""
_MIB = 1024 * 1024
_THIS_MACHINE = "127.0.0.0/8,::1"


# fmt: off
@dataclass(frozen=True, kw_only=True, repr=False)
class BrokerSettings(ServerSettings):
    PART: ClassVar[str] = "broker"
    INERT: ClassVar[Mapping[str, InertKey]] = {**NETTY_KEYS, **INERT_KEYS}

    # Identity
    broker_name: str = setting("", "The name that a master and its replicas share. Default: the host name.")
    broker_cluster_name: str = setting("DefaultCluster", "The cluster that the broker belongs to.", check=_NAME)
    broker_id: int = setting(MASTER_ID, "The number of this replica; 0 is the master. A master always has 0. Under enableControllerMode the controller assigns it, whatever is set; Apache's files say -1 there.", check=at_least(-1))
    broker_role: BrokerRole = setting("ASYNC_MASTER", "Master or replica. A SYNC_MASTER acknowledges a send when replicas have it.")
    broker_ip1: str = setting("", "The address that clients connect to. Default: the first address of the machine.", key="brokerIP1", local=True)
    broker_ip2: str = setting("", "The address that replicas connect to. Default: brokerIP1.", key="brokerIP2", local=True)
    ha_listen_port: int = setting(0, "The port that replicas connect to; 0 means listenPort + 1, or a free one if that is taken.", check=PORT)
    ha_master_address: str = setting("", "The HA address of the master, as host:port. Default: name servers tell it.", local=True)
    namesrv_addr: str = setting("", "The name servers, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    broker_permission: int = setting(6, "The broker allows 4 reading, 2 writing, 6 both.", mutable=True, check=between(0, 7))

    # Listening
    listen_port: int = setting(10911, "The TCP port to listen on. The broker also listens on the port two below it. 0 lets the system choose.", check=_MAIN_PORT, local=True)
    shutdown_wait_seconds: Seconds = setting(30, "A stopping broker waits this long for unanswered requests.", key="shutdownWaitTimeSeconds", check=NOT_NEGATIVE)

    # Limits
    max_in_flight_per_connection: int = setting(32_768, "Maximum of unanswered requests on one connection; the broker answers further requests with SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_total: int = setting(131_072, "Maximum of unanswered requests on all connections; the broker answers further requests with SYSTEM_BUSY.", check=POSITIVE)

    # Name servers
    register_period_ms: Millis = setting(30_000, "How often the broker registers with all name servers, limited to 10 s to 60 s.", key="registerNameServerPeriod", mutable=True, check=POSITIVE)
    register_timeout_ms: Millis = setting(24_000, "Time limit for a name server to answer a registration.", key="registerBrokerTimeoutMills", mutable=True, check=POSITIVE)
    force_register: bool = setting(True, "The broker registers every time, even if the name server already knows its topics.", mutable=True)
    compressed_register: bool = setting(False, "The broker compresses registrations.", mutable=True)
    heartbeat_interval_ms: Millis = setting(1000, "How often the broker sends a heartbeat to name servers; 0 sends none, only registrations.", key="brokerHeartbeatInterval", check=NOT_NEGATIVE)
    not_active_timeout_ms: Millis = setting(10_000, "Name servers drop the broker after this time without a heartbeat. The broker tells name servers that support heartbeats.", key="brokerNotActiveTimeoutMillis", check=POSITIVE)
    split_registration: bool = setting(False, "The broker splits a registration of many topics into parts.", key="enableSplitRegistration", mutable=True)
    split_registration_topics: int = setting(800, "Number of topics in one part of a registration.", key="splitRegistrationSize", mutable=True, check=POSITIVE)

    # Topics and groups
    auto_create_topics: bool = setting(True, "A send to a missing topic creates it.", key="autoCreateTopicEnable", mutable=True)
    default_topic_queues: int = setting(8, "Maximum number of queues of a topic created by a send. They are those of TBW102, which gets its queues when the broker first starts and when this setting changes.", key="defaultTopicQueueNums", mutable=True, check=POSITIVE)
    cluster_topic: bool = setting(True, "The broker has a topic named after the cluster; clients look up its brokers by it.", key="clusterTopicEnable")
    broker_topic: bool = setting(True, "The broker has a topic named after itself.", key="brokerTopicEnable")
    auto_create_groups: bool = setting(True, "The first heartbeat of a consumer creates its group.", key="autoCreateSubscriptionGroup", mutable=True)
    trace_topic_enabled: bool = setting(False, "The broker has a topic for message traces.", key="traceTopicEnable")
    trace_topic: str = setting("RMQ_SYS_TRACE_TOPIC", "The name of the topic for message traces.", key="msgTraceTopicName")
    trace_on: bool = setting(True, "The broker asks producers and consumers for message traces.", mutable=True)
    region_id: str = setting("DefaultRegion", "The region that message traces name.", mutable=True, check=_SHORT_TEXT)
    validate_system_topics: bool = setting(True, "System topics cannot be changed or deleted.", key="validateSystemTopicWhenUpdateTopic", mutable=True)
    mixed_message_types: bool = setting(False, "A topic may be created for messages of all types (MIXED).", key="enableMixedMessageType", mutable=True)

    clear_retry_topics: bool = setting(True, "Deleting a topic also deletes the retry topics of groups that popped from it.", key="clearRetryTopicWhenDeleteTopic", mutable=True)

    # Replication
    in_sync_replicas: int = setting(1, "A SYNC_MASTER acknowledges a message when so many brokers have it, the master among them.", mutable=True, check=POSITIVE)
    replica_timeout_ms: Millis = setting(3000, "A SYNC_MASTER waits this long for replicas; then it answers FLUSH_SLAVE_TIMEOUT. The message is stored.", key="slaveTimeout", check=POSITIVE)
    replica_max_behind_bytes: SizeBytes = setting(256 * _MIB, "A replica that is further behind does not count as in sync. If too few are in sync, a SYNC_MASTER answers SLAVE_NOT_AVAILABLE without waiting. The message is stored.", key="haSlaveFallbehindMax", mutable=True, check=POSITIVE)
    replica_max_gap_bytes: SizeBytes = setting(256 * _MIB, "The same under the name that it has since RocketMQ 5; the smaller of the two counts.", key="haMaxGapNotInSync", mutable=True, check=POSITIVE)
    ha_batch_bytes: SizeBytes = setting(32 * 1024, "Maximum size of a frame that the master sends to replicas; those more than 8 MiB behind get frames of 1 MiB at least.", key="haTransferBatchSize", mutable=True, check=between(1, 4 * _MIB - HEADER_BYTES))
    ha_heartbeat_ms: Millis = setting(5000, "Master and replica send something at least this often.", key="haSendHeartbeatInterval", mutable=True, check=POSITIVE)
    ha_silence_ms: Millis = setting(20_000, "Master and replica end a connection on which nothing arrived for this time.", key="haHousekeepingInterval", mutable=True, check=POSITIVE)
    sync_from_last_file: bool = setting(False, "An empty replica begins with the newest log file of its master instead of the oldest. Under a controller it does not count as in sync while its master has older ones.", mutable=True)
    scrub_interval_hours: int = setting(168, "How often the broker reads its whole log, compares checksums, and fetches what is damaged from a broker of its group; 0 means never.", mutable=True, check=NOT_NEGATIVE)
    scrub_max_bytes_per_s: SizeBytes = setting(20 * _MIB, "How fast it reads, in bytes per second.", key="scrubMaxBytesPerSecond", mutable=True, check=POSITIVE)
    ha_flow_control: bool = setting(False, "The master limits how fast it sends to a replica.", key="haFlowControlEnable", mutable=True)
    ha_max_bytes_per_s: SizeBytes = setting(100 * _MIB, "The limit for each replica, in bytes per second, with haFlowControlEnable.", key="maxHaTransferByteInSecond", mutable=True, check=POSITIVE)
    slave_acting_master: bool = setting(False, "While the master is away, the replica with the lowest id serves readers as master would; needs supportActingMaster at the name servers. It never takes messages.", key="enableSlaveActingMaster")
    remote_escape: bool = setting(False, "An acting master sends delayed messages whose time has come to other brokers that have their topic. Messages with a time of delivery wait for the master.", key="enableRemoteEscape")
    auto_in_sync: bool = setting(False, "With enableSlaveActingMaster, a SYNC_MASTER waits only for replicas that are in sync, but for minInSyncReplicas brokers at least. If false, it refuses messages while fewer than inSyncReplicas are in sync.", key="enableAutoInSyncReplicas", mutable=True)
    total_replicas: int = setting(1, "The number of brokers in the group. With enableSlaveActingMaster and more than one, a starting master takes over the offsets of its replicas before it registers.", check=POSITIVE)
    skip_pre_online: bool = setting(False, "A starting master registers at once even then.")
    group_period_ms: Millis = setting(1000, "How often a replica with enableSlaveActingMaster asks name servers who is in its group.", key="syncBrokerMemberGroupPeriod", mutable=True, check=POSITIVE)
    ha_allowed_networks: str = setting("", "Addresses and networks of replicas, separated by commas. The HA port hands out the whole log; empty allows every address, with denyByDefault and without haTls only those of this machine.", local=True)
    ha_tls: bool = setting(False, "The HA port speaks TLS only. Master and replica show each other their certificates (tls.server.*, tls.client.*) and check them (tls.server.trustCertPath, tls.client.trustCertPath). Brokers of Apache cannot.", local=True)
    ha_tls_names: str = setting("", "Names in the certificates of brokers, separated by commas, with haTls. Empty allows every trusted certificate, also those of clients if the same authority issued them.", local=True)

    # Under a controller
    controller_mode: bool = setting(False, "A controller chooses the master of the brokers with this name; brokerRole and brokerId do not count.", key="enableControllerMode")
    controller_addr: str = setting("", "The controllers, as host:port;host:port.", local=True)
    controllers_by_dns: bool = setting(False, "Every address that the name in controllerAddr resolves to is a controller.", key="fetchControllerAddrByDnsLookup", local=True)
    controller_timeout_ms: Millis = setting(10_000, "The controller replaces a master after this time without a heartbeat. A master that acknowledges alone stops a little earlier.", key="controllerHeartBeatTimeoutMills", check=POSITIVE)
    controller_poll_ms: Millis = setting(5000, "How often the broker asks the controller for its master.", key="syncBrokerMetadataPeriod", mutable=True, check=POSITIVE)
    leader_poll_ms: Millis = setting(10_000, "How often the broker asks which controller leads.", key="syncControllerMetadataPeriod", mutable=True, check=POSITIVE)
    election_priority: int = setting(2**31 - 1, "Of replicas that have the same messages, the one with the lowest number becomes master.", key="brokerElectionPriority", check=NOT_NEGATIVE)
    all_in_sync: bool = setting(False, "A master acknowledges a message when every broker in sync has it. If false and inSyncReplicas is 1, it acknowledges alone, and what it acknowledged last is lost with it.", key="allAckInSyncStateSet", mutable=True)
    min_in_sync_replicas: int = setting(1, "A master refuses messages while fewer brokers are in sync, the master among them.", mutable=True, check=POSITIVE)
    replica_max_behind_ms: Millis = setting(15_000, "A replica that has not caught up for this time is not in sync any more.", key="haMaxTimeSlaveNotCatchup", mutable=True, check=POSITIVE)
    in_sync_check_ms: Millis = setting(5000, "How often a master looks for such replicas.", key="checkSyncStateSetPeriod", mutable=True, check=POSITIVE)
    learner: bool = setting(False, "This replica never counts as in sync and never becomes master.", key="asyncLearner")

    # Sending
    reject_transaction_messages: bool = setting(False, "The broker refuses transactional messages.", key="rejectTransactionMessage", mutable=True)
    recalls: bool = setting(False, "Producers may recall timed messages before their time.", key="recallMessageEnable", mutable=True)
    recalls_when_read_only: bool = setting(True, "They may do so while brokerPermission forbids writing.", key="allowRecallWhenBrokerNotWriteable", mutable=True)
    start_accept_send_ms: Millis = setting(0, "The broker refuses sends before this time, in milliseconds since 1970.", key="startAcceptSendRequestTimeStamp", mutable=True)
    store_replies: bool = setting(True, "The broker also stores the replies to requests that it passes on.", key="storeReplyMessageEnable", mutable=True)
    fast_failure: bool = setting(True, "The broker answers a request that has waited too long with SYSTEM_BUSY.", key="brokerFastFailureEnable", mutable=True)
    send_wait_limit_ms: Millis = setting(200, "A send that has waited longer than this is refused.", key="waitTimeMillsInSendQueue", mutable=True, check=POSITIVE)
    append_stall_limit_ms: Millis = setting(1000, "The broker refuses sends while an append takes longer than this.", key="osPageCacheBusyTimeOutMills", mutable=True, check=POSITIVE)

    # Transactions
    transaction_timeout_ms: Millis = setting(6000, "The broker asks how a transaction ended when this time has passed since its message was sent.", key="transactionTimeOut", mutable=True, check=NOT_NEGATIVE)
    transaction_check_max: int = setting(15, "The broker gives a transaction up after this many checks and keeps its message in the topic TRANS_CHECK_MAX_TIME_TOPIC.", key="transactionCheckMax", mutable=True, check=NOT_NEGATIVE)
    transaction_check_interval_ms: Millis = setting(30_000, "How often the broker checks open transactions.", key="transactionCheckInterval", mutable=True, check=POSITIVE)
    transaction_op_max_bytes: SizeBytes = setting(4096, "The broker records ended transactions together, up to this size.", key="transactionOpMsgMaxSize", mutable=True, check=POSITIVE)
    transaction_op_interval_ms: Millis = setting(3000, "How often the broker records ended transactions in the log.", key="transactionOpBatchInterval", mutable=True, check=POSITIVE)
    transaction_count_interval_ms: Millis = setting(10_000, "How often the broker writes the numbers of open transactions to disk.", key="transactionMetricFlushInterval", mutable=True, check=POSITIVE)

    # Consuming
    long_polling: bool = setting(True, "A pull that finds nothing waits as long as the consumer asks for.", key="longPollingEnable", mutable=True)
    short_polling_ms: Millis = setting(1000, "How long a pull that finds nothing waits without long polling.", key="shortPollingTimeMills", mutable=True, check=POSITIVE)
    lite_pull: bool = setting(True, "The broker serves lite pulls.", key="litePullMessageEnable", mutable=True)
    reject_pull_consumers: bool = setting(False, "The broker refuses pull consumers.", key="rejectPullConsumerEnable", mutable=True)
    slave_read: bool = setting(False, "Consumers that are far behind are referred to a replica.", key="slaveReadEnable", mutable=True)
    sql_filters: bool = setting(False, "Consumers may filter by SQL92 expressions.", key="enablePropertyFilter", mutable=True)
    filter_retries: bool = setting(False, "Retried messages are also matched against the group's filter for the original topic.", key="filterSupportRetry", mutable=True)
    dead_filter_ms: Millis = setting(24 * 3_600_000, "How long the broker keeps the filter of a group without members.", key="filterDataCleanTimeSpan", mutable=True, check=POSITIVE)
    stop_slow_groups: bool = setting(False, "The broker stops groups that read too far behind the end of the log. An operator must enable them again.", key="disableConsumeIfConsumerReadSlowly", mutable=True)
    slow_group_bytes: SizeBytes = setting(16 * 1024 * _MIB, "How many bytes behind the end of the log is too far.", key="consumerFallbehindThreshold", mutable=True, check=NOT_NEGATIVE)

    # Popping
    revive_queues: int = setting(8, "Number of queues of the revive log, which keeps popped messages that are not acknowledged.", key="reviveQueueNum", check=POSITIVE)
    retry_topic_v2: bool = setting(False, "The retries of popped messages go into topics named %RETRY%group+topic instead of %RETRY%group_topic.", key="enableRetryTopicV2", mutable=True)
    pop_old_retries: bool = setting(True, "With enableRetryTopicV2, pops also take retries from topics named the old way.", key="retrieveMessageFromPopRetryTopicV1", mutable=True)
    pop_retries_first_percent: int = setting(20, "How many of 100 pops look for retries first; the others look for them last.", key="popFromRetryProbability", mutable=True, check=between(0, 100))
    pop_retries_first_percent_by_priority: int = setting(0, "The same for topics of the type PRIORITY.", key="popFromRetryProbabilityForPriority", mutable=True, check=between(0, 100))
    highest_priority_first: bool = setting(True, "Of a topic of the type PRIORITY the queue with the highest number is popped first; else the one with the lowest. A message with priority 3 is in queue 3.", key="priorityOrderAsc", mutable=True)
    pop_young_queues_from_begin: bool = setting(True, "A new group pops a queue from its first message if that is still in memory, even if it asks for new messages only.", key="initPopOffsetByCheckMsgInMem", mutable=True)
    pop_shows_retry_topics: bool = setting(False, "Popped retries name the topic they are stored in instead of the original one.", key="popResponseReturnActualRetryTopic", mutable=True)
    pop_threshold_enabled: bool = setting(False, "A group does not get more messages of a queue while too many of it are not acknowledged.", key="enablePopMessageThreshold", mutable=True)
    pop_threshold: int = setting(10_000, "How many are too many.", key="popInflightMessageThreshold", mutable=True, check=NOT_NEGATIVE)
    held_pops: int = setting(1024, "Maximum of waiting pops of one group at one queue, or at any queue of a topic; more are answered with POLLING_FULL.", key="popPollingSize", mutable=True, check=NOT_NEGATIVE)
    held_pops_total: int = setting(100_000, "Maximum of all waiting pops.", key="maxPopPollingSize", mutable=True, check=NOT_NEGATIVE)
    default_request_mode: RequestMode = setting("PULL", "Whether groups pull or pop if no operator set it. Only consumers follow it that let the broker assign queues.", key="defaultMessageRequestMode", mutable=True)
    default_pop_share: int = setting(-1, "With how many other members a popping member shares its queues; below 1 with all.", key="defaultPopShareQueueNum", mutable=True)
    assigns_queues: bool = setting(True, "The broker divides the queues among members that ask for theirs; otherwise each gets all.", key="serverLoadBalancerEnable", mutable=True)

    # Clients and offsets
    client_expiry_ms: Millis = setting(120_000, "The broker drops a client after this time without a heartbeat.", key="channelExpiredTimeout", mutable=True, check=POSITIVE)
    notify_members: bool = setting(True, "The broker notifies consumers when members join or leave their group.", key="notifyConsumerIdsChangedEnable", mutable=True)
    notify_members_at_once: bool = setting(True, "The broker notifies them at once; otherwise every 15 s.", key="realTimeNotifyConsumerChange", mutable=True)
    register_producers: bool = setting(True, "The broker registers producers; if false, only while it accepts transactional messages.", key="enableRegisterProducer", mutable=True)
    flush_offsets_ms: Millis = setting(5000, "How often the broker writes consumer offsets to disk.", key="flushConsumerOffsetInterval", check=POSITIVE)
    server_side_reset: bool = setting(True, "An offset reset takes effect on the broker at the next pull.", key="useServerSideResetOffset")
    commits_per_version: int = setting(500, "Offset commits until the offset table gets a new version.", key="consumerOffsetUpdateVersionStep", check=POSITIVE)
    flush_delay_offsets_ms: Millis = setting(10_000, "How often the broker writes the progress of delayed messages to disk.", key="flushDelayOffsetInterval", check=POSITIVE)
    deliveries_per_version: int = setting(200, "Deliveries of delayed messages until their table gets a new version.", key="delayOffsetUpdateVersionStep", check=POSITIVE)
    queue_lock_expiry_ms: Millis = setting(60_000, "The lock of a queue for ordered consumption expires after this time without renewal.", key="rocketmq.broker.rebalance.lockMaxLiveTime", check=POSITIVE)

    # Changing settings over the network
    config_path: Path | None = setting(None, "The file for settings that are changed over the network; the file given with -c takes precedence.", key="brokerConfigPath")
    config_black_list: str = setting("configBlackList;brokerConfigPath", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Metrics and logs
    metrics_exporter: MetricsExporter = setting("DISABLE", "PROM serves metrics over HTTP; RocketMQ's other exporters are refused.", key="metricsExporterType")
    metrics_port: int = setting(5557, "The HTTP port for metrics and health; 0 lets the system choose one.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("", "The address of that HTTP port. Default: brokerIP1.", key="metricsPromExporterHost", local=True)
    metrics_labels: str = setting("", "Labels added to every metric, as name:value,name:value.", key="metricsLabel")
    # fmt: on

    def __post_init__(self) -> None:
        # Fill in the names of this machine, so that nobody else has to look them up.
        self._fill("broker_name", self.broker_name or socket.gethostname())
        self._fill("broker_ip1", self.broker_ip1 or local_address())
        self._fill("broker_ip2", self.broker_ip2 or self.broker_ip1)
        if self.broker_role != "SLAVE" and not self.controller_mode:
            self._fill("broker_id", MASTER_ID)
        super().__post_init__()

    def __repr__(self) -> str:
        return f"<BrokerSettings {self.broker_name} of {self.broker_cluster_name} on {self.bind_address}:{self.listen_port}>"

    def _fill(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def verify_together(self) -> None:
        super().verify_together()
        _ = self.name_servers, self.controllers, self.replica_networks  # reading them checks them
        self._verify_role()
        if self.ha_tls:
            for key, path in (
                ("tls.server.certPath", self.tls_cert_path),
                ("tls.server.trustCertPath", self.tls_trust_cert_path),
                ("tls.client.certPath", self.tls_client_cert_path),
                ("tls.client.trustCertPath", self.tls_client_trust_cert_path),
            ):
                if path is None:
                    raise ConfigError(key, "", "a file, because haTls is true")

    def _verify_role(self) -> None:
        if self.controller_mode:
            if not self.controllers:
                raise ConfigError("controllerAddr", "", "the controllers, because enableControllerMode is true")
            if not self.heartbeat_interval_ms:
                raise ConfigError(
                    "brokerHeartbeatInterval", "0", "more than 0, because enableControllerMode is true"
                )
        elif self.broker_role == "SLAVE":
            if self.broker_id <= MASTER_ID:
                raise ConfigError("brokerId", str(self.broker_id), "at least 1, because brokerRole is SLAVE")
            if not self.name_servers:
                raise ConfigError("namesrvAddr", "", "the name servers that tell a SLAVE where its master is")
        if self.ha_master_address:
            try:
                parse_address(self.ha_master_address)
            except ConnectFailed:
                raise ConfigError("haMasterAddress", self.ha_master_address, "host:port") from None

    @property
    def name_servers(self) -> tuple[str, ...]:
        return addresses_in(self.namesrv_addr, key="namesrvAddr")

    @property
    def controllers(self) -> tuple[str, ...]:
        return addresses_in(self.controller_addr, key="controllerAddr")

    @property
    def replica_networks(self) -> Networks | None:
        """Replicas must come from these; None if they may come from anywhere."""
        text = self.ha_allowed_networks
        if not text.strip() and self.deny_by_default and not self.ha_tls:
            text = _THIS_MACHINE
        return Networks.parse(text, key="haAllowedNetworks") if text.strip() else None

    def ha_tls_server(self, clock: Clock) -> TlsServer | None:
        """TLS on the HA port of a master; None without haTls."""
        if not self.ha_tls:
            return None
        return TlsServer(
            mode="enforcing",
            certificate_path=self.tls_cert_path,
            key_path=self.tls_key_path,
            key_password=self.tls_key_password,
            trust_path=self.tls_trust_cert_path,
            client_auth="require",
            clock=clock,
        )

    def ha_tls_client(self, clock: Clock) -> TlsClient | None:
        """TLS of a replica's connection to its master; None without haTls."""
        if not self.ha_tls:
            return None
        options = TlsOptions(
            certificate_path=self.tls_client_cert_path,
            key_path=self.tls_client_key_path,
            key_password=self.tls_client_key_password,
            trust_path=self.tls_client_trust_cert_path,
            verify=True,
        )
        return TlsClient(options, clock)

    def is_ha_peer(self, names: Collection[str]) -> bool:
        """Whether a broker whose certificate has these names may replicate."""
        allowed = {name.strip() for name in self.ha_tls_names.split(",")} - {""}
        return not self.ha_tls or not allowed or not allowed.isdisjoint(names)

    @property
    def in_sync_max_behind_bytes(self) -> int:
        return min(self.replica_max_behind_bytes, self.replica_max_gap_bytes)

    @property
    def registration_period_s(self) -> float:
        """java: the period is limited to 10 s to 60 s."""
        period_ms = max(_MIN_REGISTRATION_MS, min(self.register_period_ms, _MAX_REGISTRATION_MS))
        return period_ms / 1000


def vip_port(listen_port: int) -> int:
    """java: the port for requests that must not wait behind pulls is always two below the main one."""
    return listen_port - _VIP_PORT_DISTANCE


class BrokerConfiguration(NamedTuple):
    """The settings of a broker and of its store; users see them as one file."""

    broker: BrokerSettings
    store: StoreSettings
    notices: tuple[Notice, ...] = ()

    @property
    def unchangeable_keys(self) -> frozenset[str]:
        return self.broker.unchangeable_keys

    def as_java_dict(self) -> dict[str, str]:
        return {**self.broker.as_java_dict(), **self.store.as_java_dict()}

    def describe(self) -> str:
        """Every setting as `key=value`, one per line, sorted; secrets are masked."""
        lines = self.broker.describe().splitlines(True) + self.store.describe().splitlines(True)
        return "".join(sorted(lines))

    def recognises(self, key: str) -> bool:
        """Whether a key is a setting, or a key of the file that is accepted without being one."""
        return self.broker.recognises(key) or self.store.recognises(key)

    def updated(self, changes: Mapping[str, str]) -> Self:
        """A copy with some values replaced; raises ConfigError for a bad value."""
        ours, stores = _parted(changes)
        return self._replace(broker=self.broker.updated(ours), store=self.store.updated(stores))

    def local_keys(self, changes: Iterable[str]) -> list[str]:
        """The keys that cannot be changed over the network."""
        changes = list(changes)
        return [*self.broker.local_keys(changes), *self.store.local_keys(changes)]

    def remarks_on(self, changes: Iterable[str]) -> list[Notice]:
        ours, stores = _parted(dict.fromkeys(changes, ""))
        remarks = [*self.broker.remarks_on(ours), *self.store.remarks_on(stores)]
        return [_with_store_names(remark) for remark in remarks]


def load_broker(layers: Sequence[Layer]) -> BrokerConfiguration:
    """Load the settings of broker and store from the same layers; each key goes to the part that has it."""
    our_layers, store_layers = [], []
    for layer in layers:
        ours, stores = _parted(layer.values)
        our_layers.append(replace(layer, values=ours))
        store_layers.append(replace(layer, values=stores))
    broker = load(BrokerSettings, our_layers)
    store = load(StoreSettings, store_layers)
    notices = [_with_store_names(notice, layers) for notice in broker.notices]
    return BrokerConfiguration(broker.settings, store.settings, (*notices, *store.notices))


def _parted(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The values of the broker and those of its store; unknown keys go to the broker."""
    stores = {key: text for key, text in values.items() if StoreSettings.find(key) is not None}
    return {key: text for key, text in values.items() if key not in stores}, stores


def _with_store_names(notice: Notice, layers: Sequence[Layer] = ()) -> Notice:
    """Suggest the store's keys as well for a misspelt key."""
    if not isinstance(notice, UnknownKey):
        return notice
    source = next((layer.source for layer in layers if notice.key in layer.values), "")
    return unknown_key((BrokerSettings, StoreSettings), notice.key, source)
