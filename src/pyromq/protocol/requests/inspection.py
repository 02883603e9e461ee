"""Inspection of a running broker and, through it, of its consumers."""

from enum import StrEnum

from msgspec import field

from pyromq.protocol.body import Body, MessageQueue
from pyromq.protocol.catalogue import (
    BROKER,
    CLIENT,
    Answer,
    BodyAnswer,
    Int32,
    Int64,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.needs import GET, LIST, SUB, cluster, every_group, every_topic, group, topic
from pyromq.protocol.requests.kv import KVTable
from pyromq.protocol.requests.membership import SubscriptionData
from pyromq.protocol.requests.pushes import GetConsumerStatusBody


class ProcessQueueInfo(Body):
    """A consumer's state of one queue that it pulls."""

    cached_msg_count: Int32 = 0
    cached_msg_max_offset: Int64 = 0
    cached_msg_min_offset: Int64 = 0
    cached_msg_size_in_mi_b: Int32 = field(name="cachedMsgSizeInMiB", default=0)
    commit_offset: Int64 = 0
    droped: bool = False  # java: sic
    last_consume_timestamp: Int64 = 0
    last_lock_timestamp: Int64 = 0
    last_pull_timestamp: Int64 = 0
    locked: bool = False
    transaction_msg_count: Int32 = 0
    transaction_msg_max_offset: Int64 = 0
    transaction_msg_min_offset: Int64 = 0
    try_unlock_times: Int64 = 0


class PopProcessQueueInfo(Body):
    """A consumer's state of one queue that it pops."""

    droped: bool = False  # java: sic
    last_pop_timestamp: Int64 = 0
    wait_ack_count: Int32 = 0


class ConsumeStatus(Body):
    """A consumer's figures for one topic: times in milliseconds, rates per second."""

    consume_failed_msgs: Int64 = 0
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)


class ConsumerRunningInfo(Body):
    """The whole report of a consumer about itself; `jstack` has the stacks of its threads."""

    jstack: str | None = None
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    properties: dict[str, str] = {}
    status_table: dict[str, ConsumeStatus] = {}
    subscription_set: list[SubscriptionData] = []
    user_consumer_info: dict[str, str] = {}


class CMResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body):
    """The result of a message that an operator had one consumer handle."""

    auto_commit: bool = True
    consume_result: CMResult | None = None
    order: bool = False
    remark: str | None = None
    spent_time_mills: Int64 = 0


class StoreFigures(Body):
    """The health of a broker's store; `fault` is why it accepts no messages."""

    clean_at_percent: Int32 = 0
    clean_early_at_percent: Int32 = 0
    fault: str = ""
    index_files: Int32 = 0
    queues: Int32 = 0
    recovered: str = ""
    refuse_at_percent: Int32 = 0
    retention_hours: Int32 = 0
    segments: Int32 = 0


class Figures(Body):
    """Lists of numbers by name. An empty list means that the entry is gone; with `has_all`, entries that are
    not here are gone, too."""

    # The broker's clock when it counted, in milliseconds.
    at: Int64 = 0
    # Group: number of members, 1 if it broadcasts (-1: unknown).
    groups: dict[str, list[Int64]] = {}
    has_all: bool = False
    # `topic@group`: lag, store time of the oldest unread message (0: none), messages read since the start,
    # messages deleted unread.
    lags: dict[str, list[Int64]] = {}
    # Topic: first and next offset of queue 0, of queue 1, …
    queues: dict[str, list[Int64]] = {}
    store: StoreFigures = field(default_factory=StoreFigures)
    # Topic: messages and bytes stored since the start.
    stored: dict[str, list[Int64]] = {}
    # Topic: read queues, write queues, permission, 1 if ordered.
    topics: dict[str, list[Int64]] = {}
    # The message types of these topics, as far as they have one.
    types: dict[str, str] = {}


class TopicOffset(Body):
    """The first and last offset of one queue."""

    last_update_timestamp: Int64 = 0
    max_offset: Int64 = 0
    min_offset: Int64 = 0


class TopicStatsTable(Body):
    """The first and last offsets of the queues of a topic on one broker."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class OffsetWrapper(Body):
    """The offsets of a group in one queue."""

    broker_offset: Int64 = 0
    consumer_offset: Int64 = 0
    last_timestamp: Int64 = 0
    pull_offset: Int64 = 0


class ConsumeStats(Body):
    """The offsets of a group, by queue."""

    consume_tps: float = 0.0
    offset_table: dict[MessageQueue, OffsetWrapper] = {}


class ConsumeStatsList(Body):
    """The offsets of every group of a broker."""

    broker_addr: str | None = None
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: Int64 = 0
    total_inflight_diff: Int64 = 0


class QueueTimeSpan(Body):
    """The times of the first, the last and the last consumed message of a queue."""

    consume_time_stamp: Int64 = 0
    delay_time: Int64 = 0
    max_time_stamp: Int64 = 0
    message_queue: MessageQueue | None = None
    min_time_stamp: Int64 = 0


class QueryConsumeTimeSpanBody(Body):
    """The time spans of every queue of a topic."""

    consume_time_span_set: list[QueueTimeSpan] = []


class ConsumeQueueData(Body):
    """One entry of a consume queue, and whether a group's filter matches it."""

    bit_map: str | None = None
    eval: bool = False
    extend_data_json: str | None = None
    msg: str | None = None
    physic_offset: Int64 = 0
    physic_size: Int32 = 0
    tags_code: Int64 = 0


class QueryConsumeQueueResponseBody(Body):
    """Consecutive entries of a consume queue."""

    filter_data: str | None = None
    max_queue_index: Int64 = 0
    min_queue_index: Int64 = 0
    queue_data: list[ConsumeQueueData] = []
    subscription_data: SubscriptionData | None = None


class BrokerStatsItem(Body):
    """One counter over one span of time."""

    avgpt: float = 0.0
    sum: Int64 = 0
    tps: float = 0.0


class BrokerStatsData(Body):
    """One counter over the last minute, hour and day."""

    stats_day: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_minute: BrokerStatsItem | None = None


@request(28, to=BROKER, needs=(cluster(GET),))
class GetBrokerRuntimeInfo(Request[BodyAnswer[KVTable]]):
    """Read the figures of a running broker."""


class GetFiguresAnswer(Answer):
    version: str
    body: Figures


@request(30028, to=BROKER, needs=(cluster(GET), every_topic(LIST), every_group(LIST)), extension=True)
class GetFigures(Request[GetFiguresAnswer]):
    """Read the figures of all topics, queues and groups that changed since the last answer."""

    # The version of the last answer; absent or unknown asks for all figures.
    since: str | None = None


@request(202, to=BROKER, needs=(topic(GET),), java_name="get_topic_stats_info")
class GetTopicStats(TopicRequest[BodyAnswer[TopicStatsTable]]):
    """Read the first and last offset of each queue of a topic."""

    topic: str


@request(
    208,
    to=BROKER,
    needs=(
        group(GET),
        topic(GET, may_be_missing=True),
        topic(GET, at="topic_list", separator=";", may_be_missing=True),
    ),
)
class GetConsumeStats(TopicRequest[BodyAnswer[ConsumeStats]]):
    """Read the lag of a group in each queue."""

    consumer_group: str
    topic: str | None = None
    # Joined by semicolons; wins over `topic`.
    topic_list: str | None = None


@request(317, to=BROKER, needs=(cluster(GET),))
class GetBrokerConsumeStats(Request[BodyAnswer[ConsumeStatsList]]):
    """Read the lag of all groups of a broker."""

    is_order: bool


@request(303, to=BROKER, needs=(topic(GET), group(GET, at="group")), java_name="query_consume_time_span")
class GetConsumeTimeSpans(TopicRequest[BodyAnswer[QueryConsumeTimeSpanBody]]):
    """Read for each queue of a topic the times of its messages, and the time that a group has reached."""

    topic: str
    group: str


@request(315, to=BROKER, needs=(cluster(GET),), java_name="view_broker_stats_data")
class GetBrokerStatistics(Request[BodyAnswer[BrokerStatsData]]):
    """Read one counter over the last minute, hour and day."""

    stats_name: str
    stats_key: str


@request(321, to=BROKER, needs=(topic(GET), group(GET, may_be_missing=True)))
class QueryConsumeQueue(TopicRequest[BodyAnswer[QueryConsumeQueueResponseBody]]):
    """Read entries of a consume queue, and whether the filter of a group matches them."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


@request(
    223,
    to=BROKER,
    needs=(topic(GET), group(GET, at="group")),
    java_name="invoke_broker_to_get_consumer_status",
)
class GetConsumerStatus(TopicRequest[BodyAnswer[GetConsumerStatusBody]]):
    """Ask the members of a group for their offsets, through the broker."""

    topic: str
    group: str
    client_addr: str | None = None


@request(307, to=BROKER | CLIENT, needs=(group(GET),))
class GetConsumerRunningInfo(RoutedRequest[BodyAnswer[ConsumerRunningInfo]]):
    """Ask a consumer for its state; a broker passes the request on."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


@request(309, to=BROKER | CLIENT, needs=(group(SUB), topic(SUB, may_be_missing=True)))
class ConsumeMessageDirectly(TopicRequest[BodyAnswer[ConsumeMessageDirectlyResult]]):
    """Have a consumer consume one message now; a broker adds the message and passes the request on."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    body: bytes = b""
