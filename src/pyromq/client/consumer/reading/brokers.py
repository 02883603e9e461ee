"""The broker of a queue: its address, and calls to it."""

from typing import Any, Protocol, TypeVar

from pyromq.cluster.route_table import KnownRoutes
from pyromq.errors import ConnectFailed
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.request_forms import FilledForm

A = TypeVar("A", bound=Answer)


class Network(Protocol):
    """The part of a session that consumers need to reach brokers."""

    @property
    def routes(self) -> KnownRoutes: ...
    @property
    def fills_forms(self) -> bool: ...
    async def call(self, address: str, request: Request[A] | FilledForm[A], timeout_s: float) -> A: ...
    async def send_oneway(self, address: str, request: Request[Any]) -> None: ...


class QueueBrokers:
    def __init__(self, network: Network) -> None:
        self._network = network

    def __repr__(self) -> str:
        return f"<QueueBrokers {self._network.routes!r}>"

    async def address(
        self, queue: MessageQueue, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> str:
        """The address of the queue's broker; refreshes the route once if it is unknown."""
        address = self.known_address(queue, broker_id, only_this=only_this)
        if address is None:
            await self._network.routes.refresh(queue.topic)
            address = self.known_address(queue, broker_id, only_this=only_this)
        if address is None:
            raise ConnectFailed(f"the broker {queue.broker_name} is not registered with the name servers")
        return address

    def broker_name(self, queue: MessageQueue) -> str:
        """The broker that holds the queue; queues of static topics move between brokers."""
        route = self._network.routes.cached(queue.topic)
        return queue.broker_name if route is None else route.broker_of(queue)

    def known_address(self, queue: MessageQueue, broker_id: int, *, only_this: bool = False) -> str | None:
        return self._network.routes.address(self.broker_name(queue), broker_id, only_this=only_this)

    async def call(self, queue: MessageQueue, request: Request[A], timeout_s: float) -> A:
        """Call the master, or a replica if there is no master."""
        return await self._network.call(await self.address(queue), request, timeout_s)

    async def send_oneway(self, queue: MessageQueue, request: Request[Any]) -> None:
        await self._network.send_oneway(await self.address(queue), request)
