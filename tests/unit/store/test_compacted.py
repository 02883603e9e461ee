"""Snapshots of compacted queues: damage, cuts, limits of a round, full disks, and copies for replicas."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import TOPIC, append, dispatch_all, messages_in, read_queue, small_settings

from pyromq.clock import ManualClock
from pyromq.disk_steps import finish
from pyromq.errors import RemoteProtocolError
from pyromq.filesystem import Files
from pyromq.store.message_store import MessageStore
from pyromq.store.results import Boundary, ReadStatus

SNAPSHOT = f"compacted/{TOPIC}/0"


def open_store(root: Path, files: Files | None = None, clock: ManualClock | None = None) -> MessageStore:
    store = MessageStore.open(
        small_settings(root), files=files, clock=clock or ManualClock(), start_flusher=False
    )
    store.compacting.compact([TOPIC])
    return store


def put(store: MessageStore, key: str, body: bytes, tag: str = "") -> None:
    properties = f"KEYS\x01{key}\x02" + (f"TAGS\x01{tag}\x02" if tag else "")
    assert append(store, body, properties=properties.encode()).is_ok


def compact(store: MessageStore) -> bool:
    dispatch_all(store)
    store.flushes.flush()
    return finish(store.compacting.round(TOPIC, 0))


def expire(store: MessageStore) -> None:
    for path in store.paths.commit_log.iterdir():
        os.utime(path, (1, 1))
    store.clean(on_demand=True)


def table(store: MessageStore) -> dict[str, bytes]:
    return {each.get("KEYS") or "": each.body for each in read_queue(store)}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    opened = open_store(tmp_path)
    for number in range(100):
        put(opened, f"k{number % 7}", b"%d " % number + bytes(300), tag=f"t{number % 7}")
    assert compact(opened)
    yield opened
    opened.close()


def test_a_read_may_begin_in_a_gap_and_goes_on_in_the_log(store: MessageStore) -> None:
    put(store, "k0", b"last")
    dispatch_all(store)
    result = store.read(TOPIC, 0, 5)
    assert (result.status, result.next_offset, result.min_offset, result.max_offset) == (
        ReadStatus.FOUND,
        100,
        93,
        101,
    )
    assert [each.queue_offset for each in messages_in(result)] == list(range(93, 100))
    assert [each.body for each in messages_in(store.read(TOPIC, 0, 100))] == [b"last"]
    few = store.read(TOPIC, 0, 0, 2)
    assert (few.message_count, few.next_offset) == (2, 95)
    assert store.read(TOPIC, 0, 102).status is ReadStatus.OFFSET_OVERFLOW_BADLY
    assert store.read(TOPIC, 0, -1).next_offset == 93


def test_tags_that_no_message_has_send_the_reader_behind_the_snapshot(store: MessageStore) -> None:
    result = store.read(TOPIC, 0, 0, tag_codes=[12345])
    assert (result.status, result.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 100)


def test_times_are_found_in_the_snapshot_and_behind_it(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    times = []
    for number in range(20):
        clock.advance(1)
        times.append(clock.now_ms())
        put(store, f"k{number % 4}", b"body")
        if number == 15:
            compact(store)
    dispatch_all(store)
    at = store.queues.offset_by_time
    assert [at(TOPIC, 0, times[number]) for number in (0, 13, 15, 17)] == [12, 13, 15, 17]
    assert [at(TOPIC, 0, times[number] + 1, Boundary.UPPER) for number in (13, 15, 17)] == [13, 15, 17]
    assert store.queues.earliest_time(TOPIC) == times[12]
    assert store.queues.store_time(TOPIC, 0, 3) == -1
    store.close()


def test_the_log_keeps_what_no_snapshot_has(store: MessageStore) -> None:
    for number in range(60):
        put(store, f"k{number}", bytes(300))
    dispatch_all(store)
    store.flushes.flush()
    expire(store)
    assert table(store).keys() == {f"k{number}" for number in range(60)}
    assert store.compacting.due() == [(TOPIC, 0)]
    assert compact(store)
    expire(store)
    assert table(store).keys() == {f"k{number}" for number in range(60)}
    assert store.log.start > 100 * 300


def test_a_round_with_more_keys_than_fit_into_memory_goes_on_in_the_next(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.apply_settings(small_settings(tmp_path, max_offset_map_bytes=1))
    for number in range(400):
        put(store, f"k{number % 300}", b"%d" % number)
    rounds = 0
    while compact(store):
        rounds += 1
    assert rounds >= 3
    assert table(store) == {f"k{number % 300}": b"%d" % number for number in range(400)}
    store.close()


def test_a_removal_goes_after_a_day_and_takes_its_key_along(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    put(store, "gone", b"value")
    put(store, "kept", b"value")
    put(store, "gone", b"")
    assert compact(store)
    assert table(store) == {"kept": b"value", "gone": b""}
    clock.advance(25 * 3600)
    put(store, "other", b"value")
    assert compact(store)
    assert table(store) == {"kept": b"value", "other": b"value"}
    store.close()


@pytest.mark.parametrize("place", [-5, -40, -100])
def test_a_damaged_snapshot_is_set_aside_and_named(tmp_path: Path, store: MessageStore, place: int) -> None:
    store.close()
    path = tmp_path / SNAPSHOT
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    again = open_store(tmp_path)
    (remark,) = again.recovery.remarks
    assert "does not match its checksum: set aside as 0.broken" in remark
    assert len(table(again)) == 7, "the log still has them"
    again.close()


def test_a_full_disk_leaves_the_former_snapshot(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    store = open_store(tmp_path, files)
    put(store, "a", b"1")
    assert compact(store)
    put(store, "a", b"2")
    dispatch_all(store)
    store.flushes.flush()
    files.failures["sync"] = errno.ENOSPC
    with pytest.raises(OSError, match="No space"):
        finish(store.compacting.round(TOPIC, 0))
    files.failures.clear()
    assert table(store) == {"a": b"2"}
    assert compact(store)
    store.close()


def test_a_log_that_is_cut_takes_its_messages_out_of_the_snapshot(
    tmp_path: Path, store: MessageStore
) -> None:
    end = store.queues.log_offset(TOPIC, 0, 95)
    assert end is not None
    store.cutting.cut(end)
    assert store.queues.max_offset(TOPIC, 0) == 95
    assert [each.queue_offset for each in read_queue(store)][:2] == [93, 94]
    assert store.compacting.lacks(TOPIC, 0)
    put(store, "k9", b"new")
    dispatch_all(store)
    assert table(store)["k9"] == b"new"


def test_a_copy_takes_only_what_the_log_does_not_have(tmp_path: Path, store: MessageStore) -> None:
    view = b"".join(bytes(each) for each in store.read(TOPIC, 0, 0).views)
    replica = open_store(tmp_path / "replica")
    copy = replica.copy_compacted(TOPIC, 0)
    assert copy.wants(0)
    with pytest.raises(RemoteProtocolError, match="which this replica's log does not have yet"):
        copy.add(view)
    with pytest.raises(RemoteProtocolError, match="where one of Other, queue 0"):
        replica.copy_compacted("Other", 0).add(view)
    copy.close()
    replica.close()
