"""Offsets of groups, and the first and last offsets of queues."""

from pyromq.protocol.body import Body, DataVersion, MessageQueue
from pyromq.protocol.catalogue import (
    BROKER,
    Answer,
    BodyAnswer,
    Int32,
    Int64,
    Request,
    RoutedRequest,
    TopicRequest,
    request,
)
from pyromq.protocol.needs import GET, LIST, SUB, UPDATE, cluster, every_group, group, topic


class MessageQueueForC(Body):
    """A queue with an offset, in the form for clients whose JSON has no objects as keys."""

    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str


class ResetOffsetBody(Body):
    """The offsets at which to continue, by queue."""

    offset_table: dict[MessageQueue, Int64] = {}


class ResetOffsetBodyForC(Body):
    """The same for clients whose JSON has no objects as keys."""

    offset_table: list[MessageQueueForC] = []


class QueryCorrectionOffsetBody(Body):
    """The lowest offset of several groups, by queue id."""

    correction_offsets: dict[Int32, Int64] = {}


class ConsumerOffsetSerializeWrapper(Body):
    """The offsets of every group by `topic@group`, then queue id; also `consumerOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetSerializeWrapper(Body):
    """The next offset to deliver of each delay level; also `delayOffset.json`."""

    data_version: DataVersion | None = None
    offset_table: dict[Int32, Int64] = {}


class OffsetSerializeWrapper(Body):
    """The offsets that a broadcasting client keeps in its own file."""

    offset_table: dict[MessageQueue, Int64] = {}


class OffsetAnswer(Answer):
    offset: Int64


@request(14, to=BROKER, needs=(topic(SUB, GET), group(SUB, GET)))
class QueryConsumerOffset(TopicRequest[OffsetAnswer]):
    """Read the offset of a group in a queue; refused with QUERY_NOT_FOUND if it has none."""

    consumer_group: str
    topic: str
    queue_id: Int32
    set_zero_if_not_found: bool | None = None


@request(15, to=BROKER, needs=(topic(SUB, UPDATE), group(SUB, UPDATE)), oneway=True)
class UpdateConsumerOffset(TopicRequest[Answer]):
    """Commit the offset of a group in a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@request(29, to=BROKER, needs=(topic(SUB, GET),), java_name="search_offset_by_timestamp")
class SearchOffset(TopicRequest[OffsetAnswer]):
    """Find the offset at a point in time."""

    topic: str
    queue_id: Int32
    timestamp: Int64
    # LOWER or UPPER: the first or the last of the messages stored at that moment.
    boundary_type: str | None = None


@request(30, to=BROKER, needs=(topic(SUB, GET),))
class GetMaxOffset(TopicRequest[OffsetAnswer]):
    """Read the offset that the next message of a queue will get."""

    topic: str
    queue_id: Int32
    committed: bool = True


@request(31, to=BROKER, needs=(topic(SUB, GET),))
class GetMinOffset(TopicRequest[OffsetAnswer]):
    """Read the offset of the oldest message of a queue."""

    topic: str
    queue_id: Int32


class GetEarliestStoreTimeAnswer(Answer):
    timestamp: Int64


@request(32, to=BROKER, needs=(topic(SUB, GET),), java_name="get_earliest_msg_storetime")
class GetEarliestStoreTime(TopicRequest[GetEarliestStoreTimeAnswer]):
    """Read when the oldest message of a queue was stored; -1 if the queue is empty."""

    topic: str
    queue_id: Int32


@request(43, to=BROKER, needs=(every_group(LIST),), java_name="get_all_consumer_offset")
class GetAllConsumerOffsets(Request[BodyAnswer[ConsumerOffsetSerializeWrapper]]):
    """Read the offsets of all groups, for replicas."""


@request(45, to=BROKER, needs=(cluster(GET),), java_name="get_all_delay_offset")
class GetAllDelayOffsets(Request[BodyAnswer[DelayOffsetSerializeWrapper]]):
    """Read the next offset to deliver of each delay level, for replicas."""


@request(
    222,
    to=BROKER,
    needs=(topic(UPDATE), group(UPDATE, at="group")),
    java_name="invoke_broker_to_reset_offset",
)
class ResetOffset(TopicRequest[BodyAnswer[ResetOffsetBody | None]]):
    """Reset a group to a point in time."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool


@request(
    308,
    to=BROKER,
    needs=(
        topic(GET),
        group(GET, at="compare_group", may_be_missing=True),
        group(GET, at="filter_groups", separator=",", may_be_missing=True),
    ),
    java_name="query_correction_offset",
)
class QueryCorrectionOffsets(TopicRequest[BodyAnswer[QueryCorrectionOffsetBody]]):
    """Read the smallest offset of any group for each queue of a topic."""

    filter_groups: str | None = None
    compare_group: str
    topic: str


@request(
    314,
    to=BROKER,
    needs=(
        topic(UPDATE, may_be_missing=True),
        group(GET, UPDATE, at="src_group"),
        group(UPDATE, at="dest_group"),
    ),
)
class CloneGroupOffset(RoutedRequest[Answer]):
    """Copy the offsets of one group to another."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
