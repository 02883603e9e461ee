"""Reading messages: a queue from an offset, or single messages by key or place.

Bodies are stored messages, one after the other, as they are in the log.
"""

from pyromq.protocol.catalogue import (
    BROKER,
    FILTER_SERVER,
    Answer,
    BodyAnswer,
    Int32,
    Int64,
    Request,
    TopicRequest,
    request,
    wire,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, SUB, group, topic

COMMIT_FLAG, SUSPEND_FLAG, SUBSCRIPTION_FLAG, CLASS_FILTER_FLAG, LITE_FLAG = 1, 2, 4, 8, 16
"""Bits of a pull's system flag."""

# Nothing new, nothing that passed the filter, an offset outside the queue: each says where to continue.
PULLED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class PullMessageAnswer(Answer):
    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64
    offset_delta: Int64 | None = None
    topic_sys_flag: Int32 | None = None
    group_sys_flag: Int32 | None = None
    forbidden_type: Int32 | None = None
    body: bytes = b""


@request(11, to=BROKER | FILTER_SERVER, needs=(topic(SUB), group(SUB)), accepts=PULLED)
class PullMessage(TopicRequest[PullMessageAnswer]):
    """Read one queue from an offset; waits if there is no message yet."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64
    expression_type: str | None = None
    max_msg_bytes: Int32 | None = None
    request_source: Int32 | None = None
    proxy_forward_client_id: str | None = wire(name="proxyFrowardClientId", default=None)  # java: sic


@request(361, to=BROKER, needs=(topic(SUB), group(SUB)), accepts=PULLED)
class LitePullMessage(PullMessage):
    """Read one queue on behalf of a consumer that assigns its queues itself."""


class QueryMessageAnswer(Answer):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64
    body: bytes = b""


@request(12, to=BROKER, needs=(topic(SUB, GET),))
class QueryMessage(TopicRequest[QueryMessageAnswer]):
    """Find messages by a key; refused with QUERY_NOT_FOUND if there are none."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64
    is_unique_key: bool | None = wire(name="_UNIQUE_KEY_QUERY", default=None)


@request(33, to=BROKER, needs=(topic(SUB, GET, may_be_missing=True),), java_name="view_message_by_id")
class ViewMessage(Request[BodyAnswer[bytes]]):
    """Read the message at an offset of the log."""

    topic: str | None = None
    offset: Int64
