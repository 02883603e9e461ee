"""Long work on the loop, cut into slices: together they take a few milliseconds of each turn.

Everybody whose work grows with what a peer sends or with what is stored shares one `Slices`. Work that finds
time left in this turn is done at once. The rest waits, first come, first served, and goes on in the next
turns; in between the loop serves everybody else.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

from pyromq.clock import Clock

T = TypeVar("T")

Step = Callable[[], bool]
"""A piece of work that stops when the slice is over; says whether it is finished."""

SLICE_S = 0.004


class Slices:
    def __init__(self, clock: Clock, slice_s: float = SLICE_S) -> None:
        self._monotonic = clock.monotonic
        self._slice_s = slice_s
        self._ends_at = 0.0
        self._is_counting = False
        self._waiting: deque[Step | asyncio.Future[None]] = deque()
        """Steps, and coroutines that are woken by a future."""
        self.pauses = 0
        """How often work had to wait for another turn."""

    def __repr__(self) -> str:
        return f"<Slices of {self._slice_s} s waiting={len(self._waiting)} pauses={self.pauses}>"

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def is_over(self) -> bool:
        """Whether the time for long work in this turn of the loop is used up."""
        if not self._is_counting:
            self._begin()
            return False
        return self._monotonic() >= self._ends_at

    def is_over_for_newcomer(self) -> Callable[[], bool]:
        """The same question for work that begins now: something slow before it leaves it a moment still."""
        until = self._monotonic() + self._slice_s / 4
        return lambda: self._monotonic() >= until and self.is_over()

    def run(self, step: Step) -> None:
        """Do a step now if there is time and nobody waits; otherwise, and until it is finished, later."""
        if self._waiting or self.is_over() or not step():
            self._wait(step)

    async def breathe(self) -> None:
        """Return at once while there is time, and otherwise when it is the caller's turn again."""
        if not self._waiting and not self.is_over():
            return
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        self._wait(woken)
        await woken
        while self.is_over():
            # Somebody was quicker in this turn of the loop: the next one is ours.
            woken = loop.create_future()
            self._waiting.appendleft(woken)
            await woken

    async def spread(self, items: Iterable[T]) -> AsyncIterator[T]:
        """The items, with a pause before one whenever the slice is over."""
        await self.breathe()
        for item in items:
            if self.is_over():
                await self.breathe()
            yield item

    def _wait(self, step: "Step | asyncio.Future[None]") -> None:
        self.pauses += 1
        self._waiting.append(step)
        if not self._is_counting:
            self._begin()

    def _begin(self) -> None:
        """The time of a turn begins with the first long work in it."""
        self._is_counting = True
        self._ends_at = self._monotonic() + self._slice_s
        asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        if not self._waiting:
            self._is_counting = False
            return
        self._begin()
        # Each waiting step has its turn at most once, and the first one has it however late it is.
        for _ in range(len(self._waiting)):
            step = self._waiting.popleft()
            if isinstance(step, asyncio.Future):
                if not step.done():
                    step.set_result(None)
                    return  # the coroutine runs after this, and the rest of the slice is its own
            elif not step():
                self.pauses += 1
                self._waiting.append(step)
            if self._monotonic() >= self._ends_at:
                return
