"""Locks on queues, for consumers that read in order."""

from pyromq.protocol.bodies.locks import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from pyromq.protocol.catalogue import BROKER, Answer, RoutedRequest, request


class LockQueuesAnswer(Answer):
    body: LockBatchResponseBody


@request(41, to=BROKER)
class LockQueues(RoutedRequest[LockQueuesAnswer]):
    """Reserve queues for one member of a group; answers with those it got."""

    body: LockBatchRequestBody


@request(42, to=BROKER, oneway=True)
class UnlockQueues(RoutedRequest[Answer]):
    """Give reserved queues back."""

    body: UnlockBatchRequestBody
