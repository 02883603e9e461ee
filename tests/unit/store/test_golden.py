"""Our files, byte for byte, against files put together here by hand from the format."""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.small_stores import (
    BORN_HOST,
    STORE_HOST,
    append,
    dispatch_all,
    interpreted,
    small_settings,
)

from pyromq.clock import ManualClock
from pyromq.protocol.java_hash import java_string_hash
from pyromq.store.message_store import MessageStore

NOW = 1_700_000_000_000
SEGMENT_BYTES = 1024
QUEUE_BYTES = 100
SLOTS, UNITS = 7, 20


@pytest.fixture(autouse=True, params=["as it is installed", "interpreted"])
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "interpreted":
        with interpreted():
            yield
    else:
        yield


def record(
    offset: int, queue_id: int, queue_offset: int, body: bytes, topic: bytes, properties: bytes
) -> bytes:
    version_2 = len(topic) > 127
    rest = struct.pack(">i", zlib.crc32(body) & 0x7FFFFFFF)
    rest += struct.pack(">iiqqi", queue_id, 7, queue_offset, offset, 0)
    rest += struct.pack(">q", 1_600_000_000_000) + BORN_HOST + struct.pack(">q", NOW) + STORE_HOST
    rest += struct.pack(">iq", 0, 0) + struct.pack(">i", len(body)) + body
    rest += struct.pack(">h" if version_2 else ">b", len(topic)) + topic
    rest += struct.pack(">h", len(properties)) + properties
    return struct.pack(">iI", 8 + len(rest), 0xDAA320AB if version_2 else 0xDAA320A7) + rest


def test_log_queue_and_index_are_as_the_format_says(tmp_path: Path) -> None:
    settings = small_settings(
        tmp_path,
        log_segment_bytes=SEGMENT_BYTES,
        queue_file_bytes=QUEUE_BYTES,
        index_slots=SLOTS,
        index_units=UNITS,
    )
    messages = [
        ("TopicA", 0, b"first", b"UNIQ_KEY\x01U1\x02TAGS\x01red\x02KEYS\x01a b\x02"),
        ("TopicA", 1, b"x" * 300, b""),
        ("TopicA", 0, b"y" * 300, b"TAGS\x01\xe5\xa5\xbd\x02"),
        ("TopicA", 0, b"z" * 200, b"KEYS\x01a\x02"),
        ("%RETRY%" + "g" * 150, 0, b"", b"WAIT\x01true"),
    ]
    clock = ManualClock(NOW)
    store = MessageStore.open(settings, clock=clock, start_flusher=False)
    for topic, queue_id, body, properties in messages:
        assert append(store, body, topic=topic, queue_id=queue_id, properties=properties, flag=7).is_ok
    dispatch_all(store)
    store.flushes.flush()

    log = b""
    units: dict[tuple[str, int], bytes] = {}
    entries = []
    for topic, queue_id, body, properties in messages:
        queue = units.setdefault((topic, queue_id), b"")
        made = record(len(log), queue_id, len(queue) // 20, body, topic.encode(), properties)
        left = SEGMENT_BYTES - len(log) % SEGMENT_BYTES
        if len(made) + 8 > left:
            log += struct.pack(">iI", left, 0xCBD43194).ljust(left, b"\0")
            made = record(len(log), queue_id, len(queue) // 20, body, topic.encode(), properties)
        named = dict(each.split(b"\x01") for each in properties.split(b"\x02") if each)
        tag = named.get(b"TAGS", b"").decode()
        units[topic, queue_id] = queue + struct.pack(">qiq", len(log), len(made), java_string_hash(tag))
        keys = [named.get(b"UNIQ_KEY", b""), *named.get(b"KEYS", b"").split(b" ")]
        entries += [(f"{topic}#{each.decode()}", len(log)) for each in keys if each]
        log += made

    segments = sorted((tmp_path / "commitlog").iterdir())
    assert [path.name for path in segments[:2]] == ["0" * 20, "00000000000000001024"]
    assert b"".join(path.read_bytes() for path in segments[:2]) == log.ljust(2 * SEGMENT_BYTES, b"\0")

    for (topic, queue_id), expected in units.items():
        path = tmp_path / "consumequeue" / topic / str(queue_id) / ("0" * 20)
        assert path.read_bytes() == expected.ljust(QUEUE_BYTES, b"\0")

    slots = [0] * SLOTS
    body_of_index = bytes(20)
    for number, (text, log_offset) in enumerate(entries, start=1):
        key_hash = abs(java_string_hash(text))
        body_of_index += struct.pack(">iqii", key_hash, log_offset, 0, slots[key_hash % SLOTS])
        slots[key_hash % SLOTS] = number
    used = sum(1 for each in slots if each)
    header = struct.pack(">qqqqii", NOW, NOW, 0, entries[-1][1], used, len(entries) + 1)
    expected_index = header + struct.pack(f">{SLOTS}i", *slots) + body_of_index.ljust(UNITS * 20, b"\0")
    (index_file,) = (tmp_path / "index").iterdir()
    assert index_file.read_bytes() == expected_index

    checkpoint = (tmp_path / "checkpoint").read_bytes()
    assert len(checkpoint) == 4096
    assert struct.unpack_from(">qqq", checkpoint) == (NOW, NOW, NOW)
    assert (tmp_path / "lock").read_bytes() == b"lock"
    store.close()
    assert not (tmp_path / "abort").exists()


def test_a_second_index_file_starts_from_the_end_of_the_first(tmp_path: Path) -> None:
    settings = small_settings(tmp_path, index_slots=5, index_units=4)
    clock = ManualClock(NOW)
    with MessageStore.open(settings, clock=clock, start_flusher=False) as store:
        offsets = []
        for number in range(5):
            result = append(store, b"b", properties=b"KEYS\x01k%d\x02" % number)
            offsets.append(result.log_offset)
            clock.advance(10)
        dispatch_all(store)
    first, second = sorted((tmp_path / "index").iterdir())
    # A file of four units holds three entries: number 0 is never used.
    assert struct.unpack_from(">qqqq", first.read_bytes()) == (NOW, NOW + 20_000, offsets[0], offsets[2])
    assert struct.unpack_from(">qqqq", second.read_bytes()) == (
        NOW + 30_000,
        NOW + 40_000,
        offsets[3],
        offsets[4],
    )
    units = [struct.unpack_from(">iqii", second.read_bytes(), 40 + 5 * 4 + number * 20) for number in (1, 2)]
    assert [unit[1] for unit in units] == offsets[3:]
    # The first unit counts its seconds from the end of the file before, the next from this file's beginning.
    assert [unit[2] for unit in units] == [10, 10]
