"""A log that is cut has never been longer, for whoever reads it and for every later start."""

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.dying_files import DyingFiles, Killed
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.store.log.epochs import Epoch
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.results import AppendStatus
from pyromq.store.timers.timer_log import NOWHERE, PLAIN, TimerUnit

TOPIC, OTHER = "Orders", "Other"


@pytest.fixture(params=[False, True], ids=["compiled", "interpreted"], autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.param:
        yield
        return
    with interpreted():
        yield


def open_store(root: Path, files: Files | None = None, **changes: Any) -> MessageStore:
    """Only brokers of a group cut their logs."""
    return MessageStore.open(
        small_settings(root, **changes), files=files, clock=ManualClock(), start_flusher=False, has_group=True
    )


def send(store: MessageStore, numbers: range, topic: str = TOPIC, size: int = 200) -> list[int]:
    """The log offsets behind the messages, whose bodies begin with these numbers."""
    ends = []
    for number in numbers:
        body = b"%d " % number + b"x" * size
        result = append(store, body, topic=topic, queue_id=number % 2, properties=b"KEYS\x01k%d\x02" % number)
        assert result.is_ok
        ends.append(result.end_offset)
    return ends


def cut(store: MessageStore, end: int) -> int:
    """Cut the log as a replica, which then becomes the master."""
    store.copying.begin()
    cut_bytes = store.cutting.cut(end)
    store.copying.end()
    return cut_bytes


def numbers_of(store: MessageStore, topic: str = TOPIC) -> list[int]:
    bodies = [body for queue_id in (0, 1) for body in bodies_of(store, topic, queue_id)]
    return sorted(int(body.split()[0]) for body in bodies)


@pytest.mark.parametrize("kept", [0, 1, 2, 17, 37, 59, 60])
@pytest.mark.parametrize("is_dispatched", [True, False])
def test_queues_and_index_end_where_the_log_was_cut(tmp_path: Path, kept: int, is_dispatched: bool) -> None:
    with open_store(tmp_path) as store:
        ends = [0, *send(store, range(60))]
        if is_dispatched:
            dispatch_all(store)
        assert cut(store, ends[kept]) == ends[-1] - ends[kept]
        assert store.log.end == ends[kept]
        dispatch_all(store)
        assert numbers_of(store) == list(range(kept))
        assert [len(store.log.query(TOPIC, f"k{number}", 64)) for number in range(60)] == [1] * kept + [0] * (
            60 - kept
        )
        send(store, range(100, 120))
        dispatch_all(store)
        assert numbers_of(store) == [*range(kept), *range(100, 120)]
        assert len(store.log.query(TOPIC, "k119", 64)) == 1
    with open_store(tmp_path) as store:
        assert numbers_of(store) == [*range(kept), *range(100, 120)]
    with OfflineStore(tmp_path) as closed:
        assert not closed.verify().damage


def test_a_cut_inside_a_record_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ends = send(store, range(10))
        dispatch_all(store)
        with pytest.raises(StoreError, match=f"ends at {ends[3]}"):
            cut(store, ends[3] + 5)
        with pytest.raises(StoreError, match="cannot be cut"):
            cut(store, ends[-1] + 1)
        assert numbers_of(store) == list(range(10))


def test_a_topic_whose_messages_are_all_cut_off_is_empty(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        (end,) = send(store, range(1))
        send(store, range(40), OTHER)
        dispatch_all(store)
        cut(store, end)
        assert store.queues.max_offset(OTHER, 0) == 0
        send(store, range(2), OTHER)
        dispatch_all(store)
        assert numbers_of(store, OTHER) == [0, 1]


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_log_that_was_cut_at_its_start_opens_again(tmp_path: Path, is_killed: bool) -> None:
    store = open_store(tmp_path)
    send(store, range(200))
    dispatch_all(store)
    store.flushes.flush()
    store.close()
    min((tmp_path / "commitlog").iterdir()).unlink()  # as if it had expired
    store = open_store(tmp_path)
    assert store.log.start > 0
    cut(store, store.log.start)
    assert list((tmp_path / "commitlog").iterdir()) == []
    store.abandon() if is_killed else store.close()
    with open_store(tmp_path) as store:
        assert bodies_of(store) == []
        assert append(store, b"next").is_ok


@pytest.mark.parametrize("seed", range(8))
def test_units_that_were_cut_off_do_not_come_back_with_the_power(tmp_path: Path, seed: int) -> None:
    """They would lead to the messages that are in their place by then, of other queues."""
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files, queue_file_bytes=2000)
    ends = send(store, range(10))
    dispatch_all(store)
    store.flushes.flush()
    cut(store, ends[3])
    send(store, range(10), OTHER)
    dispatch_all(store)
    store.flushes.flush_log()
    store.abandon()
    files.crash(Random(seed))
    with open_store(tmp_path, FaultyFiles(tmp_path), queue_file_bytes=2000) as store:
        assert [store.queues.next_offset(TOPIC, queue_id) for queue_id in (0, 1)] == [2, 2]
        assert numbers_of(store) == [0, 1, 2, 3]
        assert numbers_of(store, OTHER) == list(range(10))


def test_epochs_behind_the_cut_are_forgotten(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.begin_epoch(3)
        (end,) = send(store, range(1))
        store.begin_epoch(4)
        send(store, range(1))
        with pytest.raises(StoreError, match="cannot follow"):
            store.begin_epoch(4)
        cut(store, end)
        assert store.epochs.epochs == (Epoch(3, 0),)
    with open_store(tmp_path) as store:
        assert store.epochs.epochs == (Epoch(3, 0),)
        cut(store, 0)
        assert store.epochs.newest == -1
    with open_store(tmp_path) as store:
        assert store.epochs.epochs == ()


def test_epochs_whose_bytes_were_lost_are_forgotten_at_the_start(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.begin_epoch(1)
        send(store, range(3))
        store.begin_epoch(2)
        end = store.log.end
    (tmp_path / "epochFileCheckpoint").write_bytes(b"3\n0\n1-0\n2-%d\n3-%d\n" % (end, end + 1))
    with open_store(tmp_path) as store:
        assert store.epochs.epochs == (Epoch(1, 0), Epoch(2, end))


def test_whoever_waits_for_a_flush_is_not_told_that_it_is_safe(tmp_path: Path) -> None:
    told: list[AppendStatus] = []
    with open_store(tmp_path, flush_disk_type="SYNC_FLUSH") as store:
        result = append(store, b"x")
        store.flushes.when_flushed(result, told.append)
        cut(store, 0)
        assert told == [AppendStatus.FLUSH_DISK_TIMEOUT]
        send(store, range(5))
        store.flushes.flush()
        assert store.flushes.settle() == 0


def test_timers_of_messages_that_are_cut_off_do_not_run(tmp_path: Path) -> None:
    with open_store(tmp_path, timer_log_file_bytes=1024) as store:
        ends = [0]
        for number in range(70):
            result = append(store, b"t%d" % number, topic=TIMER_TOPIC)
            ends.append(result.end_offset)
            store.timers.make(1_000_000, 0)
            store.timers.schedule(
                TimerUnit(
                    NOWHERE,
                    PLAIN,
                    1_000_000,
                    1000 * (number % 3),
                    result.log_offset,
                    result.end_offset - result.log_offset,
                    0,
                )
            )
            store.timers.queue_offset = number + 1
        dispatch_all(store)
        stale = store.timers.take(1_000_000)
        cut(store, ends[41])
        assert store.timers.queue_offset == 41
        assert store.timers.counts.total == 41
        store.timers.save(stale)  # a thread was about to write it
    with open_store(tmp_path, timer_log_file_bytes=1024) as store:
        assert store.timers.queue_offset == 41
        assert store.timers.counts.total == 41
        number = 1_000_000 // store.timers.precision_ms
        assert sum(1 for each in range(3) for _ in store.timers.units(number + each)) == 41


def test_timed_messages_whose_late_deliveries_are_cut_off_are_up_again(tmp_path: Path) -> None:
    """A new master delivers at second 60 what was due at second 10; what stays was stored at second 50."""
    clock = ManualClock()
    start_ms = clock.now_ms()
    small = small_settings(tmp_path)
    with MessageStore.open(small, clock=clock, start_flusher=False, has_group=True) as store:
        timers = store.timers
        due_ms = start_ms + 10_000
        timers.make(start_ms, 0)
        timers.schedule(TimerUnit(NOWHERE, PLAIN, start_ms, 10_000, 0, 200, 0))
        clock.advance(50)
        end = append(store, b"stays").end_offset
        clock.advance(10)
        stamps = {"TIMER_OUT_MS": due_ms, "TIMER_DEQUEUE_MS": start_ms + 60_000}
        append(
            store, b"late", properties=b"".join(b"%s\x01%d\x02" % (k.encode(), v) for k, v in stamps.items())
        )
        timers.follow(start_ms + 61_000)
        cut(store, end)
        assert (timers.read_number, timers.counts.total) == (due_ms // timers.precision_ms, 1)


def test_a_cut_killed_at_any_file_operation_is_done_or_can_be_repeated(tmp_path: Path) -> None:
    def cut_and_die(root: Path, dies_at: int, random: Random | None) -> tuple[bool, int, list[int]]:
        root.mkdir()
        with open_store(root) as store:
            store.begin_epoch(1)
            ends = [0, *send(store, range(30))]
        files = DyingFiles(root)
        store = open_store(root, files)
        store.begin_epoch(2)
        ends += send(store, range(30, 60))
        dispatch_all(store)
        if dies_at % 2:
            store.flushes.flush()
        files.operations, files.dies_at = 0, dies_at
        try:
            cut(store, ends[30])
            is_killed = False
        except Killed:
            is_killed = True
        files.dies_at = 1 << 62
        store.abandon()
        if random is not None:
            files.crash(random)
        return is_killed, files.operations, ends

    is_killed, count, _ = cut_and_die(tmp_path / "whole", 1 << 62, Random(0))
    assert not is_killed
    assert count > 5
    for dies_at in range(count + 1):
        for seed in range(6):
            root = tmp_path / f"{dies_at}-{seed}"
            # The first time the process alone dies, then the power goes as well.
            is_killed, _, ends = cut_and_die(root, dies_at, Random(seed) if seed else None)
            assert is_killed == (dies_at < count)
            with open_store(root) as store:
                found = numbers_of(store)
                assert found[:30] == list(range(30))
                assert len(found) == 30 or is_killed, "what was cut off has risen again"
                # As long as bytes of the second epoch are there, so is the epoch.
                assert Epoch(1, 0) in store.epochs.epochs
                assert len(found) == 30 or Epoch(2, ends[30]) in store.epochs.epochs
                cut(store, ends[30])
                assert store.epochs.epochs == (Epoch(1, 0),)
                send(store, range(200, 230))
                dispatch_all(store)
                assert numbers_of(store) == [*range(30), *range(200, 230)]
            with OfflineStore(root) as closed:
                assert not closed.verify().damage


def test_between_the_steps_of_a_cut_readers_find_what_stays_and_the_rest_can_be_done_at_once(
    tmp_path: Path,
) -> None:
    steps = 0
    while True:
        with open_store(tmp_path / str(steps)) as store:
            store.begin_epoch(1)
            ends = [0, *send(store, range(30))]
            store.begin_epoch(2)
            ends += send(store, range(30, 60))
            dispatch_all(store)
            store.copying.begin()
            cut = store.cutting.begin(ends[30])
            for _ in range(steps):
                if (wait := cut.next()) is not None:
                    thread = Thread(target=wait)
                    thread.start()
                    thread.join()
                store.dispatch(1000)
                store.flushes.flush()
                assert numbers_of(store)[:30] == list(range(30))
                assert store.flushes.offset <= store.log.end
            is_over = cut.is_over
            store.cutting.finish()
            assert numbers_of(store) == list(range(30))
            assert store.epochs.epochs == (Epoch(1, 0),)
            assert store.flushes.offset <= store.log.end == ends[30]
            store.copying.end()
            send(store, range(200, 210))
            dispatch_all(store)
            assert numbers_of(store) == [*range(30), *range(200, 210)]
        if is_over:
            break
        steps += 1
    assert steps > 4


def test_a_log_that_could_not_be_cut_does_not_begin_an_epoch(tmp_path: Path) -> None:
    files = Unsynced()
    with open_store(tmp_path, files) as store:
        ends = [0, *send(store, range(20))]
        files.is_broken = True
        with pytest.raises(StoreError, match="cannot be cut"):
            cut(store, ends[10])
        with pytest.raises(StoreError, match="not cut completely"):
            store.begin_epoch(1)
        files.is_broken = False
        assert cut(store, ends[10]) == 0  # the rest of it
        store.begin_epoch(1)
        dispatch_all(store)
        assert numbers_of(store) == list(range(10))


class Unsynced(Files):
    """A directory that cannot be synced for a while."""

    is_broken = False

    def sync_directory(self, path: Path) -> None:
        if self.is_broken and path.name == "commitlog":
            raise OSError(errno.EIO, "no")
        super().sync_directory(path)


@settings(max_examples=examples(25))
@given(data=st.data())
def test_any_row_of_sends_flushes_and_cuts_leaves_what_was_not_cut(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("store")
    files = DyingFiles(root)
    store = open_store(root, files)
    kept: list[tuple[int, int]] = []
    number = 0
    for step in data.draw(st.lists(st.sampled_from("sscfdx"), max_size=12)):
        if step == "s":
            count = data.draw(st.integers(1, 25))
            numbers = range(number, number + count)
            kept += zip(numbers, send(store, numbers), strict=True)
            number += count
        elif step == "c":
            left = data.draw(st.integers(0, len(kept)))
            cut(store, kept[left - 1][1] if left else 0)
            del kept[left:]
        elif step == "f":
            store.flushes.flush()
        elif step == "d":
            store.dispatch(data.draw(st.integers(1, 30)))
        else:
            store.flushes.flush_log()
            store.abandon()
            files.crash(Random(data.draw(st.integers(0, 99))))
            files = DyingFiles(root)
            store = open_store(root, files)
    dispatch_all(store)
    assert numbers_of(store) == [each for each, _ in kept]
    assert [len(store.log.query(TOPIC, f"k{each}", 64)) for each, _ in kept] == [1] * len(kept)
    store.close()


def test_a_cut_log_is_as_old_as_its_last_record(tmp_path: Path) -> None:
    """A replica compares the time of its log with what its master says."""
    clock = ManualClock()
    settings = small_settings(tmp_path)
    with MessageStore.open(settings, clock=clock, start_flusher=False) as store:
        end = append(store, b"old").end_offset
        first_ms = store.statistics().last_store_timestamp
        clock.advance(60)
        append(store, b"new")
        store.flushes.flush()
        assert store.statistics().last_store_timestamp == first_ms + 60_000
        cut(store, end)
        assert store.statistics().last_store_timestamp == first_ms
        store.abandon()
    with MessageStore.open(settings, clock=clock, start_flusher=False) as store:
        assert store.statistics().last_store_timestamp == first_ms


def test_what_was_cut_off_is_kept_for_an_operator(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        ends = send(store, range(20))
        taken = bytes(store.log.bytes_at(ends[9], ends[19] - ends[9]))
        cut(store, ends[9])
        assert b"".join(each.read_bytes() for each in store.cutting.kept_as) == taken
        assert all(each.parent == tmp_path / "damaged" for each in store.cutting.kept_as)
