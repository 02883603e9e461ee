"""The queues of an ordered consumer: only the member that has the lock commits."""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Any, cast

from tests.support.held_messages import QUEUE, a_message
from tests.support.loop import turn_until

from pyromq.client.consumer.group.assigned_queues import AssignedQueues
from pyromq.client.consumer.reading.in_flight import InFlight, Thresholds
from pyromq.client.consumer.reading.queue_reader import QueueReader, ReadingContext, Source
from pyromq.client.consumer.reading.quick_pulls import Pulled
from pyromq.client.consumer.reading.stats import ConsumerStats
from pyromq.client.consumer.reading.subscriptions import Subscription
from pyromq.client.values import MessageQueue, ReceivedMessage
from pyromq.clock import ManualClock
from pyromq.errors import PyroError


class Broker:
    """Keeps the lock and the offset of the group, and has three messages."""

    def __init__(self) -> None:
        self.offset = 0
        self.grants_locks = True
        self.pulled_at: list[tuple[int, int]] = []
        self.released: list[MessageQueue] = []

    async def acquire(self, queues: Iterable[MessageQueue]) -> set[MessageQueue]:
        return set(queues) if self.grants_locks else set()

    async def acquire_one(self, queue: MessageQueue) -> bool:
        return self.grants_locks

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        self.released += queues

    async def begin(self, queue: MessageQueue) -> int:
        return self.offset

    async def read(self, queue: MessageQueue) -> int:
        return self.offset

    async def store(
        self, offsets: Mapping[MessageQueue, int], *, confirmed: bool = False
    ) -> dict[MessageQueue, PyroError]:
        self.offset = offsets[QUEUE]
        return {}

    async def pull(
        self, queue: MessageQueue, subscription: Subscription, offset: int, commit: int, broker_id: int
    ) -> Pulled:
        self.pulled_at.append((offset, commit))
        if offset > 0:
            await asyncio.Event().wait()
        return Pulled([a_message(number) for number in range(3)], 3, 0, 3, 0)


class Scene:
    """`handlers` are those that are at work."""

    handle_now = None

    def __init__(self) -> None:
        self.broker = cast(Any, Broker())
        self.clock = ManualClock()
        self.handlers_end = asyncio.Event()
        self.handlers_end.set()
        self.delivered = asyncio.Event()
        reading = ReadingContext(
            subscriptions={"Orders": Subscription.of("Orders", "*", 0)},
            fetching=self.broker,
            deliver=self.deliver,
            introduce=self._introduce,
            source=Source(thresholds=lambda _: Thresholds(), commits=True, needs_lock=True),
            stats=ConsumerStats(),
            clock=self.clock,
        )
        self.assigned = AssignedQueues(reading, self, self.broker, self.broker.begin, self.broker, [])

    def deliver(self, reader: QueueReader, messages: Collection[ReceivedMessage]) -> None:
        self.delivered.set()

    async def give_up(self, held: InFlight[ReceivedMessage]) -> None:
        held.close()
        await self.handlers_end.wait()

    def committable(self, reader: QueueReader) -> int | None:
        return reader.held.committable

    async def _introduce(self) -> None: ...

    async def begin(self) -> QueueReader:
        """The first message was handled, and others are held."""
        await self.assigned.hold("Orders", {QUEUE})
        await self.delivered.wait()
        reader = self.assigned.reader(QUEUE)
        reader.held.done(a_message(0))
        return reader


async def test_a_handler_that_lost_its_lock_does_not_move_the_offset_back() -> None:
    scene = Scene()
    await scene.begin()
    scene.clock.advance(61)
    scene.broker.offset = 4  # the member that has the queue now
    await scene.assigned.commit(confirmed=True)
    assert scene.broker.offset == 4
    await scene.assigned.give_up_all()
    assert scene.broker.offset == 4


async def test_a_queue_that_was_locked_again_begins_where_others_stopped() -> None:
    scene = Scene()
    reader = await scene.begin()
    scene.handlers_end.clear()
    scene.clock.advance(61)
    scene.broker.offset = 4
    await scene.assigned.renew_locks()
    await scene.assigned.renew_locks()
    await scene.assigned.commit(confirmed=True)
    assert scene.broker.offset == 4, "what was done before the lock was lost is not committed"
    scene.handlers_end.set()
    await turn_until(lambda: (4, 4) in scene.broker.pulled_at)
    assert reader.held.is_ours
    await scene.assigned.give_up_all()


async def test_a_pull_commits_nothing_after_the_lock_ran_out() -> None:
    scene = Scene()
    reader = await scene.begin()
    await reader.stop()
    scene.clock.advance(31)
    reader.start()
    await turn_until(lambda: len(scene.broker.pulled_at) >= 3)
    assert scene.broker.pulled_at[-1] == (3, 0)
    await scene.assigned.give_up_all()


async def test_a_queue_that_is_given_up_keeps_its_lock_until_its_handler_has_finished() -> None:
    scene = Scene()
    reader = await scene.begin()
    scene.handlers_end.clear()
    giving_up = asyncio.create_task(scene.assigned.give_up_all())
    await turn_until(lambda: not scene.assigned.queues)
    for _ in range(3):
        scene.clock.advance(25)
        await scene.assigned.renew_locks()
    reader.held.done(a_message(1))
    scene.handlers_end.set()
    await giving_up
    assert scene.broker.offset == 2
    assert scene.broker.released == [QUEUE]
