"""What a stream does for every message: the next one is taken, and the one before is done.

There is a compiled twin of both classes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING

from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.values import ReceivedMessage
from pyromq.compiled import twin

SettleOne = Callable[[ReceivedMessage, BaseException | None], None]
"""Called once with each message that was taken, and with its error; None if it was handled."""


class InterpretedOffer:
    """Messages of one queue for a stream. Those that were handled are done at once.

    `otherwise` is called for those that failed.
    """

    __slots__ = ("_counts", "_held", "_monotonic", "_otherwise", "_started")

    def __init__(
        self,
        held: InFlight[ReceivedMessage],
        counts: Counts,
        monotonic: Callable[[], float],
        otherwise: SettleOne,
    ) -> None:
        self._held = held
        self._counts = counts
        self._monotonic = monotonic
        self._otherwise = otherwise
        self._started = monotonic()

    def __call__(self, message: ReceivedMessage, problem: BaseException | None) -> None:
        held, counts = self._held, self._counts
        if problem is not None:
            self._otherwise(message, problem)
        elif not held.is_dropped:
            now = self._monotonic()
            held.done(message)
            held.last_done = now
            counts.handled += 1
            counts.handle_ms += (now - self._started) * 1000
            counts.succeeded += 1


class InterpretedTaking:
    """`next_for` of a subclass waits for the next message of a reader."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[ReceivedMessage, Callable[[], bool], SettleOne]] = deque()
        self._taken: dict[Hashable, tuple[ReceivedMessage, SettleOne]] = {}
        self._all_settled: asyncio.Future[None] | None = None
        self._is_observed = False

    def next_for(self, me: Hashable) -> Awaitable[ReceivedMessage | None]:
        raise NotImplementedError

    async def __anext__(self) -> ReceivedMessage:
        me = asyncio.current_task()
        message = None if self._is_observed else self._take(me)
        if message is None:
            # Another coroutine would cost more than most messages, so it is only for those who wait.
            message = await self.next_for(me)
        if message is None:
            raise StopAsyncIteration
        return message

    def _take(self, me: Hashable) -> ReceivedMessage | None:
        """The next message, if one is there; the reader's last one is done now."""
        taken = self._taken
        if me in taken:
            self._settle(me, None)
        waiting = self._waiting
        while waiting:
            message, is_dropped, settle = waiting.popleft()
            if not is_dropped():
                taken[me] = (message, settle)
                return message
        return None

    def _settle(self, reader: Hashable, problem: BaseException | None) -> None:
        message, settle = self._taken.pop(reader)
        settle(message, problem)
        if self._all_settled is not None:
            self._tell_finisher()

    def _tell_finisher(self) -> None:
        if self._all_settled is not None and not self._taken and not self._all_settled.done():
            self._all_settled.set_result(None)


_twin = twin("taking")

if TYPE_CHECKING:
    Offer = InterpretedOffer
    Taking = InterpretedTaking
else:
    Offer, Taking = (InterpretedOffer, InterpretedTaking) if _twin is None else (_twin.Offer, _twin.Taking)
