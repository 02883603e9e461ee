"""Gathers messages of several pulls and queues for one call of a handler: N, or those of T seconds."""

import asyncio
from collections.abc import Callable, Iterable

from pyromq.client.consumer.handling.handlers import Handler
from pyromq.client.consumer.handling.settling import HeldQueue
from pyromq.client.consumer.reading.in_flight import HeldMessages
from pyromq.client.values import ReceivedMessage


class HeldTogether(HeldMessages):
    """Messages of several queues: each is done in its own."""

    def __init__(self, pairs: Iterable[tuple[HeldQueue, ReceivedMessage]]) -> None:
        super().__init__(0)
        self._held_by = {id(message): held for held, message in pairs}

    def done(self, message: ReceivedMessage) -> None:
        self._held_by[id(message)].done(message)

    def done_all(self, messages: Iterable[ReceivedMessage]) -> None:
        for message in messages:
            self.done(message)


Emit = Callable[[HeldTogether, list[ReceivedMessage], Handler], None]
"""Gets the messages of one call."""


class Gathering:
    """`emit` is called with `size` messages, or with fewer `wait_s` after the first of them came."""

    def __init__(self, size: int, wait_s: float, emit: Emit, loop: asyncio.AbstractEventLoop) -> None:
        self._size = size
        self._wait_s = wait_s
        self._emit = emit
        self._loop = loop
        self._gathered: dict[tuple[str, Handler], list[tuple[HeldQueue, ReceivedMessage]]] = {}
        self._timers: dict[tuple[str, Handler], asyncio.TimerHandle] = {}

    def __repr__(self) -> str:
        return f"<Gathering {sum(map(len, self._gathered.values()))} messages>"

    def add(self, held: HeldQueue, messages: list[ReceivedMessage], handler: Handler) -> None:
        key = messages[0].topic, handler
        gathered = self._gathered.setdefault(key, [])
        gathered += [(held, message) for message in messages]
        while len(gathered) >= self._size:
            part, gathered = gathered[: self._size], gathered[self._size :]
            self._pass_on(part, handler)
            self._stop_timer(key)
        self._gathered[key] = gathered
        if gathered and key not in self._timers:
            self._timers[key] = self._loop.call_later(self._wait_s, self._time_is_up, key)

    def _time_is_up(self, key: tuple[str, Handler]) -> None:
        self._timers.pop(key, None)
        self._pass_on(self._gathered.pop(key, []), key[1])

    def _pass_on(self, part: list[tuple[HeldQueue, ReceivedMessage]], handler: Handler) -> None:
        part = [pair for pair in part if not pair[0].is_closing]  # those go to another member
        if part:
            self._emit(HeldTogether(part), [message for _, message in part], handler)

    def _stop_timer(self, key: tuple[str, Handler]) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def clear(self) -> None:
        """Forget what was gathered: it is delivered again."""
        for key in list(self._timers):
            self._stop_timer(key)
        self._gathered.clear()
