"""A consumer of lite topics: channels inside a topic, which it subscribes to while it runs.

It receives and acknowledges as a `SimpleConsumer` does, or calls a handler. Messages of a lite topic come in
order: the next ones come when those that were received are acknowledged.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from inspect import isawaitable
from typing import Any, Literal, Unpack

from pyromq.client.application_log import application_log
from pyromq.client.consumer.reading.lite_reading import LitePopReading
from pyromq.client.consumer.reading.popping import PoppedMessage, PopReading
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription
from pyromq.client.consumer.settings import MAX_POPPED_AT_ONCE, SimpleOptions
from pyromq.client.consumer.simple import SimpleConsumer, SimpleMember
from pyromq.client.session import Session
from pyromq.errors import ConfigError, NoRoute, PyroError, StateError
from pyromq.protocol.names import lite_topic_problem
from pyromq.protocol.requests.lite import (
    POLICY_MAX,
    POLICY_MIN,
    ChangeLiteSubscriptions,
    LiteSubscriptionAction,
    LiteSubscriptionCtlRequestBody,
    LiteSubscriptionDTO,
    OffsetOption,
    OffsetOptionType,
)
from pyromq.protocol.requests.membership import ConsumeFromWhere, ConsumerData, MessageModel

_log = logging.getLogger(__name__)

_REPEAT_S = 30.0
"""How often the client repeats its subscriptions to brokers, which may have restarted."""
_TIMEOUT_S = 10.0
_PAUSE_S = 1.0
_MAX_RETRIES = 16

LiteStart = Literal["first", "end"] | int
"""Where to begin in a lite topic: with its first message, behind its last one, or at an offset."""


class LiteConsumer(SimpleConsumer):
    """`async with LiteConsumer("agents", "Sessions", namesrv=...) as consumer: ... subscribe_lite("s-1")`.

    The group must be bound to the topic (`lite.bind.topic`), and the topic be of type LITE. Options are
    the fields of `SimpleSettings` and of `ClientSettings`.
    """

    _is_lite = True

    def __init__(
        self,
        group: str,
        topic: str,
        namesrv: str | Iterable[str] | None = None,
        **options: Unpack[SimpleOptions],
    ) -> None:
        for name in ("start_from", "ordered"):
            if name in options:
                given: Any = options.get(name)
                raise ConfigError(
                    name, given, "nothing: `subscribe_lite` sets the start, and lite topics are in order"
                )
        super().__init__(group, namesrv, **options)
        super().subscribe(topic)
        self.topic = topic
        self._lite_topics: dict[str, None] = {}
        self._repeating: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<LiteConsumer {self.group} of {self.topic} lite_topics={len(self._lite_topics)}>"

    # Beginning and end

    async def start(self) -> None:
        """Join the group. Raises Refused if it is not bound to the topic."""
        await super().start()
        try:
            await self._tell(LiteSubscriptionAction.COMPLETE_ADD, self._lite_topics)
        except BaseException:
            await self.close()
            raise
        self._repeating = asyncio.create_task(self._repeat(), name="lite subscriptions")

    async def close(self) -> None:
        """Leave the group. Messages that were received and not acknowledged are delivered again after their
        invisible time."""
        if self._repeating is not None:
            self._repeating.cancel()
            await asyncio.wait([self._repeating])
            self._repeating = None
        if self._session is not None:
            try:
                await self._tell(LiteSubscriptionAction.COMPLETE_REMOVE, ())
            except PyroError as problem:
                # Brokers forget a silent client after a while.
                _log.info("a lite consumer left quietly group=%s: %s", self.group, problem)
        await super().close()

    def _new_reading(self, session: Session, group: str) -> PopReading:
        return LitePopReading(session, group, _TIMEOUT_S, "first")

    def _new_member(self, group: str) -> SimpleMember:
        return _LiteMember(group, self._subscriptions, self)

    def _take_up(
        self, session: Session, topic: str, expression: Expression, *, is_awaited: bool = False
    ) -> None:
        name = session.wrap(topic)
        self._subscriptions[name] = Subscription.of(name, expression, session.clock.now_ms())

    # Subscribing

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Not for lite consumers: see `subscribe_lite`."""
        raise StateError(f"a lite consumer reads lite topics of {self.topic} only: call subscribe_lite")

    def unsubscribe(self, topic: str) -> None:
        """Not for lite consumers: see `unsubscribe_lite`."""
        raise StateError(f"a lite consumer reads lite topics of {self.topic} only: call unsubscribe_lite")

    @property
    def lite_topics(self) -> tuple[str, ...]:
        """Those that it reads. Another client of an exclusive group may take one away."""
        return tuple(self._lite_topics)

    async def subscribe_lite(self, *lite_topics: str, start: LiteStart | None = None) -> None:
        """Read these lite topics, whether they have messages yet or not.

        The group continues where it was, or starts with the first message, unless `start` is given.
        Raises Refused with LITE_SUBSCRIPTION_QUOTA_EXCEEDED if these are too many.
        """
        self._running()
        _check(lite_topics)
        await self._tell(LiteSubscriptionAction.PARTIAL_ADD, lite_topics, _option(start))
        self._lite_topics.update(dict.fromkeys(lite_topics))

    async def unsubscribe_lite(self, *lite_topics: str) -> None:
        """Read these lite topics no more."""
        self._running()
        _check(lite_topics)
        for each in lite_topics:
            self._lite_topics.pop(each, None)
        await self._tell(LiteSubscriptionAction.PARTIAL_REMOVE, lite_topics)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_REPEAT_S)
            try:
                await self._tell(LiteSubscriptionAction.COMPLETE_ADD, self._lite_topics)
            except PyroError as problem:
                _log.warning("subscriptions to lite topics not repeated group=%s: %s", self.group, problem)

    async def _tell(
        self, action: LiteSubscriptionAction, names: Iterable[str], option: OffsetOption | None = None
    ) -> None:
        """Tell every broker of the topic."""
        session = self._running()
        topic = session.wrap(self.topic)
        change = LiteSubscriptionDTO(
            action=action,
            client_id=session.client_id,
            group=self._member.group,
            lite_topic_set=set(names),
            offset_option=option,
            topic=topic,
            version=session.clock.now_ms(),
        )
        asked = ChangeLiteSubscriptions(body=LiteSubscriptionCtlRequestBody(subscription_set=[change]))
        route = await session.routes.get(topic)
        for broker_name in dict.fromkeys(route.broker_of(queue) for queue in route.subscribe_queues):
            address = session.broker_address(broker_name)
            if address is None:
                raise NoRoute(topic, str(session.name_servers), f"no address of {broker_name} is known")
            await session.call(address, asked, _TIMEOUT_S)

    def lite_topic_lost(self, lite_topic: str) -> None:
        """Another client of an exclusive group reads it now."""
        if self._lite_topics.pop(lite_topic, "") is None:
            _log.info("lite topic lost to another client group=%s lite_topic=%s", self.group, lite_topic)

    # Messages

    async def change_invisible_time(
        self, message: PoppedMessage, seconds: float, *, suspend: bool = False
    ) -> None:
        """The message is delivered again after `seconds` from now, unless it is acknowledged. With `suspend`
        so is everything received of its lite topic, and the attempt does not count."""
        if not suspend:
            await super().change_invisible_time(message, seconds)
            return
        self._running()
        assert isinstance(self._popping, LitePopReading)
        await self._popping.suspend(message, seconds)

    async def run(
        self, handler: Callable[[PoppedMessage], Awaitable[object] | object], *, retry_s: float = 5.0
    ) -> None:
        """Call the handler with each message until the consumer is closed or this is cancelled.

        Lite topics are handled side by side, the messages of one after the other. A message is done when the
        handler returns. If it raises an exception, the message and those behind it are delivered again after
        `retry_s`; after `max_retries` (16) retries it becomes a dead letter. A handler that is not `async`
        runs in a thread.
        """
        self._running()
        working: set[asyncio.Task[None]] = set()
        try:
            while self._session is not None:
                for batch in _by_lite_topic(await self._next(working)):
                    task = asyncio.create_task(self._handle(handler, batch, retry_s))
                    working.add(task)
                    task.add_done_callback(working.discard)
        finally:
            for task in working:
                task.cancel()
            if working:
                await asyncio.wait(working)

    async def _next(self, working: set[asyncio.Task[None]]) -> list[PoppedMessage]:
        while len(working) >= MAX_POPPED_AT_ONCE:
            await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        try:
            return await self.receive(MAX_POPPED_AT_ONCE)
        except PyroError as problem:
            if self._session is None:
                return []
            _log.warning("no messages at the moment group=%s: %s", self.group, problem)
            await asyncio.sleep(_PAUSE_S)
            return []

    async def _handle(
        self,
        handler: Callable[[PoppedMessage], Awaitable[object] | object],
        batch: list[PoppedMessage],
        retry_s: float,
    ) -> None:
        """Handle messages of one lite topic, one after the other."""
        left = list(batch)
        renewing = asyncio.create_task(self._renew_often(left))
        try:
            while left:
                if not await self._is_handled(handler, left[0]):
                    renewing.cancel()
                    for each in left:
                        await self.change_invisible_time(each, retry_s)
                    return
                await self.ack(left[0])
                del left[0]
        except PyroError as problem:
            _log.warning("messages come again later group=%s: %s", self.group, problem)
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _is_handled(
        self, handler: Callable[[PoppedMessage], Awaitable[object] | object], message: PoppedMessage
    ) -> bool:
        """Whether the message is done: the handler returned, or it is a dead letter."""
        limit = self.settings.max_retries
        if message.reconsume_times > (_MAX_RETRIES if limit is None else limit):
            await self.reject(message, f"the handler failed {message.reconsume_times} times")
            return True
        try:
            await _call(handler, message)
        except Exception:
            application_log.exception(
                "handler failed group=%s lite_topic=%s id=%s",
                self.group,
                message.lite_topic,
                message.message_id,
            )
            return False
        return True

    async def _renew_often(self, messages: list[PoppedMessage]) -> None:
        """Keep messages hidden while they wait for their turn or are handled."""
        while True:
            await asyncio.sleep(self.settings.invisible_s / 3)
            await self.renew(list(messages))


class _LiteMember(SimpleMember):
    def __init__(self, group: str, subscriptions: dict[str, Subscription], consumer: LiteConsumer) -> None:
        super().__init__(group, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, subscriptions)
        self.lite_topic_lost = consumer.lite_topic_lost

    def consumer_data(self) -> ConsumerData:
        data = super().consumer_data()
        data.message_model = MessageModel.LITE_SELECTIVE
        return data


async def _call(
    handler: Callable[[PoppedMessage], Awaitable[object] | object], message: PoppedMessage
) -> None:
    if asyncio.iscoroutinefunction(handler):
        await handler(message)
        return
    result = await asyncio.to_thread(handler, message)
    if isawaitable(result):  # an object whose call is a coroutine
        await result


def _by_lite_topic(messages: list[PoppedMessage]) -> Iterable[list[PoppedMessage]]:
    batches: dict[str | None, list[PoppedMessage]] = {}
    for message in messages:
        batches.setdefault(message.lite_topic, []).append(message)
    return batches.values()


def _check(lite_topics: Iterable[str]) -> None:
    for each in lite_topics:
        if (problem := lite_topic_problem(each)) is not None:
            raise ConfigError("lite_topic", each, f"another name: {problem}")


def _option(start: LiteStart | None) -> OffsetOption | None:
    if start is None:
        return None
    if start in ("first", "end"):
        return OffsetOption(
            type=OffsetOptionType.POLICY, value=POLICY_MIN if start == "first" else POLICY_MAX
        )
    if not isinstance(start, int) or start < 0:
        raise ConfigError("start", start, '"first", "end" or an offset of 0 or more')
    return OffsetOption(type=OffsetOptionType.OFFSET, value=start)
