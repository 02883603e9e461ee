"""The work of a stream for every message: the next one is taken, and the one before is done.

There is a compiled twin of the classes.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING

from pyromq.client.consumer.handling.loops import FAILED, is_left_on_purpose
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.stats import Counts
from pyromq.client.values import ReceivedMessage
from pyromq.compiled import twin

SettleOne = Callable[[ReceivedMessage, BaseException | None], None]
"""Called once with each message that was taken, and with its error; None if it was handled."""


class InterpretedOffer:
    """Messages for a stream; those from `next` on wait to be taken, unless `is_dropped` says otherwise."""

    def __init__(
        self, messages: list[ReceivedMessage], is_dropped: Callable[[], bool], settle: SettleOne
    ) -> None:
        self.messages = messages
        self.next = 0
        self._is_dropped = is_dropped
        self._settle = settle

    @property
    def waiting(self) -> int:
        return len(self.messages) - self.next

    def take(self) -> ReceivedMessage | None:
        if self.next >= len(self.messages) or self.drops():
            return None
        message = self.messages[self.next]
        self.next += 1
        return message

    def drops(self) -> bool:
        return self._is_dropped()

    def settle(self, message: ReceivedMessage, problem: BaseException | None) -> None:
        self._settle(message, problem)


class InterpretedQueueOffer(InterpretedOffer):
    """Messages of one queue. Those that were handled are done at once; `otherwise` is for the others."""

    def __init__(
        self,
        messages: list[ReceivedMessage],
        held: InFlight[ReceivedMessage],
        counts: Counts,
        monotonic: Callable[[], float],
        otherwise: SettleOne,
    ) -> None:
        super().__init__(messages, bool, otherwise)
        self._held = held
        self._counts = counts
        self._monotonic = monotonic
        self._started = monotonic()

    def drops(self) -> bool:
        return self._held.is_closing

    def settle(self, message: ReceivedMessage, problem: BaseException | None) -> None:
        held, counts = self._held, self._counts
        if problem is not None:
            self._settle(message, problem)
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
        self._waiting: deque[InterpretedOffer] = deque()
        self._taken: dict[Hashable, tuple[ReceivedMessage, InterpretedOffer]] = {}
        self._loops: dict[Hashable, int] = {}
        """Readers that are in a loop, and which."""
        self._left: dict[Hashable, bool] = {}
        """Readers that left a loop with a message: whether on purpose."""
        self._all_settled: asyncio.Future[None] | None = None
        self._is_observed = False

    def next_for(self, me: Hashable) -> Awaitable[ReceivedMessage | None]:
        raise NotImplementedError

    def __aiter__(self) -> "InterpretedLoop":
        return InterpretedLoop(self)

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
        if me in self._taken:
            self._settle(me, FAILED if self._left and self._has_failed(me) else None)
        waiting = self._waiting
        while waiting:
            offer = waiting[0]
            message = offer.take()
            if message is not None:
                self._taken[me] = (message, offer)
                return message
            waiting.popleft()
        return None

    def enter(self, reader: Hashable, loop: int) -> None:
        """The reader begins a loop."""
        if reader in self._loops and reader in self._taken:
            self._left[reader] = False  # its last loop lies in a generator, and ends later
        self._loops[reader] = loop

    def leave(self, reader: Hashable, loop: int, *, on_purpose: bool) -> None:
        if self._loops.get(reader) == loop:
            del self._loops[reader]
            if reader in self._taken:
                self._left[reader] = on_purpose

    def _has_failed(self, reader: Hashable) -> bool:
        """Whether the reader's last message is one at which its loop failed."""
        return not self._left.get(reader, True)

    def _settle(self, reader: Hashable, problem: BaseException | None) -> None:
        message, offer = self._forget(reader)
        offer.settle(message, problem)
        if self._all_settled is not None:
            self._tell_finisher()

    def _forget(self, reader: Hashable) -> tuple[ReceivedMessage, InterpretedOffer]:
        """The reader's last message is no longer its own."""
        if self._left:
            self._left.pop(reader, None)
        return self._taken.pop(reader)

    def _tell_finisher(self) -> None:
        if self._all_settled is not None and not self._taken and not self._all_settled.done():
            self._all_settled.set_result(None)


class InterpretedLoop:
    """One `async for` over a stream."""

    def __init__(self, stream: InterpretedTaking) -> None:
        self._stream = stream
        self._reader: Hashable = None

    def __aiter__(self) -> "InterpretedLoop":
        return self

    def __anext__(self) -> Awaitable[ReceivedMessage]:
        if self._reader is None:
            self._reader = asyncio.current_task()
            self._stream.enter(self._reader, id(self))
        return self._stream.__anext__()

    def __del__(self) -> None:
        if self._reader is not None:
            on_purpose = is_left_on_purpose(sys._getframe(1))
            self._stream.leave(self._reader, id(self), on_purpose=on_purpose)


_twin = twin("client.twin_taking")

if TYPE_CHECKING:
    Offer = InterpretedOffer
    QueueOffer = InterpretedQueueOffer
    Taking = InterpretedTaking
elif _twin is None:
    Offer, QueueOffer, Taking = InterpretedOffer, InterpretedQueueOffer, InterpretedTaking
else:
    Offer, QueueOffer, Taking = _twin.Offer, _twin.QueueOffer, _twin.Taking
