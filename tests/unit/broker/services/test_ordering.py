"""Queues reserved by members of a group."""

import pytest
from tests.support.broker_parts import caller_on, refusal

from pyromq.broker.services.ordering import Ordering
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.clock import ManualClock
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.ordering import (
    LockBatchRequestBody,
    LockQueues,
    UnlockBatchRequestBody,
    UnlockQueues,
)

QUEUES = {MessageQueue("T", "b", number) for number in range(3)}


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.ordering = Ordering(QueueLocks(60_000), self.clock)

    def lock(self, client_id: str, queues: set[MessageQueue] = QUEUES) -> set[MessageQueue]:
        body = LockBatchRequestBody(client_id=client_id, consumer_group="g", mq_set=queues)
        return self.ordering.lock(LockQueues(body=body), caller_on()).body.lock_ok_mq_set

    def unlock(self, client_id: str, queues: set[MessageQueue] = QUEUES) -> None:
        body = UnlockBatchRequestBody(client_id=client_id, consumer_group="g", mq_set=queues)
        self.ordering.unlock(UnlockQueues(body=body), caller_on())


def test_the_answer_names_the_queues_the_client_holds_now() -> None:
    world = World()
    some = {MessageQueue("T", "b", 0)}
    assert world.lock("a", some) == some
    assert world.lock("b") == QUEUES - some
    assert world.lock("a") == some


def test_unlocked_queues_are_free_for_others() -> None:
    world = World()
    world.lock("a")
    world.unlock("b")
    assert world.lock("b") == set()
    world.unlock("a")
    assert world.lock("b") == QUEUES


def test_a_lock_lives_sixty_seconds_from_its_last_renewal() -> None:
    world = World()
    world.lock("a")
    world.clock.advance(60)
    assert world.lock("b") == set()
    assert world.lock("a") == QUEUES
    world.clock.advance(60.001)
    assert world.lock("b") == QUEUES


def test_locks_nobody_renews_are_forgotten() -> None:
    world = World()
    world.lock("a", {MessageQueue("T", "b", number) for number in range(100)})
    world.clock.advance(121)
    world.lock("b", {MessageQueue("U", "b", 0)})
    assert "locks=1" in repr(world.ordering)


@pytest.mark.parametrize("set_ahead_s", [-7200, 5 * 86_400])
def test_a_clock_that_is_set_frees_no_lock_and_keeps_none(set_ahead_s: int) -> None:
    world = World()
    world.lock("a")
    world.clock.advance(30)
    world.clock.set_ahead(set_ahead_s)
    assert world.lock("b") == set()
    world.clock.advance(31)
    assert world.lock("b") == QUEUES


def test_very_many_queues_in_one_request_are_refused_and_none_is_locked() -> None:
    world = World()
    many = {MessageQueue("T", "b", number) for number in range(4097)}
    for call in (world.lock, world.unlock):
        refused = refusal(lambda call=call: call("a", many))  # type: ignore[misc]
        assert refused.remark == "4097 queues in one request: expected at most 4096"
    assert world.lock("b") == QUEUES
