"""Ordered consumption: a member of a group reserves queues, so that no other member reads them meanwhile."""

from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.clock import Clock, elapsed_ms
from pyromq.protocol.bodies.locks import LockBatchResponseBody
from pyromq.protocol.requests.ordering import LockQueues, LockQueuesAnswer, UnlockQueues
from pyromq.remoting.routing import Caller, handles


class Ordering:
    def __init__(self, locks: QueueLocks, clock: Clock) -> None:
        self._locks = locks
        self._clock = clock

    def __repr__(self) -> str:
        return f"<Ordering {self._locks!r}>"

    @handles(LockQueues)
    def lock(self, request: LockQueues, caller: Caller) -> LockQueuesAnswer:
        wanted = request.body
        held = self._locks.acquire(
            wanted.consumer_group, wanted.client_id, wanted.mq_set, elapsed_ms(self._clock)
        )
        return LockQueuesAnswer(body=LockBatchResponseBody(lock_ok_mq_set=set(held)))

    @handles(UnlockQueues)
    def unlock(self, request: UnlockQueues, caller: Caller) -> None:
        given_up = request.body
        self._locks.release(given_up.consumer_group, given_up.client_id, given_up.mq_set)
