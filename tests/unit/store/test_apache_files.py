"""Stores written by Apache's brokers: read field by field, and written again byte by byte."""

import base64
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.places import GOLDEN
from tests.support.small_stores import append, dispatch_all, read_queue

from pyromq.clock import ManualClock
from pyromq.protocol.record import StoredMessage, decode_record
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.settings import StoreSettings

WRITTEN_BY_APACHE = GOLDEN / "store"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in WRITTEN_BY_APACHE.glob("*.tar.xz"))

pytestmark = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def apache_root(name: str, tmp_path: Path) -> Path:
    root = tmp_path / "apache"
    with tarfile.open(WRITTEN_BY_APACHE / f"{name}.tar.xz") as archive:
        archive.extractall(root, filter="data")
    return root


def described(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        lzma.decompress((WRITTEN_BY_APACHE / f"{name}.json.xz").read_bytes())
    )
    return content


def settings_for(name: str, root: Path) -> StoreSettings:
    settings = StoreSettings(root=root, disk_warning_percent=100).updated(
        {key: value for key, value in described(name)["settings"].items() if StoreSettings.find(key)}
    )
    assert settings.log_segment_bytes == 12288
    return settings


def as_javas_client_saw_it(message: StoredMessage) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.log_offset,
        "storeSize": message.size_bytes,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "bornHost": str(message.born_host),
        "storeTimestamp": message.store_timestamp,
        "storeHost": str(message.store_host),
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": message.body_crc,
    }


def test_every_message_reads_as_javas_client_read_it(name: str, apache_root: Path) -> None:
    with MessageStore.open(settings_for(name, apache_root), start_flusher=False) as store:
        assert store.recovery.was_clean is described(name)["clean"]
        assert store.recovery.queues_rebuilt == []
        checked = 0
        for topic in store.topics.names():
            for queue_id in store.queues.ids(topic):
                found = read_queue(store, topic, queue_id)
                expected = [
                    row
                    for row in described(name)["messages"]
                    if (row["topic"], row["queueId"]) == (topic, queue_id)
                ]
                assert len(found) == len(expected)
                for message, row in zip(found, expected, strict=True):
                    seen = as_javas_client_saw_it(message)
                    assert seen == {key: row[key] for key in seen}
                    if not message.sys_flag & 0x1:  # Java's client unpacks what is compressed
                        assert message.body == base64.b64decode(row["body"])
                    unique = message.get("UNIQ_KEY")
                    assert unique is None or len(store.log.query(topic, unique, 64)) >= 1
                    checked += 1
        assert checked == len(described(name)["messages"]) > 100


def test_the_look_from_outside_finds_it_sound(name: str, apache_root: Path) -> None:
    with OfflineStore(apache_root) as store:
        verification = store.verify()
        assert verification.damage == []
        assert verification.records == verification.units == len(described(name)["messages"])
        assert store.was_clean is described(name)["clean"]


def test_the_same_messages_make_the_same_files(name: str, apache_root: Path, tmp_path: Path) -> None:
    with OfflineStore(apache_root) as apache:
        messages = [decode_record(record) for record in apache.records()]
    ours = tmp_path / "ours"
    clock = ManualClock(0)
    store = MessageStore.open(settings_for(name, ours), clock=clock, start_flusher=False)
    for message in messages:
        clock.advance((message.store_timestamp - clock.now_ms()) / 1000)
        result = store.append(
            message.topic,
            message.queue_id,
            message.body,
            message.properties,
            born_timestamp=message.born_timestamp,
            born_host=message.born_host.pack(),
            store_host=message.store_host.pack(),
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            prepared_offset=message.prepared_transaction_offset,
        )
        assert (result.log_offset, result.queue_offset) == (message.log_offset, message.queue_offset)
    dispatch_all(store)
    store.flushes.flush()
    for directory in ("commitlog", "consumequeue"):
        for path in (apache_root / directory).rglob("*"):
            if path.is_file() and any(path.read_bytes()):
                assert (ours / path.relative_to(apache_root)).read_bytes() == path.read_bytes(), path
    theirs = [path.read_bytes() for path in sorted((apache_root / "index").iterdir())]
    assert [path.read_bytes() for path in sorted((ours / "index").iterdir())] == theirs
    store.close()


def test_new_messages_follow_apaches(name: str, apache_root: Path) -> None:
    for round_number in range(3):
        with MessageStore.open(settings_for(name, apache_root), start_flusher=False) as store:
            before = store.queues.max_offset("Varied", 0)
            assert append(store, b"ours", topic="Varied").queue_offset == before
            dispatch_all(store)
            assert read_queue(store, "Varied")[-1].body == b"ours"
            assert store.recovery.was_clean is (described(name)["clean"] or round_number > 0)
