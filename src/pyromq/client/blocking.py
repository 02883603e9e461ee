"""The same producers and consumers for programs without an event loop.

All of them live on one background loop of the process; a call here is a call there, awaited. A child made by
fork has no such loop: what the parent made cannot be used in it, what the child makes gets a loop of its own.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

from pyromq.client import producer as aio
from pyromq.client import transactions as aio_transactions
from pyromq.client.producer_settings import ProducerOptions
from pyromq.client.queue_choice import Selector
from pyromq.client.transactions import Check, TransactionResult, TransactionState
from pyromq.client.values import Message, MessageQueue, ReceivedMessage, SendResult
from pyromq.errors import StateError

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger(__name__)

MOST_WAIT_FOR_AN_END_S = 5.0
"""How long an interrupted call waits for its work, which may be cleaning up, to end."""

SIGNAL_LOOK_S = 0.5
"""How long a thread waits before it looks around: a signal that came just before it began did not wake it."""

_NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on Windows, not on PyPy
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class LoopThread:
    """An event loop on a thread of its own."""

    _shared: ClassVar["LoopThread | None"] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._loop = _new_loop()
        self._thread = threading.Thread(target=self._run, name="pyromq-client", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<LoopThread pid={self._pid} {'running' if self._thread.is_alive() else 'gone'}>"

    def _run(self) -> None:
        while True:
            try:
                self._loop.run_forever()
                return
            except (
                SystemExit,
                KeyboardInterrupt,
            ) as problem:  # an application's coroutine has called sys.exit()
                _log.error("an exit on the client's own thread ends nothing", exc_info=problem)

    @classmethod
    def shared(cls) -> "LoopThread":
        """The one of this process."""
        with cls._making:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def _forked(cls) -> None:
        """In the child: the thread was not copied, and the lock may have been held by one that was not."""
        cls._shared = None
        cls._making = threading.Lock()

    @property
    def is_of_this_process(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises StateError where waiting would never end."""
        if not self.is_of_this_process:
            raise StateError(
                f"made in process {self._pid}, used in {os.getpid()}: after a fork, make producers and"
                " consumers anew in the child"
            )
        if threading.current_thread() is self._thread:
            raise StateError("a blocking call on the client's own loop would wait for itself: use pyromq.aio")

    def start(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]":
        self.check()
        return asyncio.run_coroutine_threadsafe(work(*args, **kwargs), self._loop)

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call and await it there, wait here. Whatever interrupts the waiting ends the work as well, first.

        Nothing is called here: a signal may interrupt us anywhere, and would leave a coroutine that nobody
        awaits.
        """
        self.check()
        # A bare lock: whatever interrupts us, wherever, leaves nothing held that the loop would wait for.
        ended = threading.Lock()
        ended.acquire()
        task: asyncio.Task[T] | None = None

        async def called() -> T:
            return await work(*args, **kwargs)

        def over(done: asyncio.Task[T]) -> None:
            if not done.cancelled():
                done.exception()  # who was interrupted does not look, which would be complained about
            ended.release()

        def begin() -> None:
            nonlocal task
            task = self._loop.create_task(called())
            task.add_done_callback(over)

        def end() -> None:
            if task is not None:
                task.cancel()
            else:  # what is called earlier runs earlier: it never will
                ended.release()

        try:
            self._loop.call_soon_threadsafe(begin)
            while not ended.acquire(timeout=SIGNAL_LOOK_S):
                pass
        except BaseException:
            if task is None or not task.done():
                self._loop.call_soon_threadsafe(end)
                # A task that still waits when the process ends would be complained about.
                ended.acquire(timeout=MOST_WAIT_FOR_AN_END_S)
            raise
        assert task is not None
        if task.cancelled():
            raise CancelledError
        return task.result()


os.register_at_fork(after_in_child=LoopThread._forked)


class Lifetime(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class Blocking:
    """What the blocking classes have in common: a beginning, an end, and a loop thread."""

    _aio: Lifetime

    def __init__(self) -> None:
        self._thread = LoopThread.shared()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} stays in its process: make another one in the child")

    def start(self) -> None:
        """Done by `with`."""
        self._thread.run(self._aio.start)

    def close(self) -> None:
        """Done by `with`. In a child made by fork there is nothing to close."""
        if self._thread.is_of_this_process:
            self._thread.run(self._aio.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Producer(Blocking):
    """`with Producer("orders", namesrv="127.0.0.1:9876") as producer: producer.send(message)`.

    May be used by many threads at once.
    """

    _aio: aio.Producer

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        """`namesrv`: addresses of name servers, separated by `;` or in a list; None looks at NAMESRV_ADDR."""
        self._set_up(aio.Producer(group, namesrv, **options))

    def _set_up(self, producer: aio.Producer) -> None:
        super().__init__()
        self._aio = producer
        self._submitted = threading.BoundedSemaphore(producer.settings.max_in_flight)

    def __repr__(self) -> str:
        return f"<blocking {self._aio!r}>"

    @property
    def group(self) -> str:
        return self._aio.group

    def statistics(self) -> aio.ProducerStatistics:
        return self._aio.statistics()

    @overload
    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult: ...

    @overload
    def send(
        self,
        message: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]: ...

    def send(
        self,
        message: Message | Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> SendResult | list[SendResult]:
        """Send one message, or several to one topic in as few requests as hold them.

        At most one of `queue`, `selector` and `sharding_key` says where it goes; it is tried again there, and
        not elsewhere. Raises SendFailed, Refused, NoRoute or BadMessage.
        """
        send: Callable[..., Coroutine[Any, Any, SendResult | list[SendResult]]] = self._aio.send
        return self._thread.run(
            send,
            message,
            queue=queue,
            selector=selector,
            sharding_key=sharding_key,
            timeout_s=timeout_s,
        )

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> "Future[SendResult]":
        """Send without waiting for the result; waits only while `max_in_flight` others are on their way."""
        self._thread.check()
        self._submitted.acquire()
        try:
            future = self._thread.start(
                self._aio.send,
                message,
                queue=queue,
                selector=selector,
                sharding_key=sharding_key,
                timeout_s=timeout_s,
            )
        except BaseException:
            self._submitted.release()
            raise
        future.add_done_callback(lambda _: self._submitted.release())
        return future

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send a message and do not ask what became of it."""
        self._thread.run(
            self._aio.send_oneway, message, queue=queue, selector=selector, sharding_key=sharding_key
        )

    def flush(self) -> None:
        """Send what waits to be sent now, and return when nothing is in flight."""
        self._thread.run(self._aio.flush)

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues of a topic that can be sent to."""
        return self._thread.run(self._aio.queues, topic)

    def request(
        self,
        message: Message,
        timeout_s: float = aio.DEFAULT_REQUEST_TIMEOUT_S,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it; raises NoReply if none comes."""
        return self._thread.run(
            self._aio.request, message, timeout_s, queue=queue, selector=selector, sharding_key=sharding_key
        )

    def reply(
        self,
        to: ReceivedMessage,
        body: bytes,
        *,
        tags: str | None = None,
        properties: Mapping[str, str] = _NO_PROPERTIES,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Answer a message that was sent by `request`."""
        return self._thread.run(
            self._aio.reply, to, body, tags=tags, properties=properties, timeout_s=timeout_s
        )


class TransactionProducer(Producer):
    """`producer.send_in_transaction(message, work)`; `check` answers brokers that ask how it ended."""

    def __init__(
        self,
        group: str,
        namesrv: str | Iterable[str] | None = None,
        *,
        check: Check,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self._transactions = aio_transactions.TransactionProducer(group, namesrv, check=check, **options)
        self._set_up(self._transactions)

    def send_in_transaction(
        self, message: Message, work: aio_transactions.LocalTransaction
    ) -> TransactionResult:
        """Send, run `work` on the message on this very thread, and commit or roll back as it says.

        If it raises, the broker is told that the end is unknown, and the error is raised again.
        """
        half = self._thread.run(self._transactions.prepare, message)
        if not half.result.is_ok:
            return self._thread.run(self._transactions.end, half, TransactionState.ROLLBACK)
        try:
            state = aio_transactions.checked(work(message))
        except BaseException as problem:
            remark = f"{type(problem).__name__}: {problem}"
            self._thread.run(self._transactions.end, half, TransactionState.UNKNOWN, remark=remark)
            raise
        return self._thread.run(self._transactions.end, half, state)
