"""Locks on queues, for consumers that read in order."""

from msgspec import field

from pyromq.protocol.body import Body, MessageQueue
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, RoutedRequest, request
from pyromq.protocol.needs import SUB, group, topic


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


@request(
    41,
    to=BROKER,
    needs=(group(SUB, at="body.consumer_group"), topic(SUB, at="body.mq_set.topic")),
    java_name="lock_batch_mq",
)
class LockQueues(RoutedRequest[BodyAnswer[LockBatchResponseBody]]):
    """Lock queues for one member of a group; the answer lists those it holds."""

    body: LockBatchRequestBody


@request(
    42,
    to=BROKER,
    needs=(group(SUB, at="body.consumer_group"), topic(SUB, at="body.mq_set.topic")),
    oneway=True,
    java_name="unlock_batch_mq",
)
class UnlockQueues(RoutedRequest[Answer]):
    """Release locked queues."""

    body: UnlockBatchRequestBody
