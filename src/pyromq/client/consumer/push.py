"""A consumer that calls handlers with messages as they arrive.

A message is committed, or acknowledged if it was popped, only after its handler returned or a broker took it
back: after a crash, unfinished messages are delivered again.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack, overload

from pyromq.client.consumer.consumer import Consumer, ConsumerParts
from pyromq.client.consumer.group.locks import RENEWAL_S
from pyromq.client.consumer.handling.handlers import (
    Handler,
    HandlerFunction,
    Handlers,
    MessageStream,
    as_decorator,
    check_takes_one,
)
from pyromq.client.consumer.handling.handling import Handling
from pyromq.client.consumer.handling.routers import Router
from pyromq.client.consumer.handling.typed import bound
from pyromq.client.consumer.interrupts import run_until_interrupted, started_before
from pyromq.client.consumer.reading.fetching import Fetching, PullLimits
from pyromq.client.consumer.reading.in_flight import Thresholds
from pyromq.client.consumer.reading.pop_reader import PopSource
from pyromq.client.consumer.reading.popping import PopReading
from pyromq.client.consumer.reading.queue_reader import Source
from pyromq.client.consumer.reading.quick_pulls import quick_pulls
from pyromq.client.consumer.reading.server_filter import FilterCode, ServerFilter
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.consumer.reading.subscriptions import Expression, check_topic, chosen_expression
from pyromq.client.consumer.settings import PushOptions, PushSettings
from pyromq.client.middleware import Middleware, surrounded
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings, split_options
from pyromq.errors import StateError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.membership import ConsumeType

_log = logging.getLogger(__name__)

_LATE_CHECKS_PER_TIMEOUT = 4
_RENEWALS_PER_TIME = 3
_POP_TIMEOUT_S = 10.0

F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True)
class PushStatistics:
    queues: int
    held_messages: int
    held_bytes: int
    running_handlers: int
    lost_handlers: int
    """Those that run although their time is up; others run in their place."""
    counts: Counts
    """Summed over all topics."""


@dataclass(frozen=True, slots=True)
class _Parts(ConsumerParts):
    handling: Handling


class PushConsumer(Consumer[_Parts]):
    """`async with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer: ...`.

    Options are the fields of `PushSettings` and of `ClientSettings`. All members of a group must subscribe to
    the same topics with the same expressions.
    """

    settings: PushSettings

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PushOptions]
    ) -> None:
        settings, client_options = split_options(options, PushSettings)
        client_settings = ClientSettings.of(namesrv, **client_options)
        super().__init__(group, settings, client_settings, joins_unsubscribed=False)
        self._handlers = Handlers()
        self._middlewares: list[Middleware] = []
        self._closed = asyncio.Event()
        self._interrupted = asyncio.Event()

    # Subscribing

    @overload
    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: None = None,
        *,
        filter: FilterCode | None = None,
    ) -> MessageStream: ...

    @overload
    def subscribe(self, topic: str, expression: Expression, handler: HandlerFunction) -> None: ...

    @overload
    def subscribe(
        self, topic: str, *, handler: HandlerFunction, filter: FilterCode | None = None
    ) -> None: ...

    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: HandlerFunction | None = None,
        *,
        filter: FilterCode | None = None,
    ) -> MessageStream | None:
        """Consume a topic with a handler, or without one by `async for` over the returned stream.

        `expression`: tags as in "Created || Paid", "*" for all, or `Sql("price > 10")`. A topic may have
        several handlers, each with different tags. `filter`: what filter servers
        run instead of an expression: a function of (message, context), or a `Path` of a module in
        WebAssembly. Subscribe before the start if you can: the group then
        rebalances once instead of several times.
        """
        check_topic(topic)
        if self._is_closing:
            raise StateError("the consumer is closed: create a new one")
        self._check_loop()
        expression = chosen_expression(expression, filter)
        if isinstance(expression, ServerFilter) and self.settings.mode == "pop":
            raise StateError('a filter needs mode="pull": filter servers serve no pops')
        stream = None
        takes_batch = self.settings.batch_size is not None
        if handler is not None:
            check_takes_one(handler)
            handler = bound(handler, self.settings.codec)
            if self._middlewares:
                handler = surrounded(handler, tuple(self._middlewares))
            traced = self._traced(Handler(handler, takes_batch=takes_batch))
            expression = self._handlers.put(topic, expression, traced)
        elif takes_batch:
            raise StateError("batch_size needs a handler: a stream returns one message at a time")
        else:
            stream = MessageStream(topic, self._check_loop)
            if self._spans is not None:
                stream.observe(self._spans.receiving_one)
            expression = self._handlers.put(topic, expression, stream)
        self._subscribe(topic, expression, lambda problem: self._handlers.remove(topic, problem))
        return stream

    def _traced(self, handler: Handler) -> Handler:
        spans = self._spans
        if spans is None:
            return handler
        function = spans.around(handler.function, is_async=handler.is_async)
        return Handler(function, takes_batch=handler.takes_batch)

    def on(
        self, topic: str, expression: Expression = "*", *, filter: FilterCode | None = None
    ) -> Callable[[F], F]:
        """The same as a decorator: `@consumer.on("Orders", "Created || Paid")`."""
        check_topic(topic)
        chosen = chosen_expression(expression, filter)
        return as_decorator(lambda function: self.subscribe(topic, chosen, function))

    def include(self, router: Router) -> None:
        """Subscribe to everything that a router has handlers for."""
        for topic, expression, function in router:
            self.subscribe(topic, expression, function)

    def around(self, middleware: Middleware) -> Middleware:
        """Run every handler inside the context manager that this function returns for its message.

        It can be a decorator, over `@contextmanager`. Add it before the handlers.
        """
        if self._expressions:
            raise StateError("the consumer has handlers already: add what is around them first")
        self._middlewares.append(middleware)
        return middleware

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; running handlers finish."""
        await super().unsubscribe(topic)
        self._handlers.remove(topic)

    # Beginning and end

    def _build(self, session: Session, group: str) -> _Parts:
        settings = self.settings
        popping: PopReading | None = None
        if settings.mode == "pop":
            popping = PopReading(session, group, _POP_TIMEOUT_S, settings.start_from)
        handling = Handling(settings, session, group, self._handlers, self._stats, popping)
        fetching = Fetching(
            session,
            group,
            namespace=session.settings.namespace,
            limits=PullLimits(settings.messages_per_pull, settings.pull_batch_bytes),
            quick=quick_pulls(session, group),
        )
        kind = self._kind(
            ConsumeType.CONSUME_PASSIVELY if popping is None else ConsumeType.CONSUME_POP,
            is_ordered=settings.is_ordered,
            concurrency=settings.concurrency,
            **_java_settings(settings),
        )
        source = self._source(handling, popping)
        return _Parts(self._new_membership(session, group, fetching, kind, source, handling), handling)

    def _source(self, handling: Handling, popping: PopReading | None) -> Source:
        settings, popped = self.settings, handling.popped
        if popping is not None and popped is not None:
            return PopSource(
                thresholds=self._thresholds,
                interval_s=settings.pull_interval_s,
                popping=popping,
                limit=settings.pull_batch_size,
                invisible_s=settings.invisible_s,
                abandon=popped.abandon,
                starts=popping.starts,
                by_queue=settings.is_ordered,
            )
        is_shared = not settings.broadcast
        return Source(
            thresholds=self._thresholds,
            interval_s=settings.pull_interval_s,
            commits=is_shared,
            needs_lock=is_shared and settings.is_ordered,
            reads_retries=is_shared,
        )

    def _thresholds(self, queue_count: int) -> Thresholds:
        settings = self.settings
        return settings.thresholds.for_each_of(queue_count, settings.topic_messages, settings.topic_bytes)

    def _begin_work(self, parts: _Parts) -> None:
        settings, background = self.settings, self._background
        membership, delivery = parts.membership, parts.handling.delivery
        if (popped := parts.handling.popped) is not None:

            async def renew() -> None:
                held = [message for reader in membership.assigned for message in reader.held]
                await popped.renew(held, settings.invisible_s)

            background.every(settings.invisible_s / _RENEWALS_PER_TIME, renew, "renewal")
        else:
            background.every(settings.commit_interval_s, membership.assigned.commit, "commit")
        if settings.is_ordered and popped is None and not settings.broadcast:
            background.every(RENEWAL_S, membership.assigned.renew_locks, "locks")
        timeout_s = settings.handler_timeout_s
        background.every(
            timeout_s / _LATE_CHECKS_PER_TIMEOUT, lambda: delivery.stop_late(timeout_s), "late handlers"
        )
        _log.debug("consumer started group=%s client=%s", membership.group, membership.session.client_id)

    async def wait_assigned(self) -> None:
        """Wait until this member holds queues of every subscribed topic.

        It waits for ever if the group has more members than queues.
        """
        membership = self._running().membership
        session, rebalancing = membership.session, membership.rebalancing

        def has_all() -> bool:
            held = {queue.topic for queue in membership.assigned.queues}
            return self._is_closing or all(session.wrap(topic) in held for topic in self._expressions)

        rebalancing.soon()
        await rebalancing.wait_until(has_all)
        if self._is_closing:
            raise StateError("the consumer was closed")

    async def drain(self) -> None:
        """Stop pulling; return when all pulled messages are handled and committed. Then close the consumer.

        Called by a handler, or in the loop over a stream, it returns at once: handlers continue until no
        message is left, and the loop ends after the last message.
        """
        await self._drain_for(None)

    async def _drain_for(self, reader: Hashable) -> None:
        parts = self._running()
        if parts.handling.is_done_by(reader) or self._handlers.is_read_by(reader):
            self._background.start(self._drain(parts), "drain")
        else:
            await self._drain(parts)

    async def _drain(self, parts: _Parts) -> None:
        async with self._starting:
            pass  # wait until the start has ended
        await self._background.end()
        await parts.membership.assigned.stop_reading()
        for stream in self._handlers.streams:
            stream.end_when_empty()
        for reader in parts.membership.assigned:
            await reader.held.wait_until_empty()
        await parts.membership.assigned.commit(confirmed=True)

    async def close(self) -> None:
        """Stop pulling, let handlers finish, commit, unlock, and leave the group.

        Called by a handler, it returns at once: the consumer closes when its handlers have finished.
        """
        await self._shut()

    async def _shut(self, *, is_failed: bool = False, reader: Hashable = None) -> None:
        parts = self._parts
        if parts is None:
            return
        self._check_loop()
        is_handler = parts.handling.is_done_by(reader)
        if self._is_closing:
            if not is_handler:
                await self._closed.wait()
            return
        self._is_closing = True
        if is_handler:
            parts.handling.delivery.halt()
            self._background.start(self._close(parts, is_failed=is_failed, reader=reader), "close")
        else:
            await self._close(parts, is_failed=is_failed, reader=reader)

    async def _close(self, parts: _Parts, *, is_failed: bool, reader: Hashable) -> None:
        try:
            async with self._starting:
                pass  # a handler may close the consumer before the start has ended
            if self._parts is parts:
                await self._finish(parts, is_failed=is_failed, reader=reader)
        finally:
            self._closed.set()
            self._interrupted.set()
        _log.debug("consumer closed group=%s", parts.membership.group)

    async def _finish(self, parts: _Parts, *, is_failed: bool, reader: Hashable) -> None:
        parts.handling.delivery.halt()
        await self._background.end()
        await parts.membership.rebalancing.tell_waiting()
        await parts.membership.assigned.stop_reading()
        await parts.handling.finish(is_failed=is_failed, reader=reader)
        await self._leave(parts)

    async def _leave(self, parts: _Parts) -> None:
        await parts.membership.leave()
        parts.handling.dismiss_threads()
        self._parts = None

    async def run_until_closed(self) -> None:
        """Start, if necessary, and wait until the consumer is closed."""
        if self._parts is None:
            self.check_subscribed()
            if not await started_before(self._interrupted, self.start):
                return
        await self._interrupted.wait()

    def check_subscribed(self) -> None:
        """A consumer that only runs would wait for ever."""
        if not self._expressions:
            raise StateError("the consumer has no subscription: subscribe to a topic before it runs")

    def run(self) -> None:
        """For scripts: consume until Ctrl-C, SIGTERM or `close`, then stop cleanly.

        A second Ctrl-C ends the process at once. Only the main thread gets signals.
        """
        self.check_subscribed()
        run_until_interrupted(self, self._interrupted)

    # While it runs

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; the group's offset is changed at once.

        Called by a handler of an ordered consumer, it returns at once: the queue continues there when the
        handler has finished.
        """
        await self._seek_for(None, queue, offset)

    async def _seek_for(self, reader: Hashable, queue: MessageQueue, offset: int) -> None:
        parts = self._running()
        if self.settings.mode == "pop":
            raise StateError('a consumer with mode="pop" has no offsets: `mqadmin` resets its group')
        assigned, queue = parts.membership.assigned, self._wrapped(queue)
        if self.settings.is_ordered and parts.handling.is_done_by(reader):
            assigned.reader(queue)
            assigned.begin_soon({queue: offset})
        else:
            await assigned.begin_at(queue, offset)

    async def commit(self) -> None:
        """Store the offsets of all handled messages now."""
        await self._running().membership.assigned.commit(confirmed=True)

    def _lost_handlers(self, parts: _Parts) -> int:
        return parts.handling.delivery.lost

    @property
    def _are_messages_divided(self) -> bool:
        return self.settings.mode == "pop"

    def statistics(self) -> PushStatistics:
        # Read once: another thread may close the consumer.
        parts = self._parts
        held = [reader.held for reader in parts.membership.assigned] if parts is not None else []
        return PushStatistics(
            queues=len(held),
            held_messages=sum(len(each) for each in held),
            held_bytes=sum(each.size_bytes for each in held),
            running_handlers=parts.handling.delivery.running if parts is not None else 0,
            lost_handlers=parts.handling.delivery.lost if parts is not None else 0,
            counts=self._stats.totals(),
        )


def _java_settings(settings: PushSettings) -> dict[str, Any]:
    # java: the names under which tools show them
    return {
        "consumeThreadMin": settings.concurrency,
        "consumeThreadMax": settings.concurrency,
        "consumeMessageBatchMaxSize": settings.batch_size or 1,
        "consumeConcurrentlyMaxSpan": settings.queue_span,
        "maxReconsumeTimes": -1 if settings.max_retries is None else settings.max_retries,
        "pullBatchSize": settings.messages_per_pull,
        "pullInterval": round(settings.pull_interval_s * 1000),
        "pullThresholdForQueue": settings.queue_messages,
        "pullThresholdSizeForQueue": settings.queue_bytes // (1024 * 1024),
        "pullThresholdForTopic": settings.topic_messages or -1,
        "consumeTimeout": round(settings.handler_timeout_s / 60),
        "suspendCurrentQueueTimeMillis": round(settings.suspend_s * 1000),
        "allocateMessageQueueStrategy": settings.assignment.name,
    }
