"""Threads that take messages from one lot: each message once, and when more threads would not help."""

import asyncio
import threading
from typing import Any

import pytest
from tests.support.held_messages import a_message, held_queue

from pyromq.client.application_threads import ApplicationThreads
from pyromq.client.consumer.handling.concurrent_delivery import ConcurrentDelivery
from pyromq.client.consumer.handling.delivery import DeliveryParts
from pyromq.client.consumer.handling.handlers import Handler, Handlers
from pyromq.client.consumer.handling.settling import Settling
from pyromq.client.consumer.handling.thread_runs import Load, SharedLot, ThreadRun
from pyromq.client.consumer.reading.stats import ConsumerStats, Counts
from pyromq.clock import ManualClock


def a_lot(count: int) -> SharedLot:
    return SharedLot(held_queue(), [a_message(offset) for offset in range(count)], None, Counts())


def a_run(function: Any, batch_size: int = 1) -> ThreadRun:
    loop: asyncio.AbstractEventLoop | Any = None  # for handlers that return coroutines
    return ThreadRun(Handler(function, takes_batch=batch_size > 1), batch_size, loop)


class Clock:
    """Every look at it takes a second."""

    def __init__(self) -> None:
        self.time = 0.0

    def monotonic(self) -> float:
        self.time += 1
        return self.time


def never(now: float) -> bool:
    return False


def test_threads_share_a_lot_and_each_message_is_taken_once() -> None:
    lot, together = a_lot(3000), threading.Barrier(3)
    handled: list[list[int]] = [[], [], []]

    def work(mine: list[int]) -> None:
        together.wait()
        a_run(lambda message: mine.append(message.queue_offset)).go_through(lot, never, Clock().monotonic)

    threads = [threading.Thread(target=work, args=(mine,)) for mine in handled]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offset for mine in handled for offset in mine) == list(range(3000))
    assert all(mine == sorted(mine) for mine in handled)
    assert lot.waiting == 0


def test_a_run_tells_what_it_did_and_what_it_is_at() -> None:
    lot = a_lot(4)
    at: list[tuple[list[int], float]] = []

    def handle(message: Any) -> None:
        assert run.now is not None
        messages, since = run.now
        at.append(([each.queue_offset for each in messages], since))
        if message.queue_offset == 1:
            raise SystemExit(3)

    run = a_run(handle)
    assert run.go_through(lot, lambda now: now >= 4, Clock().monotonic), "its turn ends"
    assert at == [([0], 1.0), ([1], 2.0), ([2], 3.0)]
    [part] = run.parts
    assert [each.queue_offset for each in part.done] == [0, 2]
    assert (part.calls, part.spent_s, part.ended) == (2, 2.0, 4.0)
    [(failed, problem, began, ended)] = part.failed
    assert ([each.queue_offset for each in failed], type(problem), began, ended) == (
        [1],
        SystemExit,
        2.0,
        3.0,
    )
    assert (run.taken, run.now, lot.waiting) == (3, None, 1)


def test_lists_are_taken_together() -> None:
    seen: list[list[int]] = []
    run = a_run(lambda messages: seen.append([each.queue_offset for each in messages]), batch_size=3)
    assert not run.go_through(a_lot(7), never, Clock().monotonic)
    assert seen == [[0, 1, 2], [3, 4, 5], [6]]
    assert (run.taken, run.parts[0].calls) == (3, 3)


def test_no_message_of_a_closing_queue_is_begun() -> None:
    lot = a_lot(3)
    run = a_run(lambda message: lot.held.close())
    assert not run.go_through(lot, never, Clock().monotonic)
    assert [each.queue_offset for each in run.parts[0].done] == [0]


def test_a_lot_that_is_cut_has_nothing_left() -> None:
    lot = a_lot(3)
    assert [each.queue_offset for each in lot.take(1)] == [0]
    lot.cut()
    assert lot.waiting == 0
    assert lot.take(1) == []


@pytest.mark.parametrize(
    ("cpu_s", "taken", "is_full", "why"),
    [
        (0.9, 50_000, True, "short handlers, one after the other"),
        (0.2, 500, False, "handlers that wait"),
        (1.0, 50, False, "handlers that compute outside of the interpreter"),
        (0.9, 0, False, "somebody else computes"),
    ],
)
def test_short_handlers_fill_the_interpreter(cpu_s: float, taken: int, is_full: bool, why: str) -> None:
    before = Load(10.0, 5.0, 100)
    assert before.has_filled_the_interpreter(Load(11.0, 5.0 + cpu_s, 100 + taken)) is is_full, why


async def test_threads_may_take_lots_while_the_waiting_messages_are_counted() -> None:
    class TakenMeanwhile(SharedLot):
        @property
        def waiting(self) -> int:
            if delivery._waiting:
                delivery._waiting.popleft()  # as a thread does that has gone through it
            return 1

    with ApplicationThreads(2, "bench") as threads:
        parts = DeliveryParts(
            Handlers(), Settling(None), threads, ConsumerStats(), ManualClock(), concurrency=2
        )
        delivery = ConcurrentDelivery(parts)
        delivery._waiting.extend(TakenMeanwhile(held_queue(), [], None, Counts()) for _ in range(3))
        assert "waiting=3" in repr(delivery)
