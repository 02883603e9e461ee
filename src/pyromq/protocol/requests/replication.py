"""Requests between a master and its replicas, and about them."""

from msgspec import field

from pyromq.protocol.body import Body, Int32
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Int64, Request, request
from pyromq.protocol.needs import GET, UPDATE, cluster
from pyromq.protocol.requests.access import AccessTable
from pyromq.protocol.requests.groups import SubscriptionGroupWrapper
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from pyromq.protocol.requests.topics import TopicConfigSerializeWrapper, TopicQueueMappingSerializeWrapper


class HAConnectionRuntimeInfo(Body):
    """A replica as its master sees it. Apache's master does not report the id."""

    addr: str | None = None
    broker_id: Int64 | None = None
    diff: Int64 = 0
    in_sync: bool = False
    slave_ack_offset: Int64 = 0
    transfer_from_where: Int64 = 0
    transferred_byte_in_second: Int64 = 0


class HAClientRuntimeInfo(Body):
    """A replica as it sees itself. Only mirrors tell the other cluster's name servers, and what they lack."""

    last_read_timestamp: Int64 = 0
    last_write_timestamp: Int64 = 0
    master_addr: str | None = None
    master_flush_offset: Int64 = 0
    max_offset: Int64 = 0
    mirror_behind: Int64 | None = None
    mirror_of: str | None = None
    transferred_byte_in_second: Int64 = 0


class HARuntimeInfo(Body):
    """The state of replication, as one broker sees it."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    in_sync_slave_nums: Int32 = 0
    master: bool = False
    master_commit_log_max_offset: Int64 = 0


class EpochEntry(Body):
    """An epoch: the part of the log written under one master."""

    end_offset: Int64 = 2**63 - 1
    epoch: Int32 = 0
    start_offset: Int64 = 0


class EpochEntryCache(Body):
    """The epochs that a broker knows."""

    broker_id: Int64 = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] = []
    max_offset: Int64 = 0


class DeletedTopic(Body):
    """A topic whose messages before a log offset are deleted."""

    log_offset: Int64
    time_ms: Int64
    topic: str


class ReplicatedTables(Body):
    """`topics` are all topics, or only new and changed ones if `has_all_topics` is false.

    `resets` come with the offsets: where operators want groups to continue. `is_promised`: an operator waits
    until replicas have the offsets on disk.
    """

    access: AccessTable | None = None
    consumer_offsets: ConsumerOffsetSerializeWrapper | None = None
    delay_offsets: DelayOffsetSerializeWrapper | None = None
    deleted_topics: list[DeletedTopic] | None = None
    # The topic of each is written `key@topic`, with the key percent-encoded.
    erased_keys: list[DeletedTopic] | None = None
    groups: SubscriptionGroupWrapper | None = None
    has_all_topics: bool = False
    is_promised: bool = False
    # The topic of each is written `3@topic`, with the number of the queue.
    purged_queues: list[DeletedTopic] | None = None
    resets: ConsumerOffsetSerializeWrapper | None = None
    # All of them, whenever topics have changed.
    static_topics: TopicQueueMappingSerializeWrapper | None = None
    topics: TopicConfigSerializeWrapper | None = None


@request(902, to=BROKER, needs=(cluster(UPDATE),))
class AddBroker(Request[Answer]):
    """Start one more broker inside a process that holds several."""

    config_path: str | None = None


@request(903, to=BROKER, needs=(cluster(UPDATE),))
class RemoveBroker(Request[Answer]):
    """Stop one of the brokers of a process that holds several."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64


class ExchangeHaInfoAnswer(Answer):
    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(906, to=BROKER, needs=(cluster(UPDATE),), java_name="exchange_broker_ha_info")
class ExchangeHaInfo(Request[ExchangeHaInfoAnswer]):
    """Tell a broker its master's address, or ask a master for its replication address and flushed offset."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


@request(907, to=BROKER, needs=(cluster(GET),), java_name="get_broker_ha_status")
class GetHaStatus(Request[BodyAnswer[HARuntimeInfo]]):
    """Read the state of replication."""


@request(908, to=BROKER, needs=(cluster(UPDATE),))
class ResetMasterFlushOffset(Request[Answer]):
    """Tell a replica the flushed offset of its master."""

    master_flush_offset: Int64


class WatchTablesAnswer(Answer):
    seen: str
    # Where the master's log ended when it had read the tables: they are for replicas that have it.
    log_end: Int64 | None = None
    body: ReplicatedTables


@request(30907, to=BROKER, needs=(cluster(UPDATE),), extension=True)
class WatchTables(Request[WatchTablesAnswer]):
    """Read the tables that changed since the last answer, as a replica copies them; waits for a change."""

    # What the last answer said; absent or unknown asks for all tables.
    seen: str | None = None
    wait_millis: Int64 = 0
    # Of the replica: what it has seen is on its disk.
    broker_id: Int64 | None = None


class PromoteMirrorAnswer(Answer):
    # Up to where the log is here, and the other one was there when its master answered last.
    log_end: Int64
    source_end: Int64 | None = None
    source_heard: Int64 | None = None
    # The broker's role in its own cluster; no epoch if its controllers have not given it one yet.
    epoch: Int32 | None = None
    master: bool = False


@request(30908, to=BROKER, needs=(cluster(UPDATE),), extension=True)
class PromoteMirror(Request[PromoteMirrorAnswer]):
    """Have a broker copy another cluster no longer; it takes a role in its own one."""

    # Also if the other cluster has, or may have, more.
    accept_loss: bool = False


@request(1007, to=BROKER, needs=(cluster(GET),), java_name="get_broker_epoch_cache")
class GetEpochs(Request[BodyAnswer[EpochEntryCache]]):
    """Read the epochs: which master has written which part of the log."""
