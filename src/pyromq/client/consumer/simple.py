"""A consumer that receives messages and acknowledges each by itself: brokers divide the messages, by pop.

All members of a group get messages of all queues; none has to wait for another. A message that is not
acknowledged while it is invisible is delivered again, to any member.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple, Unpack

from pyromq.chance import token
from pyromq.client.consumer.handling.retries import HandlerRetries
from pyromq.client.consumer.reading.offsets import on_the_wire
from pyromq.client.consumer.reading.popped_acks import PoppedAcks
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription, check_topic
from pyromq.client.consumer.settings import (
    MAX_POPPED_AT_ONCE,
    SimpleOptions,
    SimpleSettings,
    check_group,
)
from pyromq.client.declaring import declare_group
from pyromq.client.health import DEFAULT_TIMEOUT_S, Health, health_of
from pyromq.client.namespaces import wrap
from pyromq.client.opened import Opened
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, split_options
from pyromq.client.tracing_choice import is_traced
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.errors import ConfigError, NoRoute, PyroError, StateError
from pyromq.protocol.requests.inspection import CMResult, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from pyromq.protocol.requests.membership import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel

_log = logging.getLogger(__name__)

_TIMEOUT_S = 10.0
_LEAST_INVISIBLE_S = 0.01
_LOOK_S = 1.0
"""How often a call looks for topics that no broker has yet."""
_ENOUGH = 0.5
"""A message is hidden anew if less than this part of its invisible time is left when it is handed out."""


class _Pop(NamedTuple):
    """A pop that waits at a broker until then, by the time of the event loop."""

    task: asyncio.Task[list[PoppedMessage]]
    until: float


class SimpleConsumer(Opened):
    """`async with SimpleConsumer("billing", namesrv="127.0.0.1:9876") as consumer: ... receive() ... ack()`.

    Options are the fields of `SimpleSettings` and of `ClientSettings`. Brokers must be of 5.0 or later.
    """

    settings: SimpleSettings
    _is_lite: ClassVar[bool] = False

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[SimpleOptions]
    ) -> None:
        check_group(group)
        self.group = group
        self.settings, client_options = split_options(options, SimpleSettings)
        self.client_settings = ClientSettings.of(namesrv, **client_options)
        self._expressions: dict[str, Expression] = {}
        self._subscriptions: dict[str, Subscription] = {}
        self._session: Session | None = None
        self._popping: PopReading
        self._acks: PoppedAcks
        self._closing: asyncio.Future[list[PoppedMessage]]
        self._member: SimpleMember
        self._is_closed = False
        self._pops: dict[tuple[Subscription, str], _Pop] = {}
        """Pops that wait at brokers, by subscription and broker."""
        self._found: list[tuple[Subscription, PoppedMessage]] = []
        """Messages that they found and no call has returned yet."""
        self._starting: set[asyncio.Task[None]] = set()
        """Have the group begin in topics that were just subscribed to."""
        self._showing: set[asyncio.Task[None]] = set()
        self._missing: set[str] = set()
        """Topics that no broker has, as far as is known."""
        if is_traced(self.settings.otel):
            # Imported late: OpenTelemetry is optional.
            from pyromq.client.spans import ConsumeSpans

            spans = ConsumeSpans(group, is_broadcast=False, namespace=self.client_settings.namespace)
            setattr(self, "receive", spans.receiving(self.receive))  # noqa: B010 (mypy: it is a method)

    def __repr__(self) -> str:
        topics = ",".join(sorted(self._expressions)) or "nothing"
        return f"<SimpleConsumer {self.group} of {topics} waiting={len(self._pops)}>"

    async def health(self, *, timeout_s: float = DEFAULT_TIMEOUT_S) -> Health:
        """Ask the known brokers, or a name server while there are none, whether they answer."""
        return await health_of(self._session, self.group, timeout_s)

    # Beginning and end

    async def start(self) -> None:
        """Join the group."""
        if self._session is not None or self._is_closed:
            raise StateError("a consumer can be started only once: create a new one")
        group = wrap(self.group, self.client_settings.namespace)
        session = await Session.obtain(self.client_settings, consumer_group=group)
        self._session = session
        self._closing = asyncio.get_running_loop().create_future()
        self._popping = self._new_reading(session, group)
        self._acks = PoppedAcks(self._popping, session.clock)
        self._member = self._new_member(group)
        if self.settings.max_retries is not None:
            await declare_group(session, group, self.settings.max_retries)
        session.add_consumer(group, self._member)  # nothing waits between this and the subscriptions
        for topic, expression in self._expressions.items():
            self._take_up(session, topic, expression, is_awaited=True)
        await self._wait_for_starts()
        _log.debug("simple consumer started group=%s client=%s", group, session.client_id)

    def _new_reading(self, session: Session, group: str) -> PopReading:
        return PopReading(session, group, _TIMEOUT_S, self.settings.start_from)

    def _new_member(self, group: str) -> "SimpleMember":
        return SimpleMember(group, on_the_wire(self.settings.start_from), self._subscriptions)

    async def close(self) -> None:
        """Leave the group. Messages that were received and not acknowledged are delivered again after their
        invisible time; those that no call has received, at once."""
        session = self._session
        if session is None:
            self._is_closed = True
            return
        session.check_loop()
        self._session, self._is_closed = None, True
        self._closing.set_result([])
        await self._acks.finish(_TIMEOUT_S)
        for start in self._starting:
            start.cancel()
        await self._wait_for_starts()
        found = [message for _, message in self._found]
        self._found.clear()
        for pop in self._pops.values():
            pop.task.add_done_callback(self._arrived_late)  # at once, if it is over
        self._pops.clear()
        await self._show_again(found)
        await session.remove_consumer(self._member.group, self._member)
        await session.release()

    @property
    def client_id(self) -> str:
        return self._joined().client_id  # on any thread

    # Subscribing

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """`expression`: tags as in "Created || Paid", "*" for all, or `Sql("price > 10")`."""
        check_topic(topic)
        if self._is_closed:
            raise StateError("the consumer is closed: create a new one")
        Subscription.of(topic, expression, 0)
        self._expressions[topic] = expression
        if self._session is not None:
            self._take_up(self._session, topic, expression)

    def unsubscribe(self, topic: str) -> None:
        self._expressions.pop(topic, None)
        if self._session is not None:
            self._subscriptions.pop(self._session.wrap(topic), None)

    def _take_up(
        self, session: Session, topic: str, expression: Expression, *, is_awaited: bool = False
    ) -> None:
        name = session.wrap(topic)
        chosen = Subscription.of(name, expression, session.clock.now_ms())
        before = self._subscriptions.get(name)
        if before is None or chosen != replace(before, version=chosen.version):
            self._subscriptions[name] = chosen
        if before is None:
            self._popping.starts.positions.subscribing(name, is_awaited=is_awaited)
            start = asyncio.create_task(self._begin(session, name), name=f"start in {name}")
            self._starting.add(start)
            start.add_done_callback(self._starting.discard)

    async def _begin(self, session: Session, topic: str) -> None:
        """Place the group in a topic that was subscribed to just now; a pop tries again what fails."""
        starts = self._popping.starts
        try:
            route = await session.routes.get(topic)
            starts.positions.subscribed(topic, route.subscribe_queues)
            for broker in {route.broker_of(queue) for queue in route.subscribe_queues}:
                await starts.place(topic, broker)
        except PyroError as problem:
            starts.positions.subscribed(topic, ())
            _log.info("the group has no start yet group=%s topic=%s: %s", self.group, topic, problem)

    async def _wait_for_starts(self) -> None:
        if self._starting:
            await asyncio.wait(set(self._starting))

    # Messages

    async def receive(
        self, max_messages: int = 16, *, wait_s: float | None = None, invisible_s: float | None = None
    ) -> list[PoppedMessage]:
        """The next messages: at least one, or none when `wait_s` is over.

        They are invisible to other members for `invisible_s`: acknowledge them within that time.
        """
        session = self._running()
        if not 1 <= max_messages <= MAX_POPPED_AT_ONCE:
            raise ConfigError("max_messages", max_messages, f"1 to {MAX_POPPED_AT_ONCE}")
        invisible_s = self.settings.invisible_s if invisible_s is None else invisible_s
        if invisible_s < _LEAST_INVISIBLE_S:
            raise ConfigError("invisible_s", invisible_s, f"at least {_LEAST_INVISIBLE_S}")
        if not self._subscriptions:
            raise StateError("the consumer has no subscription: subscribe to a topic")
        wait_s = self.settings.wait_s if wait_s is None else wait_s
        now = asyncio.get_running_loop().time
        until, left_s, must_ask = now() + wait_s, wait_s, True
        while not (messages := await self._hand_out(session, max_messages, invisible_s)):
            if self._session is None or left_s <= -_TIMEOUT_S:
                break
            if must_ask and left_s >= 0:
                await self._ask(session, max_messages, invisible_s, left_s, until)
            if left_s > 0 and self._pops:
                must_ask = await self._wait(list(self._pops.values()), left_s)
            elif due := [each for each in self._pops.values() if each.until <= until]:
                must_ask = await self._wait(due, left_s + _TIMEOUT_S)  # their answers are on the way
            elif must_ask and left_s > 0:
                await asyncio.sleep(min(left_s, _LOOK_S))  # no broker has the topics yet
            else:
                break
            left_s = until - now()
        return messages

    async def _ask(
        self, session: Session, limit: int, invisible_s: float, wait_s: float, until: float
    ) -> None:
        """Have a pop wait at every broker of every topic; those of other calls may still wait."""
        await self._wait_for_starts()
        for name, subscription in list(self._subscriptions.items()):
            try:
                route = await session.routes.get(name)
            except NoRoute as problem:
                if name not in self._missing:
                    _log.warning("waiting for a topic group=%s: %s", self.group, problem)
                    self._missing.add(name)
                continue
            self._missing.discard(name)
            if self._session is None:
                return
            brokers = {route.broker_of(queue) for queue in route.subscribe_queues}
            for broker in brokers:
                if (subscription, broker) not in self._pops:
                    attempt = token(16) if self.settings.ordered or self._is_lite else None
                    pop = self._popping.pop(
                        broker, subscription, limit, invisible_s, wait_s, attempt_id=attempt
                    )
                    task = asyncio.create_task(pop, name=f"pop of {name} at {broker}")
                    self._pops[subscription, broker] = _Pop(task, until)

    async def _wait(self, pops: list[_Pop], timeout_s: float) -> bool:
        """Wait for one of the pops, and keep what it found. True: another call has taken that."""
        done, _ = await asyncio.wait(
            [self._closing, *(each.task for each in pops)],
            timeout=max(timeout_s, 0),
            return_when=asyncio.FIRST_COMPLETED,
        )
        done.discard(self._closing)
        finished = [
            (key, pop.task)
            for key, pop in self._pops.items()
            if pop.task in done and not pop.task.cancelled()
        ]
        problem: BaseException | None = None
        for key, task in finished:
            del self._pops[key]
            failure = task.exception()
            if failure is None:
                self._found += [(key[0], message) for message in task.result()]
            else:
                problem = failure
        if problem is not None and not self._pops and not self._found:
            raise problem
        if isinstance(problem, PyroError):
            _log.warning("a broker did not answer a pop group=%s: %s", self.group, problem)
        return len(finished) < len(done)

    async def _hand_out(self, session: Session, limit: int, invisible_s: float) -> list[PoppedMessage]:
        """Messages that were found, by a pop of this call or of another one."""
        while self._found:
            taken, self._found = self._found[:limit], self._found[limit:]
            try:
                are_ours = await asyncio.gather(*(self._keep(session, *each, invisible_s) for each in taken))
            except asyncio.CancelledError:
                self._found = taken + self._found  # else they would be hidden from everybody for that long
                raise
            if messages := [each[1] for each, is_ours in zip(taken, are_ours, strict=True) if is_ours]:
                return messages
        return []

    async def _keep(
        self, session: Session, subscription: Subscription, message: PoppedMessage, invisible_s: float
    ) -> bool:
        """Whether a message is this member's, for about as long as was asked for: it may have lain here."""
        left_s = (message.invisible_until_ms - session.clock.now_ms()) / 1000
        if left_s <= 0:
            return False  # on its way to another member
        is_wanted = self._subscriptions.get(subscription.topic) is subscription
        if not is_wanted or left_s < invisible_s * _ENOUGH:
            hidden_s = invisible_s if is_wanted else _LEAST_INVISIBLE_S
            try:
                await self._popping.change_invisible_time(message, hidden_s)
            except PyroError as problem:
                _log.info("a message is left to others id=%s: %s", message.message_id, problem)
                return False
        return is_wanted

    def _arrived_late(self, pop: asyncio.Task[list[PoppedMessage]]) -> None:
        """A pop cannot be taken back; it ends with its connection, if no other client here needs that."""
        if not pop.cancelled() and pop.exception() is None and pop.result():
            task = asyncio.create_task(self._show_again(pop.result()))
            self._showing.add(task)
            task.add_done_callback(self._showing.discard)

    async def _show_again(self, messages: list[PoppedMessage]) -> None:
        """The application has not received these: other members need not wait until they are visible."""

        async def show(message: PoppedMessage) -> None:
            try:
                await self._popping.change_invisible_time(message, _LEAST_INVISIBLE_S)
            except PyroError as problem:
                _log.info("message is visible later id=%s: %s", message.message_id, problem)

        await asyncio.gather(*map(show, messages))

    async def ack(self, message: PoppedMessage) -> bool:
        """The message is done. False: its invisible time was over, and it may have been delivered again.

        Then ask for a longer `invisible_s`, or call `change_invisible_time` in time.
        """
        session = self._running()
        is_in_time = session.clock.now_ms() < message.invisible_until_ms
        await self._popping.acknowledge(message)
        return is_in_time

    def ack_soon(self, message: PoppedMessage) -> None:
        """The message is done, without waiting for the broker: with others of this moment in one request.

        It is tried until the invisible time is over; `close` waits for that.
        """
        self._running()
        self._acks.soon(message)

    async def ack_many(self, messages: Iterable[PoppedMessage]) -> None:
        """The messages are done: one request to each broker."""
        self._running()
        await self._acks.together(messages)

    async def renew(
        self, messages: Iterable[PoppedMessage], *, invisible_s: float | None = None
    ) -> list[PoppedMessage]:
        """Hide messages for `invisible_s` from now on, while they are worked on. Returns those for which that
        failed: they may be delivered again. One that is being acknowledged is left alone."""
        self._running()
        return await self._acks.renew(
            messages, self.settings.invisible_s if invisible_s is None else invisible_s
        )

    async def reject(self, message: PoppedMessage, reason: str = "rejected") -> None:
        """Make the message a dead letter of the group, which says why; see `DeadLetters`."""
        session = self._running()
        retries = HandlerRetries(
            session, self._member.group, session.clock, max_times=None, member=session.client_id
        )
        await retries.bury(message, reason)
        await self._acks.together([message])

    async def change_invisible_time(self, message: PoppedMessage, seconds: float) -> None:
        """The message is delivered again after `seconds` from now, unless it is acknowledged."""
        self._running()
        if seconds < _LEAST_INVISIBLE_S:
            raise ConfigError("seconds", seconds, f"at least {_LEAST_INVISIBLE_S}")
        await self._popping.change_invisible_time(message, seconds)

    def _running(self) -> Session:
        session = self._joined()
        session.check_loop()
        return session

    def _joined(self) -> Session:
        if self._session is None:
            raise StateError("the consumer is not running: start it, or use it in a `with` block")
        return self._session


class SimpleMember:
    """The description of this consumer for brokers and operators."""

    def __init__(self, group: str, begins: ConsumeFromWhere, subscriptions: dict[str, Subscription]) -> None:
        self.group = group
        self._from = begins
        self._subscriptions = subscriptions

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_POP,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=self._from,
            subscription_data_set=[each.data() for each in self._subscriptions.values()],
        )

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def members_changed(self) -> None:
        """Brokers divide the messages."""

    def offsets_reset(self, topic: str, offsets: dict[MessageQueue, int]) -> None:
        """Brokers continue from there by themselves."""

    def status(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={"consumerGroup": self.group, "PROP_CONSUME_TYPE": ConsumeType.CONSUME_POP.value},
            subscription_set=[each.data() for _, each in sorted(self._subscriptions.items())],
        )

    async def consume_directly(self, message: ReceivedMessage) -> ConsumeMessageDirectlyResult:
        return ConsumeMessageDirectlyResult(
            order=False,
            auto_commit=True,
            consume_result=CMResult.CR_THROW_EXCEPTION,
            remark="a simple consumer has no handler",
            spent_time_mills=0,
        )
