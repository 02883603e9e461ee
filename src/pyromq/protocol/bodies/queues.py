"""A queue is named by its topic, its broker and its number, and sorts in that order."""

import msgspec

from pyromq.protocol.bodies.body import Body, Int32, Int64


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue of a topic on one broker; hashable, because tables are keyed by it."""

    topic: str
    broker_name: str
    queue_id: Int32

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{self.queue_id}"


class MessageQueueForC(Body):
    """A queue with an offset, in the form for clients whose JSON has no objects as keys."""

    broker_name: str
    offset: Int64
    queue_id: Int32
    topic: str
