"""The loop on a thread of its own: what is awaited there and waited for here has one end for both."""

import asyncio
import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import FrameType
from typing import Any

import pytest

from pyromq.client import blocking
from pyromq.client.blocking import LoopThread, Producer
from pyromq.client.consumer.blocking import PushConsumer
from pyromq.client.values import Message
from pyromq.errors import SendFailed, StateError


class Interrupted(BaseException):
    """Stands for what a signal raises."""


@pytest.fixture
def thread() -> LoopThread:
    return LoopThread.shared()


class Interruption:
    """Interrupts whatever the main thread does."""

    def interrupt(self, number: int, frame: FrameType | None) -> None:
        raise Interrupted

    def happen(self) -> None:
        """It wakes nobody, like a signal that comes just before a thread begins to wait."""
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interruption]:
    monkeypatch.setattr(blocking, "SIGNAL_LOOK_S", 0.01)
    made = Interruption()
    former = signal.signal(signal.SIGUSR1, made.interrupt)
    yield made
    signal.signal(signal.SIGUSR1, former)


def test_results_and_errors_come_over(thread: LoopThread) -> None:
    async def add(left: int, right: Any) -> int:
        await asyncio.sleep(0)
        return int(left + right)

    assert thread.run(add, 1, 2) == 3
    with pytest.raises(TypeError, match="unsupported operand"):
        thread.run(add, 1, None)


def test_work_that_cancels_itself_is_seen_to_be_cancelled(thread: LoopThread) -> None:
    async def give_up() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        thread.run(give_up)


def test_an_interrupted_call_raises_when_its_work_has_ended(
    thread: LoopThread, interruption: Interruption
) -> None:
    steps: list[str] = []
    tasks: list[asyncio.Task[Any] | None] = []

    async def work() -> None:
        tasks.append(asyncio.current_task())
        try:
            interruption.happen()
            await asyncio.Event().wait()
        finally:
            steps.append("cleaning up")
            for _ in range(100):
                await asyncio.sleep(0)
            steps.append("clean")

    with pytest.raises(Interrupted):
        thread.run(work)
    assert steps == ["cleaning up", "clean"]
    (task,) = tasks
    assert task is not None
    assert task.done()


def test_how_interrupted_work_failed_is_nobodys_complaint(
    thread: LoopThread, interruption: Interruption
) -> None:
    async def work() -> None:
        try:
            interruption.happen()
            await asyncio.Event().wait()
        finally:
            raise ValueError("while cleaning up")

    with pytest.raises(Interrupted):
        thread.run(work)
    gc.collect()  # a failure that nobody looked at would be logged now


def test_an_interrupted_call_does_not_wait_for_ever(
    thread: LoopThread, interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking, "MAX_WAIT_FOR_AN_END_S", 0.01)
    release, ended = asyncio.Event(), threading.Event()

    async def work() -> None:
        try:
            interruption.happen()
            await asyncio.Event().wait()
        finally:
            await release.wait()
            ended.set()

    async def let_go() -> None:
        release.set()

    with pytest.raises(Interrupted):
        thread.run(work)
    assert not ended.is_set()
    thread.run(let_go)
    assert ended.wait(60)


class InterruptedLoop:
    """A loop whose first call from another thread is interrupted, before or behind what it does."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, before: bool) -> None:
        self._loop = loop
        self._before = before
        self._is_first = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        is_first, self._is_first = self._is_first, False
        if not (is_first and self._before):
            self._loop.call_soon_threadsafe(callback)
        if is_first:
            raise Interrupted


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_while_work_is_handed_over_ends_the_work(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    begun: list[str] = []
    ended: list[str] = []

    async def work() -> None:
        begun.append("work")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    with monkeypatch.context() as patch:
        patch.setattr(thread, "_loop", InterruptedLoop(thread._loop, before=before))
        with pytest.raises(Interrupted):
            thread.run(work)
    assert thread.run(asyncio.sleep, 0, "goes on") == "goes on"
    assert begun == ended


def test_an_interrupt_at_the_begin_of_a_call_leaves_nothing_that_nobody_awaits() -> None:
    producer = Producer("orders", namesrv="127.0.0.1:1")

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is LoopThread.run.__code__:
            raise Interrupted

    former = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(Interrupted):
            producer.start()
    finally:
        sys.settrace(former)
    gc.collect()  # what nobody awaits would be complained about now


def test_threads_that_are_no_real_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    green = type("LockType", (), {"__module__": "gevent.thread"})
    monkeypatch.setattr(threading, "Lock", green)
    with pytest.raises(StateError, match=r"gevent has replaced .*monkey.patch_all\(thread=False\)"):
        LoopThread()


# Calls where a loop runs


async def test_a_blocking_call_inside_a_running_loop_says_which_one_to_use() -> None:
    consumer = PushConsumer("billing", "127.0.0.1:1")
    producer = Producer("orders", "127.0.0.1:1", start_timeout_s=0.01)
    with pytest.warns(RuntimeWarning, match=r"^Producer.close of pyromq blocks the event loop") as warned:
        producer.close()
    assert "pyromq.aio, which has the same names, or call it by asyncio.to_thread" in str(warned[0].message)
    assert warned[0].filename == __file__, "it points to the caller"
    consumer.subscribe("Orders", "*", print)  # waits for nothing
    with pytest.warns(RuntimeWarning, match=r"^PushConsumer.close of pyromq blocks"):
        consumer.close()
    await asyncio.to_thread(producer.close)


async def test_the_warning_of_a_compiled_send_has_the_name_that_applications_know() -> None:
    producer = Producer("orders", "127.0.0.1:1", send_timeout_s=0.01)
    await asyncio.to_thread(producer.start)
    with (
        pytest.warns(RuntimeWarning, match=r"^Producer.send of pyromq blocks"),
        pytest.raises(SendFailed),
    ):
        producer.send(Message("Orders", b"x"))
    await asyncio.to_thread(producer.close)


def test_a_blocking_call_elsewhere_says_nothing(recwarn: pytest.WarningsRecorder) -> None:
    Producer("orders", "127.0.0.1:1").close()
    assert not recwarn.list
