"""Stores that Apache 4.9.7 and 5.3.3 wrote: opened, read to the last field, written on."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.golden_stores import GoldenStore, golden_stores
from tests.support.java_rows import java_row, rows_of
from tests.support.small_stores import append, bodies_of, dispatch_all, messages_in

from pyromq.protocol.java_hash import tag_code
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore

pytestmark = pytest.mark.parametrize("golden", golden_stores(), ids=str)
TOPICS = ("Varied", "Delayed", "SCHEDULE_TOPIC_XXXX")


def test_every_message_is_read_field_by_field(golden: GoldenStore, tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack(tmp_path)) as store:
        dispatch_all(store)
        ours = [row for topic in TOPICS for row in rows_of(store, topic)]
    assert ours == [java_row(row) for row in golden.messages]


def test_nothing_is_cut_off_and_a_clean_stop_is_recognised(golden: GoldenStore, tmp_path: Path) -> None:
    last = max(golden.messages, key=lambda row: int(row["commitLogOffset"]))
    with MessageStore.open(golden.unpack(tmp_path)) as store:
        assert store.recovery.was_clean is golden.is_clean
        assert store.recovery.stopped_because == ""
        assert store.recovery.log_end == last["commitLogOffset"] + last["storeSize"]


def test_messages_are_found_by_their_keys(golden: GoldenStore, tmp_path: Path) -> None:
    with MessageStore.open(golden.unpack(tmp_path)) as store:
        dispatch_all(store)
        for row in golden.messages:
            keys = row["properties"].get("KEYS", "").split()
            for key in (*keys, row["properties"]["UNIQ_KEY"]):
                found = {
                    decode_record(record).log_offset for record in store.log.query(row["topic"], key, 64)
                }
                assert row["commitLogOffset"] in found, (key, row)


def test_tags_are_matched_in_the_queue_alone(golden: GoldenStore, tmp_path: Path) -> None:
    tagged = [row for row in golden.messages if row["topic"] == "Varied" and "TAGS" in row["properties"]]
    wanted = {row["properties"]["TAGS"] for row in tagged}
    with MessageStore.open(golden.unpack(tmp_path)) as store:
        dispatch_all(store)
        for tag in wanted:
            expected = [row["commitLogOffset"] for row in tagged if row["properties"]["TAGS"] == tag]
            found: list[int] = []
            for queue_id in store.queues.ids("Varied"):
                offset = store.queues.min_offset("Varied", queue_id)
                while offset < store.queues.max_offset("Varied", queue_id):
                    result = store.read("Varied", queue_id, offset, tag_codes={tag_code(tag)})
                    found += [message.log_offset for message in messages_in(result)]
                    offset = result.next_offset
            assert found == expected, tag


def test_the_store_is_written_on_and_opened_again(golden: GoldenStore, tmp_path: Path) -> None:
    settings = golden.unpack(tmp_path)
    new = [b"ours %d" % number for number in range(100)]
    with MessageStore.open(settings) as store:
        dispatch_all(store)
        before = bodies_of(store, "Varied", 1)
        for body in new:
            assert append(store, body, topic="Varied", queue_id=1).is_ok
    with MessageStore.open(settings) as store:
        assert bodies_of(store, "Varied", 1) == before + new
