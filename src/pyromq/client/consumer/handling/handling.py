"""Runs the handlers of a consumer: their threads, their delivery, their traces.

They end in this order: loops over streams, handler functions, traces, threads.
"""

import asyncio
import atexit
import contextlib
import os
from collections.abc import Hashable
from typing import Protocol

from pyromq.client.application_log import application_log
from pyromq.client.application_threads import ApplicationThreads
from pyromq.client.consumer.handling.concurrent_delivery import ConcurrentDelivery
from pyromq.client.consumer.handling.delivery import Delivery, DeliveryParts
from pyromq.client.consumer.handling.handlers import Handlers, MessageStream
from pyromq.client.consumer.handling.ordered_delivery import KeyOf, OrderedDelivery
from pyromq.client.consumer.handling.outcomes import Backoff, Delay
from pyromq.client.consumer.handling.popped_outcomes import PoppedOutcomes
from pyromq.client.consumer.handling.retries import HandlerRetries
from pyromq.client.consumer.handling.retry_limit import RetryLimit
from pyromq.client.consumer.handling.settling import HeldQueue, NoHandler, Settling, log_cut_off
from pyromq.client.consumer.handling.tracing import ConsumeTracing
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.popping import PopReading
from pyromq.client.consumer.reading.queue_reader import QueueReader
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.requesting import expired
from pyromq.client.session import Session
from pyromq.client.values import ReceivedMessage


class HandlingSettings(Protocol):
    """The settings of a consumer that concern its handlers; see `PushSettings`."""

    @property
    def broadcast(self) -> bool: ...
    @property
    def is_ordered(self) -> bool: ...
    @property
    def key_of(self) -> KeyOf | None: ...
    @property
    def concurrency(self) -> int: ...
    @property
    def batch_size(self) -> int | None: ...
    @property
    def batch_wait_s(self) -> float: ...
    @property
    def max_retries(self) -> int | None: ...
    @property
    def backoff(self) -> Backoff | None: ...
    @property
    def backoff_of_keys(self) -> Backoff: ...
    @property
    def brake_after(self) -> int | None: ...
    @property
    def suspend_s(self) -> float: ...
    @property
    def stop_grace_s(self) -> float: ...
    @property
    def trace(self) -> bool: ...
    @property
    def trace_topic(self) -> str: ...


class Handling:
    def __init__(
        self,
        settings: HandlingSettings,
        session: Session,
        group: str,
        handlers: Handlers,
        stats: ConsumerStats,
        popping: PopReading | None = None,
    ) -> None:
        """`popping`: messages are popped, and acknowledged one by one."""
        self._handlers = handlers
        self._grace_s = settings.stop_grace_s
        self._now_ms = session.clock.now_ms
        self._threads = ApplicationThreads(
            settings.concurrency, f"consume-{session.unwrap(group)}", handlers.enter_thread
        )
        self._pid = os.getpid()
        # For programs that end without closing their consumer.
        atexit.register(self._wait_at_exit)
        self._tracing = ConsumeTracing(session, group, settings.trace_topic) if settings.trace else None
        is_shared = not settings.broadcast
        retries = HandlerRetries(
            session,
            group,
            session.clock,
            max_times=settings.max_retries,
            unit_mode=session.settings.unit_mode,
            member=session.client_id,
        )
        dead_letters = RetryLimit(session, group, session.clock, max_times=settings.max_retries)
        self.popped: PoppedOutcomes | None = None
        backoff = settings.backoff

        async def give_back(message: ReceivedMessage, delay: Delay, reason: str) -> None:
            if await dead_letters.is_surely_dead(message, delay):
                await retries.bury(message, reason)
            else:
                await retries.give_back(message, delay)

        settling = Settling(give_back if is_shared else None, dead_letters.tell_if_dead, backoff=backoff)
        if popping is not None:
            popped = self.popped = PoppedOutcomes(popping, retries, dead_letters)
            settling = Settling(popped.give_back, dead_letters.tell_if_dead, popped.acknowledge, backoff)
        self._settling = settling
        parts = DeliveryParts(
            handlers,
            settling,
            self._threads,
            stats,
            session.clock,
            concurrency=settings.concurrency,
            group=session.unwrap(group),
            batch_size=settings.batch_size or 1,
            batch_wait_s=settings.batch_wait_s,
            brake_after=settings.brake_after,
            tracing=self._tracing,
        )
        self.delivery: Delivery
        if settings.is_ordered:

            async def put_aside(message: ReceivedMessage, reason: str) -> None:
                if is_shared:
                    await retries.bury(message, reason)
                    dead_letters.tell(message, reason)
                if self.popped is not None:
                    await self.popped.acknowledge(message)

            async def limit(message: ReceivedMessage) -> int | None:
                if settings.key_of is None or not is_shared:
                    return settings.max_retries
                # The offset of the queue waits for the key: not for ever.
                return await dead_letters.limit(message)

            self.delivery = OrderedDelivery(
                parts,
                put_aside=put_aside,
                limit=limit,
                suspend_s=settings.suspend_s,
                backoff=settings.backoff_of_keys if settings.key_of is not None else None,
                key_of=settings.key_of,
            )
        else:
            self.delivery = ConcurrentDelivery(parts)

    def __repr__(self) -> str:
        return f"<Handling {self._handlers!r} {self.delivery!r}>"

    def is_done_by(self, caller: Hashable) -> bool:
        """Whether the caller, by default the current task, runs a handler."""
        me = caller if caller is not None else asyncio.current_task()
        return self.delivery.is_done_by(me) or self._handlers.is_run_by(me)

    def deliver(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None:
        if late := expired(messages, self._now_ms):
            self._drop(reader.held, late)
            messages = [message for message in messages if message not in late]
        self.delivery.deliver(reader.held, messages)

    async def give_up(self, held: InFlight[ReceivedMessage]) -> None:
        """Start no more messages of a queue; return when its handlers need not be waited for."""
        await self.delivery.close(held)
        if self.popped is not None:
            running = set(map(id, self.delivery.unfinished()))
            await self.popped.show_again([message for message in held if id(message) not in running])

    def committable(self, reader: QueueReader) -> int | None:
        return reader.held.committable if self.popped is None else None

    def _drop(self, held: HeldQueue, requests: list[ReceivedMessage]) -> None:
        """Requests whose senders wait no more are done."""
        first = requests[0]
        application_log.info(
            "requests dropped, they have expired topic=%s count=%d first=%s",
            first.topic,
            len(requests),
            first.message_id,
        )
        for request in requests:
            self._settling.succeeded(held, request)

    async def handle_now(self, message: ReceivedMessage) -> None:
        """Handle a message at once, for an operator."""
        handler = self._handlers.find(message)
        if handler is None:
            raise NoHandler.of(message)
        if isinstance(handler, MessageStream):
            await handler.handle(message)
        elif handler.is_async:
            await handler.run([message])
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._threads, handler.run_plain, [message], loop)

    async def finish(self, *, is_failed: bool, reader: Hashable) -> None:
        """Wait up to `stop_grace_s` for running handlers; `reader` as in `MessageStream.finish`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._grace_s
        for stream in self._handlers.streams:
            stream.end()
        for stream in self._handlers.streams:
            with contextlib.suppress(TimeoutError):
                # Not `wait_for`: the stream must see the current task.
                async with asyncio.timeout_at(deadline):
                    await stream.finish(is_failed=is_failed, reader=reader)
            known = set(self.delivery.unfinished())  # an ordered delivery knows them itself
            log_cut_off(message for message in stream.taken if message not in known)
        await self.delivery.stop(max(0.0, deadline - loop.time()))
        if self._tracing is not None:
            await self._tracing.close()

    def dismiss_threads(self) -> None:
        atexit.unregister(self._wait_at_exit)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _wait_at_exit(self) -> None:
        if os.getpid() != self._pid:
            return  # a forked child has no such threads
        self.delivery.begin_no_more()
        self._threads.shutdown(wait=False, cancel_futures=True)
        if not self._threads.join(self._grace_s):
            log_cut_off(self.delivery.unfinished())
