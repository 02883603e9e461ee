"""Reading: every status, every limit, and views that outlive their file."""

import itertools
import os
import struct
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.support.small_stores import (
    TOPIC,
    append,
    dispatch_all,
    interpreted,
    messages_in,
    records_in,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.protocol.java_hash import tag_code
from pyromq.store.message_store import MessageStore
from pyromq.store.reading import RecordFilter
from pyromq.store.results import Boundary, ReadStatus


def open_store(root: Path, clock: ManualClock | None = None, **changes: Any) -> MessageStore:
    settings = small_settings(root, **changes)
    return MessageStore.open(settings, clock=clock or ManualClock(), start_flusher=False)


def filled(root: Path, count: int, size: int = 100, **changes: Any) -> MessageStore:
    store = open_store(root, **changes)
    for number in range(count):
        properties = f"TAGS\x01tag{number % 4}\x02UNIQ_KEY\x01u{number}\x02KEYS\x01k{number % 10} all\x02"
        append(store, b"%04d" % number * (size // 4), properties=properties.encode())
    dispatch_all(store)
    return store


def expire_oldest(root: Path, count: int) -> None:
    for path in sorted((root / "commitlog").iterdir())[:count]:
        os.utime(path, (1, 1))


def test_each_place_has_its_status(tmp_path: Path) -> None:
    with filled(tmp_path, 100) as store:
        store.flushes.flush()
        expire_oldest(tmp_path, 1)
        assert store.clean(on_demand=True).segments_removed == 1
        low = store.queues.min_offset(TOPIC, 0)
        assert 0 < low < 100

        def status(offset: int, queue_id: int = 0) -> tuple[ReadStatus, int]:
            result = store.read(TOPIC, queue_id, offset)
            return result.status, result.next_offset

        assert status(0, 9) == (ReadStatus.NO_MATCHED_LOGIC_QUEUE, 0)
        assert status(low - 1) == (ReadStatus.OFFSET_TOO_SMALL, low)
        assert status(low) == (ReadStatus.FOUND, low - low % 10 + 10)  # ten units to a file
        assert status(99) == (ReadStatus.FOUND, 100)
        assert status(100) == (ReadStatus.OFFSET_OVERFLOW_ONE, 100)
        assert status(101) == (ReadStatus.OFFSET_OVERFLOW_BADLY, 100)
        append(store, b"x", queue_id=5)
        assert status(0, 5) == (ReadStatus.NO_MESSAGE_IN_QUEUE, 0)


def test_a_read_stays_within_its_limits_but_gives_one_message_at_least(tmp_path: Path) -> None:
    with filled(tmp_path, 60, size=1000, queue_file_bytes=2000, max_batch_bytes_in_memory=5000) as store:
        assert store.read(TOPIC, 0, 0, 3).message_count == 3
        assert store.read(TOPIC, 0, 0, 32).message_count == 4
        assert store.read(TOPIC, 0, 0, 32, max_bytes=1).message_count == 1
        result = store.read(TOPIC, 0, 2, 32, max_bytes=2500)
        assert [message.queue_offset for message in messages_in(result)] == [2, 3]
        assert result.size_bytes == sum(len(view) for view in result.views)


@pytest.mark.parametrize("max_messages", [0, -1, -(1 << 31)])
def test_whoever_asks_for_nothing_gets_one_message(tmp_path: Path, max_messages: int) -> None:
    with filled(tmp_path, 5) as store:
        result = store.read(TOPIC, 0, 2, max_messages)
        assert (result.status, result.message_count, result.next_offset) == (ReadStatus.FOUND, 1, 3)


def test_far_behind_the_end_less_is_given(tmp_path: Path) -> None:
    with filled(tmp_path, 100, queue_file_bytes=4000) as store:
        assert store.read(TOPIC, 0, 0).message_count == 32
        assert not store.read(TOPIC, 0, 0).suggest_replica
        store._reader._in_memory_bytes = 1000  # as on a machine with very little memory
        result = store.read(TOPIC, 0, 0)
        assert result.message_count == 8
        assert result.suggest_replica


def test_neighbours_are_handed_out_in_one_slice(tmp_path: Path) -> None:
    with filled(tmp_path, 20, queue_file_bytes=4000, log_segment_bytes=1 << 16) as store:
        result = store.read(TOPIC, 0, 0)
        assert (len(result.views), result.message_count) == (1, 20)
        append(store, b"between", queue_id=1)
        append(store, b"x" * 20_000)
        dispatch_all(store)
        assert len(store.read(TOPIC, 0, 19).views) == 2


def test_tags_are_skipped_without_touching_the_log(tmp_path: Path) -> None:
    with filled(tmp_path, 100, queue_file_bytes=4000) as store:
        seen = []

        def look(record: memoryview) -> bool:
            seen.append(record)
            return True

        result = store.read(TOPIC, 0, 1, 5, tag_codes={tag_code("tag2")}, only=RecordFilter(look))
        assert [message.queue_offset for message in messages_in(result)] == [2, 6, 10, 14, 18]
        assert len(seen) == 5
        assert result.next_offset == 19
        nothing = store.read(TOPIC, 0, 3, tag_codes={tag_code("other")})
        assert (nothing.status, nothing.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 100)
        none_matches = store.read(TOPIC, 0, 98, only=RecordFilter(lambda _: False))
        assert (none_matches.status, none_matches.next_offset) == (ReadStatus.NO_MATCHED_MESSAGE, 100)


def test_units_of_lost_messages_say_so(tmp_path: Path) -> None:
    with filled(tmp_path, 5, queue_file_bytes=4000) as store:
        queue = store.queues.find(TOPIC, 0)
        assert queue is not None
        buffer, position = queue.place(0)
        for number in range(5):
            struct.pack_into(">qi", buffer, position + number * 20, 7, 0x7FFFFFFF)
        result = store.read(TOPIC, 0, 0)
        assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, 5)


@pytest.mark.parametrize("how", [nullcontext, interpreted])
@pytest.mark.parametrize(
    ("place", "size"), [(1 << 62, 7), (-5, 7), (0, 0), (0, -20), (0, 0x7FFFFFFE), (1 << 40, 100)]
)
def test_a_unit_of_garbage_costs_no_message(
    tmp_path: Path, place: int, size: int, how: Callable[[], AbstractContextManager[None]]
) -> None:
    with how(), filled(tmp_path, 50, queue_file_bytes=2000, log_segment_bytes=65536) as store:
        queue = store.queues.find(TOPIC, 0)
        assert queue is not None
        buffer, position = queue.place(10)
        struct.pack_into(">qi", buffer, position, place, size)
        offset, numbers = 0, []
        while offset < 50:
            result = store.read(TOPIC, 0, offset)
            numbers += [message.queue_offset for message in messages_in(result)]
            offset = result.next_offset
        assert numbers == list(range(50))


def test_a_lost_queue_file_is_passed_over(tmp_path: Path) -> None:
    with filled(tmp_path, 35, mapped_queue_files=1) as store:
        (tmp_path / "consumequeue" / TOPIC / "0" / "00000000000000000200").unlink()
        assert store.queues.min_offset(TOPIC, 0) in (0, 20)
        queue = store.queues.find(TOPIC, 0)
        assert queue is not None
        queue._min_offset, queue._min_offset_log_start = 0, 0  # as found before the file was lost
        result = store.read(TOPIC, 0, 13)
        assert (result.status, result.next_offset) == (ReadStatus.OFFSET_FOUND_NULL, 20)
        assert store.read(TOPIC, 0, 20).status is ReadStatus.FOUND


def test_views_stay_good_after_their_file_is_deleted(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock) as store:
        for number in range(100):
            append(store, b"%03d" % number * 40)
        dispatch_all(store)
        store.flushes.flush()
        result = store.read(TOPIC, 0, 0)
        expire_oldest(tmp_path, 1)
        held = store.clean(on_demand=True)
        assert (held.segments_removed, held.held_by_readers) == (0, True)
        clock.advance(121)
        assert store.clean(on_demand=True).segments_removed == 1
        assert not (tmp_path / "commitlog" / ("0" * 20)).exists()
        assert store.queues.min_offset(TOPIC, 0) > 0
    # The store is closed and the file gone; the bytes are still what they were.
    bodies = [message.body for view in result.views for message in records_in(view)]
    assert bodies == [b"%03d" % number * 40 for number in range(10)]


def test_a_file_that_nobody_reads_any_more_goes_at_the_next_round(tmp_path: Path) -> None:
    with filled(tmp_path, 100) as store:
        store.flushes.flush()
        result = store.read(TOPIC, 0, 0)
        expire_oldest(tmp_path, 1)
        assert store.clean(on_demand=True).held_by_readers
        for view in result.views:
            view.release()
        assert store.clean(on_demand=True).segments_removed == 1


def test_a_reader_of_yesterday_does_not_count_today(tmp_path: Path) -> None:
    clock = ManualClock()
    hour = time.localtime(clock.now_ms() // 1000).tm_hour
    with open_store(tmp_path, clock, delete_when=f"{(hour + 12) % 24:02d}") as store:
        for number in range(100):
            append(store, b"%03d" % number * 40)
        dispatch_all(store)
        store.flushes.flush()
        views = store.read(TOPIC, 0, 0).views
        expire_oldest(tmp_path, 1)
        assert store.clean(on_demand=True).held_by_readers
        assert store.clean().segments_removed == 0, "it is not the hour, so nothing has to go"
        clock.advance(3600)
        held = store.clean(on_demand=True)
        assert (held.segments_removed, held.held_by_readers) == (0, True)
        assert views


def test_messages_are_found_by_key_and_time(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_store(tmp_path, clock) as store:
        for number in range(200):
            append(
                store,
                b"m%d" % number,
                properties=b"UNIQ_KEY\x01u%d\x02KEYS\x01k%d all\x02" % (number, number % 10),
            )
            clock.advance(1)
        dispatch_all(store)

        def found(key: str, limit: int = 64, **times: int) -> list[int]:
            records = store.log.query(TOPIC, key, limit, **times)
            return [message.queue_offset for record in records for message in records_in(record)]

        assert found("u77") == [77]
        assert found("k3") == list(range(3, 200, 10))
        assert found("all", 5) == [195, 196, 197, 198, 199]
        assert found("nothing") == []
        assert found("k3", begin_ms=1_000_050_000, end_ms=1_000_100_000) == [53, 63, 73, 83, 93]
        assert len(found("all", 1000)) == 64


def test_a_range_of_time_has_the_messages_of_its_first_and_last_millisecond(tmp_path: Path) -> None:
    clock = ManualClock(1_000_000_000)
    with open_store(tmp_path, clock, index_slots=16, index_units=20) as store:
        for number in range(60):
            append(store, b"m%d" % number, properties=b"KEYS\x01k%d all\x02" % number)
            clock.advance(2.7 if number % 9 else 100)
        dispatch_all(store)
        assert store.statistics().index_files > 3
        for key in ("all", "k7"):
            for record in store.log.query(TOPIC, key, 64):
                (message,) = records_in(record)
                at = message.store_timestamp
                same = store.log.query(TOPIC, key, 64, begin_ms=at, end_ms=at)
                assert [each.queue_offset for one in same for each in records_in(one)] == [
                    message.queue_offset
                ]
        assert len(store.log.query(TOPIC, "all", 64)) == 60


def test_keys_with_the_same_hash_hide_no_message(tmp_path: Path) -> None:
    keys = ["".join(pairs) for pairs in itertools.product(("Aa", "BB"), repeat=7)]
    with open_store(tmp_path, ManualClock(), max_query_messages=64) as store:
        for key in keys:
            append(store, key.encode(), properties=b"KEYS\x01%b\x02" % key.encode())
        dispatch_all(store)
        for key in (keys[0], keys[100]):
            (record,) = store.log.query(TOPIC, key, 64)
            assert [message.body for message in records_in(record)] == [key.encode()]


def test_a_query_says_so_if_too_many_keys_have_the_same_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyromq.store.log_reading._MAX_EXAMINED", 3)
    with open_store(tmp_path, ManualClock()) as store:
        for key in (b"AaAa", b"AaBB", b"BBAa", b"BBBB"):
            append(store, key, properties=b"KEYS\x01%b\x02" % key)
        dispatch_all(store)
        assert len(store.log.query(TOPIC, "BBBB", 1)) == 1
        with pytest.raises(StoreError, match="over 3 messages have keys with the hash of AaAa"):
            store.log.query(TOPIC, "AaAa", 1)


@pytest.mark.parametrize(
    ("seconds", "lower", "upper"),
    [(-5, 0, 0), (0, 0, 2), (5, 3, 2), (10, 3, 5), (15, 6, 5), (20, 6, 8), (99, 9, 8)],
)
def test_offsets_by_time_have_a_lower_and_an_upper_side(
    tmp_path: Path, seconds: int, lower: int, upper: int
) -> None:
    clock = ManualClock(1_000_000_000)
    with open_store(tmp_path, clock) as store:
        for _ in range(3):
            for _ in range(3):
                append(store, b"x")
            clock.advance(10)
        dispatch_all(store)
        when = 1_000_000_000 + seconds * 1000
        assert store.queues.offset_by_time(TOPIC, 0, when) == lower
        assert store.queues.offset_by_time(TOPIC, 0, when, Boundary.UPPER) == upper
        assert store.queues.offset_by_time("unknown", 0, when) == 0
        assert store.log.earliest_time() == store.queues.earliest_time(TOPIC, 0) == 1_000_000_000


def test_only_so_many_queue_files_are_mapped_at_a_time(tmp_path: Path) -> None:
    with open_store(tmp_path, mapped_queue_files=4) as store:
        for number in range(300):
            append(store, b"%d" % number, queue_id=number % 20)
        dispatch_all(store)
        for queue_id in range(20):
            messages = messages_in(store.read(TOPIC, queue_id, 0))
            assert [int(message.body) for message in messages] == list(range(queue_id, 300, 20))[:10]
        assert store.statistics().mapped_queue_files <= 4


def test_a_deleted_topic_is_gone_and_may_come_back(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store, b"old")
        append(store, b"waiting", queue_id=1)
        dispatch_all(store)
        append(store, b"not dispatched")
        assert store.topics.delete(TOPIC) == 2
        assert store.topics.names() == []
        assert store.read(TOPIC, 0, 0).status is ReadStatus.NO_MATCHED_LOGIC_QUEUE
        assert append(store, b"new").queue_offset == 0
        dispatch_all(store)
        assert [message.body for message in messages_in(store.read(TOPIC, 0, 0))] == [b"new"]
    with open_store(tmp_path) as store:
        assert store.recovery.queues_rebuilt == []
        assert store.queues.max_offset(TOPIC, 0) == 1
