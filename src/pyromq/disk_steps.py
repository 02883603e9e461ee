"""Work that waits for the disk in between: its owner's thread makes the changes, any thread does the waiting.

The work is a generator that yields functions. A function only writes or syncs files, and the generator
continues after it, with its error if there was one: so a loop can leave it to a thread. A caller that cannot
wait has the rest done at once with `finish`.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

Wait = Callable[[], None]
Steps = Generator[Wait, None, T]


def finish(steps: Steps[T]) -> T:
    """Do all of it now."""
    problem: Exception | None = None
    while True:
        try:
            wait = next(steps) if problem is None else steps.throw(problem)
        except StopIteration as end:
            result: T = end.value
            return result
        problem = None
        try:
            wait()
        except Exception as error:
            problem = error


class DiskWorker(Protocol):
    """Does work in the background, whenever it is woken."""

    def start(self, work: Callable[[], Steps[None]]) -> None: ...

    def wake(self) -> None:
        """There is work. Any thread may call this."""
        ...

    def stop(self) -> None:
        """Return when the work under way has ended."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """In this block no work is under way."""
        ...


class DiskThread:
    """The worker of a real disk."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._working = Lock()
        # Used for every synchronous send: an event would make a lock for each wait.
        self._wakes: SimpleQueue[None] = SimpleQueue()
        self._thread: Thread | None = None
        self._is_stopping = False

    def __repr__(self) -> str:
        return f"<DiskThread {self._name}{'' if self._thread is not None else ' not running'}>"

    def start(self, work: Callable[[], Steps[None]]) -> None:
        self._thread = Thread(target=self._run, args=(work,), name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        if self._wakes.empty():
            self._wakes.put(None)

    def stop(self) -> None:
        if self._thread is not None:
            self._is_stopping = True
            self.wake()
            self._thread.join()
            self._thread = None

    def alone(self) -> AbstractContextManager[object]:
        return self._working

    def _run(self, work: Callable[[], Steps[None]]) -> None:
        while not self._is_stopping:
            self._wakes.get()
            with self._working:
                finish(work())


class DiskSteps(Generic[T]):
    def __init__(self, steps: Steps[T]) -> None:
        self._steps = steps
        self._waiting: _Once | None = None
        self.is_over = False
        self.result: T | None = None

    def __repr__(self) -> str:
        return f"<DiskSteps {'over' if self.is_over else 'under way'}>"

    def next(self) -> Wait | None:
        """Continue to the next function, which any thread may call; None at the end. Raises the errors of the
        work, also those of the last function."""
        if self.is_over:
            return None
        problem = self._waiting.problem if self._waiting is not None else None
        try:
            self._waiting = _Once(next(self._steps) if problem is None else self._steps.throw(problem))
        except StopIteration as end:
            self.result, self.is_over = end.value, True
            return None
        except BaseException:
            self.is_over = True
            raise
        return self._waiting

    def finish(self) -> T | None:
        """Do everything that is left, after what another thread is about to do."""
        while not self.is_over:
            if self._waiting is not None:
                self._waiting()
            self.next()
        return self.result


class _Once:
    """A function that is called once, whoever is first; the others wait until it has ended."""

    def __init__(self, wait: Wait) -> None:
        self._wait: Wait | None = wait
        self._calling = Lock()
        self.problem: OSError | None = None

    def __call__(self) -> None:
        with self._calling:
            wait, self._wait = self._wait, None
            if wait is not None:
                try:
                    wait()
                except OSError as problem:
                    self.problem = problem
