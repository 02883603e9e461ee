"""Assignments of queues to consumers, where the broker makes them."""

from enum import StrEnum

from pyromq.protocol.bodies.body import Body, Int32
from pyromq.protocol.bodies.heartbeat import MessageModel
from pyromq.protocol.bodies.queues import MessageQueue


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
