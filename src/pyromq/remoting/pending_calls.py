"""Our own calls on one connection that have not been answered yet.

Each side numbers its own calls. An answer is matched against our numbers, whatever numbers the peer uses for
its calls.
"""

import asyncio
import math
from typing import Protocol

from pyromq.errors import ConnectionLost
from pyromq.protocol.frame import Frame


class Waiting(Protocol):
    """A waiter for an answer: a future, or something simpler."""

    def done(self) -> bool: ...
    def set_result(self, frame: Frame, /) -> None: ...
    def set_exception(self, problem: Exception, /) -> None: ...


_NOBODY: tuple[None, float] = (None, 0.0)


class PendingCalls:
    __slots__ = ("_loop", "_next_opaque", "_timer", "_timer_at", "by_opaque")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.by_opaque: dict[int, tuple[Waiting, float]] = {}
        self._next_opaque = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    def __len__(self) -> int:
        return len(self.by_opaque)

    def take_opaque(self) -> int:
        opaque = self._next_opaque
        # java: the counter is an int32 that wraps through the negative numbers
        self._next_opaque = opaque + 1 if opaque != 0x7FFFFFFF else -0x80000000
        return opaque

    def take_opaques(self, count: int) -> int:
        """The first of `count` numbers in a row, which wrap in the same way."""
        opaque = self._next_opaque
        self._next_opaque = (opaque + count + 0x80000000) % 0x100000000 - 0x80000000
        return opaque

    def wait(self, opaque: int, timeout_s: float) -> "asyncio.Future[Frame]":
        """A future of the answer; it fails with TimeoutError or ConnectionLost. A caller that gives up must
        remove its number from `by_opaque`."""
        answered: asyncio.Future[Frame] = self._loop.create_future()
        self.expect(opaque, answered, timeout_s)
        return answered

    def expect(self, opaque: int, waiting: Waiting, timeout_s: float) -> None:
        """The same for something that waits instead of a future."""
        deadline = self._loop.time() + timeout_s
        self.by_opaque[opaque] = (waiting, deadline)
        if deadline < self._timer_at:
            self._expire_at(deadline)

    def take(self, frame: Frame) -> bool:
        """Hand an answer to its call; False if no call waits for it."""
        answered, _ = self.by_opaque.pop(frame.opaque, _NOBODY)
        if answered is None or answered.done():
            return False
        answered.set_result(frame)
        return True

    def fail(self, reason: str) -> None:
        """The connection is lost: fail every call."""
        if self._timer is not None:
            self._timer.cancel()
        waiting = list(self.by_opaque.values())
        self.by_opaque.clear()
        for answered, _ in waiting:
            if not answered.done():
                answered.set_exception(ConnectionLost(reason))

    def _expire_at(self, deadline: float) -> None:
        """One timer serves all calls: most are answered early, and most have the same timeout."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        now = self._loop.time()
        self._timer, self._timer_at = None, math.inf
        soonest = math.inf
        for opaque, (answered, deadline) in list(self.by_opaque.items()):
            if deadline > now:
                soonest = min(soonest, deadline)
            else:
                del self.by_opaque[opaque]
                if not answered.done():
                    answered.set_exception(TimeoutError())
        if soonest < math.inf:
            self._expire_at(soonest)
