"""Recovery: one kind of damage at a time, and what the report says about it."""

import os
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.faulty_files import Disk, FaultyFiles
from tests.support.places import ROOT
from tests.support.small_stores import (
    TOPIC,
    append,
    bodies_of,
    dispatch_all,
    interpreted,
    messages_in,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.protocol.names import TIMER_TOPIC
from pyromq.store import recovery
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.queues.consume_queue import ConsumeQueue
from pyromq.store.timers.timer_checkpoint import TimerCheckpoint, write_timer_checkpoint

COUNT = 100
BODIES = [b"%04d" % number * 30 for number in range(COUNT)]


def fill(root: Path, *, crash: bool, flush_at: int = COUNT) -> int:
    """A store of a hundred messages; returns where its log ends."""
    store = reopen(root)
    for number, body in enumerate(BODIES):
        append(store, body, queue_id=number % 2, properties=b"UNIQ_KEY\x01u%d\x02TAGS\x01a\x02" % number)
        if number == flush_at - 1:
            dispatch_all(store)
            store.flushes.flush()
    dispatch_all(store)
    end = store.statistics().log_end_offset
    store.abandon() if crash else store.close()
    return end


def reopen(root: Path, **changes: Any) -> MessageStore:
    return MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)


def check(store: MessageStore, count: int = COUNT) -> None:
    for queue_id in (0, 1):
        assert bodies_of(store, queue_id=queue_id) == BODIES[queue_id:count:2]
        assert store.queues.next_offset(TOPIC, queue_id) == len(BODIES[queue_id:count:2])
    for number in (0, count // 2, count - 1):
        assert len(store.log.query(TOPIC, f"u{number}", 10)) == 1
    for number in range(count, COUNT):
        assert store.log.query(TOPIC, f"u{number}", 10) == []
    assert append(store, b"next", queue_id=0).queue_offset == len(BODIES[0:count:2])


def log_file_of(root: Path, offset: int) -> tuple[Path, int]:
    return root / "commitlog" / f"{offset - offset % 8192:020d}", offset % 8192


def damage_log(root: Path, offset: int, content: bytes) -> None:
    path, position = log_file_of(root, offset)
    with path.open("r+b") as stream:
        stream.seek(position)
        stream.write(content)


def offset_of(root: Path, number: int) -> int:
    """The log offset of a message, from its queue."""
    queue, unit = number % 2, number // 2
    path = root / "consumequeue" / TOPIC / str(queue) / f"{unit * 20 // 200 * 200:020d}"
    offset: int = struct.unpack_from(">q", path.read_bytes(), unit * 20 % 200)[0]
    return offset


def test_a_clean_stop_needs_no_reading(tmp_path: Path) -> None:
    end = fill(tmp_path, crash=False)
    with reopen(tmp_path) as store:
        report = store.recovery
        assert (report.was_clean, report.log_end, report.records_checked) == (True, end, 0)
        assert report.remarks == []
        check(store)


def test_a_crash_reads_only_what_the_checkpoint_does_not_vouch_for(tmp_path: Path) -> None:
    end = fill(tmp_path, crash=True, flush_at=70)
    began = offset_of(tmp_path, 70)
    with reopen(tmp_path) as store:
        report = store.recovery
        assert (report.was_clean, report.log_end) == (False, end)
        assert began - 8192 < report.began_at <= began
        assert report.records_checked == 30
        check(store)


@pytest.mark.parametrize(
    "content",
    [b"\0" * 400, b"\xff" * 400, struct.pack(">i", 1 << 30), b"\0\0\0\x10", b"garbage all over the place"],
)
def test_a_torn_tail_is_cut_off(tmp_path: Path, content: bytes) -> None:
    end = fill(tmp_path, crash=True, flush_at=50)
    place = offset_of(tmp_path, 90)
    tear_off(tmp_path, end)
    damage_log(tmp_path, place, content)
    with reopen(tmp_path) as store:
        assert store.recovery.log_end == place
        assert store.recovery.tail_wiped or store.recovery.segments_removed
        check(store, 90)


def tear_off(root: Path, end: int) -> None:
    """Leave no sound record from the 90th on: of each one the last bytes are missing."""
    for number in range(90, COUNT):
        behind = offset_of(root, number + 1) if number + 1 < COUNT else end
        if behind // 8192 == offset_of(root, number) // 8192:
            damage_log(root, behind - 5, b"\0" * 5)
        else:
            damage_log(root, offset_of(root, number), b"\0" * 4)


@pytest.mark.parametrize("position", [100, 4, 28])
def test_a_bad_checksum_magic_or_offset_of_the_last_record_ends_the_log(
    tmp_path: Path, position: int
) -> None:
    fill(tmp_path, crash=True, flush_at=50)
    place = offset_of(tmp_path, 99)
    damage_log(tmp_path, place + position, b"\x55")
    with reopen(tmp_path) as store:
        assert store.recovery.stopped_because
        check(store, 99)


def test_properties_that_were_not_written_end_the_log(tmp_path: Path) -> None:
    end = fill(tmp_path, crash=True, flush_at=50)
    damage_log(tmp_path, end - 5, b"\0" * 5)
    with reopen(tmp_path) as store:
        assert "its end was not written" in store.recovery.stopped_because
        check(store, 99)


def test_what_was_cut_off_never_comes_back(tmp_path: Path) -> None:
    end = fill(tmp_path, crash=True, flush_at=50)
    tear_off(tmp_path, end)
    for _ in range(3):
        store = reopen(tmp_path)
        assert bodies_of(store, queue_id=0)[-1] == BODIES[88]
        store.abandon()
    store = reopen(tmp_path)
    # A record of the same size goes where the lost one was; the old one behind it must not reappear.
    append(store, BODIES[90], queue_id=0, properties=b"UNIQ_KEY\x01u90\x02TAGS\x01a\x02")
    store.abandon()
    with reopen(tmp_path) as store:
        check(store, 91)


@pytest.mark.parametrize("seed", range(6))
def test_names_that_a_killed_process_made_are_safe_after_the_next_start(tmp_path: Path, seed: int) -> None:
    disk = Disk(tmp_path)

    def open_store() -> MessageStore:
        files = FaultyFiles(tmp_path, disk)
        return MessageStore.open(
            small_settings(tmp_path), files=files, clock=ManualClock(), start_flusher=False
        )

    store = open_store()
    for body in BODIES[:20]:
        append(store, body)
    dispatch_all(store)
    store.abandon()
    open_store().abandon()
    disk.crash(Random(seed))
    with open_store() as store:
        assert bodies_of(store) == BODIES[:20]
        assert store.recovery.queues_rebuilt == []


def damage_half_unit(root: Path) -> None:
    path = max((root / "consumequeue" / TOPIC / "1").iterdir())
    content = bytearray(path.read_bytes())
    used = max(index for index, byte in enumerate(content) if byte) // 20 * 20
    content[used + 6 : used + 20] = bytes(14)
    path.write_bytes(content)


def garbage_behind_the_units(root: Path) -> None:
    path = max((root / "consumequeue" / TOPIC / "0").iterdir())
    content = bytearray(path.read_bytes())
    content[-13:] = b"\x01" * 13
    path.write_bytes(content)


def remove_a_queue(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / TOPIC / "1")


def remove_all_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def remove_the_last_queue_file(root: Path) -> None:
    max((root / "consumequeue" / TOPIC / "1").iterdir()).unlink()


def remove_a_middle_queue_file(root: Path) -> None:
    sorted((root / "consumequeue" / TOPIC / "1").iterdir())[1].unlink()


def shorten_a_queue_file(root: Path) -> None:
    os.truncate(min((root / "consumequeue" / TOPIC / "0").iterdir()), 77)


def point_a_unit_elsewhere(root: Path) -> None:
    path = max((root / "consumequeue" / TOPIC / "0").iterdir())
    content = bytearray(path.read_bytes())
    used = max(index for index, byte in enumerate(content) if byte) // 20 * 20
    content[used : used + 8] = struct.pack(">q", 0)
    path.write_bytes(content)


def leave_garbage_files(root: Path) -> None:
    (root / "commitlog" / "core.1234").write_bytes(b"garbage")
    (root / "consumequeue" / TOPIC / "0" / "notes.txt").write_bytes(b"garbage")
    (root / "consumequeue" / TOPIC / "old").mkdir()
    (root / "index" / "readme").write_bytes(b"garbage")


def leave_an_empty_segment(root: Path) -> None:
    last = max(int(path.name) for path in (root / "commitlog").iterdir())
    (root / "commitlog" / f"{last + 8192:020d}").touch()


def shorten_the_last_segment(root: Path) -> None:
    os.truncate(max((root / "commitlog").iterdir()), 7000)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    "damage",
    [
        damage_half_unit,
        garbage_behind_the_units,
        remove_a_queue,
        remove_all_queues,
        remove_the_last_queue_file,
        remove_a_middle_queue_file,
        shorten_a_queue_file,
        point_a_unit_elsewhere,
        leave_garbage_files,
        leave_an_empty_segment,
        shorten_the_last_segment,
    ],
)
def test_damage_beside_the_log_is_mended_from_the_log(
    tmp_path: Path, damage: Callable[[Path], None], crash: bool
) -> None:
    fill(tmp_path, crash=crash)
    damage(tmp_path)
    with reopen(tmp_path) as store:
        check(store)


def test_a_rebuilt_queue_is_named_in_the_report(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    remove_a_queue(tmp_path)
    with reopen(tmp_path) as store:
        assert store.recovery.queues_rebuilt == ["Orders/1"]
        check(store)


def test_a_queue_rebuilt_from_a_cleaned_log_starts_with_pre_blank_units(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    with reopen(tmp_path) as store:
        for path in sorted((tmp_path / "commitlog").iterdir())[:1]:
            os.utime(path, (1, 1))
        assert store.clean(on_demand=True).segments_removed == 1
        low = store.queues.min_offset(TOPIC, 1)
        assert low % 10 != 0
    remove_a_queue(tmp_path)
    with reopen(tmp_path) as store:
        assert store.queues.min_offset(TOPIC, 1) == low
        assert bodies_of(store, queue_id=1) == BODIES[low * 2 + 1 :: 2]
        path = min((tmp_path / "consumequeue" / TOPIC / "1").iterdir())
        assert struct.unpack_from(">qiq", path.read_bytes()) == (0, 0x7FFFFFFF, 0)


def test_queues_of_a_cleaned_log_are_built_again_in_one_walk(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    with reopen(tmp_path) as store:
        for path in sorted((tmp_path / "commitlog").iterdir())[:1]:
            os.utime(path, (1, 1))
        assert store.clean(on_demand=True).segments_removed == 1
        lows = [store.queues.min_offset(TOPIC, queue_id) for queue_id in (0, 1)]
        assert all(lows)
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    with reopen(tmp_path) as store:
        report = store.recovery
        assert report.began_at == report.log_start
        assert not report.queues_rebuilt, "the walk over the log brought them all"
        for queue_id, low in enumerate(lows):
            assert store.queues.min_offset(TOPIC, queue_id) == low
            assert bodies_of(store, queue_id=queue_id) == BODIES[low * 2 + queue_id :: 2]


def test_the_numbered_list_of_the_code_is_that_of_the_documentation() -> None:
    def steps_in(text: str) -> list[str]:
        without_links = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
        steps = re.findall(r"^ ?\d+\. .*(?:\n {2,}.*)*", without_links, re.MULTILINE)
        return [" ".join(step.replace("`", "").split()) for step in steps]

    page = (ROOT / "docs" / "formats" / "recovery.md").read_text()
    assert len(steps_in(page)) == 10
    assert steps_in(recovery.__doc__ or "") == steps_in(page)


def test_an_index_ahead_of_the_log_is_cut(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    last = offset_of(tmp_path, 98)
    damage_log(tmp_path, last, b"\0" * 300)
    (tmp_path / "checkpoint").unlink()  # so that the log is looked at
    with reopen(tmp_path) as store:
        assert any("ahead of the log" in each for each in store.recovery.remarks)
        check(store, 98)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_whatever_happened_to_the_files_the_store_opens_or_says_why_not(
    tmp_path: Path, seed: int, crash: bool
) -> None:
    fill(tmp_path, crash=crash, flush_at=40)
    chance = Random(seed)
    for _ in range(chance.randint(1, 4)):
        files = sorted(path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock")
        spoil(chance.choice(files), chance)
    with OfflineStore(tmp_path) if is_whole_row(tmp_path) else nullcontext() as seen:
        if seen is not None:
            seen.verify()
            assert all(message.topic for topic in seen.topics() for message in seen.messages(topic))
    try:
        store = reopen(tmp_path)
    except StoreError:
        assert not is_whole_row(tmp_path)
        return
    with store:
        for queue_id in store.queues.ids(TOPIC):
            offset = store.queues.min_offset(TOPIC, queue_id)
            while offset < store.queues.max_offset(TOPIC, queue_id):
                result = store.read(TOPIC, queue_id, offset)
                assert result.next_offset > offset
                offset = result.next_offset
        added = append(store, b"next")
        dispatch_all(store)
        assert messages_in(store.read(TOPIC, 0, added.queue_offset))[0].body == b"next"
    with reopen(tmp_path) as store:
        assert store.recovery.was_clean
        assert messages_in(store.read(TOPIC, 0, added.queue_offset))[0].body == b"next"


def spoil(path: Path, chance: Random) -> None:
    content = bytearray(path.read_bytes())
    place = chance.randrange(len(content) + 1)
    kind = chance.randrange(5)
    if kind == 0:
        path.unlink()
        return
    if kind == 1:
        del content[place:]
    elif kind == 2:
        content += chance.randbytes(30)
    elif kind == 3:
        content[place : place + 512] = bytes(len(content[place : place + 512]))
    else:
        content[place : place + 40] = chance.randbytes(len(content[place : place + 40]))
    path.write_bytes(content)


def is_whole_row(root: Path) -> bool:
    """Whether every log file but the last has its size, and the last has no more: all that is insisted on."""
    *others, last = [path.stat().st_size for path in sorted((root / "commitlog").iterdir())] or [8192]
    return last <= 8192 and all(size == 8192 for size in others)


@pytest.mark.parametrize("size", [0, 39, 40])
def test_an_index_file_without_content_is_removed_and_named(tmp_path: Path, size: int) -> None:
    fill(tmp_path, crash=False)
    damaged = min((tmp_path / "index").iterdir())
    os.truncate(damaged, size)
    with reopen(tmp_path) as store:
        assert not damaged.exists()
        (remark,) = store.recovery.remarks
        assert re.fullmatch(f"index/{damaged.name} .*: removed", remark)
        assert bodies_of(store) == BODIES[::2]
        assert store.log.query(TOPIC, "u0", 10) == []
        assert len(store.log.query(TOPIC, f"u{COUNT - 1}", 10)) == 1
        append(store, b"next", properties=b"KEYS\x01new\x02")
        dispatch_all(store)
        assert len(store.log.query(TOPIC, "new", 10)) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_queue_files_of_another_setting_stop_the_start(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    size = next((tmp_path / "consumequeue" / TOPIC / "0").iterdir()).stat().st_size
    before = files_of(tmp_path)
    with pytest.raises(StoreError, match=f"expected {2 * size}: set mappedFileSizeConsumeQueue={size}"):
        reopen(tmp_path, queue_file_bytes=2 * size)
    assert files_of(tmp_path) == before
    with reopen(tmp_path) as store:
        check(store)


@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("crash", [False, True])
def test_a_log_that_is_gone_as_a_whole_stops_the_start(tmp_path: Path, crash: bool, is_ours: bool) -> None:
    fill(tmp_path, crash=crash)
    if not is_ours:
        apaches = struct.pack(">5q", 1 << 42, 1 << 42, 1 << 42, 0, 0)
        (tmp_path / "checkpoint").write_bytes(apaches.ljust(4096, b"\0"))
    (tmp_path / "commitlog").rename(tmp_path / "unmounted")
    before = files_of(tmp_path)
    with pytest.raises(StoreError, match="commitlog has no log files, but the store had messages"):
        reopen(tmp_path)
    assert files_of(tmp_path) == before
    (tmp_path / "unmounted").rename(tmp_path / "commitlog")
    with reopen(tmp_path) as store:
        check(store)


def test_a_store_starts_without_its_log_when_queues_and_checkpoint_are_gone_too(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    shutil.rmtree(tmp_path / "commitlog")
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "checkpoint").unlink()
    with reopen(tmp_path) as store:
        assert append(store, b"first").queue_offset == 0


def test_missing_log_files_at_the_end_take_their_messages_with_them(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    gone = max(path for path in (tmp_path / "commitlog").iterdir() if any(path.read_bytes()))
    first_gone = next(number for number in range(COUNT) if offset_of(tmp_path, number) >= int(gone.name))
    for path in (tmp_path / "commitlog").iterdir():
        if path >= gone:
            path.unlink()
    with reopen(tmp_path) as store:
        assert any("bytes are missing" in each for each in store.recovery.remarks)
        check(store, first_gone)


@pytest.mark.parametrize("crash", [False, True])
def test_a_directory_whose_checkpoint_is_not_ours_opens_too(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    path = tmp_path / "checkpoint"
    path.write_bytes(path.read_bytes()[:40].ljust(4096, b"\0"))
    with reopen(tmp_path) as store:
        assert store.recovery.records_checked > 0
        check(store)


def test_a_wrong_size_in_the_middle_of_the_log_stops_the_start(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    os.truncate(min((tmp_path / "commitlog").iterdir()), 5000)
    with pytest.raises(StoreError, match="5000 bytes, expected 8192"):
        reopen(tmp_path)
    with pytest.raises(StoreError):
        reopen(tmp_path, log_segment_bytes=16384)


@pytest.mark.parametrize("crash", [False, True])
def test_queues_of_batches_that_apaches_broker_left_stop_the_start(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    left = tmp_path / "batchconsumequeue" / "Batches" / "0"
    left.mkdir(parents=True)
    reopen(tmp_path).close() if not crash else reopen(tmp_path).abandon()
    (left / f"{0:020d}").write_bytes(bytes(46))
    before = files_of(tmp_path)
    with pytest.raises(StoreError, match="Batches has queues of batches"):
        reopen(tmp_path)
    assert files_of(tmp_path) == before


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("name", ["topics", "subscriptionGroups", "consumerOffsets", "metadata", "rdb"])
def test_tables_that_apaches_broker_kept_in_rocksdb_stop_the_start(
    tmp_path: Path, name: str, crash: bool
) -> None:
    fill(tmp_path, crash=crash)
    left = tmp_path / "config" / name
    left.mkdir(parents=True)
    (left / "CURRENT").write_text("MANIFEST-000005\n")
    before = files_of(tmp_path)
    with pytest.raises(StoreError, match=f"config/{name}: Apache's broker kept its tables in RocksDB"):
        reopen(tmp_path)
    assert files_of(tmp_path) == before


def test_popped_messages_that_apaches_broker_kept_in_rocksdb_stop_the_start(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    (tmp_path / "kvStore").mkdir()
    reopen(tmp_path).close()
    (tmp_path / "kvStore" / "CURRENT").write_text("MANIFEST-000005\n")
    with pytest.raises(StoreError, match="kvStore: Apache's broker kept popped messages in RocksDB"):
        reopen(tmp_path)


def test_timed_messages_that_apaches_broker_kept_in_rocksdb_stop_the_start(tmp_path: Path) -> None:
    with reopen(tmp_path, timer_wheel=True) as store:
        append(store, b"delivered", topic=TIMER_TOPIC)
        dispatch_all(store)
        stored_ms = store.queues.earliest_time(TIMER_TOPIC)
    by_apache = tmp_path / "config" / "timercheck"
    by_apache.parent.mkdir(exist_ok=True)
    by_apache.write_bytes(TimerCheckpoint(stored_ms + 1000).encode().ljust(4096, b"\0"))
    reopen(tmp_path, timer_wheel=True).close()
    by_apache.write_bytes(TimerCheckpoint(stored_ms + 61_000).encode().ljust(4096, b"\0"))
    with pytest.raises(StoreError, match="timercheck: Apache's broker kept timed messages in RocksDB"):
        reopen(tmp_path, timer_wheel=True)
    by_apache.unlink()
    reopen(tmp_path, timer_wheel=True).close()
    ours = TimerCheckpoint(stored_ms + 61_000, delivered_from=0)  # a new replica
    write_timer_checkpoint(Files(), by_apache, ours)
    reopen(tmp_path, timer_wheel=True).close()


def test_queues_that_apaches_broker_kept_in_rocksdb_are_built_from_the_log(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    (tmp_path / "checkpoint").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    (tmp_path / "consumequeue").mkdir()
    for name in ("CURRENT", "MANIFEST-000005", "000004.log", "000010.sst"):
        (tmp_path / "consumequeue" / name).write_bytes(b"x")
    with reopen(tmp_path) as store:
        (remark,) = store.recovery.remarks
        assert remark == "consumequeue has queues in RocksDB: ignored, and built from the log"
        check(store)


def files_of(root: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in ("abort", "lock")
    } | {root / "abort": bytes((root / "abort").exists())}


@pytest.mark.parametrize("crash", [False, True])
def test_a_light_message_queue_of_apaches_broker_stays_as_it_is(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    light = tmp_path / "consumequeue" / "%LMQ%device" / "0" / f"{0:020d}"
    light.parent.mkdir(parents=True)
    light.write_bytes((tmp_path / "consumequeue" / TOPIC / "0" / light.name).read_bytes())
    units = light.read_bytes()
    with reopen(tmp_path) as store:
        assert any("%LMQ%device/0 is a light message queue" in each for each in store.recovery.remarks)
        assert not store.recovery.queues_rebuilt
        check(store)
    assert light.read_bytes() == units


def test_messages_of_our_own_in_a_topic_named_like_a_light_queue_stay_readable(tmp_path: Path) -> None:
    with reopen(tmp_path) as store:
        append(store, b"ours", topic="%LMQ%device")
    with reopen(tmp_path) as store:
        assert bodies_of(store, "%LMQ%device") == [b"ours"]


@pytest.mark.parametrize("crash", [False, True])
def test_a_log_file_cut_off_before_the_checkpoint_ends_the_log_there(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    for path in (tmp_path / "commitlog").iterdir():
        if not any(path.read_bytes()):
            path.unlink()
    last = max((tmp_path / "commitlog").iterdir())
    os.truncate(last, 1000)
    count = next(number for number in range(COUNT) if offset_of(tmp_path, number) >= int(last.name)) + 4
    with reopen(tmp_path) as store:
        assert any("bytes are missing" in each for each in store.recovery.remarks)
        check(store, count)
    with OfflineStore(tmp_path) as seen:
        assert seen.verify().is_sound


def test_unused_files_behind_a_gap_do_not_push_the_log_aside(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    stray = tmp_path / "commitlog" / f"{8192 * 1000:020d}"
    stray.write_bytes(bytes(8192))
    with reopen(tmp_path) as store:
        assert any("unused files behind the gap are ignored" in each for each in store.recovery.remarks)
        check(store)
    assert stray.exists()


@pytest.mark.parametrize("crash", [False, True])
def test_a_checkpoint_of_garbage_says_nothing(tmp_path: Path, crash: bool) -> None:
    fill(tmp_path, crash=crash)
    (tmp_path / "checkpoint").write_bytes(b"\x7a" * 4096)
    with reopen(tmp_path) as store:
        assert append(store, b"now").store_timestamp == ManualClock().now_ms()
        assert store.recovery.began_at == 0 or not crash
        assert bodies_of(store, queue_id=1) == BODIES[1::2]


@pytest.mark.parametrize("name", ["99999999999999999999", "007", "00", "-1"])
def test_directories_that_only_look_like_queues_are_left_aside(tmp_path: Path, name: str) -> None:
    fill(tmp_path, crash=False)
    stray = tmp_path / "consumequeue" / TOPIC / name
    stray.mkdir()
    (stray / ("0" * 20)).write_bytes(bytes(200))
    with reopen(tmp_path) as store:
        assert store.recovery.remarks == [f"consumequeue/Orders/{name} is not a queue: ignored"]
        assert store.queues.ids(TOPIC) == [0, 1]
        check(store)


def test_whatever_lies_in_the_directories_is_named_in_the_report(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    not_text = os.fsdecode(b"\xff\xfe")
    (tmp_path / "consumequeue" / not_text / "0").mkdir(parents=True)
    (tmp_path / "consumequeue" / "notes").touch()
    (tmp_path / "consumequeue" / TOPIC / "7").touch()
    (tmp_path / "commitlog" / f"{8192 * 50:020d}").mkdir()
    with reopen(tmp_path) as store:
        assert {each.partition(" is not ")[0] for each in store.recovery.remarks} == {
            "consumequeue/\\udcff\\udcfe",
            "consumequeue/notes",
            "consumequeue/Orders/7",
            f"commitlog/{8192 * 50:020d}",
        }
        check(store)


def test_keys_are_indexed_again_after_an_index_that_was_ahead(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    damage_log(tmp_path, offset_of(tmp_path, 90), b"\0" * 300)
    (tmp_path / "checkpoint").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    with reopen(tmp_path) as store:
        append(store, b"new", properties=b"KEYS\x01new\x02")
        dispatch_all(store)
        assert len(store.log.query(TOPIC, "new", 10)) == 1


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize(
    "header",
    [
        struct.pack(">qqqqii", -5, 1 << 62, 0, 1 << 62, 5, 20),
        struct.pack(">qqqqii", 1_700_000_000_000, 1_700_000_000_000, 0, 0, 5, 1000),
        b"\xff" * 40,
    ],
    ids=["no times", "no places", "nothing"],
)
def test_an_index_file_with_a_header_of_garbage_is_removed(
    tmp_path: Path, header: bytes, crash: bool
) -> None:
    fill(tmp_path, crash=crash)
    path = max((tmp_path / "index").iterdir())
    path.write_bytes(header + path.read_bytes()[40:])
    with reopen(tmp_path) as store:
        (remark,) = store.recovery.remarks
        assert remark == f"index/{path.name} has an invalid header: removed"
        append(store, b"new", properties=b"KEYS\x01new\x02")
        dispatch_all(store)
        assert len(store.log.query(TOPIC, "new", 10)) == 1


@pytest.mark.parametrize("crash", [False, True])
def test_index_files_of_other_settings_stay_until_the_settings_are_back(tmp_path: Path, crash: bool) -> None:
    with reopen(tmp_path) as store:
        append(store, b"old", properties=b"KEYS\x01old\x02")
        dispatch_all(store)
    if crash:
        (tmp_path / "abort").touch()
    (path,) = (tmp_path / "index").iterdir()
    with reopen(tmp_path, index_units=77) as store:
        (remark,) = store.recovery.remarks
        assert remark.startswith(f"index/{path.name} was written with another maxHashSlotNum or maxIndexNum:")
        append(store, b"new", properties=b"KEYS\x01new\x02")
        dispatch_all(store)
        assert len(store.log.query(TOPIC, "new", 10)) == 1
    with reopen(tmp_path) as store:
        append(store, b"newest", properties=b"KEYS\x01newest\x02")
        dispatch_all(store)
        assert [len(store.log.query(TOPIC, key, 10)) for key in ("old", "new", "newest")] == [1, 0, 1]


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("is_ours", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_a_start_that_is_interrupted_while_it_builds_queues_is_made_up_for(
    tmp_path: Path, times: int, is_ours: bool, crash: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopen(tmp_path) as store:
        for number, body in enumerate(BODIES):
            append(store, body, queue_id=0 if number < 40 else 1)
    if crash:
        (tmp_path / "abort").touch()
    if not is_ours:
        apaches = struct.pack(">5q", 1 << 42, 1 << 42, 1 << 42, 0, 0)
        (tmp_path / "checkpoint").write_bytes(apaches.ljust(4096, b"\0"))
    shutil.rmtree(tmp_path / "consumequeue")
    put = ConsumeQueue.put

    def be_killed_at_30(queue: ConsumeQueue, *unit: int) -> None:
        if queue.end_offset == 30:
            raise KeyboardInterrupt
        put(queue, *unit)

    with monkeypatch.context() as patched:
        patched.setattr(ConsumeQueue, "put", be_killed_at_30)
        for _ in range(times):
            with pytest.raises(KeyboardInterrupt):
                reopen(tmp_path)
    with reopen(tmp_path) as store:
        assert bodies_of(store, queue_id=0) + bodies_of(store, queue_id=1) == BODIES


def test_building_one_queue_again_leaves_the_ends_of_the_others(tmp_path: Path) -> None:
    """Of a queue that had no messages for long its last file is all that knows its next offset."""
    with reopen(tmp_path) as store:
        for queue_id in (0, 1, 2):
            append(store, b"old", queue_id=queue_id)
        for body in BODIES:
            append(store, body, queue_id=2)
        dispatch_all(store)
        store.flushes.flush()
        os.utime(min((tmp_path / "commitlog").iterdir()), (1, 1))
        assert store.clean(on_demand=True).segments_removed == 1
    remove_a_queue(tmp_path)
    with reopen(tmp_path) as store:
        assert append(store, b"new", queue_id=0).queue_offset == 1
        assert append(store, b"new", queue_id=2).queue_offset == COUNT + 1


def test_a_short_queue_beside_a_missing_one_is_completed_too(tmp_path: Path) -> None:
    fill(tmp_path, crash=False)
    remove_a_queue(tmp_path)
    max((tmp_path / "consumequeue" / TOPIC / "0").iterdir()).unlink()
    with reopen(tmp_path) as store:
        assert store.recovery.queues_rebuilt == ["Orders/0", "Orders/1"]
        check(store)


@pytest.mark.parametrize("topic", [b"Or\0ers", b"Or/ers"])
def test_a_record_of_an_impossible_topic_is_damage(tmp_path: Path, topic: bytes) -> None:
    fill(tmp_path, crash=False)
    damage_log(tmp_path, offset_of(tmp_path, 5) + 88 + len(BODIES[5]) + 1, topic)
    remove_a_queue(tmp_path)
    with reopen(tmp_path) as store:
        assert any("impossible topic" in each.reason for each in store.recovery.damage)
        assert bodies_of(store, queue_id=0) == BODIES[::2]
        assert store.topics.names() == [TOPIC]


@pytest.mark.parametrize("how", [nullcontext, interpreted])
def test_slots_of_garbage_count_as_empty(
    tmp_path: Path, how: Callable[[], AbstractContextManager[None]]
) -> None:
    fill(tmp_path, crash=False)
    path = max((tmp_path / "index").iterdir())
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\xfe" * (31 * 4) + content[40 + 31 * 4 :])
    with how(), reopen(tmp_path) as store:
        for key in (b"one", b"two", b"one"):
            append(store, key, properties=b"KEYS\x01%s\x02" % key)
            dispatch_all(store)
        assert len(store.log.query(TOPIC, "one", 10)) == 2
    content = path.read_bytes()
    units = [struct.unpack_from(">iqii", content, 40 + 31 * 4 + number * 20) for number in range(64)]
    assert [previous for *_, previous in units if previous > 64] == []


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("other_is_lost", [True, False])
def test_a_queue_without_its_first_file_is_rebuilt(
    tmp_path: Path, is_clean: bool, other_is_lost: bool
) -> None:
    store = MessageStore.open(small_settings(tmp_path), start_flusher=False)
    bodies = [b"%d" % number for number in range(35)]
    for body in bodies:
        append(store, body)
        append(store, body, queue_id=1)
    dispatch_all(store)
    store.flushes.flush()
    if is_clean:
        store.close()
    else:
        store.abandon()
    (tmp_path / "consumequeue" / TOPIC / "0" / f"{0:020}").unlink()
    if other_is_lost:
        shutil.rmtree(tmp_path / "consumequeue" / TOPIC / "1")
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        assert bodies_of(store, TOPIC, 0) == bodies_of(store, TOPIC, 1) == bodies
        assert f"{TOPIC}/0" in store.recovery.queues_rebuilt
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        assert not store.recovery.queues_rebuilt
