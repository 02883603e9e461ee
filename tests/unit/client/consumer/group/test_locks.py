"""Locks asked of brokers."""

from tests.support.fake_network import FakeNetwork
from tests.support.held_messages import QUEUE, RETRY_QUEUE

from pyromq.client.consumer.group.locks import MemberLocks
from pyromq.errors import CallTimeout
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.requests.ordering import LockBatchResponseBody, LockQueues, UnlockQueues


async def test_only_granted_locks_count_and_a_broker_that_is_away_grants_none(network: FakeNetwork) -> None:
    locks = MemberLocks(network, "billing", "me")
    network.answers[LockQueues] = BodyAnswer(body=LockBatchResponseBody(lock_ok_mq_set={QUEUE}))
    assert await locks.acquire([QUEUE, RETRY_QUEUE]) == {QUEUE}
    network.answers[LockQueues] = network.answers[UnlockQueues] = CallTimeout("away")
    assert not await locks.acquire_one(QUEUE)
    await locks.release([QUEUE])
