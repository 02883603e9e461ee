"""A thread runs a plain handler for one message after the other.

Switching threads costs more than most handlers. Threads share a lot without a lock: its iterator gives every
message to one of them. They are settled on the event loop, when the thread's turn is over.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from operator import length_hint
from typing import NamedTuple

import msgspec

from pyromq.client.consumer.handling.handlers import Handler, MessageStream
from pyromq.client.consumer.handling.runs import Lot
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.values import ReceivedMessage

_BUSY = 0.7
_SMALL_S = 0.0005


class SharedLot(Lot):
    """Messages that threads take; those that `claims` has left wait."""

    def __init__(
        self,
        held: InFlight[ReceivedMessage],
        messages: list[ReceivedMessage],
        handler: Handler | MessageStream | None,
        counts: Counts,
    ) -> None:
        super().__init__(held, messages, handler, counts)
        self.claims: Iterator[ReceivedMessage] = iter(messages)

    @property
    def waiting(self) -> int:
        return length_hint(self.claims)

    def take(self, count: int) -> list[ReceivedMessage]:
        return list(islice(self.claims, count))


class Part(msgspec.Struct, eq=False):
    """The outcome of one lot in a run."""

    lot: Lot
    done: list[ReceivedMessage] = []
    failed: list[tuple[list[ReceivedMessage], BaseException, float, float]] = []
    """With the error, and the times at which the handler was called and ended."""
    calls: int = 0
    spent_s: float = 0.0
    """For those that are done."""
    ended: float = 0.0


class ThreadRun:
    """One turn of a thread."""

    def __init__(self, handler: Handler, batch_size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.handler = handler
        self.parts: list[Part] = []
        self.taken = 0
        self.now: tuple[list[ReceivedMessage], float] | None = None
        """The messages that are being handled, and since when."""
        self.settled: set[int] = set()
        """The identities of messages that were settled meanwhile, because the thread was lost."""
        self.thread: threading.Thread | None = None
        self._batch_size = batch_size
        self._loop = loop

    def __repr__(self) -> str:
        return f"<ThreadRun {self.handler!r} taken={self.taken}>"

    def go_through(
        self, lot: SharedLot, is_over: Callable[[float], bool], monotonic: Callable[[], float]
    ) -> bool:
        """Handle messages of a lot until none is left; whether the turn was over before."""
        part, held = Part(lot), lot.held
        self.parts.append(part)
        begun = monotonic()
        call, loop, size = self.handler.run_plain, self._loop, self._batch_size
        while (messages := lot.take(size)) and not held.is_closing:
            self.taken += 1
            self.now = messages, begun
            try:
                call(messages, loop)
            except BaseException as problem:  # sys.exit() on a thread is only a failed handler
                ended = monotonic()
                part.failed.append((messages, problem, begun, ended))
            else:
                ended = monotonic()
                part.done += messages
                part.calls += 1
                part.spent_s += ended - begun
            self.now = None
            part.ended = begun = ended
            if is_over(ended):
                return True
        return False


class Load(NamedTuple):
    """The CPU time and work of the process at one moment."""

    at: float
    cpu_s: float
    taken: int

    @classmethod
    def now(cls, monotonic: Callable[[], float], taken: int) -> "Load":
        return cls(monotonic(), time.process_time(), taken)

    def has_filled_the_interpreter(self, now: "Load") -> bool:
        """Whether short handlers kept it busy: then more threads would only wait for each other."""
        cpu_s = now.cpu_s - self.cpu_s
        return cpu_s > _BUSY * (now.at - self.at) and cpu_s < _SMALL_S * (now.taken - self.taken)
