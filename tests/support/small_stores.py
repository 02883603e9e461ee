"""Stores with tiny files, so that a few messages fill many of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyromq.protocol.record import Host, StoredMessage, decode_record
from pyromq.store import appending, dispatch, reading, scrubbing
from pyromq.store.index import key_hash
from pyromq.store.log import record_checks, replicated
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, ReadResult
from pyromq.store.settings import StoreSettings

BORN_HOST = Host.of("10.1.2.3", 40001).pack()
STORE_HOST = Host.of("10.9.8.7", 10911).pack()
TOPIC = "Orders"


def small_settings(root: Path, **changes: Any) -> StoreSettings:
    values: dict[str, Any] = {
        "root": root,
        "log_segment_bytes": 8192,
        "queue_file_bytes": 200,
        "index_slots": 31,
        "index_units": 64,
        "file_reserved_hours": 0,
        # However full the disk of the tests is.
        "disk_max_used_percent": 95,
        "disk_warning_percent": 100,
        "disk_clean_forcibly_percent": 100,
    }
    return StoreSettings(**(values | changes))


def append(
    store: MessageStore,
    body: bytes,
    *,
    topic: str = TOPIC,
    queue_id: int = 0,
    properties: bytes = b"",
    **more: Any,
) -> AppendResult:
    return store.append(
        topic,
        queue_id,
        body,
        properties,
        born_timestamp=1_600_000_000_000,
        born_host=BORN_HOST,
        store_host=STORE_HOST,
        **more,
    )


def dispatch_all(store: MessageStore) -> None:
    while store.dispatch():
        pass


def messages_in(result: ReadResult) -> list[StoredMessage]:
    return [message for view in result.views for message in records_in(view)]


def records_in(view: memoryview) -> Iterator[StoredMessage]:
    position = 0
    while position < len(view):
        message = decode_record(view, position)
        yield message
        position += message.size_bytes


def read_queue(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue, from its first to its last."""
    offset = store.queues.min_offset(topic, queue_id)
    messages: list[StoredMessage] = []
    while offset < store.queues.max_offset(topic, queue_id):
        result = store.read(topic, queue_id, offset)
        assert result.next_offset > offset, result
        messages += messages_in(result)
        offset = result.next_offset
    return messages


def bodies_of(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [message.body for message in read_queue(store, topic, queue_id)]


@contextmanager
def interpreted() -> Iterator[None]:
    """Stores opened in here do without compiled twins, as long as they are used in here."""
    with (
        patch.object(appending, "_native", None),
        patch.object(dispatch, "_native", None),
        patch.object(reading, "_native", None),
        patch.object(key_hash, "_native", None),
        patch.object(replicated, "_native", None),
        patch.object(record_checks, "_native", None),
        patch.object(scrubbing, "_native", None),
    ):
        yield
