"""Inspection of a running broker and, through it, of its consumers."""

from pyromq.protocol.bodies.consumers import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.bodies.kv import KVTable
from pyromq.protocol.bodies.offsets import GetConsumerStatusBody
from pyromq.protocol.bodies.statistics import (
    BrokerStatsData,
    ConsumeStats,
    ConsumeStatsList,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    TopicStatsTable,
)
from pyromq.protocol.catalogue import (
    BROKER,
    CLIENT,
    Answer,
    Int32,
    Int64,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.needs import GET, SUB, cluster, group, topic


class GetBrokerRuntimeInfoAnswer(Answer):
    body: KVTable


@request(28, to=BROKER, needs=(cluster(GET),))
class GetBrokerRuntimeInfo(Request[GetBrokerRuntimeInfoAnswer]):
    """Read the figures of a running broker."""


class GetTopicStatsAnswer(Answer):
    body: TopicStatsTable


@request(202, to=BROKER, needs=(topic(GET),), java_name="get_topic_stats_info")
class GetTopicStats(TopicRequest[GetTopicStatsAnswer]):
    """Read the first and last offset of each queue of a topic."""

    topic: str


class GetConsumeStatsAnswer(Answer):
    body: ConsumeStats


@request(
    208,
    to=BROKER,
    needs=(
        group(GET),
        topic(GET, may_be_missing=True),
        topic(GET, at="topic_list", separator=";", may_be_missing=True),
    ),
)
class GetConsumeStats(TopicRequest[GetConsumeStatsAnswer]):
    """Read the lag of a group in each queue."""

    consumer_group: str
    topic: str | None = None
    # Joined by semicolons; wins over `topic`.
    topic_list: str | None = None


class GetBrokerConsumeStatsAnswer(Answer):
    body: ConsumeStatsList


@request(317, to=BROKER, needs=(cluster(GET),))
class GetBrokerConsumeStats(Request[GetBrokerConsumeStatsAnswer]):
    """Read the lag of all groups of a broker."""

    is_order: bool


class GetConsumeTimeSpansAnswer(Answer):
    body: QueryConsumeTimeSpanBody


@request(303, to=BROKER, needs=(topic(GET), group(GET, at="group")), java_name="query_consume_time_span")
class GetConsumeTimeSpans(TopicRequest[GetConsumeTimeSpansAnswer]):
    """Read for each queue of a topic the times of its messages, and the time that a group has reached."""

    topic: str
    group: str


class GetBrokerStatisticsAnswer(Answer):
    body: BrokerStatsData


@request(315, to=BROKER, needs=(cluster(GET),), java_name="view_broker_stats_data")
class GetBrokerStatistics(Request[GetBrokerStatisticsAnswer]):
    """Read one counter over the last minute, hour and day."""

    stats_name: str
    stats_key: str


class QueryConsumeQueueAnswer(Answer):
    body: QueryConsumeQueueResponseBody


@request(321, to=BROKER, needs=(topic(GET), group(GET, may_be_missing=True)))
class QueryConsumeQueue(TopicRequest[QueryConsumeQueueAnswer]):
    """Read entries of a consume queue, and whether the filter of a group matches them."""

    topic: str | None = None
    queue_id: Int32 = 0
    index: Int64 = 0
    count: Int32 = 0
    consumer_group: str | None = None


class ConsumerStatusAnswer(Answer):
    body: GetConsumerStatusBody


@request(
    223,
    to=BROKER,
    needs=(topic(GET), group(GET, at="group")),
    java_name="invoke_broker_to_get_consumer_status",
)
class GetConsumerStatus(TopicRequest[ConsumerStatusAnswer]):
    """Ask the members of a group for their offsets, through the broker."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoAnswer(Answer):
    body: ConsumerRunningInfo


@request(307, to=BROKER | CLIENT, needs=(group(GET),))
class GetConsumerRunningInfo(RoutedRequest[GetConsumerRunningInfoAnswer]):
    """Ask a consumer for its state; a broker passes the request on."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyAnswer(Answer):
    body: ConsumeMessageDirectlyResult


@request(309, to=BROKER | CLIENT, needs=(group(SUB), topic(SUB, may_be_missing=True)))
class ConsumeMessageDirectly(TopicRequest[ConsumeMessageDirectlyAnswer]):
    """Have a consumer consume one message now; a broker adds the message and passes the request on."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    body: bytes = b""
