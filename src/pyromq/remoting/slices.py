"""Long work on the event loop, cut into slices of half a millisecond.

All work that grows with a peer's input or with the stored data shares one `Slices`. Work runs at once while
time is left in this slice. The rest waits in FIFO order. Between two slices there is a whole turn of the loop
for other requests. If they took longer than a slice, the next slice lasts as long as they did, up to four
milliseconds, so that long work has half of a busy loop, too.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from pyromq.clock import Clock

T = TypeVar("T")

Step = Callable[[], bool]
"""A piece of work that stops when the slice is over; returns whether it is finished."""

SLICE_S = 0.0005
MAX_FACTOR = 8


class Slices:
    def __init__(self, clock: Clock, slice_s: float = SLICE_S) -> None:
        self._monotonic = clock.monotonic
        self._slice_s = slice_s
        self._ends_at = 0.0
        self._is_counting = False
        self._waiting: deque[Step | asyncio.Future[float]] = deque()
        """Steps, and futures that wake coroutines."""
        self.pauses = 0
        """How many times work had to wait for another slice."""

    def __repr__(self) -> str:
        return f"<Slices of {self._slice_s} s waiting={len(self._waiting)} pauses={self.pauses}>"

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def is_over(self) -> bool:
        """Whether the time for long work is used up, until the next slice begins."""
        if not self._is_counting:
            self._begin(self._slice_s)
            return False
        return self._monotonic() >= self._ends_at

    def is_over_for_newcomer(self) -> Callable[[], bool]:
        """Like `is_over`, for work that starts now: it gets at least a quarter of a slice."""
        until = self._monotonic() + self._slice_s / 4
        return lambda: self._monotonic() >= until and self.is_over()

    def run(self, step: Step) -> None:
        """Run a step now if there is time and nothing waits; if it does not finish, continue it later."""
        if self._waiting or self.is_over() or not step():
            self._wait(step)

    async def wait_for_turn(self) -> None:
        """Return at once while there is time; otherwise wait for the caller's next turn."""
        if not self._waiting and not self.is_over():
            return
        woken: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._wait(woken)
        slice_s = await woken
        self._ends_at = self._monotonic() + slice_s

    async def spread(self, items: Iterable[T]) -> AsyncIterator[T]:
        """Yield the items, with a pause whenever the slice is over."""
        await self.wait_for_turn()
        for item in items:
            if self.is_over():
                await self.wait_for_turn()
            yield item

    def _wait(self, step: "Step | asyncio.Future[float]") -> None:
        self.pauses += 1
        self._waiting.append(step)

    def _begin(self, slice_s: float) -> None:
        self._is_counting = True
        self._ends_at = self._monotonic() + slice_s
        asyncio.get_running_loop().call_soon(self._serve_others)

    def _serve_others(self) -> None:
        asyncio.get_running_loop().call_soon(self._next_slice)

    def _next_slice(self) -> None:
        if not self._waiting:
            self._is_counting = False
            return
        others_s = self._monotonic() - self._ends_at
        slice_s = max(self._slice_s, min(others_s, MAX_FACTOR * self._slice_s))
        self._begin(slice_s)
        # Run each waiting step at most once. The first one runs even if the slice is over.
        for _ in range(len(self._waiting)):
            step = self._waiting.popleft()
            if isinstance(step, asyncio.Future):
                if not step.done():
                    self._ends_at = self._monotonic()  # it belongs to the coroutine, which runs next
                    step.set_result(slice_s)
                    return
            elif not step():
                self.pauses += 1
                self._waiting.append(step)
            if self._monotonic() >= self._ends_at:
                return
