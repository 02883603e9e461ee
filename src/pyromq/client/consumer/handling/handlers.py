"""Handlers of the application: a plain function, an async one, or a loop over a stream.

When a handler returns, its messages are done, whatever it returns; when it raises, they are tried again.
"""

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from datetime import timedelta
from typing import Any, TypeVar, cast

from pyromq.client.consumer.handling.outcomes import BROKER_DECIDES, RetryLater
from pyromq.client.consumer.handling.taking import Offer, Taking
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription
from pyromq.client.values import ReceivedMessage
from pyromq.errors import StateError

Settle = Callable[[BaseException | None], None]
"""Called once with the error of a message, None if it was handled."""

Next = Callable[[Hashable], Awaitable[ReceivedMessage | None]]
"""Returns the next message for a reader of a stream."""

HandlerFunction = Callable[[ReceivedMessage], object] | Callable[[list[ReceivedMessage]], object]
"""Takes a message, or a list of messages if `batch_size` is set."""

F = TypeVar("F", bound=HandlerFunction)


class Handler:
    """A function of the application, and how to call it."""

    def __init__(self, function: HandlerFunction, *, takes_batch: bool) -> None:
        check_takes_one(function)
        self.function: Callable[[Any], Any] = function
        self.takes_batch = takes_batch
        self.is_async = _is_async(function)

    def __repr__(self) -> str:
        kind = "async" if self.is_async else "plain"
        return f"<Handler {kind} {getattr(self.function, '__qualname__', self.function)}>"

    async def run(self, messages: list[ReceivedMessage]) -> None:
        await self.function(messages if self.takes_batch else messages[0])

    def run_plain(self, messages: list[ReceivedMessage], loop: asyncio.AbstractEventLoop) -> None:
        """Runs on a thread."""
        outcome = self.function(messages if self.takes_batch else messages[0])
        if outcome is not None and inspect.isawaitable(outcome):
            # A plain function that returned a coroutine has not handled anything yet.
            asyncio.run_coroutine_threadsafe(_await(outcome), loop).result()


def check_takes_one(function: object) -> None:
    """Raises TypeError now, rather than at the first message."""
    wanted = "a handler must be a function that takes a message"
    if not callable(function):
        raise TypeError(f"{wanted}, not {function!r}")
    if any(map(_yields, (function, getattr(function, "__call__", None)))):  # noqa: B004
        raise TypeError(f"{wanted}, not {function!r}, which yields: its code would never run")
    try:
        signature = inspect.signature(function)
    except ValueError:  # some builtins have no signature
        return
    try:
        signature.bind(None)
    except TypeError as problem:
        raise TypeError(f"{wanted}, not {function!r}, which takes {signature}: {problem}") from None


def _yields(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


async def _await(outcome: Awaitable[Any]) -> None:
    await outcome


def _is_async(function: HandlerFunction) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004  (an object whose call is async)
    )


class MessageStream(Taking):
    """`async for message in stream`: taking the next message marks the one before as done.

    So does leaving the loop by `break` or `return`, once the reader takes another message, or closes the
    consumer. If the loop is left by an exception, its last message is not done and is delivered again.
    Several tasks may read one stream; each is responsible for the messages it took.
    """

    def __init__(self, topic: str, check_loop: Callable[[], None] = lambda: None) -> None:
        """`check_loop` raises on another loop than the consumer's, where readers would never be woken."""
        super().__init__()
        self.topic = topic
        self._check_loop = check_loop
        self._readers: deque[asyncio.Future[None]] = deque()
        self._is_ended = False
        self._problem: BaseException | None = None

    def __repr__(self) -> str:
        waiting = sum(offer.waiting for offer in self._waiting)
        state = "ended" if self._is_ended else f"waiting={waiting} taken={len(self._taken)}"
        return f"<MessageStream {self.topic} {state}>"

    # The consumer's side

    def offer(self, message: ReceivedMessage, is_dropped: Callable[[], bool], settle: Settle) -> None:
        """Put a message in; `settle` is called with its outcome, unless it is dropped before it is taken."""
        self.put(Offer([message], is_dropped, lambda _, problem: settle(problem)))

    def put(self, offer: Offer) -> None:
        """The same for several messages."""
        self._waiting.append(offer)
        for _ in range(min(offer.waiting, len(self._readers))):
            self._wake_one()

    async def handle(self, message: ReceivedMessage, may_begin: Callable[[], bool] = lambda: True) -> bool:
        """Put a message in and wait until it is done; for ordered consumers. False: when a reader came for
        it, it could not begin any more."""
        settled: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def is_dropped() -> bool:
            if not settled.done() and not may_begin():
                settled.set_result(False)
            return settled.done()

        def settle(problem: BaseException | None) -> None:
            if settled.done():
                return
            if problem is None:
                settled.set_result(True)
            else:
                settled.set_exception(problem)

        self.offer(message, is_dropped, settle)
        return await settled

    def end(self, problem: BaseException | None = None) -> None:
        """No more messages: readers stop at once, or raise `problem`."""
        self._is_ended = True
        self._problem = problem
        self._waiting.clear()
        while self._readers:
            self._wake_one()

    def end_when_empty(self) -> None:
        """No more messages than those that wait: readers stop after the last one."""
        self._is_ended = True
        # Wake all readers: those without a message stop.
        while self._readers:
            self._wake_one()

    async def finish(self, *, is_failed: bool, reader: Hashable = None) -> None:
        """Wait for the readers' last messages.

        The message of `reader`, by default the current task, is done unless `is_failed` or its loop failed.
        The message of a reader whose task ends meanwhile is done if the task and its loop succeeded.
        """
        me = reader if reader is not None else asyncio.current_task()
        if me in self._taken:
            is_failed = is_failed or self._has_failed(me)
            message, offer = self._forget(me)
            if not is_failed:
                offer.settle(message, None)
        for task in list(self._taken):
            if isinstance(task, asyncio.Task):
                task.add_done_callback(self._reader_ended)
        while self._taken:
            self._all_settled = asyncio.get_running_loop().create_future()
            await self._all_settled

    @property
    def taken(self) -> list[ReceivedMessage]:
        """The messages that readers have taken and not done."""
        return [message for message, _ in self._taken.values()]

    # The application's side

    def observe(self, around: Callable[[Next], Next]) -> None:
        """Have a function wrapped around `next_for`."""
        setattr(self, "next_for", around(self.next_for))  # noqa: B010
        self._is_observed = True

    async def next_for(self, me: Hashable) -> ReceivedMessage | None:
        """The next message for a reader, whose last one is done now; None after the last."""
        while True:
            message = self._take(me)
            if message is not None:
                return message
            if self._is_ended:
                if self._problem is not None:
                    raise self._problem
                return None
            self._check_loop()
            reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._readers.append(reader)
            try:
                await reader
            except asyncio.CancelledError:
                if reader.done() and not reader.cancelled():
                    self._wake_one()  # this reader was woken but leaves: another one takes the message
                raise

    def retry(
        self,
        message: ReceivedMessage,
        *,
        delay: timedelta | None = None,
        delay_level: int = BROKER_DECIDES,
    ) -> None:
        """Have a message delivered again later; see `RetryLater`."""
        for task, (taken, _) in list(self._taken.items()):
            if taken is message:
                self._settle(task, RetryLater(delay=delay, delay_level=delay_level))
                return
        raise StateError(f"only the current message of a reader can be retried, not {message!r}")

    def _reader_ended(self, task: "asyncio.Task[Any]") -> None:
        if task in self._taken:
            if task.cancelled() or task.exception() is not None or self._has_failed(task):
                self._forget(task)
                self._tell_finisher()
            else:
                self._settle(task, None)

    def is_read_by(self, reader: Hashable) -> bool:
        """Whether this reader has taken a message that is not done."""
        return reader in self._taken

    def _wake_one(self) -> None:
        while self._readers:
            reader = self._readers.popleft()
            if not reader.done():
                reader.set_result(None)
                return


_Found = Handler | MessageStream | None


class TagHandlers(dict[str, "Handler | MessageStream"]):
    """Several handlers of one topic, by tag."""


class Handlers:
    """The handlers of each topic, by the topic names that the application knows.

    A topic has one handler, or several that have different tags.
    """

    def __init__(self) -> None:
        self._by_topic: dict[str, Handler | MessageStream | TagHandlers] = {}
        self._subscribed: dict[str, Subscription] = {}
        self._threads: set[Hashable] = set()

    def __repr__(self) -> str:
        return f"<Handlers {sorted(self._by_topic)}>"

    def put(self, topic: str, expression: Expression, handler: Handler | MessageStream) -> Expression:
        """Returns the expression that covers all handlers of the topic.

        Raises StateError if two handlers would get the same message.
        """
        added, others = Subscription.of(topic, expression, 0), self._subscribed.get(topic)
        if others is None:
            self._by_topic[topic], self._subscribed[topic] = handler, added
            return expression
        if not added.tags or not others.tags or added.tags & others.tags:
            raise StateError(
                f"the topic {topic} has a handler for {others.expression!r} already, and {added.expression!r}"
                " would share messages with it: give each handler different tags, or unsubscribe first"
            )
        before = self._by_topic[topic]
        by_tag = before if isinstance(before, TagHandlers) else TagHandlers.fromkeys(others.tags, before)
        # A copy: threads look into the table.
        self._by_topic[topic] = TagHandlers(by_tag | dict.fromkeys(added.tags, handler))
        covering = " || ".join(sorted(added.tags | others.tags))
        self._subscribed[topic] = Subscription.of(topic, covering, 0)
        return covering

    def remove(self, topic: str, problem: BaseException | None = None) -> None:
        """`problem`: what loops over its streams raise."""
        self._subscribed.pop(topic, None)
        for handler in self._all_of(self._by_topic.pop(topic, None)):
            if isinstance(handler, MessageStream):
                handler.end(problem)

    def find(self, message: ReceivedMessage) -> Handler | MessageStream | None:
        found = self._by_topic.get(message.topic)
        return found.get(message.tags or "") if type(found) is TagHandlers else cast(_Found, found)

    def has_several(self, topic: str) -> bool:
        return type(self._by_topic.get(topic)) is TagHandlers

    @staticmethod
    def _all_of(found: "Handler | MessageStream | TagHandlers | None") -> "set[Handler | MessageStream]":
        if isinstance(found, TagHandlers):
            return set(found.values())
        return set() if found is None else {found}

    def enter_thread(self) -> None:
        """This thread runs handlers from now on."""
        self._threads.add(threading.current_thread())

    def is_run_by(self, thread: Hashable) -> bool:
        return thread in self._threads

    def is_read_by(self, reader: Hashable) -> bool:
        """Whether the reader, by default the current task, has taken a message of a stream."""
        me = reader if reader is not None else asyncio.current_task()
        return any(stream.is_read_by(me) for stream in self.streams)

    @property
    def streams(self) -> list[MessageStream]:
        handlers = (each for found in self._by_topic.values() for each in self._all_of(found))
        return [handler for handler in handlers if isinstance(handler, MessageStream)]


def as_decorator(put: Callable[[HandlerFunction], None]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        put(function)
        return function

    return cast(Callable[[F], F], decorate)
