"""Rebalancing: at once when a member joins or leaves or a route changes, else every 20 seconds.

Each member asks a broker for the members of the group and takes its own queues; where messages are popped, it
asks for its queues. If it could not take all of them, it tries again soon.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import NamedTuple, TypeVar

from pyromq.chance import choice, shuffle
from pyromq.client.application_log import application_log
from pyromq.client.consumer.reading.brokers import Network
from pyromq.client.consumer.reading.popping import ANY_QUEUE
from pyromq.client.troubles import Troubles
from pyromq.cluster.assignment import Assignment, my_share
from pyromq.cluster.routes import Route
from pyromq.errors import NoRoute, PyroError, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.names import MASTER_ID, is_retry_topic
from pyromq.protocol.requests.membership import GetConsumerIds, MessageModel
from pyromq.protocol.requests.popping import MessageRequestMode, QueryAssignment, QueryAssignmentRequestBody

_log = logging.getLogger(__name__)

A = TypeVar("A", bound=Answer)

INTERVAL_S = 20.0

_FIRST_RETRY_S = 0.5
_MIN_GAP_S = 0.1
_ASK_TIMEOUT_S = 3.0

_REBALANCE = object()

Apply = Callable[[str, set[MessageQueue]], Awaitable[bool]]
"""Hold exactly these queues of a topic; returns whether it does now."""


class Division(NamedTuple):
    """How queues are divided. `rule` is None where every member reads all queues. `pops`: brokers divide the
    queues. `by_queue`: what a broker calls any queue is each of them.
    """

    rule: Assignment | None
    pops: bool = False
    by_queue: bool = False
    interval_s: float = INTERVAL_S


class Rebalancing:
    """`by_hand`: the queues of each topic that the application assigned; no rule is applied then."""

    def __init__(
        self,
        network: Network,
        group: str,
        client_id: str,
        division: Division,
        topics: Callable[[], Collection[str]],
        apply: Apply,
        *,
        troubles: Troubles | None = None,
    ) -> None:
        self._network = network
        self._group = group
        self._client_id = client_id
        self._division = division
        self.by_hand: Mapping[str, set[MessageQueue]] | None = None
        self._topics = topics
        self._apply = apply
        self._troubles = troubles or Troubles(_log)
        self._wanted = asyncio.Event()
        self._finished_rounds = 0
        self._round_ended = asyncio.Condition()
        self._is_balanced = False

    def __repr__(self) -> str:
        state = "balanced" if self._is_balanced else "not balanced"
        return f"<Rebalancing {self._group} {state} rounds={self._finished_rounds}>"

    def soon(self) -> None:
        """Members or routes have changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Rebalance again and again, until cancelled."""
        retry_s = _FIRST_RETRY_S
        while True:
            pause_s = self._division.interval_s
            if self._is_balanced:
                retry_s = _FIRST_RETRY_S
            else:
                pause_s = min(retry_s, self._division.interval_s)
                retry_s *= 2
            try:
                # Not `wait_for`: in Python 3.11 it may swallow a cancellation.
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
                retry_s = _FIRST_RETRY_S
            except TimeoutError:
                pass
            await self.once()
            await asyncio.sleep(_MIN_GAP_S)

    async def once(self) -> bool:
        """Rebalance every topic; returns whether this member holds all of its queues."""
        self._wanted.clear()
        balanced = [await self._divide(topic) for topic in sorted(self._topics())]
        self._is_balanced = all(balanced)
        if self._is_balanced:
            self._troubles.ended(_REBALANCE, "rebalance succeeded group=%s", self._group)
        self._finished_rounds += 1
        await self.tell_waiting()
        return self._is_balanced

    async def tell_waiting(self) -> None:
        """Let `wait_until` check its condition again."""
        async with self._round_ended:
            self._round_ended.notify_all()

    async def wait_until(self, is_reached: Callable[[], bool]) -> None:
        """Wait for a round after which the condition holds."""
        async with self._round_ended:
            await self._round_ended.wait_for(is_reached)

    async def _divide(self, topic: str) -> bool:
        try:
            route = self._network.routes.cached(topic) or await self._network.routes.get(topic)
            if self.by_hand is not None:
                return await self._apply(topic, self.by_hand.get(topic, set()))
            self._troubles.ended(topic, "topic has a route topic=%s", topic)
            if self._division.pops:
                return await self._apply(topic, await self._popped_queues(topic, route))
            queues = set(route.subscribe_queues)
            if self._division.rule is not None:
                members = await self._members(route)
                try:
                    queues = set(my_share(self._division.rule, self._client_id, queues, members))
                except Exception:
                    # The rule may be the application's own; keep the queues that we hold.
                    application_log.exception(
                        "assignment rule %s failed topic=%s", self._division.rule.name, topic
                    )
                    return False
                if self._client_id not in members:
                    _log.info(
                        "the broker does not list this member yet group=%s topic=%s", self._group, topic
                    )
                    await self._apply(topic, queues)
                    return False
            return await self._apply(topic, queues)
        except NoRoute as problem:
            # A broker creates the retry topic with the first heartbeat, or never if the group has no retries.
            if not is_retry_topic(topic):
                self._troubles.happened(topic, problem, "topic has no route yet")
            return False
        except PyroError as problem:
            # One line for all topics: they fail together.
            self._troubles.happened(
                _REBALANCE, problem, "rebalance failed group=%s topic=%s", self._group, topic
            )
            return False

    async def _popped_queues(self, topic: str, route: Route) -> set[MessageQueue]:
        """The queues that brokers assign to this member; any queue, unless an operator let members share them
        otherwise (`mqadmin setConsumeMode`)."""
        asked = QueryAssignmentRequestBody(
            client_id=self._client_id,
            consumer_group=self._group,
            message_model=MessageModel.CLUSTERING,
            strategy_name=self._division.rule.name if self._division.rule is not None else None,
            topic=topic,
        )
        answer = await self._ask(route, QueryAssignment(body=asked))
        assigned = answer.body.message_queue_assignments
        if any(each.mode is MessageRequestMode.POP for each in assigned):
            found = {each.message_queue for each in assigned if each.message_queue is not None}
        else:
            brokers = {route.broker_of(queue) for queue in route.subscribe_queues}
            found = {MessageQueue(topic=topic, broker_name=name, queue_id=ANY_QUEUE) for name in brokers}
        return self._each_of(found, route) if self._division.by_queue else found

    def _each_of(self, found: set[MessageQueue], route: Route) -> set[MessageQueue]:
        """Every queue of the brokers of which any queue was assigned, instead of that."""
        any_of = {queue.broker_name for queue in found if queue.queue_id == ANY_QUEUE}
        each = {queue for queue in found if queue.queue_id != ANY_QUEUE}
        for queue in route.subscribe_queues:
            name = route.broker_of(queue)
            if name in any_of:
                each.add(MessageQueue(topic=route.topic, broker_name=name, queue_id=queue.queue_id))
        return each

    async def _members(self, route: Route) -> list[str]:
        answer = await self._ask(route, GetConsumerIds(consumer_group=self._group))
        return answer.body.consumer_id_list

    async def _ask(self, route: Route, request: Request[A]) -> A:
        """Ask a broker of the topic; each broker knows all members."""
        addresses = [
            addresses.get(MASTER_ID) or choice(list(addresses.values()))
            for addresses in route.brokers.values()
            if addresses
        ]
        shuffle(addresses)
        problem: PyroError = TransportError(f"no broker has the topic {route.topic}")
        for address in addresses:
            try:
                return await self._network.call(address, request, _ASK_TIMEOUT_S)
            except PyroError as failure:
                problem = failure
        raise problem
