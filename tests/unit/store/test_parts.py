"""Small parts of the store, each by itself."""

import errno
import os
import time
from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import (
    TOPIC,
    append,
    bodies_of,
    dispatch_all,
    interpreted,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.errors import ConfigError, StoreError
from pyromq.filesystem import Files, Space
from pyromq.protocol.properties import get_property_bytes
from pyromq.store.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from pyromq.store.faults import Fault
from pyromq.store.filenames import index_name, is_index_name, offset_name, parse_offset_name
from pyromq.store.index.key_hash import index_key_hash, index_key_hashes
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore
from pyromq.store.queues.property_probe import PropertyProbe
from pyromq.store.results import ReadStatus
from pyromq.store.settings import StoreSettings


@given(st.lists(st.text(max_size=80), max_size=40))
def test_hashing_keys_in_bulk_gives_what_hashing_one_by_one_gives(keys: list[str]) -> None:
    assert index_key_hashes([key.encode() for key in keys]) == [index_key_hash(key) for key in keys]


@given(st.lists(st.text(st.characters(max_codepoint=127), max_size=300), min_size=1, max_size=40))
def test_hashing_plain_keys_in_bulk_gives_what_hashing_one_by_one_gives(keys: list[str]) -> None:
    assert index_key_hashes([key.encode() for key in keys]) == [index_key_hash(key) for key in keys]


def test_the_hash_without_an_absolute_value_is_zero() -> None:
    # The hash of this text is the smallest 32-bit number.
    assert index_key_hash("polygenelubricants") == 0
    assert index_key_hashes([b"polygenelubricants", b"x"]) == [0, ord("x")]


NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"XKEYS", b"WAIT", b"", b"a.b"])
VALUES = st.sampled_from([b"", b"v", b"two words", b"x\x01y", b"KEYS", b"TAGS\x01t"])
PIECES = st.tuples(NAMES, st.sampled_from([b"", b"\x01"]), VALUES).map(b"".join)


@given(st.lists(st.lists(PIECES, max_size=5), min_size=1, max_size=6))
def test_probing_properties_gives_what_looking_them_up_gives(strings: list[list[bytes]]) -> None:
    probe = PropertyProbe()
    for pieces in strings:
        for ending in (b"", b"\x02"):
            properties = b"\x02".join(pieces) + ending
            expected = tuple(
                get_property_bytes(properties, name) or b"" for name in ("TAGS", "UNIQ_KEY", "KEYS")
            )
            for _ in range(3):  # the shape is learnt on the way
                assert probe.read(properties) == expected


def test_a_checkpoint_is_read_back_and_foreign_writes_void_our_part(tmp_path: Path) -> None:
    files, path = Files(), tmp_path / "checkpoint"
    assert read_checkpoint(files, path) == Checkpoint()
    checkpoint = Checkpoint(10_000, 9_000, 8_000, 7, 6, 5, 4, 3)
    write_checkpoint(files, path, checkpoint)
    write_checkpoint(files, path, checkpoint)
    assert read_checkpoint(files, path) == checkpoint
    assert path.stat().st_size == 4096
    assert checkpoint.min_timestamp == 6000
    with path.open("r+b") as stream:
        stream.write((10_001).to_bytes(8, "big"))
    assert read_checkpoint(files, path) == Checkpoint(10_001, 9_000, 8_000, 7, 6)


def test_two_equal_times_that_another_broker_sets_to_a_later_one_void_our_part_of_a_checkpoint(
    tmp_path: Path,
) -> None:
    files, path = Files(), tmp_path / "checkpoint"
    write_checkpoint(files, path, Checkpoint(9_000, 9_000, 8_000, 7, 6, 5, 4, 3))
    with path.open("r+b") as stream:
        stream.write(2 * (10_001).to_bytes(8, "big"))
    assert read_checkpoint(files, path) == Checkpoint(10_001, 10_001, 8_000, 7, 6)


def test_names_are_apaches() -> None:
    assert offset_name(1_073_741_824) == "00000000001073741824"
    assert parse_offset_name("00000000001073741824") == 1_073_741_824
    assert parse_offset_name("1073741824") is None
    assert is_index_name(index_name(1_700_000_000_123))
    assert index_name(1_700_000_000_123).endswith("123")


class TestJsonTable:
    def test_java_writes_numbers_as_keys_and_we_read_them(self, tmp_path: Path) -> None:
        path = tmp_path / "config" / "consumerOffset.json"
        path.parent.mkdir()
        path.write_text('{"offsetTable":{"T@g":{0:12,1:3}}}')
        table = JsonTable(Files(), path)
        assert table.load(dict[str, dict[str, dict[int, int]]]) == {"offsetTable": {"T@g": {0: 12, 1: 3}}}

    def test_the_one_before_is_kept_and_used_when_the_new_one_is_broken(self, tmp_path: Path) -> None:
        table = JsonTable(Files(), tmp_path / "config" / "topics.json")
        assert table.load(dict[str, int]) is None
        table.save({"a": 1})
        table.save({"a": 2})
        assert table.load(dict[str, int]) == {"a": 2}
        for content in (b"", b"{broken"):
            table.path.write_bytes(content)
            assert table.load(dict[str, int]) == {"a": 1}
        assert not table.path.exists(), "put aside"
        assert (tmp_path / "config" / "topics.json.broken").read_bytes() == b"{broken"
        assert table.load(dict[str, int]) == {"a": 1}

    def test_two_broken_files_stop_the_start(self, tmp_path: Path) -> None:
        table = JsonTable(Files(), tmp_path / "topics.json")
        table.path.write_bytes(b"{broken")
        (tmp_path / "topics.json.bak").write_bytes(b"[")
        with pytest.raises(StoreError, match=r"topics\.json"):
            table.load(dict[str, int])

    def test_a_broken_file_never_becomes_the_backup(self, tmp_path: Path) -> None:
        files = FaultyFiles(tmp_path)
        table = JsonTable(files, tmp_path / "t.json")
        table.save({"a": 1})
        table.save({"a": 2})
        files.write(table.path, b"{broken")
        assert table.load(dict[str, int]) == {"a": 1}
        table.save({"a": 3})
        files.write(table.path, b"{broken")
        assert table.load(dict[str, int]) == {"a": 1}

    def test_a_directory_in_its_place_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "topics.json").mkdir()
        with pytest.raises(StoreError, match=r"topics\.json: .*directory"):
            JsonTable(Files(), tmp_path / "topics.json").load(dict[str, int])

    def test_power_may_go_at_any_moment_of_a_save(self, tmp_path: Path) -> None:
        for seed in range(30):
            root = tmp_path / str(seed)
            root.mkdir()
            files = FaultyFiles(root)
            JsonTable(files, root / "t.json").save({"a": 1})
            table = JsonTable(files, root / "t.json")
            # The last save did everything but the final sync of the directory.
            files.write(root / "t.json.tmp", b'{"a":2}')
            files.rename(root / "t.json", root / "t.json.bak")
            files.rename(root / "t.json.tmp", root / "t.json")
            files.crash(Random(seed))
            assert table.load(dict[str, int]) in ({"a": 1}, {"a": 2})


def test_files_with_holes_get_their_blocks_before_they_are_written_to(tmp_path: Path) -> None:
    """Apache's broker leaves such files: on a full disk a write into a hole would end the process."""
    changes = {"log_segment_bytes": 1 << 20, "index_slots": 100_000}
    with MessageStore.open(small_settings(tmp_path, preallocate=False, **changes)) as store:
        append(store, b"x", properties=b"KEYS\x01k\x02")
        dispatch_all(store)
    index = next((tmp_path / "index").iterdir())
    content = index.read_bytes()
    with index.open("wb") as stream:
        stream.truncate(len(content))
        stream.write(content[:40])
    with MessageStore.open(small_settings(tmp_path, **changes), start_flusher=False) as store:
        append(store, b"x", properties=b"KEYS\x01k\x02")
        dispatch_all(store)
    assert (tmp_path / "commitlog" / ("0" * 20)).stat().st_blocks * 512 >= 1 << 20
    assert index.stat().st_blocks * 512 >= 400_000


def test_a_clock_that_was_put_back_delays_no_index_file(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False) as store:
        for number in range(200):
            append(store, b"x", properties=b"KEYS\x01k%d\x02" % number)
            dispatch_all(store)
            clock.advance(-86400 * 365)
        names = sorted(path.name for path in (tmp_path / "index").iterdir())
        assert names == [f"{int(names[0]) + number}" for number in range(4)]
        assert len(store.log.query(TOPIC, "k199", 10)) == 1


@pytest.mark.parametrize(
    ("preallocate", "warm_up", "is_whole"), [(True, False, True), (False, True, True), (False, False, False)]
)
def test_log_files_have_their_blocks_before_the_first_message(
    tmp_path: Path, preallocate: bool, warm_up: bool, is_whole: bool
) -> None:
    size = 1 << 20
    settings = small_settings(tmp_path, log_segment_bytes=size, preallocate=preallocate, warm_up=warm_up)
    with MessageStore.open(settings, start_flusher=False) as store:
        append(store, b"x")
        allocated = (tmp_path / "commitlog" / ("0" * 20)).stat().st_blocks * 512
    assert (allocated >= size) is is_whole


class TestCleaning:
    def open(self, root: Path, clock: ManualClock, **changes: Any) -> tuple[MessageStore, FaultyFiles]:
        files = FaultyFiles(root)
        store = MessageStore.open(
            small_settings(root, **changes), files=files, clock=clock, start_flusher=False
        )
        for number in range(200):
            append(store, b"%d" % number * 100, queue_id=number % 2, properties=b"KEYS\x01k%d\x02" % number)
        dispatch_all(store)
        store.flushes.flush()
        for path in (root / "commitlog").iterdir():
            os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))
        return store, files

    def test_old_files_go_at_the_configured_hour_and_heads_follow(self, tmp_path: Path) -> None:
        clock = ManualClock(1_700_000_000_000)
        store, _ = self.open(tmp_path, clock, file_reserved_hours=48, delete_when="00;01", delete_batch_max=3)
        removed = []
        for _ in range(72):
            clock.advance(3600)
            removed.append(store.clean().segments_removed)
        assert sum(removed[:47]) == 0
        assert sum(removed) > 0
        assert max(removed) <= 3
        start = store.statistics().log_start_offset
        assert start > 0
        low = store.queues.min_offset(TOPIC, 0)
        files = sorted((tmp_path / "consumequeue" / TOPIC / "0").iterdir())
        assert 0 < int(files[0].name) // 20 <= low
        index_files = len(list((tmp_path / "index").iterdir()))
        assert index_files == store.statistics().index_files < 200 // 63 + 1
        store.close()

    def test_the_file_being_written_never_goes(self, tmp_path: Path) -> None:
        store, _ = self.open(tmp_path, ManualClock(), delete_batch_max=100)
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        assert store.clean(on_demand=True).segments_removed > 1
        assert store.clean(on_demand=True).segments_removed == 0
        assert append(store, b"still here").is_ok
        store.close()

    def test_files_that_cannot_be_removed_stay_in_use(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, files = self.open(tmp_path, ManualClock())
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))

        def refuse(path: Path) -> None:
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        with monkeypatch.context() as patched:
            patched.setattr(files, "remove", refuse)
            report = store.clean(on_demand=True)
        assert "Read-only" in report.problem
        assert report.segments_removed == 0
        assert len(bodies_of(store)) == 100
        assert store.clean(on_demand=True).segments_removed > 0
        store.close()

    def test_files_removed_by_somebody_else_are_missed_and_forgotten(self, tmp_path: Path) -> None:
        store, _ = self.open(tmp_path, ManualClock(), file_reserved_hours=72)
        min((tmp_path / "commitlog").iterdir()).unlink()
        for path in sorted((tmp_path / "consumequeue" / TOPIC / "0").iterdir())[:2]:
            path.unlink()
        store.clean()
        assert store.statistics().log_start_offset == 8192
        offset = store.queues.min_offset(TOPIC, 0)
        assert store.read(TOPIC, 0, offset).status is ReadStatus.FOUND
        assert store.read(TOPIC, 0, 0).next_offset == offset
        store.close()

    @pytest.mark.parametrize(
        ("free_percent", "is_expired", "goes"),
        [(30, True, False), (24, True, True), (24, False, False), (14, False, True)],
    )
    def test_space_decides_what_goes(
        self, tmp_path: Path, free_percent: int, is_expired: bool, goes: bool
    ) -> None:
        clock = ManualClock(1_700_000_000_000)
        hour = (time.localtime(clock.now_ms() // 1000).tm_hour + 12) % 24
        store, files = self.open(
            tmp_path,
            clock,
            file_reserved_hours=1,
            delete_when=f"{hour:02d}",
            disk_max_used_percent=75,
            disk_clean_forcibly_percent=85,
        )
        if is_expired:
            clock.advance(7200)
        files.space_now = Space(100, free_percent, False)
        assert (store.clean().segments_removed > 0) is goes
        store.close()

    def set_aside(self, root: Path, clock: ManualClock, *sizes: int) -> Path:
        """As recovery does it; an hour lies between two of them."""
        directory = root / "damaged"
        directory.mkdir()
        for number, size_bytes in enumerate(sizes):
            path = directory / f"{number:020d}-{size_bytes}.bin"
            path.write_bytes(bytes(size_bytes))
            os.utime(path, (clock.now_ms() / 1000 + 3600 * number,) * 2)
        return directory

    def test_damaged_bytes_are_kept_as_long_as_log_files(self, tmp_path: Path) -> None:
        clock = ManualClock(1_700_000_000_000)
        store, _ = self.open(
            tmp_path, clock, file_reserved_hours=48, delete_when=";".join(map(str, range(24)))
        )
        directory = self.set_aside(tmp_path, clock, 10, 20)
        left = []
        for _ in range(50):
            clock.advance(3600)
            store.clean()
            left.append(len(list(directory.iterdir())))
        assert left == [2] * 48 + [1, 0]
        store.close()

    def test_damaged_bytes_go_before_messages_if_space_is_short(self, tmp_path: Path) -> None:
        clock = ManualClock()
        changes = {"file_reserved_hours": 72, "disk_clean_forcibly_percent": 85}
        store, files = self.open(tmp_path, clock, **changes)
        directory = self.set_aside(tmp_path, clock, 6_000, 4_000, 2_000)
        files.space_now = Space(100_000, 5_000, False)
        assert store.clean().segments_removed == 0, "10,000 bytes have to go"
        assert [path.stat().st_size for path in directory.iterdir()] == [2_000]
        assert store.clean().segments_removed == 1, "8,000 bytes more"
        store.close()

    def test_space_costs_no_more_files_than_it_must(self, tmp_path: Path) -> None:
        store, files = self.open(
            tmp_path, ManualClock(), file_reserved_hours=72, disk_clean_forcibly_percent=85
        )
        files.space_now = Space(100_000, 5_000, False)
        report = store.clean()
        assert (report.segments_removed, report.is_forced) == (2, True), "10,000 bytes, of files of 8,192"
        store.close()

    @pytest.mark.parametrize("may_force", [True, False])
    def test_old_files_make_room_for_a_new_one_on_a_small_disk(self, tmp_path: Path, may_force: bool) -> None:
        clock = ManualClock()
        store, files = self.open(tmp_path, clock, file_reserved_hours=72, clean_forcibly=may_force)
        files.failures["create"] = errno.ENOSPC
        files.space_now = Space(40_000, 8_000, False)
        while append(store, b"x" * 500).is_ok:
            pass
        for _ in range(3):
            clock.advance(1.1)
            store.upkeep()
            assert store.faults is Fault.DISK_FULL, "it would fail again"
        clock.advance(11)
        report = store.upkeep()
        assert report is not None
        assert report.segments_removed == (1 if may_force else 0)
        files.failures.clear()
        files.space_now = Space(40_000, 16_000, False)
        clock.advance(1.1)
        store.upkeep()
        assert append(store, b"x" * 500).is_ok
        store.close()

    def test_a_new_file_that_is_not_needed_yet_costs_no_old_ones(self, tmp_path: Path) -> None:
        store, files = self.open(tmp_path, ManualClock(), file_reserved_hours=72)
        while store._log.wanted_segment is None:  # until a new file is begun
            append(store, b"x" * 500)
        files.failures["create"] = errno.ENOSPC
        files.space_now = Space(40_000, 8_000, False)
        with pytest.raises(OSError, match="No space left"):
            store._log.create_wanted_segment()
        assert store.clean().segments_removed == 0
        store.close()

    def test_space_does_not_cost_what_a_group_has_not_read_if_so_set(self, tmp_path: Path) -> None:
        store, files = self.open(
            tmp_path, ManualClock(), file_reserved_hours=72, keep_unread=True, disk_clean_forcibly_percent=85
        )
        files.space_now = Space(1_000_000, 50_000, False)
        report = store.clean()
        assert (report.segments_removed, report.is_kept_for_groups) == (0, True)
        store.keep_unread_from(2 * 8192 + 1)
        report = store.clean()
        assert (report.segments_removed, report.is_forced, report.is_kept_for_groups) == (2, True, True)
        assert (report.log_start, store.log.start) == (0, 2 * 8192)
        store.close()


class TestRetentionAndClocks:
    """A clock that is wrong deletes nothing before its time."""

    DAY_S = 86_400

    def fill(self, store: MessageStore, count: int = 300) -> None:
        for number in range(count):
            assert append(store, b"%d" % number * 100).is_ok
        dispatch_all(store)
        store.flushes.flush()

    def open(self, root: Path, clock: ManualClock) -> MessageStore:
        settings = small_settings(
            root, file_reserved_hours=72, delete_when=";".join(map(str, range(24))), delete_batch_max=1000
        )
        return MessageStore.open(settings, clock=clock, start_flusher=False)

    def touch(self, root: Path, clock: ManualClock) -> None:
        for path in (root / "commitlog").iterdir():
            os.utime(path, (clock.now_ms() / 1000, clock.now_ms() / 1000))

    def removed(self, store: MessageStore, clock: ManualClock, seconds: int) -> int:
        total = 0
        for _ in range(seconds // 10):
            clock.advance(10)
            report = store.upkeep()
            total += report.segments_removed if report is not None else 0
        return total

    def test_a_clock_five_days_ahead_for_some_seconds_deletes_nothing(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock) as store:
            self.fill(store)
            self.touch(tmp_path, clock)
        with self.open(tmp_path, clock) as store:
            clock.advance(10)
            store.upkeep()
            clock.set_ahead(5 * self.DAY_S)
            assert store.clean(on_demand=True).segments_removed == 0
            assert self.removed(store, clock, 600) == 0
            clock.set_ahead(-5 * self.DAY_S)
            assert self.removed(store, clock, 3600) == 0
            assert any("jumped ahead by 5 days" in text for text in store.time.take_notices())

    def test_a_leap_that_stands_is_believed_for_files_that_were_there_at_the_start(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock) as store:
            self.fill(store)
            self.touch(tmp_path, clock)
        with self.open(tmp_path, clock) as store:
            clock.set_ahead(5 * self.DAY_S)
            assert self.removed(store, clock, 890) == 0
            assert self.removed(store, clock, 60) > 0

    def test_a_start_with_a_clock_ahead_waits_before_it_deletes(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock) as store:
            self.fill(store)
            self.touch(tmp_path, clock)
        clock.set_ahead(5 * self.DAY_S)
        with self.open(tmp_path, clock) as store:
            assert store.clean(on_demand=True).segments_removed == 0
            assert self.removed(store, clock, 890) == 0
            # A time service puts it right just in time.
            clock.set_ahead(-5 * self.DAY_S)
            assert self.removed(store, clock, 3600) == 0
        clock.advance(5 * self.DAY_S)
        with self.open(tmp_path, clock) as store:
            assert self.removed(store, clock, 890) == 0
            assert self.removed(store, clock, 60) > 0

    def test_files_written_under_a_clock_years_behind_are_not_old_when_it_is_put_right(
        self, tmp_path: Path
    ) -> None:
        clock = ManualClock(1_000_000)
        with self.open(tmp_path, clock) as store:
            self.removed(store, clock, 60)
            self.fill(store)
            self.touch(tmp_path, clock)
            clock.set_ahead(1_700_000_000)
            assert self.removed(store, clock, 2 * 3600) == 0
            assert store.time.now_ms() == clock.now_ms()
            clock.advance(71 * 3600)
            assert self.removed(store, clock, 10) > 0

    def test_a_clock_set_back_for_an_hour_deletes_what_is_due_and_no_more(self, tmp_path: Path) -> None:
        clock = ManualClock()
        with self.open(tmp_path, clock) as store:
            self.fill(store)
            self.touch(tmp_path, clock)
            clock.advance(72 * 3600 - 600)
            clock.set_ahead(-7200)
            assert self.removed(store, clock, 3600) == 0
            clock.set_ahead(7200)
            assert self.removed(store, clock, 3600) > 0


def test_settings_carry_apaches_names_and_defaults() -> None:
    settings = StoreSettings().as_java_dict()
    assert settings["mappedFileSizeCommitLog"] == "1073741824"
    assert settings["fileReservedTime"] == "72"
    assert settings["flushDiskType"] == "ASYNC_FLUSH"
    assert StoreSettings(queue_file_bytes=6_000_001).queue_units_per_file == 300_001
    with pytest.raises(ConfigError, match="deleteWhen"):
        StoreSettings(delete_when="25")
    with pytest.raises(ConfigError, match="messageDelayLevel"):
        StoreSettings(message_delay_levels="1s soon")


def test_statistics_and_names_tell_the_state(tmp_path: Path) -> None:
    with MessageStore.open(small_settings(tmp_path), start_flusher=False) as store:
        append(store, b"x")
        statistics = store.statistics()
        assert statistics.appended_messages == 1
        assert statistics.appended_bytes == statistics.log_end_offset == statistics.dispatch_behind_bytes
        assert "CommitLog 0.." in repr(store)
        assert "ConsumeQueue Orders/0" in repr(store.queues.find(TOPIC, 0))


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_dispatch_up_to_the_end_of_a_log_file_leaves_nothing_to_do(
    tmp_path: Path, is_compiled: bool
) -> None:
    with (
        nullcontext() if is_compiled else interpreted(),
        MessageStore.open(small_settings(tmp_path), start_flusher=False) as store,
    ):
        while store.log.end <= 8192:
            append(store, b"x" * 300)
        store.dispatch(limit=8192)
        assert not store.can_dispatch_to(8192)
        assert store.queues.dispatched_offset == 8192
        count = store.queues.max_offset(TOPIC, 0)
        dispatch_all(store)
        assert store.queues.max_offset(TOPIC, 0) == count + 1
