"""The look from outside changes nothing and sees everything."""

import os
import shutil
from pathlib import Path

import pytest
from tests.support.small_stores import TOPIC, append, dispatch_all, small_settings

from pyromq.errors import StoreError
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore


def fill(root: Path) -> None:
    with MessageStore.open(small_settings(root), start_flusher=False) as store:
        for number in range(60):
            properties = f"UNIQ_KEY\x01key{number}\x02".encode()
            append(store, b"body-%d" % number * 20, queue_id=number % 2, properties=properties)
        dispatch_all(store)


def snapshot(root: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in root.rglob("*") if path.is_file()}


def test_it_reports_files_queues_and_offsets_and_touches_nothing(tmp_path: Path) -> None:
    fill(tmp_path)
    before = snapshot(tmp_path)
    with OfflineStore(tmp_path) as store:
        assert store.was_clean
        assert store.topics() == [TOPIC]
        assert [(each.queue_id, each.min_offset, each.max_offset) for each in store.queues()] == [
            (0, 0, 30),
            (1, 0, 30),
        ]
        used = sum(each.used_bytes for each in store.segments())
        assert used == store.log_end - store.log_start
        assert sum(each.entries for each in store.index_files()) == 60
        bodies = [message.body for message in store.messages(TOPIC, 1, offset=3)]
        assert bodies == [b"body-%d" % number * 20 for number in range(7, 60, 2)]
        assert len(list(store.records())) == 60
        verification = store.verify()
        assert verification.is_sound
        assert (verification.records, verification.units) == (60, 60)
    assert snapshot(tmp_path) == before


def test_verification_names_a_bad_body_and_a_missing_queue(tmp_path: Path) -> None:
    fill(tmp_path)
    first = min((tmp_path / "commitlog").iterdir())
    content = bytearray(first.read_bytes())
    content[95] ^= 0xFF
    first.write_bytes(content)
    for path in (tmp_path / "consumequeue" / TOPIC / "1").iterdir():
        path.unlink()
    with OfflineStore(tmp_path) as store:
        damage = store.verify().damage
    assert any("CRC" in each for each in damage)
    assert any("Orders/1" in each for each in damage)


@pytest.mark.parametrize(
    ("table", "is_sound"),
    [
        (b'{"topicConfigTable":{"Others":{"topicName":"Others"}}}', True),
        (b'{"topicConfigTable":{"Orders":{"topicName":"Orders"}}}', False),
        (b"damaged", False),
        (None, False),
    ],
)
def test_messages_of_a_deleted_topic_are_no_damage(
    tmp_path: Path, table: bytes | None, is_sound: bool
) -> None:
    fill(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / TOPIC)
    if table is not None:
        (tmp_path / "config").mkdir(exist_ok=True)
        (tmp_path / "config" / "topics.json").write_bytes(table)
    with OfflineStore(tmp_path) as store:
        assert store.verify().is_sound is is_sound


def test_a_directory_without_a_log_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a store"):
        OfflineStore(tmp_path)


@pytest.mark.parametrize(("number", "size"), [(0, 5000), (0, 9000), (1, 5000)])
def test_a_log_that_no_broker_would_open_can_still_be_looked_at(
    tmp_path: Path, number: int, size: int
) -> None:
    fill(tmp_path)
    damaged = sorted((tmp_path / "commitlog").iterdir())[number]
    os.truncate(damaged, size)
    with pytest.raises(StoreError):
        MessageStore.open(small_settings(tmp_path), start_flusher=False)
    with OfflineStore(tmp_path) as store:
        assert f"commitlog/{damaged.name} has {size} of 8192 bytes" in store.verify().damage
        assert any(damaged.name in each for each in store.remarks)
        assert store.segments()
