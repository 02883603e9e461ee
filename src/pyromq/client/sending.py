"""Sends a prepared message: to one broker after another, until one has stored it or the time is up."""

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from pyromq.client.patience import patiently
from pyromq.client.producer_settings import ProducerSettings
from pyromq.client.session import Session
from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import LATENCIES_MS, BrokerFaults, RoundRobin
from pyromq.cluster.sending.plan import Failed, SendPlan, SendPolicy, SendRules, Try, Wait
from pyromq.cluster.sending.request import PreparedMessage, SendForms, SendTerms
from pyromq.errors import ConnectFailed, NoRoute, Refused, SendFailed, TransportError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.names import MASTER_ID
from pyromq.protocol.requests.sending import SendMessageAnswer
from pyromq.remoting.addresses import format_address, parse_address


@dataclass(frozen=True, slots=True)
class SendOutcome:
    answer: SendMessageAnswer
    queue: MessageQueue
    address: str
    latency_ms: float


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
        self._choice = RoundRobin(self._faults if settings.avoid_slow_brokers else None)
        policy = SendPolicy(
            settings.send_timeout_s, settings.retries, settings.try_timeout_s, settings.retry_unsafe_stores
        )
        self._rules = SendRules(self._choice, self._faults, policy, self._master)
        # Bound here, for every message: a method in between would cost a call.
        self.next_turn = self._choice.next_turn
        """A number that says whose turn it is among the queues; None while a broker is avoided."""
        self.turns = self._choice.turns
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
        return await self._route_before(topic, self._clock.monotonic() + self.settings.send_timeout_s)

    def plan(self, queue: MessageQueue | None = None, timeout_s: float | None = None) -> SendPlan:
        """The way of a message; without a queue, a failure moves on to another broker."""
        return SendPlan(self._rules, self._clock.monotonic(), queue, timeout_s)

    async def send(self, prepared: PreparedMessage, plan: SendPlan) -> SendOutcome:
        """Send until a broker has stored it.

        Raises Refused if a retry would not help, SendFailed if all tries failed.
        """
        while True:
            step, address = await self._next_try(plan, prepared.topic)
            try:
                request = (
                    self.forms.request(prepared, step.queue.queue_id, step.broker_name, is_resent=True)
                    if plan.is_resent
                    else self._built(prepared, step.queue.queue_id, step.broker_name)
                )
                answer = await self.session.call(address, request, step.limit_s)
            except (TransportError, Refused) as problem:
                self.note_failure(plan, prepared.topic, problem)
            else:
                now = self._clock.monotonic()
                is_over = plan.answered(answer.code, now)
                if is_over:
                    return SendOutcome(answer, step.queue, address, (now - plan.started) * 1000)
                self.statistics.retries += 1

    async def send_oneway(self, prepared: PreparedMessage, plan: SendPlan) -> None:
        """Send without an answer. Raises SendFailed if no broker takes the bytes in time."""
        while True:
            step, address = await self._next_try(plan, prepared.topic)
            request = self.forms.request(
                prepared, step.queue.queue_id, step.broker_name, is_resent=plan.is_resent
            )
            try:
                await self.session.send_oneway(address, request, step.limit_s)
                return
            except TransportError as problem:
                self.note_failure(plan, prepared.topic, problem)

    async def _next_try(self, plan: SendPlan, topic: str) -> tuple[Try, str]:
        """Does what comes before the next try of a plan; returns it with the address of its broker."""
        while True:
            route = self._routes.for_publishing(topic)
            if route is None or not route.publish_queues:
                route = await self._route_before(topic, plan.deadline, plan.attempts)
            step = plan.next(self._clock.monotonic(), route)
            if type(step) is Try:
                try:
                    address = step.address or await self._address(topic, step.broker_name)
                except TransportError as problem:
                    self.note_failure(plan, topic, problem)
                    continue
                self.statistics.attempts += 1
                return step, address
            if type(step) is Wait:
                await self._routes.wait_changed(topic, step.seconds)
            elif type(step) is Failed:
                self.statistics.failures += 1
                raise step.refusal or SendFailed(f"a message to {topic}", list(step.attempts), plan.problem)
            else:
                with contextlib.suppress(NoRoute, TransportError):
                    await self._routes.refresh(topic)

    def note_failure(self, plan: SendPlan, topic: str, problem: TransportError | Refused) -> None:
        """A try of a plan failed; `send` continues with it."""
        if plan.failed(problem, self._clock.monotonic()):
            self._routes.refresh_soon(topic)
        self.statistics.retries += not plan.is_over

    # First tries that are made elsewhere: on the thread of a blocking producer, or by the compiled core. The
    # loop may change the tables meanwhile: everything here is a single look, and any answer to it will do.

    @property
    def allows_first_tries(self) -> bool:
        return self._fills_forms and not self.settings.retry_unsafe_stores

    def plan_with_try(self, topic: str) -> SendPlan | None:
        """A plan whose first try can be made at once; None if something must be found out first."""
        route = self._routes.for_publishing(topic)
        if route is None or not route.publish_queues:
            return None
        plan = self.plan()
        plan.next(plan.started, route)
        first = plan.current
        if first is None or first.address is None or not self.session.is_introduced(first.address):
            return None
        self.statistics.attempts += 1
        return plan

    def plan_after(self, first: Try, started: float) -> SendPlan:
        """The plan of a message whose first try is under way since a time."""
        plan = SendPlan(self._rules, started)
        plan.begin(first, started)
        return plan

    def first_tries(self, topic: str) -> list[Try]:
        """One for each queue; none if something must be found out first."""
        route = self._routes.for_publishing(topic)
        if route is None:
            return []
        tries = []
        for queue in route.publish_queues:
            broker_name = route.broker_of(queue)
            address = self._master(broker_name)
            if address is None:
                return []
            tries.append(Try(queue, broker_name, address, self._rules.policy.first_limit_s(route)))
        return tries

    @property
    def avoids_brokers(self) -> bool:
        return not self._faults.is_empty

    def note_answer(self, broker_name: str, latency_ms: float) -> None:
        if latency_ms >= LATENCIES_MS[0] or not self._faults.is_empty:
            now_ms = self._clock.monotonic() * 1000
            self.session.call_soon(self._faults.answered, broker_name, latency_ms, now_ms)

    async def _route_before(self, topic: str, deadline: float, attempts: Iterable[str] = ()) -> Route:
        left_s = max(0.0, deadline - self._clock.monotonic())
        try:
            async with asyncio.timeout(left_s):
                return await patiently(
                    lambda: self.route(topic),
                    left_s,
                    pause=lambda pause_s: self._routes.wait_changed(topic, pause_s),
                )
        except TimeoutError:
            missing = f"no name server of {self.session.name_servers} answered in time"
        except TransportError as problem:
            missing = str(problem)
        raise SendFailed(f"a message to {topic}", [*attempts, missing])

    async def _address(self, topic: str, broker_name: str) -> str:
        """The address of a master that is in no known route yet; NoRoute if there is no such broker."""
        try:
            await self._routes.refresh(topic)
        except (NoRoute, Refused) as problem:
            if isinstance(problem, Refused) or self._routes.has_known(broker_name):
                raise ConnectFailed(f"its address is not known: {problem}") from problem
        address = self._master(broker_name)
        if address is None:
            if self._routes.has_known(broker_name):
                raise ConnectFailed("it has no master at the moment")
            raise NoRoute(topic, str(self.session.name_servers), f"it is on no broker called {broker_name}")
        return address

    def _master(self, broker_name: str) -> str | None:
        address = self._routes.address(broker_name, MASTER_ID, only_this=True)
        if address is None or not self._is_vip:
            return address
        host, port = parse_address(address)
        return format_address(host, port - 2)
