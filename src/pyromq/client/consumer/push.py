"""A consumer whose handlers are called with messages as they come.

Nothing is committed before its handler returned or its broker took it back: what a crash interrupts comes
again.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, Unpack, overload

from pyromq.client.consumer.background import Background
from pyromq.client.consumer.delivery import ConcurrentDelivery
from pyromq.client.consumer.fetching import Fetching
from pyromq.client.consumer.figures import SAMPLE_S, Counts, Figures
from pyromq.client.consumer.handlers import Handler, HandlerFunction, Handlers, MessageStream, as_decorator
from pyromq.client.consumer.handling import Handling
from pyromq.client.consumer.interrupts import run_until_interrupted
from pyromq.client.consumer.joining import Topics
from pyromq.client.consumer.locks import RENEWAL_S, QueueLocks
from pyromq.client.consumer.membership import Membership
from pyromq.client.consumer.queue_reader import QueueReader
from pyromq.client.consumer.settings import PushOptions, PushSettings, check_group, split_options
from pyromq.client.consumer.share import RebalanceListener
from pyromq.client.consumer.subscriptions import Expression, Subscription, check_topic
from pyromq.client.namespaces import wrap
from pyromq.client.session import Session
from pyromq.client.settings import ClientSettings
from pyromq.errors import PyroError, StateError
from pyromq.protocol.bodies.queues import MessageQueue

_log = logging.getLogger(__name__)

_LATE_CHECKS_PER_TIMEOUT = 4

F = TypeVar("F", bound=HandlerFunction)


@dataclass(frozen=True, slots=True)
class PushStatistics:
    queues: int
    held_messages: int
    held_bytes: int
    running_handlers: int
    counts: Counts
    """Summed over all topics."""


@dataclass(frozen=True, slots=True)
class _Parts:
    """What exists while the consumer is running."""

    membership: Membership
    handling: Handling


class PushConsumer:
    """`async with PushConsumer("billing", namesrv="127.0.0.1:9876") as consumer: ...`.

    Options are the fields of `PushSettings` and of `ClientSettings`. All members of a group must subscribe to
    the same topics with the same expressions.
    """

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PushOptions]
    ) -> None:
        check_group(group)
        own, others = split_options(dict(options), PushSettings)
        self.group = group
        self.settings = PushSettings(**own)
        self.client_settings = ClientSettings.of(namesrv, **others)
        self._handlers = Handlers()
        self._topics = Topics()
        self._expressions: dict[str, Expression] = {}
        self._figures = Figures()
        self._listeners: list[RebalanceListener] = []
        self._background = Background(group)
        self._parts: _Parts | None = None
        self._is_closing = False
        self._starting = asyncio.Lock()
        self._closed = asyncio.Event()
        self._interrupted = asyncio.Event()

    def __repr__(self) -> str:
        topics = ",".join(sorted(self._expressions)) or "nothing"
        parts = self._parts
        state = repr(parts.membership.share) if parts is not None else "not running"
        return f"<PushConsumer {self.group} of {topics} {state}>"

    # Subscribing

    @overload
    def subscribe(self, topic: str, expression: Expression = "*", handler: None = None) -> MessageStream: ...

    @overload
    def subscribe(self, topic: str, expression: Expression, handler: HandlerFunction) -> None: ...

    def subscribe(
        self, topic: str, expression: Expression = "*", handler: HandlerFunction | None = None
    ) -> MessageStream | None:
        """Consume a topic: with a handler, or without one by `async for` over what is returned.

        `expression`: tags as in "Created || Paid", "*" for all, or `Sql("price > 10")`. Subscribe before the
        start where you can: the other members of the group then see one change instead of several.
        """
        check_topic(topic)
        if self._is_closing:
            raise StateError("the consumer is closed: make another one")
        self._check_loop()
        Subscription.of(topic, expression, 0)
        stream = None
        takes_batch = self.settings.batch_size is not None
        if handler is not None:
            self._handlers.put(topic, Handler(handler, takes_batch=takes_batch))
        elif takes_batch:
            raise StateError("a stream has one message at a time: with batch_size, subscribe a handler")
        else:
            stream = MessageStream(topic, self._check_loop)
            self._handlers.put(topic, stream)
        self._expressions[topic] = expression

        def refused(problem: PyroError) -> None:
            self._expressions.pop(topic, None)
            if stream is not None:
                stream.end(problem)

        if self._parts is not None:
            membership = self._parts.membership
            name = membership.session.wrap(topic)
            membership.subscribe(name, expression)
            self._background.start(membership.take_up(name, refused), f"subscription to {topic}")
        return stream

    def on(self, topic: str, expression: Expression = "*") -> Callable[[F], F]:
        """The same as a decorator: `@consumer.on("Orders", "Created || Paid")`."""
        return as_decorator(lambda function: self.subscribe(topic, expression, function))

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; what is being handled is finished."""
        self._check_loop()
        self._expressions.pop(topic, None)
        if self._parts is not None:
            membership = self._parts.membership
            await membership.unsubscribe(membership.session.wrap(topic))
        self._handlers.remove(topic)

    def on_rebalance(self, listener: RebalanceListener) -> RebalanceListener:
        """Have a function called with the queues that were assigned and those that were revoked."""
        self._listeners.append(listener)
        return listener

    # Beginning and end

    @property
    def is_running(self) -> bool:
        return self._parts is not None

    async def start(self) -> None:
        """Returns when this member has its share of the queues, as far as they can be reached."""
        if self._parts is not None or self._is_closing:
            raise StateError("a consumer can be started once")
        async with self._starting:
            await self._start()

    async def _start(self) -> None:
        group = wrap(self.group, self.client_settings.namespace)
        session = await Session.obtain(
            self.client_settings, consumer_group=group, stable_id=self.settings.broadcast
        )
        parts = self._parts = self._build(session, group)
        membership, delivery = parts.membership, parts.handling.delivery
        try:
            for topic, expression in self._expressions.items():
                membership.subscribe(session.wrap(topic), expression)
            if self._expressions:
                await membership.join()
                await membership.rebalancing.once()
        except BaseException:
            await self._leave(parts)
            raise
        settings, background = self.settings, self._background
        background.start(membership.rebalancing.run(), "rebalancing")
        background.every(settings.commit_interval_s, membership.share.commit, "commit")
        background.every(SAMPLE_S, self._figures.sample, "figures")
        if settings.ordered and not settings.broadcast:
            background.every(RENEWAL_S, membership.share.renew_locks, "locks")
        if isinstance(delivery, ConcurrentDelivery):
            late, timeout_s = delivery.give_back_late, settings.handler_timeout_s
            background.every(timeout_s / _LATE_CHECKS_PER_TIMEOUT, lambda: late(timeout_s), "late handlers")
        _log.info("consumer started group=%s client=%s", group, session.client_id)

    def _build(self, session: Session, group: str) -> _Parts:
        settings = self.settings
        is_shared = not settings.broadcast
        locks = QueueLocks(session, group, session.client_id) if is_shared and settings.ordered else None
        handling = Handling(
            settings,
            session,
            group,
            self._handlers,
            self._figures,
            lock=(lambda queue: membership.share.lock(queue)) if locks is not None else None,
        )
        delivery = handling.delivery
        fetching = Fetching(
            session,
            group,
            namespace=session.settings.namespace,
            batch_size=settings.pull_batch_size,
            batch_bytes=settings.pull_batch_bytes,
        )

        def open_reader(queue: MessageQueue, offset: int) -> QueueReader:
            return QueueReader(
                queue,
                offset,
                subscription=self._topics.subscriptions[queue.topic],
                fetching=fetching,
                deliver=lambda reader, messages: delivery.deliver(reader.held, messages),
                moved=membership.share.moved,
                introduce=session.heartbeat_now,
                thresholds=settings.thresholds,
                figures=self._figures,
                clock=session.clock,
                commits=is_shared,
                needs_lock=locks is not None,
                interval_s=settings.pull_interval_s,
            )

        membership = Membership(
            session,
            group,
            settings,
            self._topics,
            self._figures,
            open_reader=open_reader,
            finish=delivery.close,
            thresholds=lambda count: settings.thresholds.for_each_of(
                count, settings.topic_messages, settings.topic_bytes
            ),
            listeners=self._listeners,
            locks=locks,
            consume=handling.handle_now,
            reads_retries=is_shared,
        )
        return _Parts(membership, handling)

    async def wait_assigned(self) -> None:
        """Wait until this member holds queues of every topic that it subscribes to.

        That is for ever where there are more members than queues.
        """
        membership = self._running().membership
        session, rebalancing = membership.session, membership.rebalancing

        def has_all() -> bool:
            held = {queue.topic for queue in membership.share.queues}
            return self._is_closing or all(session.wrap(topic) in held for topic in self._expressions)

        rebalancing.soon()
        await rebalancing.wait_until(has_all)
        if self._is_closing:
            raise StateError("the consumer was closed")

    async def drain(self, *, reader: Hashable = None) -> None:
        """Pull nothing more; return when everything pulled so far is handled and committed. Then close it.

        Called by a handler, or in the loop over a stream, it returns at once: the handlers go on until
        nothing is left, and the loop ends behind the last message. `reader`: see `close`.
        """
        parts = self._running()
        if parts.handling.is_done_by(reader) or self._handlers.is_read_by(reader):
            self._background.start(self._drain(parts), "drain")
        else:
            await self._drain(parts)

    async def _drain(self, parts: _Parts) -> None:
        async with self._starting:
            pass  # to its end, whatever that is
        await self._background.end()
        await parts.membership.share.stop_reading()
        for stream in self._handlers.streams:
            stream.end_when_empty()
        for reader in parts.membership.share:
            await reader.held.wait_until_empty()
        await parts.membership.share.commit(confirmed=True)

    async def close(self, *, is_failed: bool = False, reader: Hashable = None) -> None:
        """Stop pulling, finish what is being handled, commit, unlock, and leave the group.

        `is_failed`: the message at hand of a stream read by this very task, or by `reader`, is not done.
        Called by a handler, it returns at once: the consumer closes when its handlers are done.
        """
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
                pass  # handlers may be at work, and close it, before all topics are divided
            if self._parts is parts:
                await self._finish(parts, is_failed=is_failed, reader=reader)
        finally:
            self._closed.set()
            self._interrupted.set()
        _log.info("consumer closed group=%s", parts.membership.group)

    async def _finish(self, parts: _Parts, *, is_failed: bool, reader: Hashable) -> None:
        parts.handling.delivery.halt()
        await self._background.end()
        await parts.membership.rebalancing.tell_waiting()
        await parts.membership.share.stop_reading()
        await parts.handling.finish(self.settings.stop_grace_s, is_failed=is_failed, reader=reader)
        await self._leave(parts)

    async def _leave(self, parts: _Parts) -> None:
        await parts.membership.leave()
        parts.handling.dismiss_threads()
        self._parts = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close(is_failed=problem is not None)

    async def run_until_closed(self) -> None:
        """Start, if need be, and wait until someone closes it."""
        if self._parts is None:
            await self.start()
        await self._closed.wait()

    def run(self) -> None:
        """For scripts: consume until Ctrl-C, SIGTERM or `close`, then stop cleanly.

        A second Ctrl-C ends the process at once. On another thread than the main one there are no signals.
        """
        run_until_interrupted(self, self._interrupted)

    # While it runs

    def pause(self, *queues: MessageQueue) -> None:
        """Pull nothing more from these queues, or from any; what was pulled is still handled."""
        self._running().membership.share.pause(queues)

    def resume(self, *queues: MessageQueue) -> None:
        self._running().membership.share.resume(queues)

    async def seek(self, queue: MessageQueue, offset: int, *, reader: Hashable = None) -> None:
        """Go on from another offset; the group's offset changes at once, too.

        Called by a handler of an ordered consumer, it returns at once: the queue goes on from there when the
        handler is done. `reader`: see `close`.
        """
        parts = self._running()
        share = parts.membership.share
        if self.settings.ordered and parts.handling.is_done_by(reader):
            share.reader(queue)
            share.begin_soon({queue: offset})
        else:
            await share.begin_at(queue, offset)

    async def commit(self) -> None:
        """Store now how far everything is done."""
        await self._running().membership.share.commit(confirmed=True)

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues that this member reads at the moment, those of its retry topic included."""
        parts = self._parts
        return parts.membership.share.queues if parts is not None else set()

    @property
    def client_id(self) -> str:
        parts = self._parts
        if parts is None:
            raise StateError("the consumer is not running, and has no id yet: start it")
        return parts.membership.session.client_id

    def statistics(self) -> PushStatistics:
        # Looked at once: another thread may be closing it.
        parts = self._parts
        held = [reader.held for reader in parts.membership.share] if parts is not None else []
        return PushStatistics(
            queues=len(held),
            held_messages=sum(len(each) for each in held),
            held_bytes=sum(each.size_bytes for each in held),
            running_handlers=parts.handling.delivery.running if parts is not None else 0,
            counts=self._figures.totals(),
        )

    # Within

    def _running(self) -> _Parts:
        if self._parts is None:
            raise StateError("the consumer is not running: start it, or use it in `async with`")
        self._parts.membership.session.check_loop()
        return self._parts

    def _check_loop(self) -> None:
        if self._parts is not None:
            self._parts.membership.session.check_loop()
