"""Inspection of a running broker and, through it, of its consumers."""

from pyromq.protocol.bodies.consumers import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.bodies.figures import Figures
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
    BodyAnswer,
    Int32,
    Int64,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.needs import GET, LIST, SUB, cluster, every_group, every_topic, group, topic


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
