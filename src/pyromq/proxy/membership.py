"""Makes the front's clients known to brokers.

Each consumer has its own connections to the brokers of its topics, as if it spoke their protocol: brokers
list it as a member of its group, and operators' questions to it arrive there. Producers share one membership
for each topic: a broker's question about a transaction may go to any of them.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from pyromq.client.members import ProducerMember
from pyromq.clock import Clock
from pyromq.errors import BadExpression, ConnectionLost, NoRoute, PyroError
from pyromq.filtering.tags import parse_tags
from pyromq.protocol.catalogue import CLIENT, Answer, Request
from pyromq.protocol.requests.membership import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SendHeartbeat,
    SubscriptionData,
)
from pyromq.proxy.clients import FrontClient
from pyromq.proxy.cluster import ProxyCluster
from pyromq.proxy.grpc.call import Call
from pyromq.proxy.messages import enum_values
from pyromq.proxy.questions import BrokerQuestions
from pyromq.remoting.connection_group import ConnectionTerms
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.routing import Routes

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

_SQL = enum_values("FilterType")["SQL"]


class ProxyMembership:
    def __init__(
        self,
        cluster: ProxyCluster,
        transactions: ProducerMember,
        clock: Clock,
        *,
        timeout_s: float,
        relay_timeout_s: float,
        new_dialer: Callable[..., Dialer] = Dialer,
    ) -> None:
        self._cluster = cluster
        self._transactions = transactions
        self._clock = clock
        self._timeout_s = timeout_s
        self._relay_timeout_s = relay_timeout_s
        self._new_dialer = new_dialer
        self._dialers: dict[FrontClient, Dialer] = {}
        self._publishers: dict[str, set[FrontClient]] = {}
        self._topics_of: dict[FrontClient, tuple[str, ...]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ProxyMembership consumers={len(self._dialers)} topics={len(self._publishers)}>"

    def publishers(self, topic: str) -> list[FrontClient]:
        return list(self._publishers.get(topic, ()))

    def admit(self, client: FrontClient, call: Call) -> None:
        """Raises Rejected if the sender of the call may not be this member."""
        if client.is_producer:
            self._cluster.admit_producer(client.topics, call)
        else:
            self._cluster.admit(_heartbeat(client, self._clock.now_ms()), call)

    def join(self, client: FrontClient) -> None:
        """A client is new, or has new settings."""
        self._publish(client, tuple(client.topics) if client.is_producer else ())
        if client.is_producer:
            self._disconnect(client)
        else:
            self._start(self._quietly(client))

    async def heartbeat(self, client: FrontClient) -> None:
        if not client.is_producer:
            await self._announce(client)

    def leave(self, client: FrontClient) -> None:
        self._publish(client, ())
        del self._topics_of[client]
        self._disconnect(client)

    def _disconnect(self, client: FrontClient) -> None:
        dialer = self._dialers.pop(client, None)
        if dialer is not None:
            # Brokers remove a member when its connection closes.
            self._start(dialer.close())

    async def close(self) -> None:
        for client in {**self._dialers, **self._topics_of}:
            self.leave(client)
        await self.settled()

    async def settled(self) -> None:
        """Returns when brokers know all changes."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Producers

    def _publish(self, client: FrontClient, topics: tuple[str, ...]) -> None:
        before = self._topics_of.get(client, ())
        self._topics_of[client] = topics
        session = self._cluster.session
        for topic in set(before) - set(topics):
            members = self._publishers[topic]
            members.discard(client)
            if not members:
                del self._publishers[topic]
                self._start(session.remove_producer(topic, self._transactions))
        for topic in topics:
            if topic not in self._publishers:
                self._publishers[topic] = set()
                session.add_producer(topic, self._transactions)
                session.keep_connected(self._transactions)
                self._start(self._introduce(topic))
            self._publishers[topic].add(client)

    async def _introduce(self, topic: str) -> None:
        """Let the brokers of a topic know whom to ask about its transactions."""
        try:
            await self._cluster.route(topic)
            await self._cluster.session.heartbeat_now()
        except PyroError as problem:
            _log.info("brokers of a topic not found topic=%s: %s", topic, problem)

    # Consumers

    async def _quietly(self, client: FrontClient) -> None:
        try:
            await self._announce(client)
        except PyroError as problem:
            _log.info("client not announced client=%s: %s", client.client_id, problem)

    async def call(self, client: FrontClient, broker_name: str, request: Request[A], timeout_s: float) -> A:
        """A call that waits, on the client's own connection: it counts there, and it ends with the client."""
        return await self._dialer(client).call(self._cluster.address(broker_name), request, timeout_s)

    def _dialer(self, client: FrontClient) -> Dialer:
        dialer = self._dialers.get(client)
        if dialer is None:
            if client.has_left:
                raise ConnectionLost(f"the client {client.client_id} has left")
            questions, session = BrokerQuestions(client, self._relay_timeout_s), self._cluster.session
            dialer = self._dialers[client] = self._new_dialer(
                ConnectionTerms(clock=self._clock),
                routes=Routes(questions, serving=CLIENT),
                tls=session.settings.tls,
                connect_timeout_s=session.settings.connect_timeout_s,
                new_signer=self._cluster.new_signer,
                in_process=session.in_process,
                source=client.peer_address,
            )
        return dialer

    async def _announce(self, client: FrontClient) -> None:
        dialer = self._dialer(client)
        addresses: dict[str, None] = {}
        for topic in client.topics:
            try:
                route = await self._cluster.route(topic)
            except NoRoute as problem:
                _log.debug("a topic of a client is missing client=%s: %s", client.client_id, problem)
                continue
            for brokers in route.brokers.values():
                addresses.update(dict.fromkeys(brokers.values()))
        heartbeat = _heartbeat(client, self._clock.now_ms())
        await asyncio.gather(*(dialer.call(each, heartbeat, self._timeout_s) for each in addresses))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _heartbeat(client: FrontClient, now_ms: int) -> SendHeartbeat:
    passive = client.is_push_consumer
    data = ConsumerData(
        group_name=client.group,
        consume_type=ConsumeType.CONSUME_PASSIVELY if passive else ConsumeType.CONSUME_ACTIVELY,
        message_model=MessageModel.LITE_SELECTIVE if client.is_lite else MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[
            _subscription(each, now_ms) for each in client.settings.subscription.subscriptions
        ],
    )
    return SendHeartbeat(body=HeartbeatData(client_id=client.client_id, consumer_data_set=[data]))


def _subscription(entry: Any, now_ms: int) -> SubscriptionData:
    expression = entry.expression.expression or "*"
    if entry.expression.type == _SQL:
        return SubscriptionData(
            topic=entry.topic.name, sub_string=expression, expression_type="SQL92", sub_version=now_ms
        )
    try:
        wanted = parse_tags(expression)
    except BadExpression:
        wanted = parse_tags("*")
    return SubscriptionData(
        topic=entry.topic.name,
        sub_string=expression,
        tags_set=set(wanted.tags),
        code_set=set(wanted.codes),
        sub_version=now_ms,
    )
