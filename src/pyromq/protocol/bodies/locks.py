"""Locks on queues that are consumed in order."""

from msgspec import field

from pyromq.protocol.bodies.body import Body
from pyromq.protocol.bodies.queues import MessageQueue


class LockBatchRequestBody(Body):
    """Queues that a client wants to lock."""

    client_id: str
    consumer_group: str
    mq_set: set[MessageQueue] = set()
    only_this_broker: bool = False


class LockBatchResponseBody(Body):
    """Queues that the client has locked now."""

    lock_ok_mq_set: set[MessageQueue] = field(name="lockOKMQSet", default_factory=set)


class UnlockBatchRequestBody(Body):
    """Queues that a client unlocks."""

    client_id: str
    consumer_group: str
    mq_set: set[MessageQueue] = set()
    only_this_broker: bool = False
