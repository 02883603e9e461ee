"""An event loop with virtual time: if nothing is ready, time leaps to the next timer.

Nothing here waits, and nothing runs in a thread. A callback belongs to the process in whose context it was
made: those of a dead process are never called, those of a paused one later. What a program would run in a
thread runs as one step, some time later.
"""

import asyncio
import contextvars
import itertools
import socket
from asyncio import BaseEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from heapq import heappop, heappush
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from tests.simulation.blocking import BlockingCode
from tests.simulation.trace import Trace

from pyromq.clock import Clock

if TYPE_CHECKING:
    from tests.simulation.network import Network
    from tests.simulation.processes import Process

T = TypeVar("T")

TURN_S = 20e-6
"""Every turn takes this long: a program that spins must not stop time for all others."""
_MAX_THREAD_DELAY_S = 0.0005
_START_S = 1000.0
_WAITING = "tier-"
"""So the threads are called that wait for an object store."""

current_process: "contextvars.ContextVar[Process | None]" = contextvars.ContextVar("process", default=None)


def nothing() -> None:
    """No one looks."""


class Livelock(Exception):
    """The run took more steps than a plan may take."""


class NothingLeft(Exception):
    """There is neither a callback nor a timer: all wait for each other."""


class NumberedFuture(asyncio.Future[Any]):
    """Ordered by their numbers in sets; the address in memory would be another one in every run. Most of them
    are in none, so it gets its number when it is needed."""

    def __hash__(self) -> int:
        try:
            return self._number
        except AttributeError:
            loop: SimulatedLoop = self.get_loop()  # type: ignore[assignment]
            self._number: int = loop.next_number()
            return self._number


class NumberedTask(asyncio.Task[Any]):
    def __init__(self, number: int, work: Coroutine[Any, Any, Any], **options: Any) -> None:
        # Before the first step, which the parent plans.
        self._number = number
        super().__init__(work, **options)

    def __hash__(self) -> int:
        return self._number


class Step(TimerHandle):
    """A callback that waits for its turn, or for its time: what the parents do, without what they do for a
    loop that is debugged. There are tens of thousands a second."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: contextvars.Context | None,
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._cancelled = False

    def __repr__(self) -> str:
        return f"<Step {'cancelled' if self._cancelled else self._callback} at {self._when}>"

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class SimulatedLoop(BaseEventLoop):
    _stopping: bool
    """The parent's: whether `stop` was called."""

    def __init__(self, chance: Random, max_steps: int) -> None:
        super().__init__()
        self.trace = Trace()
        self.network: Network
        """Set by the network itself."""
        self.process: Process | None = None
        """The one that runs now; None for the simulation itself."""
        self.after_turn: Callable[[], None] = nothing
        """Looks at what a turn has changed; it belongs to no process, and changes nothing."""
        self.steps = 0
        self._max_steps = max_steps
        self._chance = chance
        self._now = _START_S
        self._numbers = itertools.count(1)
        self._timers: list[tuple[float, int, Step]] = []
        self._ready: deque[Step] = deque()
        self._queues: dict[object, deque[Callable[[], None]]] = {}
        """What waits for a thread that is busy, by the thread's executor or name."""
        self._spent_s = 0.0
        self._process_ids = itertools.count(1001)

    def next_number(self) -> int:
        return next(self._numbers)

    def next_process_id(self) -> int:
        return next(self._process_ids)

    get_debug = bool
    """Never; futures ask for it."""

    # Time

    def time(self) -> float:
        return self._now

    @property
    def clock(self) -> "Clock | None":
        """The clock of the machine on which the running process is; clients ask for it."""
        return self.process.host.clock if self.process is not None else None

    def spend(self, seconds: float) -> None:
        """Whatever runs now takes this long."""
        self._spent_s += seconds

    # Turns

    def _run_once(self) -> None:
        """Turn after turn, until the loop is stopped."""
        ready, timers = self._ready, self._timers
        next_step = ready.popleft
        while not self._stopping:
            now = self._now + TURN_S
            if not ready:
                while timers and timers[0][2]._cancelled:
                    heappop(timers)
                if not timers:
                    raise NothingLeft(f"at {now:.3f} s")
                if timers[0][0] > now:
                    now = timers[0][0]
            self._now = now
            while timers and timers[0][0] <= now:
                ready.append(heappop(timers)[2])
            self.steps += len(ready)
            if self.steps > self._max_steps:
                raise Livelock(f"{self.steps} steps until {now:.3f} s")
            for _ in range(len(ready)):
                step = next_step()
                if step._cancelled:
                    continue
                context = step._context
                self.process = process = context.get(current_process)
                if process is not None and not process.is_running:
                    process.keep(step)
                    continue
                try:
                    context.run(step._callback, *step._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as problem:
                    self.call_exception_handler({"message": f"Exception in {step!r}", "exception": problem})
                if self._spent_s:
                    seconds, self._spent_s = self._spent_s, 0.0
                    if process is not None:
                        process.stand_still(seconds)
            self.process = None
            self.after_turn()

    def give_back(self, steps: list[Step]) -> None:
        """The callbacks of a process that goes on."""
        self._ready.extend(steps)

    def call_at(  # type: ignore[override]
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        step = Step(when, callback, args, context)
        heappush(self._timers, (when, next(self._numbers), step))
        return step

    def call_later(  # type: ignore[override]
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Step:
        when = self._now + delay
        step = Step(when, callback, args, context)
        heappush(self._timers, (when, next(self._numbers), step))
        return step

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> Step:
        step = Step(self._now, callback, args, context)
        self._ready.append(step)
        return step

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def create_future(self) -> "asyncio.Future[Any]":
        return NumberedFuture(loop=self)

    def create_task(self, coro: Any, *, name: object = None, context: Any = None) -> "asyncio.Task[Any]":
        task = NumberedTask(next(self._numbers), coro, loop=self, name=str(name or "task"), context=context)
        process = (context.get(current_process) if context is not None else None) or current_process.get()
        if process is not None:
            process.began(task)
        return task

    # Threads

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """The function runs as one step, and its future is done after what the disk took."""
        future: asyncio.Future[T] = self.create_future()
        if getattr(executor, "_thread_name_prefix", "").startswith(_WAITING):
            self._run_waiting(future, lambda: func(*args), executor)
            return future

        def work() -> float:
            try:
                result = func(*args)
            except BaseException as problem:
                spent_s, settle = self.take_spent(), _failure(future, problem)
            else:
                spent_s, settle = self.take_spent(), _success(future, result)
            self.call_later(spent_s, settle)
            return spent_s

        is_single = getattr(executor, "_max_workers", None) == 1
        self._run_in_turn(work, executor if is_single else None)
        return future

    def run_as_thread(self, work: Callable[[], object], name: object) -> None:
        """Run this as a step after a short delay; never two with one `name` at the same time."""

        def timed_work() -> float:
            work()
            return self.take_spent()

        self._run_in_turn(timed_work, name)

    def _run_waiting(
        self, future: "asyncio.Future[T]", work: Callable[[], T], executor: Executor | None
    ) -> None:
        """The same for a function that waits for a network: much may happen before it ends."""
        is_single = getattr(executor, "_max_workers", None) == 1
        context = contextvars.copy_context()

        async def run() -> None:
            try:
                result = await BlockingCode().run(work)
            except BaseException as problem:
                _failure(future, problem)()
            else:
                _success(future, result)()
            if is_single:
                self._thread_is_free(executor)

        def start() -> None:
            delay_s = self._chance.random() * _MAX_THREAD_DELAY_S
            self.call_later(delay_s, lambda: self.create_task(run(), context=context), context=context)

        if is_single and executor in self._queues:
            self._queues[executor].append(start)
            return
        if is_single:
            self._queues[executor] = deque()
        start()

    def take_spent(self) -> float:
        seconds, self._spent_s = self._spent_s, 0.0
        return seconds

    def _run_in_turn(self, work: Callable[[], float], thread: object | None) -> None:
        delay_s = self._chance.random() * _MAX_THREAD_DELAY_S
        if thread is None:
            self.call_later(delay_s, work)
            return
        context = contextvars.copy_context()
        if (waiting := self._queues.get(thread)) is not None:
            waiting.append(lambda: self._start_thread_step(work, thread, delay_s, context))
        else:
            self._queues[thread] = deque()
            self._start_thread_step(work, thread, delay_s, context)

    def _start_thread_step(
        self, work: Callable[[], float], thread: object, delay_s: float, context: contextvars.Context
    ) -> None:
        def step() -> None:
            spent_s = work()
            self.call_later(spent_s, self._thread_is_free, thread)

        self.call_later(delay_s, step, context=context)

    def _thread_is_free(self, thread: object) -> None:
        waiting = self._queues[thread]
        if waiting:
            waiting.popleft()()
        else:
            del self._queues[thread]

    # The network

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        return await self.network.connect(protocol_factory, host, port)

    async def connect_accepted_socket(self, protocol_factory: Any, sock: Any, **_: Any) -> Any:
        return sock.connect_protocol(protocol_factory())

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., Any], *args: Any
    ) -> None:
        fd.add_reader(callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        return bool(fd.remove_reader())

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Hosts have addresses and no names."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]


def _success(future: "asyncio.Future[T]", result: T) -> Callable[[], None]:
    def settle() -> None:
        if not future.done():
            future.set_result(result)

    return settle


def _failure(future: "asyncio.Future[Any]", problem: BaseException) -> Callable[[], None]:
    def settle() -> None:
        if not future.done():
            future.set_exception(problem)

    return settle
