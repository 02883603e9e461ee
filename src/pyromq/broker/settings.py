"""All settings of a broker: Apache's keys under Apache's names, and a few of ours.

A key of `broker.conf` has the same meaning as in Apache's broker. One file holds the settings of the broker
and of its store, see `load_broker`. Apache's keys without effect here are in `config/inert`.
"""
# ruff: noqa: E501, RUF009 (a table: one line per setting, however long)

import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Self

from pyromq.clock import Clock
from pyromq.cluster.local_address import local_address
from pyromq.config.inert import InertKey, inert_keys
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
from pyromq.object_stores import checked
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.replication import HEADER_BYTES
from pyromq.remoting.addresses import parse_address
from pyromq.remoting.networks import Networks
from pyromq.remoting.settings import ServerSettings, addresses_in
from pyromq.remoting.tls import TlsClient, TlsOptions, TlsServer
from pyromq.store.settings import StoreSettings

BrokerRole = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]
RequestMode = Literal["PULL", "POP"]
TierLevel = Literal["DISABLE", "NOT_IN_DISK"]

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
    INERT: ClassVar[Mapping[str, InertKey]] = inert_keys("server", "broker")

    # Identity
    broker_name: str = setting("", "Name shared by a master and its replicas. Default: the host name.")
    broker_cluster_name: str = setting("DefaultCluster", "Cluster that this broker belongs to.", check=_NAME)
    broker_id: int = setting(MASTER_ID, "Number of this replica within its group. A master always has 0.", check=at_least(-1))
    broker_role: BrokerRole = setting("ASYNC_MASTER", "Whether this broker is a master or a replica. A SYNC_MASTER acknowledges a send once replicas have it.")
    broker_ip1: str = setting("", "Address that clients connect to. Default: the first address of the machine.", key="brokerIP1", local=True)
    broker_ip2: str = setting("", "Address that replicas connect to. Default: brokerIP1.", key="brokerIP2", local=True)
    ha_listen_port: int = setting(0, "Port that replicas connect to. 0 means listenPort + 1, or a free port if that one is in use.", check=PORT)
    ha_master_address: str = setting("", "HA address of the master, as host:port. Default: the address that name servers report.", local=True)
    namesrv_addr: str = setting("", "Addresses of the name servers, as host:port;host:port.", environment="NAMESRV_ADDR", local=True)
    broker_permission: int = setting(6, "Permission of clients on this broker: 4 read, 2 write, 6 both.", mutable=True, check=between(0, 7))

    # Listening
    listen_port: int = setting(10911, "TCP port to listen on. The broker also listens on the port two below it. 0 lets the system choose.", check=_MAIN_PORT, local=True)
    shutdown_wait_seconds: Seconds = setting(30, "How long a stopping broker waits for requests in flight.", key="shutdownWaitTimeSeconds", check=NOT_NEGATIVE)

    # Limits
    max_in_flight_per_connection: int = setting(32_768, "Maximum number of unanswered requests on one connection. Further requests get SYSTEM_BUSY.", check=POSITIVE)
    max_in_flight_total: int = setting(131_072, "Maximum number of unanswered requests on all connections. Further requests get SYSTEM_BUSY.", check=POSITIVE)

    # Name servers
    register_period_ms: Millis = setting(30_000, "How often the broker registers with all name servers, between 10 s and 60 s.", key="registerNameServerPeriod", mutable=True, check=POSITIVE)
    register_timeout_ms: Millis = setting(24_000, "How long the broker waits for a name server to answer a registration.", key="registerBrokerTimeoutMills", mutable=True, check=POSITIVE)
    force_register: bool = setting(True, "Register every time, even if the name server already has the same topics.", mutable=True)
    compressed_register: bool = setting(False, "Compress registrations.", mutable=True)
    heartbeat_interval_ms: Millis = setting(1000, "How often the broker sends heartbeats to name servers. 0 turns heartbeats off; only registrations are sent.", key="brokerHeartbeatInterval", check=NOT_NEGATIVE)
    not_active_timeout_ms: Millis = setting(10_000, "Name servers drop this broker after this time without a heartbeat. Sent to name servers that support heartbeats.", key="brokerNotActiveTimeoutMillis", check=POSITIVE)
    split_registration: bool = setting(False, "Split a registration with many topics into several requests.", key="enableSplitRegistration", mutable=True)
    split_registration_topics: int = setting(800, "Topics per request when enableSplitRegistration is on.", key="splitRegistrationSize", mutable=True, check=POSITIVE)

    # Topics and groups
    auto_create_topics: bool = setting(True, "Create a topic when a message is sent to one that does not exist.", key="autoCreateTopicEnable", mutable=True)
    default_topic_queues: int = setting(8, "Maximum number of queues of a topic created by a send. TBW102, the template, gets this number when the broker first starts and when this setting changes.", key="defaultTopicQueueNums", mutable=True, check=POSITIVE)
    cluster_topic: bool = setting(True, "Create a topic named after the cluster. Clients use it to find the brokers of the cluster.", key="clusterTopicEnable")
    broker_topic: bool = setting(True, "Create a topic named after the broker.", key="brokerTopicEnable")
    auto_create_groups: bool = setting(True, "Create a consumer group when its first member sends a heartbeat.", key="autoCreateSubscriptionGroup", mutable=True)
    trace_topic_enabled: bool = setting(False, "Create the topic for message traces.", key="traceTopicEnable")
    trace_topic: str = setting("RMQ_SYS_TRACE_TOPIC", "Name of the topic for message traces.", key="msgTraceTopicName")
    trace_on: bool = setting(True, "Ask producers and consumers to send message traces.", mutable=True)
    region_id: str = setting("DefaultRegion", "Region written into message traces.", mutable=True, check=_SHORT_TEXT)
    validate_system_topics: bool = setting(True, "Reject changes and deletions of system topics.", key="validateSystemTopicWhenUpdateTopic", mutable=True)
    mixed_message_types: bool = setting(False, "Allow topics that hold messages of every type (MIXED).", key="enableMixedMessageType", mutable=True)

    clear_retry_topics: bool = setting(True, "When a topic is deleted, also delete the retry topics of groups that popped from it.", key="clearRetryTopicWhenDeleteTopic", mutable=True)

    # Replication
    in_sync_replicas: int = setting(1, "Number of brokers, including the master, that must have a message before a SYNC_MASTER acknowledges it.", mutable=True, check=POSITIVE)
    replica_timeout_ms: Millis = setting(3000, "How long a SYNC_MASTER waits for replicas before it answers FLUSH_SLAVE_TIMEOUT. The message is stored in any case.", key="slaveTimeout", check=POSITIVE)
    forward_timeout_ms: Millis = setting(3000, "How long a broker waits for another one that has a part of a static topic's queue.", key="forwardTimeout", mutable=True, check=POSITIVE)
    replica_max_behind_bytes: SizeBytes = setting(256 * _MIB, "Bytes behind the master above which a replica is not in sync. If too few are in sync, a SYNC_MASTER answers SLAVE_NOT_AVAILABLE without waiting. The message is stored.", key="haSlaveFallbehindMax", mutable=True, check=POSITIVE)
    replica_max_gap_bytes: SizeBytes = setting(256 * _MIB, "Name of haSlaveFallbehindMax since RocketMQ 5. The smaller of the two values applies.", key="haMaxGapNotInSync", mutable=True, check=POSITIVE)
    ha_batch_bytes: SizeBytes = setting(32 * 1024, "Maximum size of a frame sent to a replica. A replica more than 8 MiB behind gets frames of at least 1 MiB.", key="haTransferBatchSize", mutable=True, check=between(1, 4 * _MIB - HEADER_BYTES))
    ha_heartbeat_ms: Millis = setting(5000, "Longest time that a master or replica leaves its connection to the other silent.", key="haSendHeartbeatInterval", mutable=True, check=POSITIVE)
    ha_silence_ms: Millis = setting(20_000, "A master or replica closes the connection to the other after this time without data.", key="haHousekeepingInterval", mutable=True, check=POSITIVE)
    sync_from_last_file: bool = setting(False, "Start an empty replica at the newest log file of its master instead of the oldest. Under a controller it is not in sync while the master has older files.", mutable=True)
    scrub_interval_hours: int = setting(168, "How often the broker reads its whole log to verify checksums. Damaged records are fetched from another broker of the group. 0 turns this off.", mutable=True, check=NOT_NEGATIVE)
    scrub_max_bytes_per_s: SizeBytes = setting(20 * _MIB, "Bytes per second that the broker reads while it verifies the log (see scrubIntervalHours).", key="scrubMaxBytesPerSecond", mutable=True, check=POSITIVE)
    ha_flow_control: bool = setting(False, "Limit how fast the master sends to a replica.", key="haFlowControlEnable", mutable=True)
    ha_max_bytes_per_s: SizeBytes = setting(100 * _MIB, "Bytes per second that the master sends to one replica, with haFlowControlEnable.", key="maxHaTransferByteInSecond", mutable=True, check=POSITIVE)
    slave_acting_master: bool = setting(False, "While the master is away, let the replica with the lowest id serve consumers. Needs supportActingMaster on the name servers. An acting master does not accept messages.", key="enableSlaveActingMaster")
    remote_escape: bool = setting(False, "Let an acting master forward delayed messages that are due to other brokers with the same topic. Messages with a delivery time wait for the master.", key="enableRemoteEscape")
    auto_in_sync: bool = setting(False, "With enableSlaveActingMaster, a SYNC_MASTER waits only for replicas in sync, and for at least minInSyncReplicas brokers. If false, it refuses messages while fewer than inSyncReplicas are in sync.", key="enableAutoInSyncReplicas", mutable=True)
    total_replicas: int = setting(1, "Number of brokers in the group. With enableSlaveActingMaster and more than one broker, a starting master takes over the offsets of its replicas before it registers.", check=POSITIVE)
    skip_pre_online: bool = setting(False, "Register a starting master at once, without taking over the offsets of its replicas (see totalReplicas).")
    group_period_ms: Millis = setting(1000, "How often a replica with enableSlaveActingMaster asks name servers for the members of its group.", key="syncBrokerMemberGroupPeriod", mutable=True, check=POSITIVE)
    ha_allowed_networks: str = setting("", "Addresses and networks of replicas, separated by commas. The HA port serves the whole log. If empty, every address may connect; with denyByDefault and without haTls, only this machine.", local=True)
    ha_tls: bool = setting(False, "Accept only TLS on the HA port. Master and replica verify each other's certificates (tls.server.*, tls.client.*). Apache's brokers do not support this.", local=True)
    ha_tls_names: str = setting("", "Names that broker certificates may have with haTls, separated by commas. If empty, every trusted certificate is accepted, including client certificates of the same authority.", local=True)

    allow_unsigned_replicas: bool = setting(False, "Under access control without haTls, serve replicas that do not prove with innerClientAuthenticationCredentials that they are brokers of this group. Apache's cannot. Needs haAllowedNetworks.", local=True)

    # Under a controller
    controller_mode: bool = setting(False, "Let a controller choose the master among the brokers with this brokerName. brokerRole and brokerId are then ignored.", key="enableControllerMode")
    controller_addr: str = setting("", "Addresses of the controllers, as host:port;host:port.", local=True)
    controllers_by_dns: bool = setting(False, "Treat every address that the name in controllerAddr resolves to as a controller.", key="fetchControllerAddrByDnsLookup", local=True)
    controller_timeout_ms: Millis = setting(10_000, "Time without a heartbeat after which the controller replaces a master. A master that acknowledges alone stops a little earlier.", key="controllerHeartBeatTimeoutMills", check=POSITIVE)
    controller_poll_ms: Millis = setting(5000, "How often the broker asks the controller for its master.", key="syncBrokerMetadataPeriod", mutable=True, check=POSITIVE)
    leader_poll_ms: Millis = setting(10_000, "How often the broker asks which controller is the leader.", key="syncControllerMetadataPeriod", mutable=True, check=POSITIVE)
    election_priority: int = setting(2**31 - 1, "Rank of this broker in elections. Among replicas with the same messages, the lowest number wins.", key="brokerElectionPriority", check=NOT_NEGATIVE)
    all_in_sync: bool = setting(False, "Acknowledge a message only when every broker in sync has it. If false and inSyncReplicas is 1, the master acknowledges alone; its last messages are lost if it dies.", key="allAckInSyncStateSet", mutable=True)
    min_in_sync_replicas: int = setting(1, "A master refuses messages while fewer brokers than this, including the master, are in sync.", mutable=True, check=POSITIVE)
    replica_max_behind_ms: Millis = setting(15_000, "A replica that has not caught up for this time is no longer in sync.", key="haMaxTimeSlaveNotCatchup", mutable=True, check=POSITIVE)
    in_sync_check_ms: Millis = setting(5000, "How often a master checks whether its replicas are still in sync.", key="checkSyncStateSetPeriod", mutable=True, check=POSITIVE)
    mirror_of: str = setting("", "Name servers of another cluster, as host:port;host:port. This broker copies the master with its brokerName there, and takes no messages until mqadmin promoteMirror. Both clusters need controllers. brokerId is its id at its own name servers.", local=True)
    learner: bool = setting(False, "Never count this replica as in sync, and never elect it as master.", key="asyncLearner")

    # Sending
    reject_transaction_messages: bool = setting(False, "Refuse transactional messages.", key="rejectTransactionMessage", mutable=True)
    recalls: bool = setting(False, "Let producers recall timed messages before they are delivered.", key="recallMessageEnable", mutable=True)
    recalls_when_read_only: bool = setting(True, "Let producers recall messages even while brokerPermission forbids writing.", key="allowRecallWhenBrokerNotWriteable", mutable=True)
    start_accept_send_ms: Millis = setting(0, "Refuse sends before this time, in milliseconds since 1970.", key="startAcceptSendRequestTimeStamp", mutable=True)
    stores_resends_once: bool = setting(True, "Store a message once if its producer sends it again because it got no answer. This needs messageIndexEnable, and producers that mark such sends, as PyroMQ's do.", key="storeResendsOnce", mutable=True)
    store_replies: bool = setting(True, "Store the replies to request-reply messages, in addition to forwarding them.", key="storeReplyMessageEnable", mutable=True)
    fast_failure: bool = setting(True, "Answer SYSTEM_BUSY to requests that have waited too long (see waitTimeMillsInSendQueue).", key="brokerFastFailureEnable", mutable=True)
    quota_max_delay_ms: Millis = setting(1_000, "Longest time that a quota of a topic, group or user delays an answer. Requests further over the quota are refused. Keep it below the time-out of clients.", key="quotaMaxDelayMillis", mutable=True, check=POSITIVE)
    send_wait_limit_ms: Millis = setting(200, "Refuse a send that has waited longer than this.", key="waitTimeMillsInSendQueue", mutable=True, check=POSITIVE)
    append_stall_limit_ms: Millis = setting(1000, "Refuse sends while an append to the log takes longer than this.", key="osPageCacheBusyTimeOutMills", mutable=True, check=POSITIVE)

    # Transactions
    transaction_timeout_ms: Millis = setting(6000, "Age at which the broker first asks the producer how a transaction ended.", key="transactionTimeOut", mutable=True, check=NOT_NEGATIVE)
    transaction_check_max: int = setting(15, "Number of checks after which the broker gives up a transaction. Its message is kept in the topic TRANS_CHECK_MAX_TIME_TOPIC.", key="transactionCheckMax", mutable=True, check=NOT_NEGATIVE)
    transaction_check_interval_ms: Millis = setting(30_000, "How often the broker checks open transactions.", key="transactionCheckInterval", mutable=True, check=POSITIVE)
    transaction_op_max_bytes: SizeBytes = setting(4096, "Maximum size of one record of ended transactions.", key="transactionOpMsgMaxSize", mutable=True, check=POSITIVE)
    transaction_op_interval_ms: Millis = setting(3000, "How often ended transactions are recorded in the log.", key="transactionOpBatchInterval", mutable=True, check=POSITIVE)
    transaction_count_interval_ms: Millis = setting(10_000, "How often the counts of open transactions are written to disk.", key="transactionMetricFlushInterval", mutable=True, check=POSITIVE)

    # Consuming
    long_polling: bool = setting(True, "Hold a pull that finds no messages for as long as the consumer asks.", key="longPollingEnable", mutable=True)
    short_polling_ms: Millis = setting(1000, "How long a pull that finds no messages is held when longPollingEnable is false.", key="shortPollingTimeMills", mutable=True, check=POSITIVE)
    lite_pull: bool = setting(True, "Serve lite pulls.", key="litePullMessageEnable", mutable=True)
    reject_pull_consumers: bool = setting(False, "Refuse pull consumers.", key="rejectPullConsumerEnable", mutable=True)
    reject_different_subscriptions: bool = setting(False, "Refuse a member whose subscriptions differ from those of the other members of its group. If false, broker and clients warn: such a group loses messages.", key="rejectDifferentSubscriptions", mutable=True)
    slave_read: bool = setting(False, "Refer consumers that are far behind to a replica.", key="slaveReadEnable", mutable=True)
    sql_filters: bool = setting(False, "Let consumers filter with SQL92 expressions.", key="enablePropertyFilter", mutable=True)
    body_filters: bool = setting(False, "Let SQL92 expressions name fields of JSON bodies, as in `body.customer.region = 'eu'`. Needs enablePropertyFilter.", key="filterSupportBody", mutable=True)
    filter_body_bytes: SizeBytes = setting(128 * 1024, "Size of the largest body, decompressed, of which an expression may read fields. For a larger one they are NULL, and it is counted in `pyromq_filter_unread_bodies_total`.", key="filterMaxBodySize", mutable=True, check=POSITIVE)
    filter_retries: bool = setting(False, "Match retried messages against the group's filter for the original topic.", key="filterSupportRetry", mutable=True)
    filter_servers: int = setting(0, "Number of filter servers that mqbroker starts next to this broker. They read the same file, and run filters only with clientUploadFilterClassEnable=true.", key="filterServerNums", check=NOT_NEGATIVE)
    dead_filter_ms: Millis = setting(24 * 3_600_000, "How long the broker keeps the filter of a group without members.", key="filterDataCleanTimeSpan", mutable=True, check=POSITIVE)
    stop_slow_groups: bool = setting(False, "Stop groups that read too far behind the end of the log (see consumerFallbehindThreshold). An operator must enable them again.", key="disableConsumeIfConsumerReadSlowly", mutable=True)
    slow_group_bytes: SizeBytes = setting(16 * 1024 * _MIB, "Distance from the end of the log, in bytes, at which disableConsumeIfConsumerReadSlowly stops a group.", key="consumerFallbehindThreshold", mutable=True, check=NOT_NEGATIVE)

    # Popping
    revive_queues: int = setting(8, "Number of queues of the revive log, which tracks popped messages until they are acknowledged.", key="reviveQueueNum", check=POSITIVE)
    retry_topic_v2: bool = setting(False, "Store retries of popped messages in topics named %RETRY%group+topic instead of %RETRY%group_topic.", key="enableRetryTopicV2", mutable=True)
    pop_old_retries: bool = setting(True, "With enableRetryTopicV2, also pop retries from topics with the old name, %RETRY%group_topic.", key="retrieveMessageFromPopRetryTopicV1", mutable=True)
    pop_retries_first_percent: int = setting(20, "Percentage of pops that look for retries before new messages. The others look for retries last.", key="popFromRetryProbability", mutable=True, check=between(0, 100))
    pop_retries_first_percent_by_priority: int = setting(0, "Percentage of pops from PRIORITY topics that look for retries before new messages.", key="popFromRetryProbabilityForPriority", mutable=True, check=between(0, 100))
    highest_priority_first: bool = setting(True, "Pop the queue with the highest number of a PRIORITY topic first. If false, start with the lowest. A message with priority 3 is in queue 3.", key="priorityOrderAsc", mutable=True)
    pop_young_queues_from_begin: bool = setting(True, "Let a new group pop a queue from its first message if that message is still in memory, even if the group asks for new messages only.", key="initPopOffsetByCheckMsgInMem", mutable=True)
    pop_shows_retry_topics: bool = setting(False, "Deliver popped retries with the name of the retry topic instead of the original topic.", key="popResponseReturnActualRetryTopic", mutable=True)
    pop_threshold_enabled: bool = setting(False, "Limit the unacknowledged messages per group and queue (see popInflightMessageThreshold).", key="enablePopMessageThreshold", mutable=True)
    pop_threshold: int = setting(10_000, "Unacknowledged messages per queue above which a group gets no more, with enablePopMessageThreshold.", key="popInflightMessageThreshold", mutable=True, check=NOT_NEGATIVE)
    held_pops: int = setting(1024, "Maximum number of held pops of one group, per queue or per topic. Further pops get POLLING_FULL.", key="popPollingSize", mutable=True, check=NOT_NEGATIVE)
    held_pops_total: int = setting(100_000, "Maximum number of held pops on this broker.", key="maxPopPollingSize", mutable=True, check=NOT_NEGATIVE)
    max_lite_subscriptions: int = setting(100_000, "Maximum number of subscriptions to lite topics, counted once for each client and lite topic. Further ones are refused.", key="maxLiteSubscriptionCount", mutable=True, check=NOT_NEGATIVE)
    lite_subscription_timeout_ms: Millis = setting(180_000, "Forget the subscriptions of a client to lite topics after this time without a pop or a subscription.", key="liteSubscriptionCheckTimeoutMills", mutable=True, check=POSITIVE)
    lite_subscription_check_ms: Millis = setting(120_000, "How often the broker looks for clients whose subscriptions to lite topics have expired.", key="liteSubscriptionCheckInterval", mutable=True, check=POSITIVE)
    lite_lag_counts: bool = setting(False, "Also report how many messages groups of lite topics have not read, in `rocketmq_consumer_lag_messages` and `rocketmq_consumer_ready_messages`. Each reading of the metrics then walks over the offsets in all lite topics.", key="liteLagCountMetricsEnable", mutable=True)
    lite_lag_latencies: bool = setting(False, "Also report the age of the oldest message that groups of lite topics have not read, in `rocketmq_consumer_lag_latency_milliseconds`. Each reading of the metrics then walks over the offsets in all lite topics.", key="liteLagLatencyMetricsEnable", mutable=True)
    min_lite_ttl_ms: Millis = setting(900_000, "Shortest time without a message after which a lite topic expires, and the time after a start in which none does.", key="minLiteTTl", mutable=True, check=NOT_NEGATIVE)
    lite_ttl_check_ms: Millis = setting(120_000, "How often the broker looks for expired lite topics.", key="liteTtlCheckInterval", mutable=True, check=POSITIVE)
    default_request_mode: RequestMode = setting("PULL", "Whether groups pull or pop by default. Applies to consumers that let the broker assign queues.", key="defaultMessageRequestMode", mutable=True)
    default_pop_share: int = setting(-1, "Number of other members with which a popping member shares its queues. A value below 1 means all members.", key="defaultPopShareQueueNum", mutable=True)
    assigns_queues: bool = setting(True, "Divide the queues among the members that ask the broker for an assignment. If false, each member gets all queues.", key="serverLoadBalancerEnable", mutable=True)

    # Clients and offsets
    client_expiry_ms: Millis = setting(120_000, "Drop a client after this time without a heartbeat.", key="channelExpiredTimeout", mutable=True, check=POSITIVE)
    notify_members: bool = setting(True, "Notify consumers when a member joins or leaves their group.", key="notifyConsumerIdsChangedEnable", mutable=True)
    notify_members_at_once: bool = setting(True, "Notify consumers of membership changes immediately. If false, every 15 s.", key="realTimeNotifyConsumerChange", mutable=True)
    register_producers: bool = setting(True, "Register producers. If false, they are registered only while the broker accepts transactional messages.", key="enableRegisterProducer", mutable=True)
    flush_offsets_ms: Millis = setting(5000, "How often consumer offsets are written to disk.", key="flushConsumerOffsetInterval", check=POSITIVE)
    server_side_reset: bool = setting(True, "Apply an offset reset on the broker at the next pull.", key="useServerSideResetOffset")
    commits_per_version: int = setting(500, "Number of offset commits after which the offset table gets a new version.", key="consumerOffsetUpdateVersionStep", check=POSITIVE)
    flush_delay_offsets_ms: Millis = setting(10_000, "How often the progress of delayed messages is written to disk.", key="flushDelayOffsetInterval", check=POSITIVE)
    deliveries_per_version: int = setting(200, "Number of delayed messages delivered before their progress table gets a new version.", key="delayOffsetUpdateVersionStep", check=POSITIVE)
    queue_lock_expiry_ms: Millis = setting(60_000, "Time without renewal after which the lock of a queue for ordered consumption expires.", key="rocketmq.broker.rebalance.lockMaxLiveTime", check=POSITIVE)

    # Lake tier
    tier_level: TierLevel = setting("DISABLE", "Whether closed commit-log files are copied to `tieredStoreFilePath`. `NOT_IN_DISK`: they are, and messages that are not on this disk any more are read from there.", key="tieredStorageLevel")
    tier_place: str = setting("", "Where the copies go: a directory, or `s3://bucket/path`, `gs://bucket/path` or `abfss://container@account.dfs.core.windows.net/path`, which need `pip install 'pyromq[tier]'`. Credentials come from the environment.", key="tieredStoreFilePath", local=True)
    object_store_endpoint: str = setting("", "Address of an S3 server that is not Amazon's, as `https://host:port`. Default: `AWS_ENDPOINT_URL` of the environment.", local=True)
    tier_required: bool = setting(True, "Keep a commit-log file on this disk until its copy is in the tier, even if the disk is full. If false, files go by age and disk usage alone.")
    tier_upload_concurrency: int = setting(4, "Number of parts of a file that are uploaded at the same time.", check=between(1, 64))
    tier_read_concurrency: int = setting(4, "Maximum number of reads from the tier at the same time.", check=between(1, 64))
    tier_read_timeout_ms: Millis = setting(5000, "How long a pull that does not wait for new messages waits for old ones from the tier. It is then answered with PULL_RETRY_IMMEDIATELY.", key="tierReadTimeout", mutable=True, check=POSITIVE)
    tier_reserved_hours: int = setting(0, "Age in hours at which messages leave the tier. 0 keeps them for ever. The topic's own `reserve.time` takes precedence.", key="tieredStoreFileReservedTime", mutable=True, check=NOT_NEGATIVE)
    tier_upkeep: bool = setting(True, "Whether this broker, as master, removes from the tier what is too old or deleted, and the leftovers of uploads that were cut short.", key="tieredStoreDeleteFileEnable", mutable=True)
    tier_upkeep_interval_ms: Millis = setting(3_600_000, "How often it does so.", key="tieredStoreDeleteFileInterval", mutable=True, check=POSITIVE)
    tier_orphan_hours: int = setting(24, "Age in hours at which an object that no manifest names is removed from the tier.", check=POSITIVE)
    tier_cache_bytes: SizeBytes = setting(64 * _MIB, "Memory for messages that were read from the tier.", check=at_least(_MIB))

    # Changing settings over the network
    config_path: Path | None = setting(None, "File for settings changed over the network. The file given with -c takes precedence.", key="brokerConfigPath")
    config_black_list: str = setting("configBlackList;brokerConfigPath", "Keys that cannot be changed over the network, separated by semicolons.", local=True)

    # Metrics and logs
    metrics_port: int = setting(5557, "HTTP port for metrics and health. 0 lets the system choose.", key="metricsPromExporterPort", check=PORT)
    metrics_address: str = setting("", "Address of the HTTP port for metrics and health. Default: brokerIP1.", key="metricsPromExporterHost", local=True)
    # fmt: on

    def __post_init__(self) -> None:
        # Fill in the names of this machine, so that no other code has to look them up.
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
        if self.allow_unsigned_replicas and self.controls_access and not self.ha_allowed_networks.strip():
            raise ConfigError(
                "haAllowedNetworks", "", "the replicas' addresses, because allowUnsignedReplicas is true"
            )
        if self.has_tier:
            if not self.tier_place.strip():
                expected = "a directory or the URI of a bucket, because tieredStorageLevel is NOT_IN_DISK"
                raise ConfigError("tieredStoreFilePath", self.tier_place, expected)
            checked(self.tier_place, "tieredStoreFilePath")
        if self.ha_tls:
            for key, path in (
                ("tls.server.certPath", self.tls_cert_path),
                ("tls.server.trustCertPath", self.tls_trust_cert_path),
                ("tls.client.certPath", self.tls_client_cert_path),
                ("tls.client.trustCertPath", self.tls_client_trust_cert_path),
            ):
                if path is None:
                    raise ConfigError(key, "", "a file, because haTls is true")

    @property
    def has_tier(self) -> bool:
        return self.tier_level != "DISABLE"

    def _verify_role(self) -> None:
        if self.controller_mode:
            if not self.controllers:
                raise ConfigError("controllerAddr", "", "the controllers, because enableControllerMode is true")
            if not self.heartbeat_interval_ms:
                raise ConfigError(
                    "brokerHeartbeatInterval", "0", "more than 0, because enableControllerMode is true"
                )
            if set(addresses_in(self.mirror_of, key="mirrorOf")) & set(self.name_servers):
                raise ConfigError("mirrorOf", self.mirror_of, "name servers of another cluster, not those in namesrvAddr")
        elif self.mirror_of:
            raise ConfigError("mirrorOf", self.mirror_of, "nothing, unless enableControllerMode is true")
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

    @property
    def asks_replicas(self) -> bool:
        """Whether replicas have to prove by a hello who they are."""
        return self.controls_access and not self.ha_tls and not self.allow_unsigned_replicas

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
    def ha_report_s(self) -> float:
        """A replica reports at least this often: it is not behind because it has nothing to report."""
        return min(self.ha_heartbeat_ms, self.replica_max_behind_ms / 3) / 1000

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
