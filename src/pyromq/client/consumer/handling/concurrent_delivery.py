"""Concurrent delivery: messages go to handlers in no particular order, up to `concurrency` at a time.

A worker task takes messages until none is left. Another worker is started only when the running ones wait for
something: handlers that never wait need no separate task. The worker of a plain function has a thread
take messages for a moment; another thread is started only when those that run take long over each, and it
leaves when short handlers fill the interpreter.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Iterator
from functools import partial
from typing import cast

from pyromq.client.application_log import application_log
from pyromq.client.consumer.handling.delivery import Delivery, DeliveryParts, pass_on
from pyromq.client.consumer.handling.gathering import Gathering, HeldTogether
from pyromq.client.consumer.handling.handlers import Handler, MessageStream
from pyromq.client.consumer.handling.runs import Lot, rest_of, run_handlers
from pyromq.client.consumer.handling.settling import HeldQueue, NoHandler, Work, log_late
from pyromq.client.consumer.handling.taking import Offer, QueueOffer
from pyromq.client.consumer.handling.thread_runs import Load, SharedLot, ThreadRun
from pyromq.client.values import ReceivedMessage
from pyromq.errors import AskerGone
from pyromq.protocol.names import is_retry_topic

LATE_LEVEL = 3
"""The delay level of messages whose handler ran into its timeout."""

_TURN_S = 0.005
_FIRST_BRAKE_S, _MAX_BRAKE_S = 1.0, 30.0
_LOOK_S = 0.001
_QUICK = 8
"""While each thread handles at least this many messages between two looks, no other thread is started."""


class ConcurrentDelivery(Delivery):
    def __init__(self, parts: DeliveryParts) -> None:
        super().__init__(parts)
        self._concurrency = parts.concurrency
        self._waiting: deque[Lot] = deque()
        self._workers: set[asyncio.Task[None]] = set()
        self._running: dict[Work, asyncio.Task[None]] = {}
        self._lost: dict[Work | ThreadRun, asyncio.Task[None]] = {}
        """The handlers that run although their time is up, and the workers that wait for them."""
        self._run: Lot | None = None
        """Whose handlers are called right now, without a piece of work for each."""
        self._yielding = 0
        self._is_hiring = False
        self._taking = threading.Lock()
        """Held by whoever takes a lot from `_waiting`: the loop, and threads."""
        self._gathering: Gathering | None = None
        if parts.batch_wait_s:
            self._gathering = Gathering(parts.batch_size, parts.batch_wait_s, self._take_gathered, self._loop)
        self._thread_runs: dict[ThreadRun, asyncio.Task[None]] = {}
        self._taken_before = 0
        self._brake_after = parts.brake_after
        self._failures = 0
        """How many calls in a row have failed."""
        self._is_braked = False
        self._brake_s = _FIRST_BRAKE_S

    def __repr__(self) -> str:
        return f"<ConcurrentDelivery waiting={self._waiting_messages} running={self.running}>"

    @property
    def _waiting_messages(self) -> int:
        # A copy: threads take lots meanwhile.
        return sum(lot.waiting for lot in list(self._waiting))

    @property
    def running(self) -> int:
        on_threads = sum(run.now is not None for run in list(self._thread_runs))
        return len(self._running) + (self._run is not None) + on_threads

    @property
    def _taken_by_threads(self) -> int:
        return self._taken_before + sum(run.taken for run in self._thread_runs)

    @property
    def lost(self) -> int:
        return len(self._lost)

    @property
    def _live(self) -> int:
        """The number of workers whose handler is in time."""
        return len(self._workers) - len(self._lost)

    def _tasks(self) -> Collection[asyncio.Task[None]]:
        return self._workers

    def _lost_tasks(self) -> Collection[asyncio.Task[None]]:
        return self._lost.values()

    def deliver(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        if self._is_stopped:
            return
        for lot in self._divided(held, messages):
            if isinstance(lot.handler, MessageStream):
                self._offer(lot, lot.handler)
            elif self._gathering is not None and lot.handler is not None:
                self._gathering.add(held, lot.messages, lot.handler)
            else:
                self._waiting.append(lot)
        self._hire()

    def _divided(self, held: HeldQueue, messages: list[ReceivedMessage]) -> Iterator[Lot]:
        """The messages by topic and handler: only queues of retries have several topics."""
        handlers = self._handlers
        if messages and not is_retry_topic(held.queue.topic) and not handlers.has_several(messages[0].topic):
            yield self._lot(held, messages)
            return
        lots: dict[object, list[ReceivedMessage]] = {}
        for message in messages:
            lots.setdefault((message.topic, handlers.find(message)), []).append(message)
        for lot in lots.values():
            yield self._lot(held, lot)

    def _lot(self, held: HeldQueue, messages: list[ReceivedMessage]) -> Lot:
        topic = messages[0].topic
        handler = self._handlers.find(messages[0])
        kind = SharedLot if isinstance(handler, Handler) and not handler.is_async else Lot
        return kind(held, messages, handler, self._stats.of(topic).total)

    def _take_gathered(self, held: HeldTogether, messages: list[ReceivedMessage], handler: Handler) -> None:
        kind = Lot if handler.is_async else SharedLot
        counts = self._stats.of(messages[0].topic).total
        self._waiting.append(kind(cast(HeldQueue, held), messages, handler, counts))
        self._hire()

    def _offer(self, lot: Lot, stream: MessageStream) -> None:
        held, counts, monotonic = lot.held, lot.counts, self._clock.monotonic
        started = monotonic()

        def is_dropped() -> bool:
            return held.is_closing

        def settle(message: ReceivedMessage, problem: BaseException | None) -> None:
            self._settle(Work(held, [message], lot.handler, counts, started), problem)

        if self._tracing is not None:
            while lot.waiting:
                work = self._next(lot)  # a stream has no batches
                stream.offer(work.messages[0], is_dropped, partial(self._settle, work))
        elif self._settling.settles_at_once:
            stream.put(QueueOffer(lot.messages, held, counts, monotonic, settle))
        else:
            stream.put(Offer(lot.messages, is_dropped, settle))

    # Workers

    def _hire(self) -> None:
        """Start one worker at once, and more later if work is still waiting."""
        live = self._live
        if live >= self._concurrency or (head := self._head()) is None:
            return
        if not live or not (self._is_hiring or isinstance(head, SharedLot)):
            self._start_worker()
        if not self._is_hiring:
            self._is_hiring = True
            self._look_again(1)

    @property
    def _is_for_threads(self) -> bool:
        return isinstance(self._head(), SharedLot)

    def _load(self) -> Load:
        return Load.now(self._clock.monotonic, self._taken_by_threads)

    def _look_again(self, count: int) -> None:
        """In the next turn of the loop; threads get more time, to show how long they take."""
        if self._is_for_threads:
            self._loop.call_later(_LOOK_S, self._hire_more, count, self._load())
        else:
            self._loop.call_soon(self._hire_more, count)

    def _hire_more(self, count: int, before: Load | None = None) -> None:
        free = min(self._waiting_messages, self._concurrency - self._live)
        if free <= 0 or self._is_stopped:
            self._is_hiring = False
            return
        if not self._live or (not self._yielding and not self._is_quick(before)):
            for _ in range(min(count, free)):
                self._start_worker()
            count *= 2
        self._look_again(count)

    def _is_quick(self, before: Load | None) -> bool:
        """Whether the threads that run get on well."""
        if before is None:
            return False
        now = self._load()
        is_quick = now.taken - before.taken >= _QUICK * self._live
        return is_quick or before.has_filled_the_interpreter(now)

    def _start_worker(self) -> None:
        worker = self._loop.create_task(self._work())
        self._workers.add(worker)

    async def _work(self) -> None:
        try:
            await self._work_on()
        finally:
            # At once: work that arrives before the next turn of the loop must start another worker.
            self._workers.discard(_this_task())

    async def _work_on(self) -> None:
        clock = self._clock
        turn_ends = clock.monotonic() + _TURN_S
        while (lot := self._head()) is not None:
            handler = lot.handler
            if type(handler) is not Handler:
                self._settle(self._next(lot), NoHandler.of(lot.messages[0]))
            elif isinstance(lot, SharedLot):
                before = self._load()
                await self._run_on_thread(handler, lot)
                if len(self._workers) > 1 and before.has_filled_the_interpreter(self._load()):
                    return
            elif handler.takes_batch or self._tracing is not None:
                work = self._next(lot)
                await self._finish(work, handler.run(work.messages))
            else:
                rest = self._run_through(handler, lot, turn_ends)
                if rest is not None:
                    await rest
            if len(self._workers) > self._concurrency and self._live > self._concurrency:
                return  # another one took this one's place
            if clock.monotonic() > turn_ends:
                # Otherwise handlers that never wait would block the loop.
                self._yielding += 1
                await asyncio.sleep(0)
                self._yielding -= 1
                turn_ends = clock.monotonic() + _TURN_S

    def _head(self) -> Lot | None:
        """Whose messages come next."""
        waiting = self._waiting
        if self._is_braked:
            return None
        with self._taking:
            while waiting:
                lot = waiting[0]
                if lot.waiting and not lot.held.is_closing:
                    return lot
                waiting.popleft()
        return None

    def _next(self, lot: Lot) -> Work:
        """The next call of the handler."""
        work = Work(lot.held, lot.take(self._batch_size), lot.handler, lot.counts, self._clock.monotonic())
        if self._tracing is not None:
            work.trace_id = self._tracing.begin(work.messages)
        return work

    async def _finish(self, work: Work, handling: Awaitable[object]) -> None:
        """Wait for an async handler."""
        me = self._running[work] = _this_task()
        problem: BaseException | None = None
        try:
            await handling
        except BaseException as failure:
            problem = failure
        finally:
            del self._running[work]
        if self._lost.pop(work, None) is not None:
            me.uncancel()  # it was for the handler alone
        if problem is not None and not isinstance(problem, Exception):
            pass_on(problem, self._loop)
        self._settle(work, problem)

    def _run_through(self, handler: Handler, lot: Lot, turn_ends: float) -> Awaitable[None] | None:
        """Call an async handler with one message after the other, until one of the calls waits: its rest."""
        first, started = lot.next, self._clock.monotonic()
        self._run = lot
        waiting, has_begun, waits_for, problem, begun, ended = run_handlers(
            handler.function, lot, self._clock.monotonic, turn_ends
        )
        self._run = None
        is_over = waiting is None and problem is None
        done = lot.messages[first : lot.next if is_over else lot.next - 1]
        if done:
            together = Work(lot.held, done, handler, lot.counts, started, calls=len(done))
            self._settle(together, None, ended)
        if is_over:
            return None
        last = Work(lot.held, [lot.messages[lot.next - 1]], handler, lot.counts, begun)
        if problem is None:
            return self._finish(last, rest_of(waiting, waits_for) if has_begun else waiting)
        if not isinstance(problem, Exception):
            pass_on(problem, self._loop)
        self._settle(last, problem)
        return None

    async def _run_on_thread(self, handler: Handler, lot: SharedLot) -> None:
        """Have a thread take messages for a moment."""
        run = ThreadRun(handler, self._batch_size, self._loop)
        # Traces begin on the loop, with one message at a time.
        only = self._next(lot) if self._tracing is not None else None
        if only is not None:
            lot = SharedLot(lot.held, only.messages, handler, lot.counts)
        try:
            running = self._loop.run_in_executor(
                self._threads, self._run_there, run, lot if only is not None else None
            )
        except RuntimeError:  # the threads are gone, as at exit: unfinished messages are delivered again
            self.halt()
            return
        self._thread_runs[run] = _this_task()
        try:
            await running
        finally:
            # Also when the last one is cut off.
            del self._thread_runs[run]
            self._lost.pop(run, None)
            self._taken_before += run.taken
            self._settle_run(run, only.trace_id if only is not None else "")

    def _run_there(self, run: ThreadRun, only: SharedLot | None) -> None:
        """Runs on a thread."""
        run.thread = threading.current_thread()
        monotonic = self._clock.monotonic
        turn_ends = monotonic() + _TURN_S

        def is_over(now: float) -> bool:
            return now > turn_ends or self._is_stopped

        if only is not None:
            run.go_through(only, is_over, monotonic)
            return
        while (lot := self._lot_for(run.handler)) is not None:
            if run.go_through(lot, is_over, monotonic):
                return

    def _lot_for(self, handler: Handler) -> SharedLot | None:
        """The next messages, if this handler is for them."""
        lot = self._head() if not self._is_stopped else None
        return lot if isinstance(lot, SharedLot) and lot.handler is handler else None

    # Afterwards

    def _settle(self, work: Work, problem: BaseException | None, ended: float | None = None) -> None:
        now = work.ended = self._clock.monotonic() if ended is None else ended
        if self._tracing is not None:
            self._tracing.end(work.trace_id, work.messages, problem, now - work.started)
        if work.is_settled or work.held.is_dropped:
            return
        work.is_settled = True
        if problem is None:
            self._failures = 0
            self._settling.done(work, now)
        else:
            self._settling.failed(work, problem, now)
            self._note_failure(problem)

    def _note_failure(self, problem: BaseException) -> None:
        """When everything fails, each message would use up its retries for nothing: pause, and try again."""
        if self._brake_after is None or isinstance(problem, AskerGone):
            return
        self._failures += 1
        if self._failures < self._brake_after:
            self._brake_s = _FIRST_BRAKE_S
        elif not self._is_braked:
            self._is_braked = True
            application_log.warning(
                "%d calls of handlers in a row failed, the consumer pauses for %g s group=%s: %r",
                self._failures,
                self._brake_s,
                self._group,
                problem,
            )
            self._loop.call_later(self._brake_s, self._release_brake)
            self._brake_s = min(2 * self._brake_s, _MAX_BRAKE_S)

    def _release_brake(self) -> None:
        self._is_braked = False
        self._hire()

    def _settle_run(self, run: ThreadRun, trace_id: str) -> None:
        """Settle what a thread has handled; what succeeded of one queue, together."""
        settled = run.settled
        for part in run.parts:
            lot = part.lot
            done = [each for each in part.done if id(each) not in settled] if settled else part.done
            if done:
                started = part.ended - part.spent_s
                work = Work(lot.held, done, lot.handler, lot.counts, started, trace_id=trace_id)
                work.calls = part.calls
                self._settle(work, None, part.ended)
            for messages, problem, started, ended in part.failed:
                work = Work(lot.held, messages, lot.handler, lot.counts, started, trace_id=trace_id)
                work.is_settled = id(messages[0]) in settled
                self._settle(work, problem, ended)

    def stop_late(self, timeout_s: float) -> int:
        """Their messages are given back, to free their queues."""
        now = self._clock.monotonic()
        works = [work for work in self._running if work not in self._lost and now - work.started > timeout_s]
        for work in works:
            task = self._lost[work] = self._running[work]
            work.is_settled = True
            self._give_back_late(work.held, work.messages, timeout_s, on_thread=False)
            task.cancel()
        runs = [run for run in self._thread_runs if run not in self._lost and _is_late(run, now - timeout_s)]
        for run in runs:
            self._lose(run, timeout_s)
        self._hire()
        return len(works) + len(runs)

    def _lose(self, run: ThreadRun, timeout_s: float) -> None:
        """The thread may never return: another takes its place, and all that it has taken is settled now."""
        messages, _ = run.now or ([], 0.0)
        part, thread = run.parts[-1], run.thread
        if not messages or thread is None:
            return  # it has just returned
        self._lost[run] = self._thread_runs[run]
        self._threads.lose(thread)
        run.settled.update(map(id, messages))
        self._settle_run(run, "")
        for each in run.parts:
            run.settled.update(map(id, each.done))
            run.settled.update(id(failed[0]) for failed, *_ in each.failed)
        self._give_back_late(part.lot.held, messages, timeout_s, on_thread=True)

    def _give_back_late(
        self, held: HeldQueue, messages: list[ReceivedMessage], timeout_s: float, *, on_thread: bool
    ) -> None:
        log_late(messages, self._group, timeout_s, on_thread=on_thread)
        for message in messages:
            self._settling.give_back(held, message, LATE_LEVEL, f"handler took over {timeout_s:g} s")

    def unfinished(self) -> Iterable[ReceivedMessage]:
        works = [
            work for work in list(self._running) if work.started and not work.ended and not work.is_settled
        ]
        lot = self._run
        current = lot.messages[lot.next - 1 : lot.next] if lot is not None else []
        on_threads = [
            message
            for run in list(self._thread_runs)
            for message in (run.now or ([], 0.0))[0]
            if id(message) not in run.settled
        ]
        return current + on_threads + [message for work in works for message in work.messages]

    async def close(self, held: HeldQueue) -> None:
        held.close()

    def halt(self) -> None:
        self._is_stopped = True
        if self._gathering is not None:
            self._gathering.clear()
        with self._taking:
            for lot in self._waiting:
                lot.cut()
            self._waiting.clear()


def _this_task() -> "asyncio.Task[None]":
    return cast("asyncio.Task[None]", asyncio.current_task())


def _is_late(run: ThreadRun, latest: float) -> bool:
    """Whether its handler began before this."""
    now = run.now  # read once: the thread changes it
    return now is not None and now[1] < latest
