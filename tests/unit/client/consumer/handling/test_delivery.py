"""Who is called with what, how many at a time, and what becomes of the messages afterwards."""

import asyncio
import gc
import logging
import pickle
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.conftest import ErrorLogs
from tests.support.held_messages import RETRY_QUEUE, a_message, held_queue
from tests.support.loop import turn_until

from pyromq.client.application_threads import ApplicationThreads
from pyromq.client.blocking import LoopThread
from pyromq.client.consumer.blocking import Messages
from pyromq.client.consumer.handling.concurrent_delivery import ConcurrentDelivery
from pyromq.client.consumer.handling.delivery import DeliveryParts
from pyromq.client.consumer.handling.handlers import Handler, Handlers, MessageStream
from pyromq.client.consumer.handling.ordered_delivery import OrderedDelivery
from pyromq.client.consumer.handling.outcomes import Backoff, Delay, GiveUp, RetryLater
from pyromq.client.consumer.handling.settling import Folded, HeldQueue, Settling
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.values import ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.errors import BadBody, ConnectFailed, StateError


@pytest.fixture
def threads() -> Iterator[ApplicationThreads]:
    with ApplicationThreads(4, "bench") as executor:
        yield executor


class GivenBack:
    """Stands in for the broker that takes messages back."""

    def __init__(self) -> None:
        self.levels: list[tuple[int, Delay]] = []
        self.is_refusing = False
        self.tried = asyncio.Event()

    async def __call__(self, message: ReceivedMessage, delay: Delay, reason: str) -> None:
        self.tried.set()
        if self.is_refusing:
            raise ConnectFailed("nobody there")
        self.levels.append((message.queue_offset, delay))


class Bench:
    """A delivery with everything around it."""

    def __init__(self, threads: ApplicationThreads) -> None:
        self.handlers = Handlers()
        self.given_back = GivenBack()
        self.stats = ConsumerStats()
        self.clock = ManualClock()
        self.threads = threads
        self.settling = Settling(self.given_back, self._tell_if_dead)
        self.put_aside: list[int] = []
        self.reasons: list[str] = []

    def handle(self, function: Callable[[Any], Any], *, takes_batch: bool = False) -> None:
        self.handlers.put("Orders", "*", Handler(function, takes_batch=takes_batch))

    def concurrent(
        self, *, concurrency: int = 20, batch_size: int = 1, batch_wait_s: float = 0.0
    ) -> ConcurrentDelivery:
        return ConcurrentDelivery(replace(self._parts(concurrency, batch_size), batch_wait_s=batch_wait_s))

    def ordered(self, **options: Any) -> OrderedDelivery:
        async def put_aside(message: ReceivedMessage, reason: str) -> None:
            self.put_aside.append(message.queue_offset)
            self.reasons.append(reason)

        parts = self._parts(options.pop("concurrency", 20), options.pop("batch_size", 1))
        max_times = options.pop("max_times", None)

        async def limit(_: ReceivedMessage) -> int | None:
            return cast("int | None", max_times)

        return OrderedDelivery(parts, put_aside=put_aside, limit=limit, **{"suspend_s": 0.01, **options})

    async def _tell_if_dead(self, message: ReceivedMessage, delay: Delay, reason: str) -> None:
        self.reasons.append(reason)

    def _parts(self, concurrency: int, batch_size: int) -> DeliveryParts:
        return DeliveryParts(
            self.handlers,
            self.settling,
            self.threads,
            self.stats,
            self.clock,
            concurrency,
            "billing",
            batch_size,
        )


@pytest.fixture
async def bench(threads: ApplicationThreads) -> AsyncIterator[Bench]:
    bench = Bench(threads)
    yield bench
    await bench.settling.stop()


def deliver_all(delivery: ConcurrentDelivery | OrderedDelivery, held: HeldQueue) -> None:
    delivery.deliver(held, list(held))


# In any order


async def test_async_handlers_run_side_by_side_up_to_the_limit(bench: Bench) -> None:
    at_work, most = 0, 0
    gate = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        if at_work == 3:
            gate.set()
        await gate.wait()
        at_work -= 1

    bench.handle(handle)
    held = held_queue(*range(10))
    deliver_all(bench.concurrent(concurrency=3), held)
    await held.wait_until_empty()
    assert most == 3


async def test_plain_handlers_run_side_by_side_on_threads(bench: Bench) -> None:
    barrier = threading.Barrier(3, timeout=60)
    bench.handle(lambda message: barrier.wait())
    held = held_queue(*range(3))
    deliver_all(bench.concurrent(concurrency=3), held)
    await held.wait_until_empty()


async def test_a_plain_handler_that_takes_long_holds_up_no_other_message(bench: Bench) -> None:
    others = threading.Semaphore(0)

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset:
            others.release()
            return
        for _ in range(39):
            assert others.acquire(timeout=60)

    bench.handle(handle)
    held = held_queue(*range(40))
    deliver_all(bench.concurrent(concurrency=2), held)
    await held.wait_until_empty()
    assert bench.given_back.levels == []


async def test_messages_that_arrive_when_the_threads_have_just_ended_are_handled(bench: Bench) -> None:
    bench.handle(lambda message: None)
    delivery = bench.concurrent(concurrency=3)
    for first in range(0, 900, 3):
        held = held_queue(first, first + 1, first + 2)
        deliver_all(delivery, held)
        await held.wait_until_empty()


async def test_an_object_whose_call_is_async_and_a_partial_of_one_are_async_handlers(bench: Bench) -> None:
    class Handling:
        async def __call__(self, message: ReceivedMessage) -> None: ...

    async def handle(extra: int, message: ReceivedMessage) -> None: ...

    assert Handler(Handling(), takes_batch=False).is_async
    assert Handler(partial(handle, 1), takes_batch=False).is_async


async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited(bench: Bench) -> None:
    seen = []

    async def later(message: ReceivedMessage) -> None:
        seen.append(message.queue_offset)

    bench.handle(lambda message: later(message))
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert seen == [0]


async def test_a_handler_that_never_waits_lets_others_run(bench: Bench) -> None:
    """Handlers use up their turn by the clock; the loop comes round in between."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while len(held):
            turns += 1
            await asyncio.sleep(0)

    async def handle(message: ReceivedMessage) -> None:
        bench.clock.advance(0.002)

    bench.handle(handle)
    held = held_queue(*range(100))
    deliver_all(bench.concurrent(), held)
    await count_turns()
    assert turns > 10


async def test_a_failure_goes_back_to_the_broker_and_is_done_then(bench: Bench) -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            raise ValueError("no stock")
        if message.queue_offset == 2:
            raise RetryLater(delay_level=5)
        if message.queue_offset == 3:
            raise GiveUp

    bench.handle(handle)
    held = held_queue(*range(5))
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert sorted(bench.given_back.levels) == [(1, 0), (2, 5), (3, -1)]
    await bench.settling.stop()
    assert sorted(bench.reasons) == [
        "ValueError('no stock')",
        "the handler asked for a retry",
        "the handler gave the message up",
    ]
    total = bench.stats.of("Orders").total
    assert (total.succeeded, total.failed) == (2, 3)


async def test_what_nobody_takes_back_is_not_committed(bench: Bench) -> None:
    def handle(message: ReceivedMessage) -> None:
        raise ValueError

    bench.handle(handle)
    bench.given_back.is_refusing = True
    held = held_queue(0, 1)
    deliver_all(bench.concurrent(), held)
    await bench.given_back.tried.wait()
    await bench.settling.stop()
    assert held.committable == 0


async def test_without_retries_a_failure_is_done(bench: Bench) -> None:
    bench.settling = Settling(None)
    bench.handle(lambda message: 1 / 0)
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()


async def test_a_message_that_nobody_handles_goes_back(bench: Bench) -> None:
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert bench.given_back.levels == [(0, 0)]


@pytest.mark.parametrize("is_async", [True, False])
async def test_lists_gather_messages_of_several_pulls_and_queues(bench: Bench, is_async: bool) -> None:
    lists: list[list[int]] = []

    def handle(messages: list[ReceivedMessage]) -> None:
        lists.append([message.queue_offset for message in messages])
        if len(lists) == 1:
            raise RetryLater(only=messages[:1], delay_level=2)

    async def handle_async(messages: list[ReceivedMessage]) -> None:
        handle(messages)

    bench.handle(handle_async if is_async else handle, takes_batch=True)
    queues = [held_queue(*range(first, first + 3)) for first in (0, 10, 20)]
    delivery = bench.concurrent(batch_size=4, batch_wait_s=0.01, concurrency=1)
    for held in queues:
        deliver_all(delivery, held)
    for held in queues:
        await held.wait_until_empty()
    assert lists == [[0, 1, 2, 10], [11, 12, 20, 21], [22]]
    assert bench.given_back.levels == [(0, 2)]


async def test_what_was_gathered_is_not_handled_after_its_queue_has_moved_or_the_end(bench: Bench) -> None:
    bench.handle(lambda messages: pytest.fail("it must not be handled"), takes_batch=True)
    moved, kept = held_queue(0), held_queue(10)
    delivery = bench.concurrent(batch_size=2, batch_wait_s=3600)
    deliver_all(delivery, moved)
    await delivery.close(moved)
    deliver_all(delivery, kept)
    await delivery.stop(10)
    assert (len(moved), len(kept)) == (1, 1)


async def test_batches_have_one_topic_each(bench: Bench) -> None:
    batches: list[object] = []
    bench.handle(lambda messages: batches.append([m.queue_offset for m in messages]), takes_batch=True)
    bench.handlers.put("Other", "*", Handler(lambda messages: batches.append("other"), takes_batch=True))
    held = held_queue(queue=RETRY_QUEUE)
    held.put([a_message(0), a_message(1), a_message(2, topic="Other"), a_message(3)], 4)
    deliver_all(bench.concurrent(batch_size=2, concurrency=1), held)
    await held.wait_until_empty()
    assert batches == [[0, 1], [3], "other"]


async def test_a_handler_that_is_cancelled_from_within_has_failed(bench: Bench) -> None:
    async def handle(message: ReceivedMessage) -> None:
        raise asyncio.CancelledError

    bench.handle(handle)
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert bench.given_back.levels == [(0, 0)]


async def test_messages_of_a_dropped_queue_are_neither_started_nor_committed(bench: Bench) -> None:
    started = []
    gate = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        started.append(message.queue_offset)
        await gate.wait()
        raise ValueError

    bench.handle(handle)
    held = held_queue(0, 1)
    delivery = bench.concurrent(concurrency=1)
    deliver_all(delivery, held)
    await asyncio.sleep(0)
    assert started == [0]
    await delivery.close(held)
    held.drop()
    gate.set()
    await delivery.stop(10)
    assert started == [0]
    assert bench.given_back.levels == []


async def test_a_stop_waits_for_its_grace_and_no_longer(bench: Bench) -> None:
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.Event().wait()

    bench.handle(handle)
    held = held_queue(0)
    delivery = bench.concurrent()
    deliver_all(delivery, held)
    await asyncio.sleep(0)
    await delivery.stop(0)
    assert held.committable == 0
    delivery.deliver(held, [a_message(1)])
    assert delivery.running == 0


async def test_an_async_handler_that_takes_too_long_is_cancelled_and_its_message_goes_back_once(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    cancelled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        try:
            if message.queue_offset < 2:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(message.queue_offset)
            raise

    bench.handle(handle)
    held = held_queue(*range(5))
    delivery = bench.concurrent(concurrency=2)
    deliver_all(delivery, held)
    await turn_until(lambda: delivery.running == 2)
    assert delivery.stop_late(60) == 0
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 2
    assert delivery.stop_late(60) == 0
    await held.wait_until_empty()
    assert cancelled == [0, 1]
    assert delivery.lost == delivery.running == 0
    await delivery.stop(10)
    assert bench.given_back.levels == [(0, 3), (1, 3)]
    assert "handler ran for over 60 s, it was cancelled topic=Orders group=billing queue=" in caplog.text


async def test_a_handler_that_ignores_its_cancellation_is_lost_until_it_ends(bench: Bench) -> None:
    gate = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        while message.queue_offset == 0 and not gate.is_set():
            with suppress(asyncio.CancelledError):
                await gate.wait()

    bench.handle(handle)
    held = held_queue(*range(5))
    delivery = bench.concurrent(concurrency=1)
    deliver_all(delivery, held)
    await turn_until(lambda: delivery.running == 1)
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 1
    await held.wait_until_empty()
    assert delivery.lost == 1
    gate.set()
    await turn_until(lambda: not delivery.running)
    assert delivery.lost == 0
    assert bench.given_back.levels == [(0, 3)]
    await delivery.stop(10)


async def test_threads_that_hang_are_replaced_and_what_they_did_before_is_done(
    bench: Bench, error_logs: ErrorLogs
) -> None:
    gate, hanging, handled = threading.Event(), threading.Semaphore(0), []

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset in (1, 2, 3, 4):
            hanging.release()
            gate.wait(60)
        handled.append(message.queue_offset)

    bench.handle(handle)
    held = held_queue(*range(10))
    delivery = bench.concurrent(concurrency=4)  # as many as there are threads
    deliver_all(delivery, held)
    await turn_until(lambda: sum(run.now is not None for run in delivery._thread_runs) == 4)
    for _ in range(4):
        await asyncio.to_thread(hanging.acquire)
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 4
    assert delivery.stop_late(60) == 0
    assert delivery.lost == 4
    await held.wait_until_empty()
    assert sorted(handled) == [0, 5, 6, 7, 8, 9]
    assert sorted(bench.given_back.levels) == [(1, 3), (2, 3), (3, 3), (4, 3)]
    assert len(error_logs.records) == 4
    error_logs.expect_repeatedly(
        "its thread is lost, another one takes its place topic=Orders group=billing queue="
    )
    gate.set()
    await turn_until(lambda: delivery.lost == 0)
    await delivery.stop(10)
    assert bench.stats.of("Orders").total.succeeded == 6


async def test_a_stop_does_not_wait_for_threads_that_are_lost(bench: Bench, error_logs: ErrorLogs) -> None:
    gate = threading.Event()
    bench.handle(lambda message: gate.wait(60))
    held = held_queue(0)
    delivery = bench.concurrent()
    deliver_all(delivery, held)
    await turn_until(lambda: delivery.running == 1)
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 1
    await delivery.stop(10**6)
    gate.set()
    error_logs.expect("its thread is lost")


async def test_an_ordered_async_handler_that_takes_too_long_is_cancelled_and_called_again(
    bench: Bench,
) -> None:
    handled: list[int] = []
    hanging = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1 and not message.reconsume_times:
            hanging.set()
            await asyncio.Event().wait()
        handled.append(message.queue_offset)

    bench.handle(handle)
    held = held_queue(0, 1, 2)
    delivery = bench.ordered()
    deliver_all(delivery, held)
    await hanging.wait()
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 1
    await held.wait_until_empty()
    assert handled == [0, 1, 2]
    await delivery.stop(10)


async def test_an_ordered_thread_that_hangs_holds_up_its_queue_and_no_other(
    bench: Bench, error_logs: ErrorLogs
) -> None:
    gate, hanging, handled = threading.Event(), threading.Semaphore(0), []

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset < 4:
            hanging.release()
            gate.wait(60)
        handled.append(message.queue_offset)

    bench.handle(handle)
    stuck = [held_queue(offset, offset + 10) for offset in range(4)]
    delivery = bench.ordered(concurrency=4)
    for each in stuck:
        deliver_all(delivery, each)
    for _ in range(4):
        await asyncio.to_thread(hanging.acquire)
    bench.clock.advance(61)
    assert delivery.stop_late(60) == 4
    assert delivery.stop_late(60) == 0
    assert delivery.lost == 4
    other = held_queue(20, 21)
    deliver_all(delivery, other)
    await other.wait_until_empty()
    assert handled == [20, 21]
    error_logs.expect_repeatedly("its thread is lost")
    gate.set()
    for each in stuck:
        await each.wait_until_empty()
    assert delivery.lost == 0
    await delivery.stop(10)
    assert delivery._free._value == 4


@pytest.mark.parametrize("is_ordered", [False, True])
async def test_when_the_threads_are_gone_what_is_not_done_stays_so(bench: Bench, is_ordered: bool) -> None:
    """A program that ends without closing its consumer is not complained about."""
    bench.handle(lambda message: None)
    bench.threads.shutdown()
    held = held_queue(0, 1)
    delivery = bench.ordered() if is_ordered else bench.concurrent()
    deliver_all(delivery, held)
    await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    gc.collect()  # a failure that nobody looked at would be logged now
    assert held.committable == 0


# In order


async def test_ordered_messages_are_handled_one_after_the_other(bench: Bench) -> None:
    log: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        log.append(f"begin {message.queue_offset}")
        await asyncio.sleep(0)
        log.append(f"end {message.queue_offset}")

    bench.handle(handle)
    held = held_queue(0, 1, 2)
    deliver_all(bench.ordered(), held)
    await held.wait_until_empty()
    assert log == [f"{what} {number}" for number in range(3) for what in ("begin", "end")]


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_ordered_failure_holds_up_its_queue(bench: Bench, is_async: bool) -> None:
    tried: list[tuple[int, int]] = []

    def handle(message: ReceivedMessage) -> None:
        tried.append((message.queue_offset, message.reconsume_times))
        if message.queue_offset == 1 and message.reconsume_times < 2:
            raise ValueError

    async def handle_async(message: ReceivedMessage) -> None:
        handle(message)

    bench.handle(handle_async if is_async else handle)
    held = held_queue(0, 1, 2)
    deliver_all(bench.ordered(), held)
    await held.wait_until_empty()
    assert tried == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0)]


async def test_an_ordered_message_is_put_aside_after_its_last_try(bench: Bench) -> None:
    tried: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        tried.append(message.queue_offset)
        if message.queue_offset == 0:
            raise ValueError
        if message.queue_offset == 1:
            raise GiveUp

    bench.handle(handle)
    held = held_queue(0, 1, 2)
    deliver_all(bench.ordered(max_times=1), held)
    await held.wait_until_empty()
    assert tried == [0, 0, 1, 2]
    assert bench.put_aside == [0, 1]
    assert bench.reasons == ["ValueError()", "the handler gave the message up"]


# In order of their keys


def by_parity(message: ReceivedMessage) -> int:
    return message.queue_offset % 2


@pytest.mark.parametrize("is_async", [True, False])
async def test_each_key_is_handled_in_its_order_while_others_go_on(bench: Bench, is_async: bool) -> None:
    log: list[int] = []
    even_may_go_on = threading.Event()

    def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 0:
            assert even_may_go_on.wait(60)
        log.append(message.queue_offset)
        if message.queue_offset == 5:
            even_may_go_on.set()

    async def handle_async(message: ReceivedMessage) -> None:
        while message.queue_offset == 0 and not even_may_go_on.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0)
        handle(message)

    bench.handle(handle_async if is_async else handle)
    held = held_queue(*range(6))
    delivery = bench.ordered(key_of=by_parity)
    deliver_all(delivery, held)
    await held.wait_until_empty()
    assert log == [1, 3, 5, 0, 2, 4]
    assert "lines=0" in repr(delivery)


async def test_a_failing_key_holds_up_only_itself_and_the_offset(bench: Bench) -> None:
    tried: list[tuple[int, int]] = []
    others_done = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        tried.append((message.queue_offset, message.reconsume_times))
        if message.queue_offset == 5:
            others_done.set()
        if message.queue_offset == 0 and message.reconsume_times < 2:
            await others_done.wait()
            assert held.committable == 0
            raise ValueError

    bench.handle(handle)
    held = held_queue(*range(6))
    deliver_all(bench.ordered(key_of=by_parity, backoff=Backoff(0.001, 1.0, 0.0)), held)
    await held.wait_until_empty()
    assert [each for each in tried if each[0] % 2] == [(1, 0), (3, 0), (5, 0)]
    assert [each for each in tried if not each[0] % 2] == [(0, 0), (0, 1), (0, 2), (2, 0), (4, 0)]


async def test_a_key_goes_on_when_its_message_was_put_aside(bench: Bench) -> None:
    tried: list[int] = []

    def handle(message: ReceivedMessage) -> None:
        tried.append(message.queue_offset)
        if message.queue_offset == 0:
            raise ValueError

    bench.handle(handle)
    held = held_queue(0, 2, 4)
    deliver_all(bench.ordered(key_of=by_parity, max_times=1), held)
    await held.wait_until_empty()
    assert (tried, bench.put_aside) == ([0, 0, 2, 4], [0])


async def test_messages_without_a_key_have_no_order(bench: Bench) -> None:
    at_once: set[int] = set()
    all_there = asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        at_once.add(message.queue_offset)
        if len(at_once) == 3:
            all_there.set()
        await all_there.wait()

    bench.handle(handle)
    held = held_queue(0, 1, 2)
    deliver_all(bench.ordered(key_of=lambda message: None), held)
    await held.wait_until_empty()


@pytest.mark.parametrize("wrong", [ZeroDivisionError(), []])
async def test_a_message_whose_key_cannot_be_found_fails_alone(bench: Bench, wrong: Any) -> None:
    handled: list[int] = []

    def key_of(message: ReceivedMessage) -> Any:
        if message.queue_offset == 1:
            if isinstance(wrong, Exception):
                raise wrong
            return wrong
        return "a"

    bench.handle(lambda message: handled.append(message.queue_offset))
    held = held_queue(0, 1, 2)
    deliver_all(bench.ordered(key_of=key_of, max_times=1), held)
    await held.wait_until_empty()
    assert (handled, bench.put_aside) == ([0, 2], [1])
    assert "ZeroDivisionError" in bench.reasons[0] or "unhashable" in bench.reasons[0]


async def test_the_lines_of_a_queue_lock_it_again_together(bench: Bench) -> None:
    relocks = 0

    async def relock() -> bool:
        nonlocal relocks
        relocks += 1
        await asyncio.sleep(0)
        held.lock()
        return True

    bench.handle(lambda message: None)
    held = held_queue(*range(20), clock=bench.clock, relock=relock)
    deliver_all(bench.ordered(key_of=lambda message: message.queue_offset), held)
    await held.wait_until_empty()
    assert relocks == 1


async def test_closing_a_queue_waits_for_all_its_keys(bench: Bench) -> None:
    handled: list[int] = []
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        if message.queue_offset == 1:
            begun.set()
        await go_on.wait()
        handled.append(message.queue_offset)

    bench.handle(handle)
    held = held_queue(*range(6))
    delivery = bench.ordered(key_of=by_parity)
    deliver_all(delivery, held)
    await begun.wait()
    closing = asyncio.create_task(delivery.close(held))
    await asyncio.sleep(0)
    assert not closing.done()
    go_on.set()
    await closing
    assert sorted(handled) == [0, 1]
    assert held.committable == 2


async def test_a_handler_that_gives_up_is_not_logged_as_asking_for_a_retry(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def handle(message: ReceivedMessage) -> None:
        raise GiveUp("unreadable")

    bench.handle(handle)
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert "handler gave up topic=Orders" in caplog.text
    assert "asked for a retry" not in caplog.text


async def test_nothing_is_handled_without_a_lock(bench: Bench) -> None:
    asked = 0

    async def relock() -> bool:
        nonlocal asked
        asked += 1
        held.lock()
        return True

    handled: list[int] = []
    bench.handle(lambda message: handled.append(message.queue_offset))
    held = held_queue(0, 1, clock=bench.clock, relock=relock)
    deliver_all(bench.ordered(), held)
    await held.wait_until_empty()
    assert asked == 1
    assert handled == [0, 1]


@pytest.mark.parametrize("kind", ["async", "plain", "stream"])
async def test_a_lock_that_ran_out_before_a_handler_was_free_is_renewed_first(
    bench: Bench, kind: str
) -> None:
    gate, begun, handled = asyncio.Event(), asyncio.Event(), list[str]()

    async def relock() -> bool:
        handled.append("locked")
        second.lock()
        return True

    async def handle_other(message: ReceivedMessage) -> None:
        begun.set()
        await gate.wait()

    async def handle(message: ReceivedMessage) -> None:
        handled.append("handled")

    stream = MessageStream("Orders")
    plain = Handler(lambda message: handled.append("handled"), takes_batch=False)
    chosen: Handler | MessageStream = plain if kind == "plain" else Handler(handle, takes_batch=False)
    bench.handlers.put("Others", "*", Handler(handle_other, takes_batch=False))
    bench.handlers.put("Orders", "*", stream if kind == "stream" else chosen)
    first = held_queue()
    first.put([a_message(0, topic="Others")], 1)
    second = held_queue(0, clock=bench.clock, relock=relock)
    second.lock()
    delivery = bench.ordered(concurrency=2 if kind == "stream" else 1)
    deliver_all(delivery, first)
    await begun.wait()
    deliver_all(delivery, second)
    await asyncio.sleep(0)
    bench.clock.advance(61)
    gate.set()
    if kind == "stream":
        await anext(stream)
        handled.append("handled")
        stream.end_when_empty()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    await second.wait_until_empty()
    assert handled == ["locked", "handled"]


async def test_a_handler_that_lost_its_lock_puts_nothing_aside(bench: Bench) -> None:
    tried = asyncio.Event()

    async def relock() -> bool:
        tried.set()
        return False

    async def handle(message: ReceivedMessage) -> None:
        bench.clock.advance(61)
        raise GiveUp

    bench.handle(handle)
    held = held_queue(0, clock=bench.clock, relock=relock)
    held.lock()
    delivery = bench.ordered()
    deliver_all(delivery, held)
    await tried.wait()
    await delivery.close(held)
    assert bench.put_aside == []


async def test_closing_an_ordered_queue_waits_for_the_handler_at_work_and_starts_no_other(
    bench: Bench,
) -> None:
    gate = asyncio.Event()
    handled: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        await gate.wait()
        handled.append(message.queue_offset)

    bench.handle(handle)
    held = held_queue(0, 1)
    delivery = bench.ordered()
    deliver_all(delivery, held)
    closing = asyncio.create_task(delivery.close(held))
    await asyncio.sleep(0)
    assert not closing.done()
    gate.set()
    await closing
    assert handled == [0]
    assert held.committable == 1


async def test_ordered_batches(bench: Bench) -> None:
    batches: list[list[int]] = []

    def handle(messages: list[ReceivedMessage]) -> None:
        batches.append([message.queue_offset for message in messages])
        if len(batches) == 1:
            raise ValueError

    bench.handle(handle, takes_batch=True)
    held = held_queue(*range(5))
    deliver_all(bench.ordered(batch_size=2), held)
    await held.wait_until_empty()
    assert batches == [[0, 1], [0, 1], [2, 3], [4]]


# Some of a batch


@pytest.mark.parametrize("kind", [RetryLater, GiveUp])
async def test_only_the_messages_that_a_handler_names_failed_even_if_it_has_copies(
    bench: Bench, kind: type[RetryLater]
) -> None:
    def handle(messages: list[ReceivedMessage]) -> None:
        copies = pickle.loads(pickle.dumps(messages))  # as a process pool returns them
        raise kind(only=copies[1:3])

    bench.handle(handle, takes_batch=True)
    held = held_queue(*range(4))
    deliver_all(bench.concurrent(batch_size=4), held)
    await held.wait_until_empty()
    level = kind().delay_level
    assert bench.given_back.levels == [(1, level), (2, level)]
    assert bench.stats.totals().succeeded == 2


async def test_a_batch_fails_whole_if_the_handler_names_a_message_that_is_not_in_it(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(messages: list[ReceivedMessage]) -> None:
        raise RetryLater(only=[messages[0], a_message(99)], delay_level=5)

    bench.handle(handle, takes_batch=True)
    held = held_queue(*range(3))
    deliver_all(bench.concurrent(batch_size=3), held)
    await held.wait_until_empty()
    assert bench.given_back.levels == [(0, 0), (1, 0), (2, 0)]
    assert "RetryLater(only=…) names a message that is not in the batch" in caplog.text


def test_a_handler_that_names_no_message_is_told_so() -> None:
    with pytest.raises(ValueError, match="only must have the messages that failed"):
        RetryLater(only=[])


async def test_an_ordered_handler_may_name_the_messages_that_failed(bench: Bench) -> None:
    batches: list[list[int]] = []

    def handle(messages: list[ReceivedMessage]) -> None:
        batches.append([message.queue_offset for message in messages])
        if len(batches) == 1:
            raise RetryLater(only=messages[1:2])
        if len(batches) == 2:
            raise GiveUp(only=messages[:1])

    bench.handle(handle, takes_batch=True)
    held = held_queue(*range(5))
    deliver_all(bench.ordered(batch_size=3), held)
    await held.wait_until_empty()
    assert batches == [[0, 1, 2], [1, 2, 3], [4]], (
        "those before a failed one are done, those behind come again"
    )
    assert bench.put_aside == [1]


# Streams


@pytest.mark.parametrize("is_named", [True, False])
async def test_messages_that_came_during_a_failed_ordered_call_are_handled_afterwards(
    bench: Bench, is_named: bool
) -> None:
    handled: list[list[int]] = []
    has_begun, go_on = asyncio.Event(), asyncio.Event()

    async def handle(messages: list[ReceivedMessage]) -> None:
        handled.append([message.queue_offset for message in messages])
        if len(handled) == 1:
            has_begun.set()
            await go_on.wait()
            raise GiveUp("spoilt", only=messages[1:] if is_named else None)

    bench.handle(handle, takes_batch=True)
    held = held_queue(*range(5))
    messages = list(held)
    delivery = bench.ordered(batch_size=5)
    delivery.deliver(held, messages[:2])
    await has_begun.wait()
    delivery.deliver(held, messages[2:])
    go_on.set()
    await held.wait_until_empty()
    assert handled == [[0, 1], [2, 3, 4]]
    assert bench.put_aside == ([1] if is_named else [0, 1])


async def test_asking_for_the_next_message_finishes_the_one_before(bench: Bench) -> None:
    stream = MessageStream("Orders")
    bench.handlers.put("Orders", "*", stream)
    held = held_queue(0, 1, 2)
    deliver_all(bench.concurrent(), held)
    assert (await anext(stream)).queue_offset == 0
    assert held.committable == 0
    assert (await anext(stream)).queue_offset == 1
    assert held.committable == 1
    stream.retry(await anext(stream))
    await held.wait_until_empty()
    assert bench.given_back.levels == [(2, 0)]


async def test_a_reader_waits_for_messages_and_stops_at_the_end() -> None:
    stream = MessageStream("Orders")

    async def read() -> list[int]:
        return [message.queue_offset async for message in stream]

    reading = asyncio.create_task(read())
    await asyncio.sleep(0)
    settled: list[object] = []
    stream.offer(a_message(0), lambda: False, settled.append)
    await asyncio.sleep(0)
    stream.offer(a_message(1), lambda: True, settled.append)
    stream.offer(a_message(2), lambda: False, settled.append)
    stream.end_when_empty()
    assert await reading == [0, 2]
    assert settled == [None, None]


async def test_all_readers_stop_behind_the_last_message() -> None:
    stream = MessageStream("Orders")

    async def read() -> list[int]:
        return [message.queue_offset async for message in stream]

    reading = [asyncio.create_task(read()) for _ in range(3)]
    await asyncio.sleep(0)
    stream.offer(a_message(0), lambda: False, lambda _: None)
    stream.end_when_empty()
    async with asyncio.timeout(60):
        assert sorted(await asyncio.gather(*reading)) == [[], [], [0]]


async def test_a_stream_that_ends_by_a_problem_raises_it() -> None:
    stream = MessageStream("Orders")
    stream.end(ConnectFailed("no such broker"))
    with pytest.raises(ConnectFailed):
        await anext(stream)


async def test_only_the_current_message_of_a_reader_can_be_retried() -> None:
    with pytest.raises(StateError, match="only the current message of a reader"):
        MessageStream("Orders").retry(a_message(0))


@pytest.mark.parametrize("is_failed", [True, False])
async def test_the_last_message_of_the_reader_that_finishes_is_done_unless_it_failed(is_failed: bool) -> None:
    stream = MessageStream("Orders")
    settled: list[object] = []
    stream.offer(a_message(0), lambda: False, settled.append)
    await anext(stream)
    stream.end()
    await stream.finish(is_failed=is_failed)
    assert settled == ([] if is_failed else [None])


@pytest.mark.parametrize(
    ("leaves", "problem", "outcomes"),
    [(False, None, [None]), (True, None, [None]), (True, ValueError, []), (True, asyncio.CancelledError, [])],
)
async def test_finishing_waits_for_the_other_readers_until_they_go_on_or_leave(
    leaves: bool, problem: type[BaseException] | None, outcomes: list[object]
) -> None:
    stream = MessageStream("Orders")
    settled: list[object] = []
    took, may_go_on = asyncio.Event(), asyncio.Event()

    async def read() -> None:
        async for _ in stream:
            took.set()
            await may_go_on.wait()
            if problem is not None:
                raise problem
            if leaves:
                break

    reading = asyncio.create_task(read())
    stream.offer(a_message(0), lambda: False, settled.append)
    await took.wait()
    stream.end()
    finishing = asyncio.create_task(stream.finish(is_failed=False))
    await asyncio.sleep(0)
    assert not finishing.done()
    may_go_on.set()
    async with asyncio.timeout(60):
        await finishing
    await asyncio.gather(reading, return_exceptions=True)
    assert settled == outcomes


def test_a_thread_does_not_answer_for_one_that_ended_before_it() -> None:
    """Though the system gives it the same number."""
    loop, stream, settled = LoopThread.shared(), MessageStream("Orders"), list[object]()

    async def offer() -> None:
        for offset in range(2):
            stream.offer(a_message(offset), lambda: False, settled.append)

    loop.run(offer)
    messages, taken = Messages(stream, loop), list[int]()
    for _ in range(2):
        thread = threading.Thread(target=lambda: taken.append(next(messages).queue_offset))
        thread.start()
        thread.join()
    assert taken == [0, 1]
    assert settled == []


async def test_a_reader_that_is_cancelled_leaves_its_turn_to_another() -> None:
    stream = MessageStream("Orders")
    first, second = (asyncio.create_task(stream.next_for(name)) for name in ("first", "second"))
    await asyncio.sleep(0)
    stream.offer(a_message(0), lambda: False, lambda _: None)
    first.cancel()
    message = await second
    assert message is not None
    assert message.queue_offset == 0
    await asyncio.gather(first, return_exceptions=True)


# How a loop was left


async def settled_after(loop: Callable[[MessageStream], Awaitable[None]], *, is_failed: bool) -> list[str]:
    """What became of the message at which a loop was left, and of the next one, at which another was."""
    stream, settled = MessageStream("Orders"), list[str]()
    for offset in range(2):
        outcome = partial(lambda offset, problem: settled.append(f"{offset} {problem}"), offset)
        stream.offer(a_message(offset), lambda: False, outcome)
    await loop(stream)
    assert settled == []
    await loop(stream)
    for _ in range(3):
        await asyncio.sleep(0)  # generators are closed
    await stream.finish(is_failed=is_failed)
    return settled


async def raise_and_catch(stream: MessageStream) -> None:
    with suppress(ZeroDivisionError):
        async for message in stream:
            try:
                1 / (message.queue_offset * 0)
            finally:
                await asyncio.sleep(0)


async def raise_in_a_generator(stream: MessageStream) -> None:
    with suppress(ZeroDivisionError):
        async for message in (message async for message in stream):
            1 / (message.queue_offset * 0)


async def raise_in_another_function(stream: MessageStream) -> None:
    async def read() -> None:
        async for message in stream:
            1 / (message.queue_offset * 0)

    with suppress(ZeroDivisionError):
        await read()


async def be_cancelled(stream: MessageStream) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            async for _ in stream:
                await asyncio.Event().wait()


async def do_break(stream: MessageStream) -> None:
    async for _ in stream:
        with suppress(ZeroDivisionError):
            await asyncio.sleep(0)
            break


async def do_return(stream: MessageStream) -> None:
    async def read() -> int:
        async for message in stream:
            try:
                return message.queue_offset + 1
            finally:
                await asyncio.sleep(0)
        return 0

    await read()


LEFT = "the loop over the stream was left by an exception"


@pytest.mark.parametrize(
    "loop", [raise_and_catch, raise_in_a_generator, raise_in_another_function, be_cancelled]
)
async def test_a_message_comes_again_if_an_exception_ended_the_loop_and_was_caught(
    loop: Callable[[MessageStream], Awaitable[None]],
) -> None:
    # The second one is not done, and its offset is not committed.
    assert await settled_after(loop, is_failed=False) == [f"0 {LEFT}"]


@pytest.mark.parametrize("loop", [do_break, do_return])
async def test_a_message_is_done_if_its_loop_was_left_on_purpose(
    loop: Callable[[MessageStream], Awaitable[None]],
) -> None:
    assert await settled_after(loop, is_failed=False) == ["0 None", "1 None"]
    assert await settled_after(loop, is_failed=True) == ["0 None"]


async def test_the_message_of_a_task_that_caught_the_exception_of_its_loop_is_not_done() -> None:
    stream, settled = MessageStream("Orders"), list[object]()
    stream.offer(a_message(0), lambda: False, settled.append)
    gate = asyncio.Event()

    async def read() -> None:
        await raise_and_catch(stream)
        await gate.wait()

    reading = asyncio.create_task(read())
    await turn_until(lambda: stream.is_read_by(reading))
    finishing = asyncio.create_task(stream.finish(is_failed=False))
    await asyncio.sleep(0)
    gate.set()
    await finishing
    assert settled == []


async def test_a_message_that_was_asked_for_alone_is_done_when_a_loop_begins() -> None:
    stream, settled = MessageStream("Orders"), list[object]()
    for offset in range(2):
        stream.offer(a_message(offset), lambda: False, settled.append)
    await anext(stream)
    await do_break(stream)
    assert settled == [None]


def test_a_blocking_loop_that_was_left_by_an_exception_gets_its_message_again() -> None:
    loop, stream, settled = LoopThread.shared(), MessageStream("Orders"), list[str]()

    async def offer() -> None:
        for offset in range(4):
            stream.offer(a_message(offset), lambda: False, lambda problem: settled.append(str(problem)))

    loop.run(offer)
    messages = Messages(stream, loop)
    for _ in messages:
        break
    for _ in range(2):
        with suppress(ZeroDivisionError):
            for message in messages:
                1 / (message.queue_offset * 0)
    assert settled == ["None", LEFT]
    loop.run(stream.finish, is_failed=False, reader=threading.current_thread())
    assert settled == ["None", LEFT]


# `anext` of a stream is awaited like a coroutine, whoever does it.


async def test_a_task_may_be_made_of_the_next_message() -> None:
    stream = MessageStream("Orders")
    taking = asyncio.create_task(stream.__anext__())
    await asyncio.sleep(0)
    stream.offer(a_message(0), lambda: False, lambda _: None)
    assert (await taking).queue_offset == 0
    assert stream.is_read_by(taking)


async def test_waiting_for_the_next_message_may_time_out() -> None:
    stream = MessageStream("Orders")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(stream), 0.001)
    stream.offer(a_message(0), lambda: False, lambda _: None)
    assert (await asyncio.wait_for(anext(stream), 60)).queue_offset == 0


async def test_the_next_message_is_not_taken_before_it_is_awaited() -> None:
    stream = MessageStream("Orders")
    stream.offer(a_message(0), lambda: False, lambda _: None)
    following: Any = stream.__anext__()
    assert stream.taken == []
    following.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await following
    with pytest.raises(KeyError):
        stream.__anext__().throw(KeyError("not begun"))
    assert (await anext(stream)).queue_offset == 0


async def test_a_reader_that_catches_its_cancellation_goes_on_waiting() -> None:
    stream = MessageStream("Orders")

    async def next_for(me: object) -> ReceivedMessage | None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return messages.pop(0)

    messages = [a_message(7), None]
    stream.observe(lambda _: next_for)
    for expected in ([7], []):
        reading = asyncio.create_task(_read_one(stream))
        await asyncio.sleep(0)
        reading.cancel()
        assert await reading == expected


async def _read_one(stream: MessageStream) -> list[int]:
    async for message in stream:
        return [message.queue_offset]
    return []


# When everything fails


async def test_a_body_that_cannot_be_decoded_is_given_up_at_once(bench: Bench) -> None:
    def handle(message: ReceivedMessage) -> None:
        raise BadBody("no JSON")

    bench.handle(handle)
    held = held_queue(0)
    deliver_all(bench.concurrent(), held)
    await held.wait_until_empty()
    assert bench.given_back.levels == [(0, -1)]
    again = held_queue(1)
    deliver_all(bench.ordered(), again)
    await again.wait_until_empty()
    assert bench.put_aside == [1]


async def test_a_consumer_whose_handlers_all_fail_pauses_and_tries_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later: list[tuple[float, Callable[[], None]]] = []
    works = False

    async def handle(message: ReceivedMessage) -> None:
        if not works:
            raise ConnectionError("the database is away")

    bench.handle(handle)
    held = held_queue(*range(100))
    delivery = ConcurrentDelivery(replace(bench._parts(1, 1), brake_after=10))
    monkeypatch.setattr(
        delivery,
        "_loop",
        SimpleNamespace(
            call_later=lambda s, f: later.append((s, f)),
            create_task=asyncio.create_task,
            call_soon=delivery._loop.call_soon,
        ),
    )
    deliver_all(delivery, held)
    await turn_until(lambda: len(later) == 1)
    assert len(bench.given_back.levels) <= 10
    later.pop()[1]()
    await turn_until(lambda: len(later) == 1)
    assert later[0][0] == 2
    assert "10 calls of handlers in a row failed, the consumer pauses for 1 s group=billing" in caplog.text
    assert caplog.text.count("Traceback") == 1, "the others are one line each"
    works = True
    later.pop()[1]()
    await held.wait_until_empty()
    assert len(bench.given_back.levels) == 11


def test_pauses_between_retries_grow_up_to_a_limit_and_differ_by_chance() -> None:
    steady = Backoff(2, 60, 0)
    assert [steady.after(failures).total_seconds() for failures in (0, 1, 2, 9, 10**6)] == [2, 4, 8, 60, 60]
    pauses = {Backoff(10, 60, 0.5).after(0).total_seconds() for _ in range(50)}
    assert len(pauses) > 1
    assert all(5 <= pause <= 15 for pause in pauses)


def test_a_failure_at_the_same_place_has_one_traceback_in_a_minute() -> None:
    clock = ManualClock()
    folded = Folded(clock.monotonic)

    def failure(number: int) -> Exception:
        try:
            raise ValueError(number)
        except ValueError as problem:
            return problem

    assert [folded.note(failure(number)) for number in range(3)] == [(True, 0), (False, 0), (False, 0)]
    assert folded.note(KeyError("another")) == (True, 0)
    clock.advance(61)
    assert folded.note(failure(3)) == (True, 2)


@pytest.mark.parametrize("wrong", [{"delay": 5}, {"delay": timedelta(seconds=-1)}])
def test_a_delay_that_is_no_time_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="delay must be a timedelta"):
        RetryLater(**wrong)
