"""The face of producers and consumers that a session uses to pass on requests of brokers."""

from typing import Protocol

from pyromq.client.values import ReceivedMessage
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.inspection import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.requests.membership import ConsumerData
from pyromq.protocol.requests.pushes import CheckTransactionState


class ProducerMember(Protocol):
    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> bool:
        """A broker asks how a transaction ended; the answer goes to `address`, later.

        Returns whether this producer has transactions at all.
        """
        ...


class ConsumerMember(Protocol):
    """Topics and groups have the names that brokers know, with the namespace."""

    def consumer_data(self) -> ConsumerData:
        """This consumer's part of a heartbeat."""
        ...

    def topics(self) -> set[str]: ...

    def members_changed(self) -> None:
        """The members of its group changed: rebalance soon."""

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """An operator reset the group's offsets: continue from these."""

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """The offset of each queue up to which everything is done."""
        ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Handle this message now, for an operator, and report the result."""
        ...
