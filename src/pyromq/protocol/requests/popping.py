"""Pop consumption: the broker hands out messages of any queue and hides them until they are acknowledged.

java: these codes do not fit into the two bytes of Apache's binary header; see binary_header.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import ClassVar

from msgspec import field

from pyromq.protocol.body import Body, MessageQueue
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, Int32, Int64, Request, TopicRequest, request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, SUB, UPDATE, cluster, group, topic, topic_of_receipt
from pyromq.protocol.requests.membership import MessageModel


class MessageRequestMode(StrEnum):
    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """The question of a client for its queues of a topic."""

    client_id: str
    consumer_group: str
    message_model: MessageModel | None = None
    strategy_name: str | None = None
    topic: str


class MessageQueueAssignment(Body):
    """A queue, and whether it is pulled or popped; without a queue, any queue of the topic."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL


class QueryAssignmentResponseBody(Body):
    """The queues of the client."""

    message_queue_assignments: list[MessageQueueAssignment] = []


class SetMessageRequestModeRequestBody(Body):
    """Whether a group pulls or pops a topic."""

    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0
    topic: str


class MessageRequestModeSerializeWrapper(Body):
    """The modes of a broker by topic and group, as in `messageRequestMode.json`."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}


class BatchAck(Body):
    """Acknowledged offsets of one pop: bit n of `bit_set`, lowest first, means offset `start_offset` + n."""

    wire_aliases: ClassVar[Mapping[str, str]] = {
        "bitSet": "b",
        "consumerGroup": "c",
        "invisibleTime": "it",
        "popTime": "pt",
        "queueId": "q",
        "retry": "r",
        "reviveQueueId": "rq",
        "startOffset": "so",
        "topic": "t",
    }

    bit_set: bytes = field(name="b", default=b"")
    consumer_group: str | None = field(name="c", default=None)
    invisible_time: Int64 = field(name="it", default=0)
    pop_time: Int64 = field(name="pt", default=0)
    queue_id: Int32 = field(name="q", default=0)
    retry: str | None = field(name="r", default=None)
    revive_queue_id: Int32 = field(name="rq", default=0)
    start_offset: Int64 = field(name="so", default=0)
    topic: str | None = field(name="t", default=None)

    def offsets(self, first: int, last: int) -> Sequence[int]:
        """The acknowledged offsets that lie between `first` and `last`."""
        bits, start = int.from_bytes(self.bit_set, "little"), self.start_offset
        if start < first:
            bits, start = bits >> min(first - start, bits.bit_length()), first
        room = max(last + 1 - start, 0)
        if bits.bit_length() > room:
            bits &= (1 << room) - 1
        if not bits & (bits + 1):
            return range(start, start + bits.bit_length())  # the usual: all of a pop without a filter
        digits = f"{bits:b}"[::-1]  # time is linear: strangers may send many bits
        return [start + bit for bit, digit in enumerate(digits) if digit == "1"]


class BatchAckMessageRequestBody(Body):
    """Acknowledgements of several pops."""

    acks: list[BatchAck] = []
    broker_name: str | None = None


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
    # Of a message of a lite topic; the topic is its parent, and the queue 0.
    lite_topic: str | None = None


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
    lite_topic: str | None = None
    # Hide all that was popped of the lite topic; the attempt does not count.
    suspend: bool = False


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
