"""Requests of servers to clients, on the connections that the clients opened."""

from pyromq.protocol.body import Body, MessageQueue
from pyromq.protocol.catalogue import (
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
from pyromq.protocol.needs import NOTHING


class GetConsumerStatusBody(Body):
    """The offsets of clients: those of one, or of each by its client id."""

    consumer_table: dict[str, dict[MessageQueue, Int64]] = {}
    message_queue_table: dict[MessageQueue, Int64] = {}


@request(39, to=CLIENT, needs=NOTHING, oneway=True)
class CheckTransactionState(RoutedRequest[Answer]):
    """Ask a producer about a prepared message; it answers with EndTransaction."""

    topic: str | None = None
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    # The prepared message under its real topic and queue.
    body: bytes = b""


@request(40, to=CLIENT, needs=NOTHING, oneway=True)
class NotifyConsumerIdsChanged(RoutedRequest[Answer]):
    """Tell the members of a group to rebalance."""

    consumer_group: str


@request(220, to=CLIENT, needs=NOTHING, oneway=True, java_name="reset_consumer_client_offset")
class ResetConsumerOffset(TopicRequest[Answer]):
    """Tell a consumer to continue at other offsets."""

    group: str
    topic: str
    queue_id: Int32 = -1
    offset: Int64 | None = None
    timestamp: Int64
    is_force: bool
    # java: a ResetOffsetBody for most clients, a ResetOffsetBodyForC for those in C++
    body: bytes = b""


@request(221, to=CLIENT, needs=NOTHING)
class GetConsumerStatusFromClient(TopicRequest[BodyAnswer[GetConsumerStatusBody]]):
    """Ask a consumer for its offsets."""

    topic: str
    group: str
    client_addr: str | None = None


@request(326, to=CLIENT, needs=NOTHING, java_name="push_reply_message_to_client")
class PushReply(TopicRequest[Answer]):
    """Hand a reply to the producer that waits for it."""

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
    unit_mode: bool = False
    born_host: str
    store_host: str
    store_timestamp: Int64
    body: bytes = b""


@request(30105, to=CLIENT, needs=NOTHING, oneway=True, extension=True)
class NotifyRoutesChanged(Request[Answer]):
    """Tell a client that asked with `watch` which topics have a new route."""

    body: list[str]
