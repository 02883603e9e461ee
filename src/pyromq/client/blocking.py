"""The same producers and consumers for programs without an event loop.

All of them run on one background loop of the process; a call here waits for a call there. A forked child has
no such loop: clients of the parent cannot be used in it, clients made in the child get a new loop.
"""

import asyncio
import functools
import os
import sys
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import (
    Any,
    ClassVar,
    Concatenate,
    NoReturn,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from pyromq.client import producer as aio
from pyromq.client import transactions as aio_transactions
from pyromq.client.application_log import application_log
from pyromq.client.direct_sending import DirectSending
from pyromq.client.middleware import Middleware, entered, surrounded
from pyromq.client.producer_settings import ProducerOptions
from pyromq.client.transactions import Check, TransactionResult, TransactionState
from pyromq.client.values import Message, MessageFields, MessageQueue, Selector, SendResult
from pyromq.cluster.sending.plan import SendPlan
from pyromq.cluster.sending.request import PreparedMessage
from pyromq.errors import Refused, StateError, TransportError

_running_loop = asyncio._get_running_loop

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAIT_FOR_AN_END_S = 5.0
"""How long an interrupted call waits until its work, which may be cleaning up, has ended."""

SIGNAL_LOOK_S = 0.5
"""A waiting thread wakes up this often: a signal that came just before it waits does not wake it."""

_CALLED = {"_shut": "close", "_drain_for": "drain", "_seek_for": "seek"}
"""The names that applications call, where they differ here."""

_GREEN = {"gevent": "monkey.patch_all(thread=False)", "eventlet": "eventlet.monkey_patch(thread=False)"}
"""Libraries that put their own threads in the place of Python's, and how to keep them from it."""


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:  # not on Windows, not on PyPy
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _check_threads() -> None:
    """A loop on a green thread would never let any other one run."""
    replacer = type(threading.Lock()).__module__.partition(".")[0]
    if replacer in _GREEN:
        raise StateError(
            f"{replacer} has replaced the threads of Python, and a blocking client needs a real one:"
            f" patch everything else ({_GREEN[replacer]}), or serve requests by threads instead"
        )


class LoopThread:
    """An event loop on a separate thread."""

    _shared: ClassVar["LoopThread | None"] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        _check_threads()
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
                application_log.error("sys.exit() on the client's own thread is ignored", exc_info=problem)

    @classmethod
    def shared(cls) -> "LoopThread":
        """The loop thread of this process."""
        with cls._making:
            if cls._shared is None:
                cls._shared = cls()
            return cls._shared

    @classmethod
    def _forked(cls) -> None:
        """In the child: fork copies neither the loop's thread nor the one that may have held the lock."""
        cls._shared = None
        cls._making = threading.Lock()

    @property
    def is_of_this_process(self) -> bool:
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raises StateError where a call would wait for ever."""
        if not self.is_of_this_process:
            raise StateError(
                f"created in process {self._pid}, used in {os.getpid()}:"
                " create new producers and consumers in the forked child"
            )
        if threading.current_thread() is self._thread:
            raise StateError(
                "a blocking call on the client's own event loop would never return: use pyromq.aio"
            )

    def start(
        self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> "Future[T]":
        self.check()
        return asyncio.run_coroutine_threadsafe(work(*args, **kwargs), self._loop)

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the loop; signal handlers may do that."""
        self._loop.call_soon_threadsafe(function)

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call and await `work` on the loop, and wait here. An interrupt of the wait cancels the work first.

        `work` is called on the loop, not here: a signal may interrupt this thread anywhere, and would leave a
        coroutine that is never awaited.
        """
        self.check()
        if _running_loop() is not None:
            _warn_of_a_loop(work)
        # A bare lock: an interrupt, wherever it comes, leaves nothing held that the loop would wait for.
        ended = threading.Lock()
        ended.acquire()
        task: asyncio.Task[T] | None = None

        async def called() -> T:
            return await work(*args, **kwargs)

        def over(done: asyncio.Task[T]) -> None:
            if not done.cancelled():
                done.exception()  # retrieved, or asyncio complains when an interrupted caller does not
            ended.release()

        def begin() -> None:
            nonlocal task
            task = self._loop.create_task(called())
            task.add_done_callback(over)

        def end() -> None:
            if task is not None:
                task.cancel()
            else:  # `begin` was called earlier and did not run: it never will
                ended.release()

        try:
            self._loop.call_soon_threadsafe(begin)
            while not ended.acquire(timeout=SIGNAL_LOOK_S):
                pass
        except BaseException:
            if task is None or not task.done():
                self._loop.call_soon_threadsafe(end)
                # asyncio complains about tasks that are pending when the process ends.
                ended.acquire(timeout=MAX_WAIT_FOR_AN_END_S)
            raise
        assert task is not None
        if task.cancelled():
            raise CancelledError
        return task.result()


os.register_at_fork(after_in_child=LoopThread._forked)


def _warn_of_a_loop(work: Callable[..., object]) -> None:
    """Nothing else runs on the caller's loop while it waits here."""
    owner, _, method = getattr(work, "__qualname__", "<unknown>").rpartition(".")
    name = f"{owner}.{_CALLED.get(method, method)}"
    # Functions without their own name only switch threads; a notebook's loop has nothing else to do.
    if "<" in name or "ipykernel" in sys.modules:
        return
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pyromq."):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{name} of pyromq blocks the event loop that runs here, and everything on it: await it from"
        " pyromq.aio, which has the same names, or call it by asyncio.to_thread",
        RuntimeWarning,
        stacklevel=level,
    )


class AsyncTwin(Protocol):
    async def start(self) -> None: ...
    async def close(self) -> None: ...


class Grouped(AsyncTwin, Protocol):
    @property
    def group(self) -> str: ...


class Blocking:
    """The base of the blocking classes: start, close, and the loop thread."""

    _aio: AsyncTwin

    def __init__(self) -> None:
        self._thread = LoopThread.shared()

    def __repr__(self) -> str:
        return f"<blocking {self._aio!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} cannot be pickled: create a new one in the other process")

    def start(self) -> None:
        """Done by `with`."""
        self._thread.run(self._aio.start)

    def close(self) -> None:
        """Done by `with`. Does nothing in a forked child."""
        if self._thread.is_of_this_process:
            self._thread.run(self._aio.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingClient(Blocking):
    _aio: Grouped

    @property
    def group(self) -> str:
        return self._aio.group


def awaited(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking, P], T]:
    """The blocking form of an asyncio method."""

    @functools.wraps(method)
    def blocking(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        work: Callable[P, Coroutine[Any, Any, T]] = getattr(self._aio, method.__name__)
        return self._thread.run(work, *args, **kwargs)

    return blocking


def on_the_loop(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Blocking, P], T]:
    """The form for other threads of a method that does not wait, but belongs to the event loop."""

    @functools.wraps(method)
    def blocking(self: Blocking, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async def work() -> T:
            called: Callable[P, T] = getattr(self._aio, method.__name__)
            return called(*args, **kwargs)

        return self._thread.run(work)

    return blocking


class SendMethod(Protocol):
    """The `send` of a producer. Spelled out: not every type checker sees overloads through decorators."""

    @overload
    def __call__(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> SendResult: ...

    @overload
    def __call__(
        self,
        message: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]: ...


def first_on_this_thread(general: Callable[..., Any]) -> SendMethod:
    """Send a plain message without the loop thread, if `DirectSending` can."""

    @functools.wraps(general)
    def send(self: "Producer", /, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and type(args[0]) is Message:
            result = self._send_directly(args[0])
            if result is not None:
                return result
        return general(self, *args, **kwargs)

    return cast(SendMethod, send)


class Producer(BlockingClient):
    """`with Producer("orders", namesrv="127.0.0.1:9876") as producer: producer.send(message)`.

    May be used by many threads at once.
    """

    _aio: aio.Producer

    def __init__(
        self, group: str, namesrv: str | Iterable[str] | None = None, **options: Unpack[ProducerOptions]
    ) -> None:
        """`namesrv`: addresses of name servers, separated by `;` or in a list; None: NAMESRV_ADDR."""
        self._set_up(aio.Producer(group, namesrv, **options))

    def _set_up(self, producer: aio.Producer) -> None:
        super().__init__()
        self._aio = producer
        self._submitted = threading.BoundedSemaphore(producer.settings.max_in_flight)
        self._middlewares: list[Middleware] = []
        self._direct: DirectSending | None = None
        self._making_direct = threading.Lock()

    def close(self) -> None:
        """Done by `with`. Does nothing in a forked child."""
        if self._direct is not None and self._thread.is_of_this_process:
            self._direct.close()
        super().close()

    def flush(self) -> None:
        """Send all batches now, and return when nothing is in flight."""
        if self._direct is not None:
            self._direct.wait_empty()
        self._thread.run(self._aio.flush)

    def _send_on(
        self, prepared: PreparedMessage, plan: SendPlan, problem: TransportError | Refused
    ) -> SendResult:
        return self._thread.run(self._aio._send_on, prepared, plan, problem)

    def _send_directly(self, message: Message) -> SendResult | None:
        self._thread.check()
        if self._direct is None:
            with self._making_direct:
                parts = self._aio._direct_parts()
                if parts is None:
                    return None
                if self._direct is None:
                    self._direct = DirectSending(parts, self._send_on)
        if _running_loop() is not None:
            return None  # the general path warns of it
        return self._direct.send(message)

    def statistics(self) -> aio.ProducerStatistics:
        return self._aio.statistics()

    def around(self, middleware: Middleware) -> Middleware:
        """Send every message inside the context manager that this function returns for it, or for a list.

        It runs on the calling thread, and can be a decorator, over `@contextmanager`. A message, or list,
        that it yields is sent instead. It surrounds the call of `submit`, not the wait for its result. Add it
        before the start.
        """
        if self._aio._parts is not None:
            raise StateError("the producer has been started: add what is around its sends first")
        if not self._middlewares:
            for name in ("send", "send_oneway", "submit", "request"):
                setattr(self, name, surrounded(getattr(self, name), self._middlewares))
        self._middlewares.append(middleware)
        return middleware

    def message(self, topic: str, value: object, **fields: Unpack[MessageFields]) -> Message:
        """A message whose body is the value, in the producer's codec; `fields` as in `Message`."""
        return self._aio.message(topic, value, **fields)

    send = first_on_this_thread(awaited(aio.Producer.send))

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> "Future[SendResult]":
        """Send without waiting for the result; waits only while `max_in_flight` messages are in flight."""
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
                delay=delay,
                deliver_at=deliver_at,
            )
        except BaseException:
            self._submitted.release()
            raise
        future.add_done_callback(lambda _: self._submitted.release())
        return future

    send_oneway = awaited(aio.Producer.send_oneway)
    recall = awaited(aio.Producer.recall)
    queues = awaited(aio.Producer.queues)
    declare_topic = awaited(aio.Producer.declare_topic)
    request = awaited(aio.Producer.request)
    reply = awaited(aio.Producer.reply)
    health = awaited(aio.Producer.health)
    reply_error = awaited(aio.Producer.reply_error)


class TransactionProducer(Producer):
    """`producer.send_in_transaction(message, work)`; `check` answers brokers that ask how it ended."""

    def __init__(
        self,
        group: str,
        namesrv: str | Iterable[str] | None = None,
        *,
        check: Check,
        topics: Iterable[str] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """`topics`: their brokers may ask from the start; other brokers after a message was sent to them."""
        self._transactions = aio_transactions.TransactionProducer(
            group, namesrv, check=check, topics=topics, **options
        )
        self._set_up(self._transactions)

    def send_in_transaction(
        self,
        message: Message,
        work: aio_transactions.LocalTransaction,
        *,
        check_after: timedelta | None = None,
    ) -> TransactionResult:
        """Send a half message, run `work` on the calling thread, and commit or roll back as it returns.

        If `work` raises, the broker gets UNKNOWN, and the error is raised again. If `work` takes longer
        than `check_after` (whole seconds; by default the broker's settings decide), the broker asks.
        """
        run, transactions = self._thread.run, self._transactions
        with entered(self._middlewares, message) as message:
            half = run(transactions._prepare, message, check_after)
        if not half.result.is_ok:
            return run(transactions._end, half, TransactionState.ROLLBACK)
        try:
            with transactions._in_transaction():
                state = aio_transactions.checked(
                    run(work, message) if iscoroutinefunction(work) else work(message)
                )
        except BaseException as problem:
            remark = f"{type(problem).__name__}: {problem}"
            run(transactions._end, half, TransactionState.UNKNOWN, remark=remark)
            raise
        return run(transactions._end, half, state)

    def transaction(self, message: Message, *, check_after: timedelta | None = None) -> "Transaction":
        """`with producer.transaction(message): …`: the message is delivered if the block succeeds.

        The half message is sent when the block begins. If the block raises, the broker gets UNKNOWN and
        asks `check`: only the application knows whether the database has committed. `check_after`: see
        `send_in_transaction`.
        """
        transaction = self._transactions.transaction(message, check_after=check_after)
        return Transaction(transaction, self._thread, self._middlewares)


class Transaction:
    """A message that is delivered if the block succeeds; made by `TransactionProducer.transaction`."""

    def __init__(
        self,
        transaction: aio_transactions.Transaction,
        thread: LoopThread,
        middlewares: Sequence[Middleware],
    ) -> None:
        self._aio = transaction
        self._thread = thread
        self._middlewares = middlewares

    def __repr__(self) -> str:
        return f"<blocking {self._aio!r}>"

    @property
    def message_id(self) -> str:
        """The id by which `check` is asked: write it into the database, in the same transaction."""
        return self._aio.message_id

    def rollback(self) -> None:
        """Have the message thrown away when the block ends."""
        self._aio.rollback()

    def begin(self) -> None:
        """Done by `with`. Raises SendFailed if the half message is not stored safely."""
        with entered(self._middlewares, self._aio.message) as self._aio.message:
            self._thread.run(self._aio.begin)

    def end(self, problem: BaseException | None = None) -> None:
        """Done by `with`; if the block has failed, the broker gets UNKNOWN."""
        self._thread.run(self._aio.end, problem)

    def leave_open(self) -> None:
        """The producer may close without waiting for the end: the broker asks `check` then."""

        async def leave_open() -> None:
            self._aio.leave_open()

        self._thread.run(leave_open)

    def __enter__(self) -> Self:
        self.begin()
        self._aio.enter_block()
        return self

    def __exit__(self, kind: object, problem: BaseException | None, trace: object) -> None:
        self._aio.leave_block()
        self.end(problem)
