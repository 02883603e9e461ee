"""The messages of one queue in flight: pulled, not yet done.

Only offsets up to the first message that is not done may be committed. A queue that is given up is marked as
dropped; nothing of it is committed after that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from pyromq.clock import Clock
from pyromq.compiled import twin
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.inspection import ProcessQueueInfo

LOCK_VALID_S = 30.0
"""A lock that was not renewed for this long is not trusted any more."""

LOCK_EXPIRES_S = 60.0
"""java: after this time without renewal a broker gives the lock to another client."""

_MIB = 1024 * 1024


class HeldMessage(Protocol):
    @property
    def queue_offset(self) -> int: ...
    @property
    def body_bytes(self) -> int: ...


M = TypeVar("M", bound=HeldMessage)


class InterpretedHeld:
    """The messages held of a queue, and all that changes when one is done. There is a compiled twin.

    `_tell` of a subclass wakes those who wait for room, or until nothing is held.
    """

    def __init__(self, last_offset: int) -> None:
        self.is_dropped = False
        self.is_closing = False
        """Whether no more of its messages may be started."""
        self.size_bytes = 0
        self.last_done = 0.0
        """When one of its messages was last handled."""
        self._messages: dict[int, Any] = {}
        self._last_offset = last_offset
        self._has_room_again: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None

    def _tell(self) -> None:
        raise NotImplementedError

    def hold(self, messages: Iterable[HeldMessage]) -> None:
        for message in messages:
            self._last_offset = message.queue_offset
            self._messages[self._last_offset] = message
            self.size_bytes += message.body_bytes

    def done(self, message: Any) -> None:
        """The message was handled, or given back to its broker."""
        if self._messages.pop(message.queue_offset, None) is not None:
            self._let_go(message.body_bytes)

    def done_all(self, messages: Iterable[Any]) -> None:
        size_bytes = 0
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                size_bytes += message.body_bytes
        self._let_go(size_bytes)

    def _let_go(self, size_bytes: int) -> None:
        """Messages of this size are no longer held."""
        self.size_bytes -= size_bytes
        if self._has_room_again is not None or self._idle is not None:
            self._tell()


_twin = twin("client.twin_pulled_message")

if TYPE_CHECKING:
    HeldMessages = InterpretedHeld
else:
    HeldMessages = InterpretedHeld if _twin is None else _twin.HeldMessages


@dataclass(frozen=True, slots=True)
class Thresholds:
    """How much of one queue may be held before pulling pauses; None means no limit."""

    messages: int = 1000
    size_bytes: int = 100 * _MIB
    span: int | None = 2000

    def for_each_of(
        self, queue_count: int, topic_messages: int | None, topic_size_bytes: int | None
    ) -> "Thresholds":
        """The limits of a topic divided by the number of its queues."""
        count = max(queue_count, 1)
        limits = self
        if topic_messages is not None:
            limits = replace(limits, messages=max(1, topic_messages // count))
        if topic_size_bytes is not None:
            limits = replace(limits, size_bytes=max(1, topic_size_bytes // count))
        return limits


class InFlight(HeldMessages, Generic[M]):
    """The messages of one queue between the pull and the commit, in the order of their offsets.

    `relock` locks the queue again and says whether its messages may be handled now; None where the queue
    needs no lock.
    """

    def __init__(
        self,
        queue: MessageQueue,
        offset: int,
        thresholds: Thresholds,
        clock: Clock,
        relock: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        super().__init__(offset)
        self.queue = queue
        self.relock = relock
        self.next_offset = offset
        """Where the next pull starts."""
        self._closing = asyncio.Event()
        self._relocking = asyncio.Lock()
        self.is_locked = False
        self.last_pull_ms = clock.now_ms()
        self.last_done = clock.monotonic()
        self.last_lock_ms = 0
        self._locked_at = 0.0
        self._thresholds = thresholds
        self._clock = clock

    def __repr__(self) -> str:
        state = "dropped" if self.is_dropped else f"held={len(self._messages)}"
        return f"<InFlight {self.queue} {state} committable={self.committable} next={self.next_offset}>"

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[M]:
        return iter(self._messages.values())

    def put(self, messages: Iterable[M], next_offset: int) -> None:
        """Hold the messages of a pull, and remember the offset of the next one."""
        self.hold(messages)
        self.next_offset = next_offset
        self.last_pull_ms = self._clock.now_ms()

    def _tell(self) -> None:
        if self._has_room_again is not None and self.has_room:
            self._wake()
        if self._idle is not None and not self._messages:
            self._idle.set_result(None)
            self._idle = None

    @property
    def committable(self) -> int:
        """The first offset that is not done."""
        return next(iter(self._messages), self.next_offset)

    @property
    def span(self) -> int:
        """The distance from the first message that is not done to the last one held."""
        return self._last_offset - self.committable if self._messages else 0

    # Limits

    @property
    def thresholds(self) -> Thresholds:
        return self._thresholds

    @thresholds.setter
    def thresholds(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        if self._has_room_again is not None and self.has_room:
            self._wake()

    @property
    def has_room(self) -> bool:
        limits = self._thresholds
        return (
            len(self._messages) <= limits.messages
            and self.size_bytes <= limits.size_bytes
            and (limits.span is None or self.span <= limits.span)
        )

    async def wait_for_room(self) -> None:
        """Wait until the thresholds allow another pull, or the queue is dropped."""
        while not self.has_room and not self.is_dropped:
            if self._has_room_again is None:
                self._has_room_again = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._has_room_again)

    async def wait_until_empty(self) -> None:
        """Wait until everything held is done, or the queue is dropped."""
        while self._messages and not self.is_dropped:
            if self._idle is None:
                self._idle = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        """Have no more of its messages started."""
        self.is_closing = True
        self._closing.set()

    async def wait_until_closing(self) -> None:
        await self._closing.wait()

    def drop(self) -> None:
        """Give the queue up: forget held messages, and commit none that are being handled."""
        self.is_dropped = True
        self.close()
        self._messages.clear()
        self.size_bytes = 0
        self._wake()
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _wake(self) -> None:
        if self._has_room_again is not None:
            self._has_room_again.set_result(None)
            self._has_room_again = None

    # Locks of ordered consumers

    def lock(self) -> None:
        self.is_locked = True
        self._locked_at = self._clock.monotonic()
        self.last_lock_ms = self._clock.now_ms()

    def unlock(self) -> None:
        self.is_locked = False

    def lock_as(self, former: "InFlight[M]") -> None:
        """The queue is locked since the same time, if at all."""
        self.is_locked = former.is_locked
        self._locked_at, self.last_lock_ms = former._locked_at, former.last_lock_ms

    @property
    def may_be_pulled(self) -> bool:
        """Whether the queue needs no lock, or a broker has locked it for us."""
        return self.relock is None or self.is_locked

    @property
    def is_ours(self) -> bool:
        """Whether the queue needs no lock, or we renewed the lock recently enough to trust it: only then its
        messages may be handled, and its offset committed."""
        return self.relock is None or self.is_lock_valid

    async def make_ours(self) -> bool:
        """Lock the queue again if that is needed; returns whether its messages may be handled now."""
        async with self._relocking:
            return self.is_ours or (self.relock is not None and await self.relock())

    @property
    def is_lock_valid(self) -> bool:
        return self.is_locked and self._lock_age_s <= LOCK_VALID_S

    @property
    def _lock_age_s(self) -> float:
        """By both clocks: one stands still while the machine is suspended, the other may be set back."""
        by_wall_clock_s = (self._clock.now_ms() - self.last_lock_ms) / 1000
        return max(self._clock.monotonic() - self._locked_at, by_wall_clock_s)

    @property
    def may_have_been_read_by_others(self) -> bool:
        """Whether the lock may have expired, so that another member could have read the queue."""
        return not self.is_locked or self._lock_age_s > LOCK_EXPIRES_S

    # For operators

    def info(self, *, is_ordered: bool) -> ProcessQueueInfo:
        """The state as operators see it."""
        # java: messages of an ordered queue are counted as a transaction
        in_order = len(self._messages) if is_ordered else 0
        first, last = (self.committable, self._last_offset) if self._messages else (0, 0)
        return ProcessQueueInfo(
            cached_msg_count=len(self._messages),
            cached_msg_max_offset=last,
            cached_msg_min_offset=first,
            cached_msg_size_in_mi_b=self.size_bytes // _MIB,
            commit_offset=self.committable,
            droped=self.is_dropped,
            last_consume_timestamp=self._clock.now_ms()
            - round((self._clock.monotonic() - self.last_done) * 1000),
            last_lock_timestamp=self.last_lock_ms,
            last_pull_timestamp=self.last_pull_ms,
            locked=self.is_locked,
            transaction_msg_count=in_order,
            transaction_msg_max_offset=last if in_order else 0,
            transaction_msg_min_offset=first if in_order else 0,
            try_unlock_times=0,
        )
