"""Who consumes which queue, and how, when the broker decides it."""

from enum import StrEnum

from pyromq.protocol.bodies.body import Body, Int32
from pyromq.protocol.bodies.heartbeat import MessageModel
from pyromq.protocol.bodies.queues import MessageQueue


class MessageRequestMode(StrEnum):
    PULL = "PULL"
    POP = "POP"


class QueryAssignmentRequestBody(Body):
    """A client asks which queues of a topic are its own."""

    client_id: str
    consumer_group: str
    message_model: MessageModel | None = None
    strategy_name: str | None = None
    topic: str


class MessageQueueAssignment(Body):
    """A queue, and how to ask for its messages; without a queue, any queue of the topic."""

    attachments: dict[str, str] | None = None
    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL


class QueryAssignmentResponseBody(Body):
    """The queues that are the client's own."""

    message_queue_assignments: list[MessageQueueAssignment] = []


class SetMessageRequestModeRequestBody(Body):
    """How a group asks for the messages of a topic."""

    consumer_group: str
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: Int32 = 0
    topic: str


class MessageRequestModeSerializeWrapper(Body):
    """The modes of a broker by topic and group, as in `messageRequestMode.json`."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
