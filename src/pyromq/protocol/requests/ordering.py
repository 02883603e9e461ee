"""Locks on queues, for consumers that read in order."""

from pyromq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from pyromq.protocol.catalogue import BROKER, Answer, BodyAnswer, RoutedRequest, request
from pyromq.protocol.needs import SUB, group, topic


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
