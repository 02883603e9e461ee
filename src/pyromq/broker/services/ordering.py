"""Ordered consumption: a consumer locks queues, so that no other member of its group reads them."""

from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.clock import Clock, elapsed_ms
from pyromq.errors import Refused
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.ordering import LockBatchResponseBody, LockQueues, UnlockQueues
from pyromq.remoting.routing import Caller, handles

MAX_QUEUES_AT_ONCE = 4096
"""RocketMQ has no limit; real consumers lock far fewer queues of one broker."""


class Ordering:
    def __init__(self, locks: QueueLocks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Ordering {self._locks!r}>"

    @handles(LockQueues)
    def lock(self, request: LockQueues, caller: Caller) -> BodyAnswer[LockBatchResponseBody]:
        wanted = request.body
        _check_count(len(wanted.mq_set))
        held = self._locks.acquire(
            wanted.consumer_group, wanted.client_id, wanted.mq_set, elapsed_ms(self._clock)
        )
        return BodyAnswer(body=LockBatchResponseBody(lock_ok_mq_set=set(held)))

    @handles(UnlockQueues)
    def unlock(self, request: UnlockQueues, caller: Caller) -> None:
        given_up = request.body
        _check_count(len(given_up.mq_set))
        self._locks.release(given_up.consumer_group, given_up.client_id, given_up.mq_set)


def _check_count(queues: int) -> None:
    if queues > MAX_QUEUES_AT_ONCE:
        raise Refused(
            ResponseCode.INVALID_PARAMETER,
            f"{queues} queues in one request: expected at most {MAX_QUEUES_AT_ONCE}",
        )
