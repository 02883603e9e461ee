"""A replica follows its master through the timer wheel, and takes over without delivering anything twice."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.timed_messages import TimerBench, timer_bench

from pyromq.broker.replication.timer_sync import TimerSync
from pyromq.broker.tables.role import Role
from pyromq.errors import TransportError
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.store.timers.timer_checkpoint import TimerCheckpoint


class Master:
    """What the master would say; `call` is the dialer's."""

    def __init__(self) -> None:
        self.says: TimerCheckpoint | Exception = TimerCheckpoint()
        self.asked = 0

    async def call(self, *_: object) -> BodyAnswer[bytes]:
        self.asked += 1
        if isinstance(self.says, Exception):
            raise self.says
        return BodyAnswer(body=self.says.encode())


def sync_of(bench: TimerBench, master: Master) -> TimerSync:
    replica = SimpleNamespace(master="10.1.1.1:10911", on_master=lambda _: None)
    return TimerSync(bench.store, bench.parts.tables, cast(Any, replica), cast(Any, master))


def copied(bench: TimerBench, body: bytes, in_ms: int) -> None:
    """A message that the replica has from its master: it appends none itself."""
    role = bench.parts.tables.role
    replica, role.now = role.now, Role()  # no change that anything hears of
    bench.send_at(body, in_ms)
    role.now = replica


async def test_a_replica_goes_where_its_master_is_once_its_log_is_newer(tmp_path: Path) -> None:
    with timer_bench(tmp_path) as bench:
        for seconds in (2, 4, 60):
            bench.send_at(b"m%d" % seconds, seconds * 1000)
        bench.parts.tables.role.change(Role(1, 1))
        bench.pass_time(5000)
        master, start_ms = Master(), bench.start_ms
        master.says = TimerCheckpoint(read_ms=start_ms + 5000, version_ms=start_ms + 5500)
        sync = sync_of(bench, master)
        await sync.follow()
        assert bench.files.counts.total == 3, "its log is older than that"
        bench.clock.advance(1)
        copied(bench, b"newer", 60_000)
        await sync.follow()
        bench.work()
        assert bench.files.read_number * 1000 == start_ms + 5000
        assert bench.files.counts.total == 2
        bench.parts.tables.role.change(Role(0, 2))
        bench.pass_time(70_000)
        assert bench.delivered() == [b"m60", b"newer"]


async def test_a_master_follows_nobody(tmp_path: Path) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 60_000)
        bench.work()
        master = Master()
        await sync_of(bench, master).follow()
        assert master.asked == 0


async def test_a_master_that_cannot_be_asked_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 60_000)
        bench.work()
        bench.parts.tables.role.change(Role(1, 1))
        master = Master()
        master.says = TransportError("connection refused")
        sync = sync_of(bench, master)
        for _ in range(3):
            await sync.follow()
        assert [record.message for record in caplog.records if "timers of the master" in record.message] == [
            "timers of the master not known address=10.1.1.1:10911: connection refused"
        ]


async def test_a_log_that_ends_in_the_millisecond_of_the_masters_word_may_lack_a_delivery(
    tmp_path: Path,
) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 2000)
        bench.parts.tables.role.change(Role(1, 1))
        bench.pass_time(5000)
        master, start_ms = Master(), bench.start_ms
        newest_ms = bench.store.statistics().last_store_timestamp
        master.says = TimerCheckpoint(read_ms=start_ms + 5000, version_ms=newest_ms)
        await sync_of(bench, master).follow()
        assert bench.files.counts.total == 1
        bench.parts.tables.role.change(Role(0, 2))
        bench.pass_time(5000)
        assert bench.delivered() == [b"m"]


async def test_a_replica_saves_no_progress_before_the_deliveries_are_flushed(tmp_path: Path) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 2000)
        bench.parts.tables.role.change(Role(1, 1))
        bench.pass_time(5000)
        bench.store.flushes.flush()
        copied(bench, b"the delivery", 60_000)
        master, start_ms = Master(), bench.start_ms
        master.says = TimerCheckpoint(read_ms=start_ms + 5000, version_ms=start_ms)
        await sync_of(bench, master).follow()
        assert bench.files.read_number == (start_ms + 5000) // 1000
        bench.clock.advance(60)
        assert bench.timers.take_if_due() is None
        bench.store.flushes.flush()
        taken = bench.timers.take_if_due()
        assert taken is not None
        assert taken[0].checkpoint.read_ms == start_ms + 5000


async def test_what_a_former_master_said_is_forgotten(tmp_path: Path) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 2000)
        bench.parts.tables.role.change(Role(1, 1))
        bench.pass_time(5000)
        master, start_ms = Master(), bench.start_ms
        master.says = TimerCheckpoint(read_ms=start_ms + 5000, version_ms=start_ms + 5500)
        sync = sync_of(bench, master)
        await sync.follow()
        bench.parts.tables.role.change(Role(1, 2))
        bench.clock.advance(1)
        copied(bench, b"newer", 60_000)
        master.says = TransportError("connection refused")
        await sync.follow()
        bench.work()
        assert bench.files.counts.total == 2


@pytest.mark.parametrize("is_taken_before", [True, False])
async def test_a_message_that_a_replica_takes_in_late_is_not_delivered_again(
    tmp_path: Path, is_taken_before: bool
) -> None:
    with timer_bench(tmp_path) as bench:
        bench.send_at(b"m", 2000)
        bench.pass_time(2500)
        assert bench.delivered() == [b"m"], "by the master, whose log the replica has"
        bench.parts.tables.role.change(Role(1, 1))
        bench.files.queue_offset = 0
        bench.files.follow(bench.start_ms + 4000)
        if is_taken_before:
            bench.work()
        bench.parts.tables.role.change(Role(0, 2))
        bench.pass_time(5000)
        assert bench.files.queue_offset == 1
        assert bench.delivered() == [b"m"]
