"""Figures of topics, groups and queues."""

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.heartbeat import SubscriptionData
from pyromq.protocol.bodies.queues import MessageQueue


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


class Metric(Body):
    """The number of waiting messages of a topic, and the time of the count."""

    count: Int64 = 0
    time_stamp: Int64 = 0
