"""Sends a prepared message: to one broker after another, until one has stored it or the time is up."""

import asyncio
from dataclasses import dataclass

from pyromq.client.fault_avoidance import LATENCIES_MS, BrokerFaults
from pyromq.client.patience import patiently
from pyromq.client.producer_settings import ProducerSettings
from pyromq.client.queue_choice import RoundRobin
from pyromq.client.session import Session
from pyromq.cluster.retry_table import Retry, retry_of
from pyromq.cluster.routes import Route
from pyromq.cluster.sending.request import PreparedMessage, SendForms, SendTerms
from pyromq.errors import ConnectFailed, NoRoute, Refused, SendFailed, TransportError
from pyromq.protocol.bodies.queues import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.remoting.addresses import format_address, parse_address

_FIRST_PAUSE_S = 0.05
_MAX_PAUSE_S = 0.5
_MIN_RETRY_S = 0.01
"""With less time left no broker can answer; timers of a busy loop are not more exact."""


@dataclass(frozen=True, slots=True)
class SendOutcome:
    answer: SendMessageAnswer
    queue: MessageQueue
    address: str
    latency_ms: float


@dataclass(slots=True)
class FirstTry:
    """The first try of a send that is made outside of the event loop."""

    queue: MessageQueue
    broker_name: str
    address: str
    started: float
    limit_s: float
    problem: TransportError | Refused | None = None


@dataclass(slots=True)
class SenderStatistics:
    attempts: int = 0
    retries: int = 0
    failures: int = 0


class Sender:
    """Sends for one producer group."""

    def __init__(self, session: Session, group: str, settings: ProducerSettings) -> None:
        """`group`: as brokers know it."""
        self.session = session
        self.group = group
        self.settings = settings
        self.statistics = SenderStatistics()
        self._routes = session.routes
        self._clock = session.clock
        self._is_vip = session.settings.vip_channel
        unit_mode = True if session.settings.unit_mode else None
        self.forms = SendForms(
            SendTerms(group, settings.create_topic_key, settings.default_topic_queues, unit_mode)
        )
        self._fills_forms = session.fills_forms
        self._built = self.forms.filled if self._fills_forms else self.forms.request
        self._faults = BrokerFaults()
        self._round_robin = RoundRobin(self._faults if settings.avoid_slow_brokers else None)
        # Bound here, for every message: a method in between would cost a call.
        self.next_turn = self._round_robin.next_turn
        """A number that says whose turn it is among the queues; None while a broker is avoided."""
        self.turns = self._round_robin.turns
        self.faults = self._faults.known
        """Empty while all brokers are well."""

    def __repr__(self) -> str:
        return f"<Sender {self.group} {self.statistics} {self._faults!r}>"

    async def route(self, topic: str) -> Route:
        """Where messages of a topic can be sent; raises NoRoute if nowhere.

        Raises ConnectFailed while there are replicas without a master: one of them may become it.
        """
        route = self._routes.for_publishing(topic)
        if route is None:
            settings = self.settings
            route = await self._routes.get_or_borrow(
                topic, settings.create_topic_key, settings.default_topic_queues
            )
        if not route.publish_queues:
            route = await self._routes.refresh(topic)
        if not route.publish_queues:
            for name, addresses in route.brokers.items():
                if addresses and MASTER_ID not in addresses:
                    raise ConnectFailed(f"the broker {name} has no master at the moment")
            raise NoRoute(topic, str(self.session.name_servers), "it is read-only, or has no master")
        return route

    async def route_in_time(self, topic: str) -> Route:
        """The same for who is about to send: raises SendFailed if no name server says so in time."""
        return await self._route_before(topic, self._clock.monotonic() + self.settings.send_timeout_s, [])

    async def send(
        self,
        prepared: PreparedMessage,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
        first: FirstTry | None = None,
    ) -> SendOutcome:
        """Send until a broker has stored it. Without a queue, a failure moves on to another broker.

        `first`: a try that has failed already. Raises Refused if a retry would not help, SendFailed if all
        tries failed.
        """
        settings, clock = self.settings, self._clock
        began = clock.monotonic() if first is None else first.started
        deadline = began + (settings.send_timeout_s if timeout_s is None else timeout_s)
        attempts: list[str] = []
        tried: set[str | None] = set()
        refusing: set[str] = set()
        failed_broker: str | None = None
        tries_left = settings.retries
        while True:
            route = self._routes.for_publishing(prepared.topic)
            if route is None or not route.publish_queues:
                route = await self._route_before(prepared.topic, deadline, attempts)
            started = clock.monotonic()
            if first is not None:
                target, started = first.queue, first.started
            elif queue is None:
                target = self._round_robin.choose(route.publish_queues, started * 1000, failed_broker)
            else:
                target = queue
            broker_name = route.broker_of(target)
            known = self._known_address(broker_name)
            if known in tried:
                started = await self._pause(prepared.topic, len(attempts), deadline)
                known = self._known_address(broker_name)
            if started >= deadline - (_MIN_RETRY_S if attempts else 0):
                break
            tried.add(known if first is None else first.address)
            was_sent = True
            try:
                if first is not None and first.problem is not None:
                    problem, first = first.problem, None
                    raise problem
                address = known or await self._address(prepared.topic, broker_name)
                limit_s = deadline - started
                if tries_left and queue is None:
                    limit_s = self._limit_of_one(limit_s, route)
                self.statistics.attempts += 1
                request = self._built(prepared, target.queue_id, broker_name)
                answer = await self.session.call(address, request, limit_s)
            except TransportError as problem:
                was_sent = not isinstance(problem, ConnectFailed)
                attempts.append(f"{broker_name}: {problem}")
                self._faults.failed(target.broker_name, clock.monotonic() * 1000, is_reachable=False)
                self._routes.refresh_soon(prepared.topic)
            except Refused as refusal:
                is_shrunk = (
                    queue is None
                    and refusal.code == ResponseCode.INVALID_PARAMETER
                    and await self._is_gone(prepared.topic, target)
                )
                retry = retry_of(refusal.code)
                is_lasting = Retry.ELSEWHERE in retry and Retry.HERE not in retry
                if is_lasting:
                    refusing.add(target.broker_name)
                nobody_left = queue is not None or all(
                    each.broker_name in refusing for each in route.publish_queues
                )
                is_final = Retry.ELSEWHERE not in retry and not is_shrunk
                if is_final or (is_lasting and nobody_left):
                    self.statistics.failures += 1
                    raise
                attempts.append(f"{broker_name}: {refusal}")
                if not is_shrunk:
                    self._faults.failed(target.broker_name, clock.monotonic() * 1000, is_reachable=True)
                if Retry.NEW_ROUTE in retry:
                    self._routes.refresh_soon(prepared.topic)
            else:
                now = clock.monotonic()
                latency_ms = (now - started) * 1000
                self._faults.answered(target.broker_name, latency_ms, now * 1000)
                is_safe = answer.code == ResponseCode.SUCCESS
                if is_safe or not settings.retry_unsafe_stores or not tries_left:
                    return SendOutcome(answer, target, address, latency_ms)
                attempts.append(f"{broker_name}: stored, but code {answer.code}")
            failed_broker = target.broker_name
            # A broker that refuses connections may be starting. Nothing was sent, so this is no retry.
            if was_sent:
                if not tries_left:
                    break
                tries_left -= 1
            self.statistics.retries += 1
        self.statistics.failures += 1
        raise SendFailed(f"a message to {prepared.topic}", attempts)

    async def _is_gone(self, topic: str, queue: MessageQueue) -> bool:
        """Whether the topic has lost a queue that was chosen by a route of before."""
        try:
            route = await self._routes.refresh(topic)
        except (NoRoute, TransportError):
            return False
        return queue not in route.publish_queues

    def _limit_of_one(self, left_s: float, route: Route) -> float:
        """The time that one broker may take: a silent one must leave time for the others."""
        if len(route.brokers) > 1:
            return min(left_s, self.settings.try_timeout_s or left_s / 2)
        return left_s

    # The first try of a blocking producer, on the caller's thread. The loop may change the tables meanwhile:
    # everything here is a single look into a table, and any answer to it will do.

    @property
    def allows_first_tries(self) -> bool:
        return self._fills_forms and not self.settings.retry_unsafe_stores

    def plan_first_try(self, topic: str) -> FirstTry | None:
        """None if something must be found out first."""
        route = self._routes.for_publishing(topic)
        if route is None or not route.publish_queues:
            return None
        queue = self._round_robin.choose(route.publish_queues, self._clock.monotonic() * 1000)
        first = self._first_try(route, queue)
        if first is None or not self.session.is_introduced(first.address):
            return None
        self.statistics.attempts += 1
        return first

    def first_tries(self, topic: str) -> list[FirstTry]:
        """One for each queue; none if something must be found out first."""
        route = self._routes.for_publishing(topic)
        tries = [self._first_try(route, queue) for queue in route.publish_queues] if route is not None else []
        known = [first for first in tries if first is not None]
        return known if len(known) == len(tries) else []

    def _first_try(self, route: Route, queue: MessageQueue) -> FirstTry | None:
        settings, broker_name = self.settings, route.broker_of(queue)
        address = self._known_address(broker_name)
        if address is None:
            return None
        limit_s = settings.send_timeout_s
        if settings.retries:
            limit_s = self._limit_of_one(limit_s, route)
        return FirstTry(queue, broker_name, address, self._clock.monotonic(), limit_s)

    @property
    def avoids_brokers(self) -> bool:
        return not self._faults.is_empty

    def note_answer(self, broker_name: str, latency_ms: float) -> None:
        if latency_ms >= LATENCIES_MS[0] or not self._faults.is_empty:
            now_ms = self._clock.monotonic() * 1000
            self.session.call_soon(self._faults.answered, broker_name, latency_ms, now_ms)

    async def send_oneway(self, prepared: PreparedMessage, queue: MessageQueue | None = None) -> None:
        """Send without an answer.

        Raises only if no route is known, or no broker takes the bytes in `send_timeout_s`.
        """
        attempts: list[str] = []
        failed_broker: str | None = None
        for _ in range(1 + self.settings.retries):
            route = await self.route_in_time(prepared.topic)
            now_ms = self._clock.monotonic() * 1000
            target = queue or self._round_robin.choose(route.publish_queues, now_ms, failed_broker)
            broker_name = route.broker_of(target)
            try:
                address = self._known_address(broker_name) or await self._address(prepared.topic, broker_name)
                request = self.forms.request(prepared, target.queue_id, broker_name)
                await self.session.send_oneway(address, request, self.settings.send_timeout_s)
                return
            except TransportError as problem:
                attempts.append(f"{broker_name}: {problem}")
                self._faults.failed(target.broker_name, now_ms, is_reachable=False)
            failed_broker = target.broker_name
        raise SendFailed(f"a message to {prepared.topic}", attempts)

    async def _route_before(self, topic: str, deadline: float, attempts: list[str]) -> Route:
        left_s = max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(left_s):
                return await patiently(
                    lambda: self.route(topic),
                    left_s,
                    pause=lambda pause_s: self._routes.wait_changed(topic, pause_s),
                )
        except TimeoutError:
            attempts.append(f"no name server of {self.session.name_servers} answered in time")
        except TransportError as problem:
            attempts.append(str(problem))
        raise SendFailed(f"a message to {topic}", attempts)

    async def _address(self, topic: str, broker_name: str) -> str:
        """The address of a master that is in no known route yet; NoRoute if there is no such broker."""
        try:
            await self._routes.refresh(topic)
        except (NoRoute, Refused) as problem:
            if isinstance(problem, Refused) or self._routes.has_known(broker_name):
                raise ConnectFailed(f"its address is not known: {problem}") from problem
        address = self._known_address(broker_name)
        if address is None:
            if self._routes.has_known(broker_name):
                raise ConnectFailed("it has no master at the moment")
            raise NoRoute(topic, str(self.session.name_servers), f"it is on no broker called {broker_name}")
        return address

    def _known_address(self, broker_name: str) -> str | None:
        address = self._routes.address(broker_name, MASTER_ID, only_this=True)
        if address is None or not self._is_vip:
            return address
        host, port = parse_address(address)
        return format_address(host, port - 2)

    async def _pause(self, topic: str, attempt: int, deadline: float) -> float:
        """Wait a moment before the same broker is tried again, or until it has another master."""
        now = self._clock.monotonic()
        pause_s = min(_FIRST_PAUSE_S * 2 ** min(attempt, 10), _MAX_PAUSE_S)
        await self._routes.wait_changed(topic, max(0.0, min(pause_s, deadline - now)))
        return self._clock.monotonic()
