"""Queue locks of ordered consumers: the broker of a queue grants them to one client."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from pyromq.client.consumer.reading.brokers import Network, QueueBrokers
from pyromq.client.troubles import Troubles
from pyromq.errors import PyroError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.ordering import (
    LockBatchRequestBody,
    LockQueues,
    UnlockBatchRequestBody,
    UnlockQueues,
)

_log = logging.getLogger(__name__)

RENEWAL_S = 20.0

_TIMEOUT_S = 1.0


class MemberLocks:
    def __init__(self, network: Network, group: str, client_id: str) -> None:
        self._network = network
        self._brokers = QueueBrokers(network)
        self._group = group
        self._client_id = client_id
        self._troubles = Troubles(_log)

    def __repr__(self) -> str:
        return f"<MemberLocks {self._group} {self._client_id}>"

    async def acquire(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Lock or renew; returns the queues that are locked for us now. One request for each broker."""

        async def ask(wanted: set[MessageQueue]) -> set[MessageQueue]:
            body = LockBatchRequestBody(
                client_id=self._client_id, consumer_group=self._group, mq_set=wanted, only_this_broker=False
            )
            some = next(iter(wanted))
            try:
                address = await self._brokers.address(some, only_this=True)
                answer = await self._network.call(address, LockQueues(body=body), _TIMEOUT_S)
            except PyroError as problem:
                self._troubles.happened(
                    some.broker_name, problem, "queues not locked broker=%s", some.broker_name
                )
                return set()
            self._troubles.ended(some.broker_name, "queues locked again broker=%s", some.broker_name)
            return answer.body.lock_ok_mq_set & wanted

        answers = await asyncio.gather(*map(ask, self._by_broker(queues)))
        return set().union(*answers)

    async def acquire_one(self, queue: MessageQueue) -> bool:
        return queue in await self.acquire([queue])

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Return when the brokers have answered: another member may be waiting for the locks."""

        async def tell(given_up: set[MessageQueue]) -> None:
            body = UnlockBatchRequestBody(
                client_id=self._client_id, consumer_group=self._group, mq_set=given_up, only_this_broker=False
            )
            some = next(iter(given_up))
            try:
                address = await self._brokers.address(some, only_this=True)
                await self._network.call(address, UnlockQueues(body=body), _TIMEOUT_S)
            except PyroError as problem:
                # The lock expires when it is not renewed.
                _log.warning("queues not unlocked broker=%s: %s", some.broker_name, problem)

        await asyncio.gather(*map(tell, self._by_broker(queues)))

    def _by_broker(self, queues: Iterable[MessageQueue]) -> list[set[MessageQueue]]:
        groups: dict[str, set[MessageQueue]] = defaultdict(set)
        for queue in queues:
            groups[self._brokers.broker_name(queue)].add(queue)
        return list(groups.values())
