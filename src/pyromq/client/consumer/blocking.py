"""Consumers for programs without an event loop: handlers run on threads, `poll` blocks.

A handler may be an `async` function; it then runs on the client's own loop.
"""

import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from datetime import timedelta
from types import FrameType
from typing import Any, Unpack, overload

from pyromq.client.blocking import BlockingClient, LoopThread, awaited, on_the_loop
from pyromq.client.consumer import lite, pull, push, simple
from pyromq.client.consumer.consumer import Consumer
from pyromq.client.consumer.group.assigned_queues import RebalanceListener
from pyromq.client.consumer.handling.handlers import HandlerFunction, MessageStream, as_decorator
from pyromq.client.consumer.handling.loops import is_left_on_purpose
from pyromq.client.consumer.handling.outcomes import BROKER_DECIDES
from pyromq.client.consumer.interrupts import let_end_the_process, signals_to_handle
from pyromq.client.consumer.push import F
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.reading.server_filter import FilterCode
from pyromq.client.consumer.reading.subscriptions import Expression, check_topic, chosen_expression
from pyromq.client.consumer.settings import PullOptions, PushOptions, SimpleOptions
from pyromq.client.middleware import Middleware
from pyromq.client.values import MessageQueue, ReceivedMessage


class Messages(Iterator[ReceivedMessage]):
    """`for message in messages`: taking the next message marks the one before as done; see `MessageStream`.

    Several threads may read it; each is responsible for the messages it took.
    """

    def __init__(self, stream: MessageStream, thread: LoopThread) -> None:
        self._stream = stream
        self._thread = thread

    def __repr__(self) -> str:
        return f"<blocking {self._stream!r}>"

    def __iter__(self) -> Iterator[ReceivedMessage]:
        return _Loop(self, self._stream)

    def __next__(self) -> ReceivedMessage:
        message = self._thread.run(self._stream.next_for, threading.current_thread())
        if message is None:
            raise StopIteration
        return message

    def retry(
        self,
        message: ReceivedMessage,
        *,
        delay: timedelta | None = None,
        delay_level: int = BROKER_DECIDES,
    ) -> None:
        """Have a message delivered again later; see `RetryLater`."""

        async def retry() -> None:
            self._stream.retry(message, delay=delay, delay_level=delay_level)

        self._thread.run(retry)


class _Loop(Iterator[ReceivedMessage]):
    """One `for` over messages."""

    def __init__(self, messages: Messages, stream: MessageStream) -> None:
        self._messages = messages
        self._stream = stream
        self._reader: threading.Thread | None = None

    def __next__(self) -> ReceivedMessage:
        if self._reader is None:
            self._reader = threading.current_thread()
            self._stream.enter(self._reader, id(self))
        return next(self._messages)

    def __del__(self) -> None:
        if self._reader is not None:
            on_purpose = is_left_on_purpose(sys._getframe(1))
            self._stream.leave(self._reader, id(self), on_purpose=on_purpose)


class BlockingConsumer(BlockingClient):
    """The base of all blocking consumers."""

    _aio: Consumer[Any]

    @property
    def client_id(self) -> str:
        return self._aio.client_id

    @property
    def assigned(self) -> set[MessageQueue]:
        """The queues assigned to this member now, including those of its retry topic."""
        return self._aio.assigned

    def close(self) -> None:
        """Done by `with`. Does nothing in a forked child."""
        self._close(is_failed=False)

    def __exit__(self, *problem: object) -> None:
        self._close(is_failed=problem[0] is not None)

    def _close(self, *, is_failed: bool) -> None:
        if self._thread.is_of_this_process:
            self._thread.run(self._aio._shut, is_failed=is_failed)

    health = awaited(Consumer.health)
    unsubscribe = awaited(Consumer.unsubscribe)
    pause = on_the_loop(Consumer.pause)
    resume = on_the_loop(Consumer.resume)

    def on_rebalance(self, listener: RebalanceListener) -> RebalanceListener:
        """Have a function called, on the client's loop, with the queues assigned and those revoked."""
        return self._aio.on_rebalance(listener)


class PushConsumer(BlockingConsumer):
    """`with PushConsumer("billing", namesrv=...) as consumer: consumer.subscribe("Orders", "*", handler)`.

    Options are the fields of `PushSettings` and of `ClientSettings`.
    """

    _aio: push.PushConsumer

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PushOptions]
    ) -> None:
        super().__init__()
        self._aio = push.PushConsumer(group, namesrv, **options)

    def statistics(self) -> push.PushStatistics:
        return self._aio.statistics()

    def _close(self, *, is_failed: bool) -> None:
        if self._thread.is_of_this_process:
            self._thread.run(self._aio._shut, is_failed=is_failed, reader=threading.current_thread())

    @overload
    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        handler: None = None,
        *,
        filter: FilterCode | None = None,
    ) -> Messages: ...

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
    ) -> Messages | None:
        """Consume a topic with a handler, or without one by `for` over the returned messages.

        `expression`: tags as in "Created || Paid", "*" for all, or `Sql("price > 10")`. `filter`: what
        filter servers run instead of an expression: a function of (message, context), or a `Path` of a module
        in WebAssembly.
        """
        chosen = chosen_expression(expression, filter)

        async def subscribe() -> MessageStream | None:
            if handler is None:
                return self._aio.subscribe(topic, chosen)
            self._aio.subscribe(topic, chosen, handler)
            return None

        stream = self._thread.run(subscribe)
        return Messages(stream, self._thread) if stream is not None else None

    def on(
        self, topic: str, expression: Expression = "*", *, filter: FilterCode | None = None
    ) -> Callable[[F], F]:
        """The same as a decorator: `@consumer.on("Orders", "Created || Paid")`."""
        check_topic(topic)
        chosen = chosen_expression(expression, filter)
        return as_decorator(lambda function: self.subscribe(topic, chosen, function))

    include = on_the_loop(push.PushConsumer.include)

    def around(self, middleware: Middleware) -> Middleware:
        """Run every handler inside the context manager that this function returns for its message.

        It can be a decorator, over `@contextmanager`. Add it before the handlers.
        """
        return self._aio.around(middleware)

    wait_assigned = awaited(push.PushConsumer.wait_assigned)
    commit = awaited(push.PushConsumer.commit)

    def drain(self) -> None:
        """Stop pulling; return when all pulled messages are handled and committed. Then close the consumer.

        Called by a handler, or in the loop over a stream, it returns at once: handlers continue until no
        message is left, and the loop ends after the last message.
        """
        self._thread.run(self._aio._drain_for, threading.current_thread())

    def run(self) -> None:
        """For scripts: consume until Ctrl-C, SIGTERM or `close`, then stop cleanly.

        A second Ctrl-C ends the process at once. Only the main thread gets signals. In a `with` block, the
        block closes the consumer.
        """
        if not self._aio.is_running:
            self._aio.check_subscribed()
        with signals_to_handle() as signals:

            def interrupt(number: int, frame: FrameType | None) -> None:
                let_end_the_process(signals)
                self._thread.call_soon(self._aio._interrupted.set)

            for number in signals:
                signal.signal(number, interrupt)
            with nullcontext() if self._aio.is_running else closing(self):
                self._thread.run(self._aio.run_until_closed)

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue at another offset; the group's offset is changed at once.

        Called by a handler of an ordered consumer, it returns at once: the queue continues there when the
        handler has finished.
        """
        self._thread.run(self._aio._seek_for, threading.current_thread(), queue, offset)


class PullConsumer(BlockingConsumer):
    """`with PullConsumer("reports", namesrv=...) as consumer: consumer.subscribe("Orders"); consumer.poll()`.

    Options are the fields of `PullSettings` and of `ClientSettings`.
    """

    _aio: pull.PullConsumer

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[PullOptions]
    ) -> None:
        super().__init__()
        self._aio = pull.PullConsumer(group, namesrv, **options)

    def statistics(self) -> pull.PullStatistics:
        return self._aio.statistics()

    subscribe = on_the_loop(pull.PullConsumer.subscribe)
    position = on_the_loop(pull.PullConsumer.position)
    assign = awaited(pull.PullConsumer.assign)
    queues = awaited(pull.PullConsumer.queues)
    poll = awaited(pull.PullConsumer.poll)
    commit = awaited(pull.PullConsumer.commit)
    committed = awaited(pull.PullConsumer.committed)
    seek = awaited(pull.PullConsumer.seek)
    seek_to_begin = awaited(pull.PullConsumer.seek_to_begin)
    seek_to_end = awaited(pull.PullConsumer.seek_to_end)
    offsets_for_times = awaited(pull.PullConsumer.offsets_for_times)


class SimpleConsumer(BlockingClient):
    """`with SimpleConsumer("billing", namesrv=...) as consumer: consumer.subscribe("Orders"); ...`.

    Options are the fields of `SimpleSettings` and of `ClientSettings`.
    """

    _aio: simple.SimpleConsumer

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[SimpleOptions]
    ) -> None:
        super().__init__()
        self._aio = simple.SimpleConsumer(group, namesrv, **options)

    @property
    def client_id(self) -> str:
        return self._aio.client_id

    subscribe = on_the_loop(simple.SimpleConsumer.subscribe)
    unsubscribe = on_the_loop(simple.SimpleConsumer.unsubscribe)
    health = awaited(simple.SimpleConsumer.health)
    receive = awaited(simple.SimpleConsumer.receive)
    ack = awaited(simple.SimpleConsumer.ack)
    ack_many = awaited(simple.SimpleConsumer.ack_many)
    renew = awaited(simple.SimpleConsumer.renew)
    reject = awaited(simple.SimpleConsumer.reject)
    change_invisible_time = awaited(simple.SimpleConsumer.change_invisible_time)

    def ack_soon(self, message: PoppedMessage) -> None:
        """The message is done, without waiting for the broker: with others of this moment in one request.

        It is tried until the invisible time is over; `close` waits for that.
        """
        self._thread.check()
        self._thread.call_soon(functools.partial(self._aio.ack_soon, message))


class LiteConsumer(SimpleConsumer):
    """`with LiteConsumer("agents", "Sessions") as consumer: consumer.subscribe_lite("s-1"); ...`.

    Options are the fields of `SimpleSettings` and of `ClientSettings`.
    """

    _aio: lite.LiteConsumer

    def __init__(
        self,
        group: str,
        topic: str,
        namesrv: str | Iterable[str] | None = None,
        **options: Unpack[SimpleOptions],
    ) -> None:
        BlockingClient.__init__(self)
        self._aio = lite.LiteConsumer(group, topic, namesrv, **options)

    @property
    def lite_topics(self) -> tuple[str, ...]:
        """Those that it reads. Another client of an exclusive group may take one away."""
        return self._aio.lite_topics

    subscribe_lite = awaited(lite.LiteConsumer.subscribe_lite)
    unsubscribe_lite = awaited(lite.LiteConsumer.unsubscribe_lite)
    change_invisible_time = awaited(lite.LiteConsumer.change_invisible_time)
    run = awaited(lite.LiteConsumer.run)
