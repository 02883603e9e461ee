"""The queues assigned to one member: opened, committed, reset to other offsets, given up.

A queue is given up in this order: running handlers finish, then it is committed, then unlocked. So the next
member continues where this one stopped.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Protocol

from pyromq.client.application_log import application_log
from pyromq.client.consumer.group.locks import MemberLocks
from pyromq.client.consumer.reading.in_flight import InFlight
from pyromq.client.consumer.reading.offsets import OffsetStore
from pyromq.client.consumer.reading.queue_reader import QueueReader, ReadingContext
from pyromq.client.values import ReceivedMessage
from pyromq.errors import PyroError, StateError
from pyromq.protocol.body import MessageQueue

_log = logging.getLogger(__name__)

_WAIT_FOR_CLOSING_S = 0.5

RebalanceListener = Callable[[set[MessageQueue], set[MessageQueue]], None]
"""Called with the queues that were assigned and those that were revoked."""


class Runner(Protocol):
    """A consumer's work on the messages of its queues: it runs handlers at the same time or in order,
    feeds streams, or waits until the application polls."""

    @property
    def handle_now(self) -> Callable[[ReceivedMessage], Awaitable[None]] | None:
        """Handles a message for an operator; None where the application polls."""
        ...

    def deliver(self, reader: QueueReader, messages: list[ReceivedMessage]) -> None: ...

    async def give_up(self, held: InFlight[ReceivedMessage]) -> None:
        """Start no more messages of a queue; return when its handlers need not be waited for."""
        ...

    def committable(self, reader: QueueReader) -> int | None:
        """The offset that may be committed, None if there is none."""
        ...


class AssignedQueues:
    """`begin` finds the offset at which a queue is read first."""

    def __init__(
        self,
        reading: ReadingContext,
        runner: Runner,
        locks: MemberLocks | None,
        begin: Callable[[MessageQueue], Awaitable[int]],
        offsets: OffsetStore,
        listeners: Iterable[RebalanceListener],
    ) -> None:
        self._reading = reading
        self._begin = begin
        self._runner = runner
        self._locks = locks
        self._offsets = offsets
        self._listeners = listeners
        self._readers: dict[MessageQueue, QueueReader] = {}
        self._closing: dict[MessageQueue, tuple[QueueReader, asyncio.Task[None]]] = {}
        self._is_paused = False
        self._changing = asyncio.Lock()
        self._restarts: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<AssignedQueues queues={len(self._readers)} closing={len(self._closing)}>"

    def __iter__(self) -> Iterator[QueueReader]:
        return iter(list(self._readers.values()))

    def __len__(self) -> int:
        return len(self._readers)

    @property
    def queues(self) -> set[MessageQueue]:
        return set(self._readers)

    def find(self, queue: MessageQueue) -> QueueReader | None:
        return self._readers.get(queue)

    def reader(self, queue: MessageQueue) -> QueueReader:
        reader = self._readers.get(queue)
        if reader is None:
            raise StateError(f"the queue {queue} is not assigned to this consumer")
        return reader

    # Assigning

    async def hold(self, topic: str, wanted: set[MessageQueue]) -> bool:
        """Hold exactly these queues of a topic; returns whether it does now."""
        async with self._changing:
            mine = {queue: reader for queue, reader in self._readers.items() if queue.topic == topic}
            leaving = [reader for queue, reader in mine.items() if queue not in wanted or reader.has_died]
            await self._give_up(leaving)
            missing = {queue for queue in wanted if queue not in self._readers and queue not in self._closing}
            try:
                opened = await self._open(missing)
            except BaseException:
                if self._locks is not None and missing:
                    # They may be locked but are not read: other members would wait until the locks expire.
                    await self._locks.release(missing - self.queues)
                raise
            if leaving or opened:
                self._spread_thresholds()
                revoked = {reader.queue for reader in leaving}
                _log.info("queues changed topic=%s assigned=%d revoked=%d", topic, len(opened), len(revoked))
                self._tell(opened, revoked)
            return wanted == {queue for queue in self._readers if queue.topic == topic}

    def _tell(self, assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        for listener in self._listeners:
            try:
                listener(assigned, revoked)
            except Exception:
                # The listener is the application's; the assignment stands even if it fails.
                application_log.exception("a rebalance listener failed")

    async def _open(self, queues: set[MessageQueue]) -> set[MessageQueue]:
        if self._locks is not None and queues:
            queues = await self._locks.acquire(queues)

        async def open_one(queue: MessageQueue) -> bool:
            try:
                offset = await self._begin(queue)
            except PyroError as problem:
                self._reading.troubles.of_broker(queue, problem, "no start offset found yet queue=%s", queue)
                return False
            self._reading.troubles.broker_answered(queue)
            reader = self._reading.source.open(queue, offset, self, self._reading)
            if self._locks is not None:
                reader.held.lock()
            if self._is_paused:
                reader.pause()
            self._readers[queue] = reader
            reader.start()
            return True

        ordered = sorted(queues)
        begun = await asyncio.gather(*map(open_one, ordered))
        return {queue for queue, is_begun in zip(ordered, begun, strict=True) if is_begun}

    async def _give_up(self, readers: Iterable[QueueReader]) -> None:
        """Wait a moment for the handlers of these queues; slower ones finish in the background."""
        tasks = []
        for reader in readers:
            del self._readers[reader.queue]
            task = asyncio.create_task(self._close(reader), name=f"give up {reader.queue}")
            self._closing[reader.queue] = (reader, task)
            tasks.append(task)
        if tasks:
            await asyncio.wait(tasks, timeout=_WAIT_FOR_CLOSING_S)

    async def _close(self, reader: QueueReader) -> None:
        try:
            await reader.stop()
            await self._runner.give_up(reader.held)
            offset = self._to_store(reader)
            reader.held.drop()
            if offset is not None:
                await self._store({reader: offset}, confirmed=True)
            if self._locks is not None:
                await self._locks.release([reader.queue])
        finally:
            del self._closing[reader.queue]

    def _spread_thresholds(self) -> None:
        thresholds = self._reading.source.thresholds(len(self._readers))
        for reader in self._readers.values():
            reader.held.thresholds = thresholds

    async def drop_topics_except(self, topics: set[str]) -> None:
        for topic in {queue.topic for queue in self._readers} - topics:
            await self.hold(topic, set())

    # Pausing

    def pause(self, queues: Collection[MessageQueue]) -> None:
        """Stop pulling from these queues; without any, from all, including those assigned later."""
        for reader in self._named(queues):
            reader.pause()
        self._is_paused |= not queues

    def resume(self, queues: Collection[MessageQueue]) -> None:
        for reader in self._named(queues):
            reader.resume()
        self._is_paused &= bool(queues)

    def _named(self, queues: Collection[MessageQueue]) -> list[QueueReader]:
        return [self.reader(queue) for queue in queues] if queues else list(self)

    # Other offsets

    async def begin_at(self, queue: MessageQueue, offset: int, *, for_all: bool = True) -> None:
        """Continue at this offset; `for_all`: store it for the group, too.

        Once begun it is completed, even if the caller is cancelled: half of it would stop the queue.
        """
        work = self._restart(self._begin_at(queue, offset, for_all=for_all))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise StateError(f"the queue {queue} was given up: the consumer is closing") from None
            raise

    async def _begin_at(self, queue: MessageQueue, offset: int, *, for_all: bool) -> None:
        async with self._changing:
            reader = self.reader(queue)
            await reader.stop()
            await self._runner.give_up(reader.held)
            reader.begin_at(offset)
            reader.start()
            problems = await self._store({reader: offset}, confirmed=True) if for_all else {}
        for problem in problems.values():
            raise problem

    async def moved(self, reader: QueueReader, offset: int) -> None:
        """The broker moved the reader to this offset."""
        held = reader.held
        try:
            await self._runner.give_up(held)
        except asyncio.CancelledError:
            # Reading stops. Held messages are not started any more, so waiting for them would never end.
            held.drop()
            held.next_offset = offset
            raise
        reader.begin_at(offset)
        if reader.held.is_ours:
            await self._store({reader: offset}, confirmed=True)

    def begin_soon(self, offsets: dict[MessageQueue, int]) -> None:
        """An operator has reset the offsets of these queues."""

        async def begin() -> None:
            for queue, offset in offsets.items():
                if queue not in self._readers:
                    continue
                try:
                    await self._begin_at(queue, offset, for_all=True)
                    _log.info("offset reset queue=%s offset=%d", queue, offset)
                except PyroError as problem:
                    _log.warning("offset not reset queue=%s offset=%d: %s", queue, offset, problem)

        self._restart(begin())

    def _restart(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)
        return task

    # Committing

    def progress(self) -> dict[MessageQueue, int]:
        """For each queue, the first offset that is not done."""
        return {queue: reader.held.committable for queue, reader in self._readers.items()}

    async def commit(self, *, confirmed: bool = False) -> None:
        """Store every changed offset; `confirmed`: wait for the answers, and raise if one was not stored."""
        changed: dict[QueueReader, int] = {}
        for reader in self._readers.values():
            offset = self._to_store(reader)
            if offset is not None:
                changed[reader] = offset
        if changed:
            problems = await self._store(changed, confirmed=confirmed)
            if confirmed:
                for problem in problems.values():
                    raise problem

    def _to_store(self, reader: QueueReader) -> int | None:
        """The offset to commit, if it has changed. Without the lock, it is for the member that has it now."""
        offset = self._runner.committable(reader) if reader.held.is_ours else None
        return offset if offset != reader.stored_offset else None

    async def _store(
        self, offsets: Mapping[QueueReader, int], *, confirmed: bool
    ) -> dict[MessageQueue, PyroError]:
        """The next commit tries failed ones again; at worst messages are consumed again."""
        wanted = {reader.queue: offset for reader, offset in offsets.items()}
        problems = await self._offsets.store(wanted, confirmed=confirmed)
        for reader, offset in offsets.items():
            problem = problems.get(reader.queue)
            if problem is None:
                reader.stored_offset = offset
            else:
                self._reading.troubles.of_broker(
                    reader.queue, problem, "offset not stored queue=%s offset=%d", reader.queue, offset
                )
        return problems

    # Locks

    async def renew_locks(self) -> None:
        if self._locks is None:
            return
        # Queues that are being given up stay locked until their last handler has finished.
        closing = [reader for reader, _ in self._closing.values()]
        readers = [*self._readers.values(), *closing]
        granted = await self._locks.acquire([reader.queue for reader in readers])
        for reader in readers:
            if reader.queue in granted:
                self._locked(reader)
            else:
                if reader.held.is_locked:
                    _log.warning("lock lost queue=%s", reader.queue)
                reader.held.unlock()

    async def lock(self, queue: MessageQueue) -> bool:
        """Lock one queue again; returns whether its messages may be handled now."""
        assert self._locks is not None
        reader = self._readers.get(queue)
        if reader is None or not await self._locks.acquire_one(queue):
            return False
        return self._locked(reader)

    def _locked(self, reader: QueueReader) -> bool:
        """A broker has granted the lock; returns whether it was ours all the time."""
        held = reader.held
        if not held.may_have_been_read_by_others:
            held.lock()
            return True
        if not held.is_closing:
            # Another member may have continued where we stopped: held messages may be done already. They are
            # neither begun nor committed any more.
            held.unlock()
            held.close()
            self._restart(self._begin_again(reader))
        return False

    async def _begin_again(self, reader: QueueReader) -> None:
        assert self._locks is not None
        async with self._changing:
            if self._readers.get(reader.queue) is not reader:
                return
            await reader.stop()
            await self._runner.give_up(reader.held)
            # Before the offset is read: only the holder of the lock changes it.
            is_locked = await self._locks.acquire_one(reader.queue)
            try:
                reader.begin_at(await self._begin(reader.queue))
            except PyroError as problem:
                _log.warning("offset not read again queue=%s: %s", reader.queue, problem)
                reader.begin_at(reader.held.committable)
                is_locked = False
            if is_locked:
                reader.held.lock()
            reader.start()

    # The end

    async def stop_reading(self) -> None:
        await asyncio.gather(*(reader.stop() for reader in self._readers.values()))

    async def give_up_all(self) -> None:
        for task in list(self._restarts):
            task.cancel()
        await asyncio.gather(*self._restarts, return_exceptions=True)
        async with self._changing:
            await self._give_up(list(self._readers.values()))
            if self._closing:
                await asyncio.wait({task for _, task in self._closing.values()})
