"""Sends: messages, replies, and messages that a consumer gives back.

Sending exists twice: with long field names, and with the one-letter names most producers use. Both have the
same attributes here, so that a handler need not care.
"""

from pyromq.protocol.catalogue import BROKER, Answer, Int32, Int64, RoutedRequest, TopicRequest, request, wire
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import PUB, SUB, group, topic

# The message is stored, but perhaps not as safely as its sender wished.
STORED = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


class SendMessageAnswer(Answer):
    # For a batch the ids of all its messages, joined by commas.
    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    # The offset in its lite topic, of a message that states an epoch.
    lite_offset: Int64 | None = None
    msg_region: str | None = wire(name="MSG_REGION", default=None)
    trace_on: bool | None = wire(name="TRACE_ON", default=None)


@request(10, to=BROKER, needs=(topic(PUB),), accepts=STORED)
class SendMessage(TopicRequest[SendMessageAnswer]):
    """Store one message."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool | None = None
    batch: bool | None = None
    max_reconsume_times: Int32 | None = None
    # Ours alone: an earlier try may have stored the message.
    resent: bool | None = None
    body: bytes = b""


@request(310, to=BROKER, needs=(topic(PUB),), accepts=STORED)
class SendMessageV2(TopicRequest[SendMessageAnswer]):
    """Store one message; the same as SendMessage with one-letter field names."""

    producer_group: str = wire(name="a")
    topic: str = wire(name="b")
    default_topic: str = wire(name="c")
    default_topic_queue_nums: Int32 = wire(name="d")
    queue_id: Int32 = wire(name="e")
    sys_flag: Int32 = wire(name="f")
    born_timestamp: Int64 = wire(name="g")
    flag: Int32 = wire(name="h")
    properties: str | None = wire(name="i", default=None)
    reconsume_times: Int32 | None = wire(name="j", default=None)
    unit_mode: bool | None = wire(name="k", default=None)
    max_reconsume_times: Int32 | None = wire(name="l", default=None)
    batch: bool | None = wire(name="m", default=None)
    target_broker_name: str | None = wire(name="n", default=None)
    # Ours alone: an earlier try may have stored the message.
    resent: bool | None = None
    body: bytes = b""


@request(320, to=BROKER, needs=(topic(PUB),), accepts=STORED, java_name="send_batch_message")
class SendMessageBatch(SendMessageV2):
    """Store several messages of one topic, in one body."""


@request(324, to=BROKER, needs=(topic(PUB),), accepts=STORED, java_name="send_reply_message")
class SendReply(SendMessage):
    """Pass a reply to the producer that waits for it."""


@request(325, to=BROKER, needs=(topic(PUB),), accepts=STORED, java_name="send_reply_message_v2")
class SendReplyV2(SendMessageV2):
    """Pass a reply to the producer that waits for it; the same as SendReply with one-letter field names."""


@request(
    36,
    to=BROKER,
    needs=(group(SUB, at="group"), topic(SUB, at="origin_topic", may_be_missing=True)),
    java_name="consumer_send_msg_back",
)
class SendMessageBack(RoutedRequest[Answer]):
    """Give a message back for a later retry; after too many retries it becomes a dead letter."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class RecallMessageAnswer(Answer):
    msg_id: str
    msg_region: str | None = wire(name="MSG_REGION", default=None)


@request(370, to=BROKER, needs=(topic(PUB),))
class RecallMessage(TopicRequest[RecallMessageAnswer]):
    """Recall a timed message that is not delivered yet."""

    producer_group: str | None = None
    topic: str
    recall_handle: str
