"""What a session knows of its producers and consumers: what brokers ask for is passed on through these."""

from typing import Protocol

from pyromq.client.values import ReceivedMessage
from pyromq.protocol.bodies.consumers import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.bodies.heartbeat import ConsumerData
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.requests.pushes import CheckTransactionState


class ProducerMember(Protocol):
    def check_transaction(
        self, request: CheckTransactionState, message: ReceivedMessage, address: str
    ) -> bool:
        """A broker wants to know what became of a transaction; the answer goes to `address`, later.

        Says whether this producer has transactions at all.
        """
        ...


class ConsumerMember(Protocol):
    """Topics and groups are told as brokers know them, with their namespace."""

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say about this consumer."""
        ...

    def topics(self) -> set[str]:
        """What it subscribes to."""
        ...

    def members_changed(self) -> None:
        """The queues of its group must be divided anew, soon."""

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Someone wants it to go on elsewhere."""

    def status(self, topic: str) -> dict[MessageQueue, int]:
        """How far it is in each queue."""
        ...

    def running_info(self) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        """Consume this message now, because an operator wants to see what comes of it."""
        ...
