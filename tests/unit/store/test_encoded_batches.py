"""Batches as they come over the wire: the same messages as decoded ones, or nothing at all."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.small_stores import BORN_HOST, STORE_HOST, TOPIC, dispatch_all, read_queue, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.batch import MAX_ENTRIES, BatchEntry, encode_batch
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, AppendStatus


def open_store(root: Path) -> MessageStore:
    return MessageStore.open(small_settings(root), clock=ManualClock(), start_flusher=False)


def append_encoded(store: MessageStore, batch: bytes, **more: Any) -> AppendResult:
    return store.append_encoded_batch(
        TOPIC, 0, batch, born_timestamp=5, born_host=BORN_HOST, store_host=STORE_HOST, **more
    )


BATCH = encode_batch([BatchEntry(b"one", b"A\x011\x02", 7), BatchEntry(b"two", b"B\x012"), BatchEntry(b"")])


@pytest.mark.parametrize("is_new_queue", [True, False])
def test_each_message_becomes_a_record_of_its_own(tmp_path: Path, is_new_queue: bool) -> None:
    with open_store(tmp_path) as store:
        before = 0
        if not is_new_queue:
            before = append_encoded(store, encode_batch([BatchEntry(b"before")])).message_count
        result = append_encoded(store, BATCH, reconsume_times=3)
        assert (result.status, result.message_count) == (AppendStatus.PUT_OK, 3)
        assert (result.queue_offset, result.record_offsets[0]) == (before, result.log_offset)
        dispatch_all(store)
        stored = read_queue(store)[before:]
        assert [(each.body, each.properties, each.flag) for each in stored] == [
            (b"one", b"A\x011\x02", 7),
            (b"two", b"B\x012", 0),
            (b"", b"", 0),
        ]
        assert [each.log_offset for each in stored] == list(result.record_offsets)
        assert {(each.born_timestamp, each.reconsume_times) for each in stored} == {(5, 3)}


def test_properties_of_the_request_go_behind_those_of_each_message(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for _ in range(2):
            assert append_encoded(store, BATCH, appended_properties=b"Z\x019\x02").is_ok
        dispatch_all(store)
        assert [each.properties for each in read_queue(store)] == [
            b"A\x011\x02Z\x019\x02",
            b"B\x012\x02Z\x019\x02",
            b"Z\x019\x02",
        ] * 2


@pytest.mark.parametrize("broken", [BATCH[:-1], BATCH + b"\0", b"\0" * 22, b"short"])
def test_what_is_not_a_batch_is_refused_and_leaves_no_trace(tmp_path: Path, broken: bytes) -> None:
    with open_store(tmp_path) as store:
        end = append_encoded(store, BATCH).end_offset
        with pytest.raises(RemoteProtocolError, match="batch entry"):
            append_encoded(store, broken)
        assert store.statistics().log_end_offset == end
        assert store.queues.next_offset(TOPIC, 0) == 3


def test_a_batch_of_too_many_messages_leaves_no_trace(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        end = append_encoded(store, BATCH).end_offset
        with pytest.raises(RemoteProtocolError, match="more than 16384 messages: send several batches"):
            append_encoded(store, encode_batch([BatchEntry(b"")]) * (MAX_ENTRIES + 1))
        assert store.statistics().log_end_offset == end


@pytest.mark.parametrize(
    ("entries", "more", "status"),
    [
        ([], {}, AppendStatus.MESSAGE_ILLEGAL),
        ([BatchEntry(b"a")], {"sys_flag": 4}, AppendStatus.MESSAGE_ILLEGAL),
        ([BatchEntry(b"a" * 5000)] * 2, {}, AppendStatus.MESSAGE_ILLEGAL),
        (
            [BatchEntry(b"", b"A\x01" + b"p" * 32_000)],
            {"appended_properties": b"q" * 1000},
            AppendStatus.PROPERTIES_SIZE_EXCEEDED,
        ),
    ],
)
def test_what_cannot_be_stored_is_refused_as_a_whole(
    tmp_path: Path, entries: list[BatchEntry], more: dict[str, Any], status: AppendStatus
) -> None:
    with open_store(tmp_path) as store:
        end = append_encoded(store, BATCH).end_offset
        assert append_encoded(store, encode_batch(entries), **more).status is status
        assert store.statistics().log_end_offset == end
