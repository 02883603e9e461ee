"""Recurring work: one schedule, whatever processes do."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import ErrorLogs
from tests.support.consumer_cluster import ConsumerCluster, consumer_cluster

import pyromq
from pyromq import aio
from pyromq.client.cron import Cron
from pyromq.client.schedule import Job, Tick, Ticks, next_multiple
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.errors import ConfigError, StateError
from pyromq.protocol.record import StoredMessage
from pyromq.testing import RunningCluster

MINUTE_MS = 60_000
EVERY_MINUTE = next_multiple(MINUTE_MS)


class Broker:
    """Keeps the ticks of one queue."""

    def __init__(self) -> None:
        self.now_ms = 5 * MINUTE_MS + 1
        self.waiting: list[Message] = []

    async def send(self, message: Message, **options: Any) -> None:
        assert options["sharding_key"] == "clean_up"
        self.waiting.append(message)

    def dues(self) -> list[int]:
        return [ReceivedMessage(StoredMessage("T", m.body), QUEUE).decode(Tick).due_ms for m in self.waiting]

    async def deliver_to(self, ticks: Ticks) -> None:
        """Everything that waits, in order, after its time."""
        waiting, self.waiting = self.waiting, []
        self.now_ms += MINUTE_MS
        for message in waiting:
            await ticks.handle(ReceivedMessage(StoredMessage("T", message.body), QUEUE))


QUEUE = MessageQueue("T", "broker-a", 0)


def process(broker: Broker, turns: list[datetime], next_after: Callable[[int], int] = EVERY_MINUTE) -> Ticks:
    async def clean_up(due: datetime) -> None:
        turns.append(due)

    ticks = Ticks("T", broker.send, lambda: broker.now_ms)
    ticks.jobs["clean_up"] = Job(clean_up, next_after)
    return ticks


async def test_processes_that_start_and_crash_add_no_schedule() -> None:
    broker, turns = Broker(), list[datetime]()
    workers = [process(broker, turns) for _ in range(3)]
    for worker in workers:
        await worker.begin()
    assert broker.dues() == [6 * MINUTE_MS] * 3
    first = broker.waiting[0]
    await broker.deliver_to(workers[0])
    # It crashed before it committed: the next member gets a tick again that was handled.
    crashed_into = process(broker, turns)
    broker.now_ms -= MINUTE_MS
    await crashed_into.handle(ReceivedMessage(StoredMessage("T", first.body), QUEUE))
    assert broker.dues() == [7 * MINUTE_MS] * 2
    for _ in range(5):
        await broker.deliver_to(crashed_into)
        assert len(broker.waiting) == 1
    assert Counter(due.minute for due in turns) == {6: 2, 7: 1, 8: 1, 9: 1, 10: 1, 11: 1}


async def test_after_an_outage_one_turn_makes_up_for_all() -> None:
    broker, turns = Broker(), list[datetime]()
    worker = process(broker, turns)
    await worker.begin()
    broker.now_ms += 100 * MINUTE_MS
    await broker.deliver_to(worker)
    assert len(turns) == 1
    assert broker.dues() == [107 * MINUTE_MS]


async def test_a_turn_that_is_further_away_than_brokers_time_messages_comes_all_the_same() -> None:
    broker, turns = Broker(), list[datetime]()
    broker.now_ms = 2 * 24 * 60 * MINUTE_MS
    monthly = process(broker, turns, Cron("0 3 1 * *").next_after)
    await monthly.begin()
    longest_ms = 0
    for _ in range(70):
        (due_ms,) = broker.dues()
        longest_ms = max(longest_ms, due_ms - broker.now_ms)
        broker.now_ms = due_ms - MINUTE_MS
        await broker.deliver_to(monthly)
    assert longest_ms <= 24 * 60 * MINUTE_MS
    assert turns == [datetime(1970, 2, 1, 3, tzinfo=UTC), datetime(1970, 3, 1, 3, tzinfo=UTC)]


async def test_a_turn_that_was_missed_between_two_ticks_is_made_up_for() -> None:
    broker, turns = Broker(), list[datetime]()
    broker.now_ms = 2 * 24 * 60 * MINUTE_MS
    monthly = process(broker, turns, Cron("0 3 1 * *").next_after)
    await monthly.begin()
    broker.now_ms = 40 * 24 * 60 * MINUTE_MS
    await broker.deliver_to(monthly)
    await broker.deliver_to(monthly)
    assert turns == [datetime(1970, 2, 1, 3, tzinfo=UTC)]


async def test_another_expression_leaves_one_schedule() -> None:
    broker, turns = Broker(), list[datetime]()
    await process(broker, turns, Cron("10 * * * *").next_after).begin()
    changed = process(broker, turns, Cron("20 * * * *").next_after)
    await changed.begin()
    first, second = broker.waiting
    for broker.now_ms, message in ((10 * MINUTE_MS, first), (20 * MINUTE_MS, second)):
        await changed.handle(ReceivedMessage(StoredMessage("T", message.body), QUEUE))
    assert turns == [datetime(1970, 1, 1, 0, 20, tzinfo=UTC)]
    broker.waiting = broker.waiting[2:]
    broker.now_ms = 80 * MINUTE_MS - MINUTE_MS
    await broker.deliver_to(changed)
    assert len(broker.waiting) == 1


async def test_a_consumer_that_fails_to_close_leaves_no_producer_open(cluster: ConsumerCluster) -> None:
    schedule = aio.Schedule("cleaners", cluster.namesrv)
    await schedule.start()
    consumer, close = schedule._consumer, schedule._consumer.close

    async def fail() -> None:
        await close()
        raise StateError("it failed")

    consumer.close = fail  # type: ignore[method-assign]
    with pytest.raises(StateError, match="it failed"):
        await schedule.close()
    with pytest.raises(StateError, match="is closed"):
        await schedule._producer.send(Message("T", b"x"))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def test_each_turn_is_run_by_one_process(cluster: ConsumerCluster, error_logs: ErrorLogs) -> None:
    await cluster.create_topic("cleaners-schedule")
    turns: list[datetime] = []
    changed = asyncio.Condition()

    def member() -> aio.Schedule:
        schedule = aio.Schedule("cleaners", cluster.namesrv)

        @schedule.every(timedelta(milliseconds=200))
        async def clean_up(due: datetime) -> None:
            async with changed:
                turns.append(due)
                changed.notify_all()
            raise ValueError("a failure does not end the schedule")

        return schedule

    async with member(), member():
        async with changed:
            await changed.wait_for(lambda: len(turns) >= 3)
        async with member(), changed:
            await changed.wait_for(lambda: len(turns) >= 6)
    error_logs.expect_repeatedly("a recurring job failed, its next turn comes as planned name=clean_up")
    assert len(set(turns)) == len(turns)
    assert all(due.microsecond % 200_000 == 0 for due in turns)


def test_a_plain_function_can_recur(rocketmq: RunningCluster) -> None:
    turns, enough = list[datetime](), threading.Event()
    schedule = pyromq.Schedule("plain", rocketmq.namesrv)

    @schedule.every(timedelta(milliseconds=100))
    def clean_up(due: datetime) -> None:
        turns.append(due)
        if len(turns) == 2:
            enough.set()

    with schedule:
        assert enough.wait(60)
    assert turns[0].tzinfo is UTC


def test_wrong_jobs_are_refused() -> None:
    schedule = pyromq.Schedule("plain", "a:1")
    with pytest.raises(ConfigError, match="at least"):
        schedule.every(timedelta(milliseconds=5))
    schedule.every(timedelta(minutes=1), name="one")(print)
    with pytest.raises(ConfigError, match="no other job"):
        schedule.every(timedelta(minutes=1), name="one")(print)
    with pytest.raises(ConfigError, match="no other job"):
        schedule.cron("0 3 * * *", name="one")(print)
    with pytest.raises(ConfigError, match="time zone"):
        schedule.cron("0 3 * * *", tz="Europe/Atlantis")
