"""Threads for functions of the application: how many there are, what they return, and how they end."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from pyromq.client.application_threads import ApplicationThreads

TIMEOUT_S = 20


@pytest.fixture
def threads() -> Iterator[ApplicationThreads]:
    with ApplicationThreads(2, "some") as running:
        yield running


def test_a_call_returns_or_raises_in_its_future(threads: ApplicationThreads) -> None:
    assert threads.submit(int, "7").result(TIMEOUT_S) == 7
    failed = threads.submit(int, "seven")
    assert isinstance(failed.exception(TIMEOUT_S), ValueError)
    left = threads.submit(sys.exit)
    assert isinstance(left.exception(TIMEOUT_S), SystemExit)
    assert threads.submit(int, "8").result(TIMEOUT_S) == 8


def test_no_more_threads_are_started_than_allowed_and_each_is_prepared() -> None:
    prepared: list[str] = []
    both = threading.Barrier(2)
    with ApplicationThreads(2, "some", lambda: prepared.append(threading.current_thread().name)) as threads:
        for future in [threads.submit(both.wait, TIMEOUT_S) for _ in range(10)]:
            future.result(TIMEOUT_S)
    assert sorted(prepared) == ["some_0", "some_1"]


def test_an_idle_thread_is_used_again() -> None:
    with ApplicationThreads(50, "some") as threads:
        names = set()
        for _ in range(3):
            names.add(threads.submit(lambda: threading.current_thread().name).result(TIMEOUT_S))
            assert threads._idle.acquire(timeout=TIMEOUT_S)
            threads._idle.release()
    assert names == {"some_0"}


def test_after_the_end_waiting_calls_are_cancelled_and_no_new_ones_are_taken(
    threads: ApplicationThreads,
) -> None:
    gate, begun = threading.Event(), threading.Barrier(3)
    for _ in range(2):
        threads.submit(lambda: (begun.wait(TIMEOUT_S), gate.wait(TIMEOUT_S)))
    begun.wait(TIMEOUT_S)
    waiting: Future[int] = threads.submit(int, "7")
    threads.shutdown(wait=False, cancel_futures=True)
    assert waiting.cancelled()
    with pytest.raises(RuntimeError, match="the threads of some have been shut down"):
        threads.submit(int, "7")
    assert not threads.join(0)
    gate.set()
    assert threads.join(TIMEOUT_S)


def test_the_process_does_not_wait_for_them() -> None:
    script = """
import threading
from pyromq.client.application_threads import ApplicationThreads
begun = threading.Event()
ApplicationThreads(1, "some").submit(lambda: (begun.set(), threading.Event().wait()))
begun.wait()
"""
    subprocess.run([sys.executable, "-c", script], timeout=60, check=True)
