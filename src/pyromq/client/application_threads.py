"""Threads for functions of the application. They never keep the process alive.

An interpreter that exits waits for the threads of a ThreadPoolExecutor, however long they take.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ApplicationThreads(Executor):
    """At most `max_threads`, started when they are needed."""

    def __init__(self, max_threads: int, name: str, initializer: Callable[[], object] = lambda: None) -> None:
        self._max_threads = max_threads
        self._name = name
        self._initializer = initializer
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads: list[threading.Thread] = []
        self._lost: set[threading.Thread] = set()
        self._started = 0
        self._changing = threading.Lock()
        self._is_shut_down = False

    def __repr__(self) -> str:
        return f"<ApplicationThreads {self._name} threads={len(self._threads)}>"

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        with self._changing:
            if self._is_shut_down:
                raise RuntimeError(f"the threads of {self._name} have been shut down")
            future: Future[T] = Future()
            self._calls.put((future, lambda: fn(*args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._threads) < self._max_threads:
                thread = threading.Thread(
                    target=self._work, name=f"{self._name}_{self._started}", daemon=True
                )
                thread.start()  # raises while the interpreter exits
                self._threads.append(thread)
                self._started += 1
            return future

    def _work(self) -> None:
        self._initializer()
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                self._idle.release()
                call = self._calls.get()
            if call is None:
                self._calls.put(None)  # for the next thread
                return
            _run(*call)
            del call  # keep no message while this thread waits
            if threading.current_thread() in self._lost:
                self._lost.discard(threading.current_thread())
                return

    def lose(self, thread: threading.Thread) -> None:
        """The call on this thread hangs: start another one in its place. It ends when the call does."""
        with self._changing:
            if thread in self._threads:
                self._threads.remove(thread)
                self._lost.add(thread)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._changing:
            self._is_shut_down = True
            if cancel_futures:
                self._cancel_waiting()
            self._calls.put(None)
        if wait:
            self.join(threading.TIMEOUT_MAX)

    def _cancel_waiting(self) -> None:
        while True:
            try:
                call = self._calls.get_nowait()
            except Empty:
                return
            if call is not None:
                call[0].cancel()

    def join(self, timeout_s: float) -> bool:
        """After a shutdown: wait for running calls; False if some have not ended in time."""
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, min(deadline - time.monotonic(), threading.TIMEOUT_MAX)))
        return not any(thread.is_alive() for thread in self._threads)


def _run(future: "Future[Any]", call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as problem:
        future.set_exception(problem)
    else:
        future.set_result(result)
