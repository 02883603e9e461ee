"""Work that held the event loop for a millisecond or longer, by cause. All other clients wait meanwhile.

Requests are timed anyway; the rest is timed here. Garbage is collected in the middle of other work, and a
request may have to wait for the next file of the log: such time counts once, under its own cause.
"""

import gc
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar

from pyromq.broker.flow.appending import Appending
from pyromq.broker.services.upkeep import Upkeep
from pyromq.clock import Clock
from pyromq.metrics import Metrics

T = TypeVar("T")

HELD_S: Final = 0.001
REQUEST, LOG_FILE, GARBAGE, END_OF_TURN = "request", "log_file", "garbage", "end_of_turn"
_BOUNDS: Final = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_COLLECTIONS: Final = 16
"""Long collections that one piece of work can have had, at most."""


class Stalls:
    def __init__(self, metrics: Metrics, clock: Clock, log_file: Callable[[], int]) -> None:
        """`log_file` says which file of the log is written to."""
        self._monotonic = clock.monotonic
        self._log_file = log_file
        self._last_log_file = log_file()
        self._histogram = metrics.histogram(
            "pyromq_broker_stall_seconds",
            "Work that kept all other clients waiting for a millisecond or longer.",
            ("cause", "request"),
            _BOUNDS,
        )
        for cause in (LOG_FILE, GARBAGE, END_OF_TURN):
            self._histogram.of((cause, ""))  # 0, rather than nothing, before the first one
        self._collections: deque[tuple[float, float]] = deque(maxlen=_COLLECTIONS)
        """Long ones since the last stall: when they ended, and how long they took."""
        self._collection_began = 0.0

    def __repr__(self) -> str:
        return f"<Stalls {self._histogram!r}>"

    def note(self, cause: str, seconds: float, request: str = "") -> None:
        """Work of at least `HELD_S` has just ended."""
        began = self._monotonic() - seconds
        while self._collections:
            ended, collecting_s = self._collections.popleft()
            if ended > began:
                seconds -= collecting_s
        if (log_file := self._log_file()) != self._last_log_file:
            self._last_log_file = log_file
            cause, request = LOG_FILE, ""
        if seconds >= HELD_S:
            self._histogram.observe(seconds, (cause, request))

    def timed(self, cause: str, work: Callable[[], T]) -> Callable[[], T]:
        monotonic = self._monotonic

        def timed_work() -> T:
            started = monotonic()
            try:
                return work()
            finally:
                if (seconds := monotonic() - started) >= HELD_S:
                    self.note(cause, seconds)

        return timed_work

    def watch(self, appending: Appending, upkeep: Upkeep) -> None:
        appending.end_of_turn = self.timed(END_OF_TURN, appending.end_of_turn)
        upkeep.keep_store = self.timed("store_upkeep", upkeep.keep_store)
        upkeep.sample = self.timed("statistics", upkeep.sample)

    @contextmanager
    def watching_garbage(self) -> Iterator[None]:
        gc.callbacks.append(self._collecting)
        try:
            yield
        finally:
            gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, _: Mapping[str, int]) -> None:
        now = self._monotonic()
        if phase == "start":
            self._collection_began = now
        elif (seconds := now - self._collection_began) >= HELD_S:
            self._collections.append((now, seconds))
            self._histogram.observe(seconds, (GARBAGE, ""))
