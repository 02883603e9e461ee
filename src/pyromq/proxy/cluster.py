"""The way to the brokers: routes and calls, on connections that all clients of the front share.

Every request that a call of a client causes passes `admit` first.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from pyromq.client.session import Session
from pyromq.cluster.routes import Route
from pyromq.cluster.signing import Sign, signers
from pyromq.errors import ConnectFailed
from pyromq.protocol.catalogue import Answer, Request, declaration_of
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.needs import PUB, SUB, Need, ResourceType, need_of
from pyromq.protocol.request_forms import FilledForm
from pyromq.protocol.requests.routes import GetClusterInfo
from pyromq.proxy.grpc.call import Call
from pyromq.remoting.connection import StartedCall

A = TypeVar("A", bound=Answer)


class FrontAdmission(Protocol):
    """Whether the sender of a call may cause a request; the counterpart of `remoting.admission`."""

    def identify(self, call: Call) -> str:
        """The user who sent the call; raises Rejected if that is unknown."""
        ...

    def authorize(self, needs: Iterable[Need], call: Call) -> None:
        """Raises Rejected to say no."""
        ...


class ProxyCluster:
    def __init__(self, session: Session, timeout_s: float, admission: FrontAdmission | None = None) -> None:
        self.session = session
        self.timeout_s = timeout_s
        self._admission = admission

    def __repr__(self) -> str:
        return f"<ProxyCluster {self.session!r}>"

    @property
    def name_servers(self) -> str:
        return ";".join(self.session.name_servers.addresses)

    @property
    def new_signer(self) -> Callable[[], Sign] | None:
        """Signs the requests of other connections as the front itself."""
        return signers(self.session.settings.credentials, clock=self.session.clock)

    @property
    def has_admission(self) -> bool:
        return self._admission is not None

    def admit(self, request: Request[Any], call: Call | None) -> None:
        if self._admission is not None and call is not None:
            self._admission.authorize(declaration_of(type(request)).needs_of(request), call)

    def admit_producer(self, topics: Iterable[str], call: Call) -> None:
        """For what causes no request yet: brokers ask producers about transactions, and show the messages."""
        if self._admission is not None:
            self._admission.authorize([need_of((PUB,), ResourceType.TOPIC, each) for each in topics], call)

    def admit_consumer(self, topic: str, group: str, call: Call) -> None:
        """The same for those who name a message that they have received."""
        if self._admission is not None:
            needs = need_of((SUB,), ResourceType.GROUP, group), need_of((SUB,), ResourceType.TOPIC, topic)
            self._admission.authorize(needs, call)

    async def route(self, topic: str) -> Route:
        """Raises NoRoute if no broker has the topic."""
        return await self.session.routes.get(topic)

    def known_route(self, topic: str) -> Route | None:
        """The same, if name servers need not be asked."""
        return self.session.routes.cached(topic)

    def address(self, broker_name: str) -> str:
        """The master of this name; raises ConnectFailed if it has none now."""
        address = self.session.broker_address(broker_name, MASTER_ID, only_this=True)
        if address is None:
            raise ConnectFailed(f"the broker {broker_name} has no master now")
        return address

    def addresses_of(self, route: Route) -> list[str]:
        """An address of each broker that has the topic."""
        found = self._addresses(route.brokers)
        if not found:
            raise ConnectFailed(f"no broker of the topic {route.topic} can be reached")
        return found

    async def addresses(self) -> list[str]:
        """An address of each broker; raises ConnectFailed if there is none."""
        found = self._addresses(self.session.routes.brokers)
        if not found:
            # No topic is known yet, and there may be none that all clusters have.
            info = (await self.session.ask_name_server(GetClusterInfo(), self.timeout_s)).body
            brokers = [each.broker_addrs for each in info.broker_addr_table.values()]
            found = [each[min(each)] for each in brokers if each]
        if not found:
            raise ConnectFailed("no broker can be reached")
        return found

    def _addresses(self, names: Iterable[str]) -> list[str]:
        return [each for each in map(self.session.broker_address, names) if each is not None]

    async def call(
        self, broker_name: str, request: Request[A], call: Call | None, timeout_s: float | None = None
    ) -> A:
        self.admit(request, call)
        return await self.call_address(self.address(broker_name), request, timeout_s)

    def begin(
        self, broker_name: str, request: Request[A] | FilledForm[A], call: Call, declared: Request[A]
    ) -> StartedCall[A] | None:
        """The same at once, as a started call; None if there is no connection that takes it now.

        `declared`: the request, if it is a filled form.
        """
        address = self.session.broker_address(broker_name, MASTER_ID, only_this=True)
        connection = self.session.writable(address) if address is not None else None
        if connection is None:
            return None
        if self._admission is not None:
            self.admit(declared, call)
        return connection.begin(request, self.timeout_s)

    async def call_address(self, address: str, request: Request[A], timeout_s: float | None = None) -> A:
        return await self.session.call(address, request, timeout_s or self.timeout_s)

    async def send_oneway(self, address: str, request: Request[Any], call: Call | None) -> None:
        self.admit(request, call)
        await self.session.send_oneway(address, request)
