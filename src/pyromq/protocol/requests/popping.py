"""Pop consumption: the broker hands out messages of any queue and hides them until they are acknowledged.

java: these codes do not fit into the two bytes of Apache's binary header; see binary_header.
"""

from pyromq.protocol.bodies.assignments import (
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from pyromq.protocol.bodies.popping import BatchAckMessageRequestBody
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Int32, Int64, Request, TopicRequest, request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, SUB, UPDATE, cluster, group, topic, topic_of_receipt


class PopMessageAnswer(Answer):
    # Zero where nothing was found.
    pop_time: Int64 = 0
    invisible_time: Int64 = 0
    revive_qid: Int32 = 0
    rest_num: Int64 = 0
    start_offset_info: str | None = None
    msg_offset_info: str | None = None
    order_count_info: str | None = None
    body: bytes = b""


@request(
    200050,
    to=BROKER,
    needs=(topic(SUB), group(SUB)),
    accepts=(
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.POLLING_FULL,
        ResponseCode.POLLING_TIMEOUT,
    ),
)
class PopMessage(TopicRequest[PopMessageAnswer]):
    """Pop messages of any queue, hidden from others for a while; waits if there is none yet."""

    consumer_group: str
    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    invisible_time: Int64
    poll_time: Int64
    born_time: Int64
    init_mode: Int32
    exp_type: str | None = None
    exp: str | None = None
    order: bool = False
    attempt_id: str | None = None


@request(200051, to=BROKER, needs=(topic_of_receipt(SUB), group(SUB)))
class AckMessage(TopicRequest[Answer]):
    """Acknowledge a popped message."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


@request(
    200151,
    to=BROKER,
    needs=(topic(SUB, at="body.acks.topic"), group(SUB, at="body.acks.consumer_group")),
    java_name="batch_ack_message",
)
class AckMessages(Request[Answer]):
    """Acknowledge several popped messages."""

    body: BatchAckMessageRequestBody


class ChangeInvisibleTimeAnswer(Answer):
    pop_time: Int64
    invisible_time: Int64
    revive_qid: Int32


@request(
    200053, to=BROKER, needs=(topic_of_receipt(SUB), group(SUB)), java_name="change_message_invisibletime"
)
class ChangeInvisibleTime(TopicRequest[ChangeInvisibleTimeAnswer]):
    """Hide a popped message for longer, or show it sooner."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64
    invisible_time: Int64


class FindReceiptAnswer(Answer):
    extra_info: str


@request(30053, to=BROKER, needs=(topic_of_receipt(SUB), group(SUB)), extension=True)
class FindReceipt(TopicRequest[FindReceiptAnswer]):
    """Find the receipt that is good now for a popped message, by one that was replaced."""

    consumer_group: str
    topic: str
    queue_id: Int32
    extra_info: str
    offset: Int64


@request(
    200052,
    to=BROKER,
    needs=(topic(SUB), group(SUB)),
    accepts=(ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND),
)
class PeekMessage(TopicRequest[PopMessageAnswer]):
    """Read the next messages of a group without popping them."""

    topic: str
    queue_id: Int32
    max_msg_nums: Int32
    consumer_group: str


class WaitForMessageAnswer(Answer):
    has_msg: bool = False
    polling_full: bool = False


@request(200054, to=BROKER, needs=(topic(SUB), group(SUB)), java_name="notification")
class WaitForMessage(TopicRequest[WaitForMessageAnswer]):
    """Wait until there is a message to pop."""

    consumer_group: str
    topic: str
    queue_id: Int32
    poll_time: Int64
    born_time: Int64
    order: bool = False
    attempt_id: str | None = None


class GetPollingInfoAnswer(Answer):
    polling_num: Int32


@request(200055, to=BROKER, needs=(topic(GET), group(GET)), java_name="polling_info")
class GetPollingInfo(TopicRequest[GetPollingInfoAnswer]):
    """Count the pops that wait at a queue."""

    consumer_group: str
    topic: str
    queue_id: Int32


@request(200056, to=BROKER, needs=(cluster(UPDATE),), java_name="pop_rollback")
class RollBackPopStore(Request[Answer]):
    """Move the state of popped messages out of the key-value store, before a downgrade."""


@request(400, to=BROKER, needs=(group(SUB, at="body.consumer_group"), topic(SUB, at="body.topic")))
class QueryAssignment(Request[BodyAnswer[QueryAssignmentResponseBody]]):
    """Ask the broker which queues a consumer is to read, and whether by pulling or popping."""

    body: QueryAssignmentRequestBody


@request(401, to=BROKER, needs=(group(UPDATE, at="body.consumer_group"), topic(UPDATE, at="body.topic")))
class SetMessageRequestMode(Request[Answer]):
    """Set whether a group pulls or pops a topic."""

    body: SetMessageRequestModeRequestBody


@request(402, to=BROKER, needs=(cluster(GET),), java_name="get_all_message_request_mode")
class GetMessageRequestModes(Request[BodyAnswer[MessageRequestModeSerializeWrapper]]):
    """Read which groups pull and which pop, for replicas."""
