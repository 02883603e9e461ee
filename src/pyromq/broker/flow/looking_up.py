"""Single messages by time, by key or by their place: those of this disk at once, older ones in the tier.

Threads look into the tier for at most half of `tierReadTimeout`, so that the answer comes before the caller's
own time-out. If the tier is away, or the time is not enough, the answer says so instead of "not found".
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, NoReturn, TypeVar

from pyromq.broker.settings import BrokerSettings
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.errors import PyroError, Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.pulling import QueryMessage
from pyromq.store.message_store import MessageStore
from pyromq.store.older_messages import OlderUnknown
from pyromq.store.results import Boundary
from pyromq.tier.history import OlderHistory
from pyromq.tier.lookups import FoundByKey, IsOver, TierLookups
from pyromq.tier.objects import ObjectMissing

_THREADS: Final = 2
_PATIENCE: Final = 0.8
"""Of `tierReadTimeout`, for a store that does not answer."""

T = TypeVar("T")


class OlderLookups:
    """Looks into the tier."""

    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        clock: Clock,
        history: OlderHistory,
        lookups: TierLookups,
    ) -> None:
        self._live = live
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tier-look")
        self.history = history
        self._lookups = lookups

    def __repr__(self) -> str:
        return f"<OlderLookups {self._lookups!r}>"

    async def offset_at(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary, log_start: int
    ) -> int | None:
        """None if the disk has what is looked for. Raises Refused."""
        try:
            found = self.history.at_time(topic, queue_id, timestamp_ms, boundary, log_start)
        except OlderUnknown as problem:
            _refuse(problem)
        if found is None or isinstance(found, int):
            return found
        gone_before = self.history.gone_before(topic, queue_id)
        return await self._look(lambda _: self._lookups.offset_at(found, timestamp_ms, boundary, gone_before))

    async def with_key(self, request: QueryMessage, limit: int, before_log: int) -> FoundByKey:
        """Messages before a log offset."""
        try:
            wanted = self.history.wanted_key(
                request.topic,
                request.key,
                limit,
                (request.begin_timestamp, request.end_timestamp),
                before_log,
                is_unique=bool(request.is_unique_key),
            )
        except OlderUnknown as problem:
            return FoundByKey([], str(problem))
        index = self.history.index
        try:
            return await self._look(lambda is_over: self._lookups.with_key(index, wanted, is_over))
        except Refused as refusal:
            return FoundByKey([], str(refusal))

    async def record_at(self, log_offset: int, topic: str) -> bytes | None:
        """The message of a queue that begins at a log offset. Raises Refused."""
        try:
            entry = self.history.segment_at(log_offset)
        except OlderUnknown as problem:
            _refuse(problem)
        if entry is None:
            return None
        index = self.history.index
        record = await self._look(
            lambda is_over: self._lookups.record_at(index, entry, log_offset, topic, is_over)
        )
        return record if record is not None and self.history.has(record) else None

    async def _look(self, work: Callable[[IsOver], T]) -> T:
        timeout_ms = self._live.now.tier_read_timeout_ms
        end = self._clock.monotonic() + timeout_ms / 2000

        def is_over() -> bool:
            return self._clock.monotonic() >= end

        future = self._loop.run_in_executor(self._threads, work, is_over)
        try:
            async with asyncio.timeout(_PATIENCE * timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"the tier did not answer within {_PATIENCE * timeout_ms:.0f} ms: ask again",
            ) from None
        except PyroError as problem:
            _refuse(problem)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _refuse(problem: PyroError) -> NoReturn:
    text = f"{problem} is missing" if isinstance(problem, ObjectMissing) else str(problem)
    raise Refused(ResponseCode.SYSTEM_ERROR, f"older messages cannot be looked at now: {text}") from None


class KeyedMessages(NamedTuple):
    records: "list[memoryview | bytes]"
    """In the order of the log."""
    problem: str
    """Why there may be older ones; empty if everything was looked at."""


class LookingUp:
    def __init__(self, store: MessageStore, older: OlderLookups | None = None) -> None:
        """`older`: the messages before those of this disk."""
        self._store = store
        self._older = older

    def __repr__(self) -> str:
        return f"<LookingUp {self._older!r}>"

    def is_offset_here(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> bool:
        """Whether `offset_here` knows the answer."""
        return self._older is None or not self._store.queues.may_be_older(
            topic, queue_id, timestamp_ms, boundary
        )

    def offset_here(self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary) -> int:
        return self._store.queues.offset_by_time(topic, queue_id, timestamp_ms, boundary)

    async def older_offset(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> int | None:
        """LOWER: the first message that was stored at or after a time. UPPER: the last one stored at or
        before it. None if this disk has it. Raises Refused if that cannot be known now."""
        if self._older is None or self.is_offset_here(topic, queue_id, timestamp_ms, boundary):
            return None
        start = self._store.log.start
        return await self._older.offset_at(topic, queue_id, timestamp_ms, boundary, start)

    async def offset_at(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The first message that was stored at or after a time. Raises Refused."""
        found = await self.older_offset(topic, queue_id, timestamp_ms, Boundary.LOWER)
        return found if found is not None else self.offset_here(topic, queue_id, timestamp_ms, Boundary.LOWER)

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """When the oldest message of a queue was stored; -1 if there is none. Raises Refused."""
        try:
            return self._store.queues.earliest_time(topic, queue_id)
        except OlderUnknown as problem:
            _refuse(problem)

    def has_older(self, request: QueryMessage, here: int, limit: int) -> bool:
        """Whether messages with a key may be missing among those of this disk, which are `here`."""
        if self._older is None or not request.key or not self._store.log.start:
            return False
        first_ms = self._store.log.earliest_time()
        if 0 <= first_ms < request.begin_timestamp:
            return False
        return here < (1 if request.is_unique_key else min(limit, self._store.log.max_query_messages))

    async def with_key(self, request: QueryMessage, here: "list[memoryview]", limit: int) -> KeyedMessages:
        """The newest messages with a key; `here`: those of this disk."""
        if self._older is None:
            return KeyedMessages([*here], "")
        most = min(limit, self._store.log.max_query_messages) - len(here)
        older = await self._older.with_key(request, most, self._store.log.start)
        return KeyedMessages([*older.records, *here], older.problem)

    def is_place_here(self, log_offset: int) -> bool:
        """Whether the tier cannot have the message at a log offset."""
        return self._older is None or not 0 <= log_offset < self._store.log.start

    async def record_before_log(self, log_offset: int, topic: str) -> bytes | None:
        """A message that this disk does not have any more. Raises Refused."""
        return await self._older.record_at(log_offset, topic) if self._older is not None else None
