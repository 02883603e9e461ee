"""Appending: what is taken, what is refused, and that a refusal leaves no trace."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.small_stores import (
    BORN_HOST,
    STORE_HOST,
    TOPIC,
    append,
    bodies_of,
    dispatch_all,
    read_queue,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.protocol.batch import BatchEntry
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import Host, decode_record
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus


def open_store(root: Path, **changes: Any) -> MessageStore:
    return MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)


def test_offsets_and_times_are_assigned_in_order(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        first = append(store, b"a", queue_id=0)
        second = append(store, b"b", queue_id=1)
        third = append(store, b"c", queue_id=0)
        assert [first.queue_offset, second.queue_offset, third.queue_offset] == [0, 0, 1]
        assert second.log_offset == first.log_offset + first.size_bytes
        assert third.end_offset == store.statistics().log_end_offset
        named = decode_offset_message_id(third.message_id)
        assert (str(named.host), named.log_offset) == ("10.9.8.7:10911", third.log_offset)


def test_store_times_do_not_go_back_with_the_clock(tmp_path: Path) -> None:
    clock = ManualClock()
    with MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False) as store:
        before = append(store, b"a").store_timestamp
        clock.advance(-3600)
        assert append(store, b"b").store_timestamp == before


@pytest.mark.parametrize(
    ("topic", "queue_id", "body", "properties", "status"),
    [
        ("t" * 128, 0, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        ("%RETRY%" + "t" * 249, 0, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        ("", 0, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        ("../up", 0, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        ("..", 0, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        (TOPIC, -1, b"", b"", AppendStatus.MESSAGE_ILLEGAL),
        (TOPIC, 0, b"b" * 4097, b"", AppendStatus.MESSAGE_ILLEGAL),
        (TOPIC, 0, b"", b"p" * 32_768, AppendStatus.PROPERTIES_SIZE_EXCEEDED),
        (TOPIC, 0, b"", b"p" * 8200, AppendStatus.MESSAGE_ILLEGAL),
    ],
)
def test_what_is_too_long_is_refused_and_leaves_no_trace(
    tmp_path: Path, topic: str, queue_id: int, body: bytes, properties: bytes, status: AppendStatus
) -> None:
    with open_store(tmp_path, max_message_bytes=4096) as store:
        append(store, b"before")
        end = store.statistics().log_end_offset
        result = append(store, body, topic=topic, queue_id=queue_id, properties=properties)
        assert result.status is status
        assert result.reason
        assert store.statistics().log_end_offset == end
        assert append(store, b"after").log_offset == end
        dispatch_all(store)
        assert bodies_of(store) == [b"before", b"after"]


def test_numbers_that_do_not_fit_a_record_are_refused_and_wiped(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store, b"before")
        end = store.statistics().log_end_offset
        result = append(store, b"body", reconsume_times=1 << 40)
        assert result.status is AppendStatus.MESSAGE_ILLEGAL
        store.flushes.flush()
        segment = tmp_path / "commitlog" / ("0" * 20)
        assert not any(segment.read_bytes()[end:])


def test_a_retry_topic_may_be_longer_and_makes_a_second_version_record(tmp_path: Path) -> None:
    topic = "%RETRY%" + "g" * 200
    with open_store(tmp_path) as store:
        assert append(store, b"x", topic=topic).is_ok
        dispatch_all(store)
        (message,) = read_queue(store, topic)
        assert (message.version, message.topic) == (2, topic)


def test_ipv6_hosts_are_kept(tmp_path: Path) -> None:
    host = Host.of("2001:db8::7", 1234)
    with open_store(tmp_path) as store:
        result = store.append(TOPIC, 0, b"x", born_timestamp=5, born_host=host.pack(), store_host=host.pack())
        record = store.log.record_at(result.log_offset)
        assert record is not None
        message = decode_record(record)
        assert (message.born_host, message.store_host) == (host, host)
        assert len(record) == result.size_bytes
        assert store.queues.store_time(TOPIC, 0, 0) == -1  # not dispatched yet
        dispatch_all(store)
        assert store.queues.store_time(TOPIC, 0, 0) == result.store_timestamp


def test_a_batch_lies_in_one_file_or_goes_to_the_next(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        while store.statistics().log_end_offset < 7000:
            append(store, b"f" * 200)
        before = store.queues.next_offset(TOPIC, 0)
        entries = [BatchEntry(b"m%d" % number * 100, b"TAGS\x01t\x02") for number in range(5)]
        result = store.append_batch(
            TOPIC, 0, entries, born_timestamp=1, born_host=BORN_HOST, store_host=STORE_HOST
        )
        assert result.is_ok
        assert result.log_offset == 8192
        assert (result.message_count, result.queue_offset) == (5, before)
        assert result.message_id.count(",") == 4
        dispatch_all(store)
        assert bodies_of(store)[before:] == [entry.body for entry in entries]


@pytest.mark.parametrize(
    ("entries", "sys_flag"),
    [
        ([], 0),
        ([BatchEntry(b"x")], 0x4),
        ([BatchEntry(b"x" * 3000), BatchEntry(b"x" * 3000)], 0),
        ([BatchEntry(b"x", b"p" * 32_768)], 0),
        ([BatchEntry(b"x"), BatchEntry(b"x", flag=1 << 40)], 0),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(tmp_path: Path, entries: list[BatchEntry], sys_flag: int) -> None:
    with open_store(tmp_path, max_message_bytes=4096) as store:
        result = store.append_batch(
            TOPIC,
            0,
            entries,
            born_timestamp=1,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            sys_flag=sys_flag,
        )
        assert not result.is_ok
        assert store.queues.next_offset(TOPIC, 0) == 0
        assert append(store, b"next").queue_offset == 0
        dispatch_all(store)
        assert bodies_of(store) == [b"next"]


def test_prepared_messages_take_no_place_in_the_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        append(store, b"half", sys_flag=0x4, properties=b"UNIQ_KEY\x01half\x02")
        append(store, b"rolled back", sys_flag=0xC, properties=b"UNIQ_KEY\x01gone\x02")
        append(store, b"committed", sys_flag=0x8)
        dispatch_all(store)
        assert bodies_of(store) == [b"committed"]
        assert len(store.log.query(TOPIC, "half", 10)) == 1
        assert store.log.query(TOPIC, "gone", 10) == []


def test_delayed_messages_carry_their_delivery_time_in_the_queue(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        now = append(
            store, b"x", topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x013\x02TAGS\x01a\x02"
        ).store_timestamp
        append(store, b"x", topic="SCHEDULE_TOPIC_XXXX", properties=b"DELAY\x0199\x02")
        dispatch_all(store)
        queue = store.queues.find("SCHEDULE_TOPIC_XXXX", 0)
        assert queue is not None
        assert [queue.unit(0)[2], queue.unit(1)[2]] == [now + 10_000, now + 7_200_000]
        # A tag cannot be told from a time, so nothing is filtered away.
        assert store.read("SCHEDULE_TOPIC_XXXX", 0, 0, tag_codes={1}).message_count == 2


def test_a_closed_store_refuses(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    assert append(store, b"late").status is AppendStatus.SERVICE_NOT_AVAILABLE
    store.close()


def test_more_pending_messages_than_allowed_are_read_from_the_log_instead(tmp_path: Path) -> None:
    with open_store(tmp_path, max_pending_dispatch=5) as store:
        bodies = [b"m%d" % number * 30 for number in range(200)]
        for body in bodies:
            append(store, body, properties=b"TAGS\x01t\x02KEYS\x01" + body[:4] + b"\x02")
        dispatch_all(store)
        assert bodies_of(store) == bodies
        for body in bodies[200:]:
            append(store, body)
        append(store, b"last")
        dispatch_all(store)
        assert bodies_of(store)[-1] == b"last"
        assert store.statistics().dispatch_behind_bytes == 0
