"""Compiled and interpreted code leave the same directory behind, byte for byte, and give the same answers."""

import shutil
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.scratch import IN_MEMORY
from tests.support.small_stores import interpreted

from pyromq.clock import ManualClock
from pyromq.errors import RemoteProtocolError
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.store import appending, dispatch, reading
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendResult, ReadResult
from pyromq.store.settings import StoreSettings

if dispatch._native is None:
    pytest.skip("the compiled twins are not there", allow_module_level=True)

pytestmark = pytest.mark.timeout(600)  # many stores on disk, and a disk may be slow

TOPICS = ["Orders", "Ordersx", "%RETRY%" + "g" * 150, "Zürich", SCHEDULE_TOPIC, "t" * 127, "a/b"]
HOSTS = [b"\x0a\1\2\3" + b"\0\0\x9c\x41", bytes(range(16)) + b"\0\0\x2a\x9f", b"short"]

names = st.sampled_from(["TAGS", "UNIQ_KEY", "KEYS", "DELAY", "WAIT", "KEYSX", "XTAGS", "", "K"])
values = st.one_of(
    st.sampled_from(["", "TagA", "k1", "k1 k2", " k1  k2 ", "ü", "3", "99", "a\x01b", "\0"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\x02"), max_size=40),
    st.text(st.characters(codec="ascii", min_codepoint=32), min_size=6, max_size=40),
    st.integers(40, 300).map(lambda count: " ".join(f"k{number}" for number in range(count))),
)
pairs = st.lists(st.tuples(names, values), max_size=6)
properties = st.one_of(
    st.builds(
        lambda pairs, ending: "\x02".join(f"{name}\x01{value}" for name, value in pairs).encode() + ending,
        pairs,
        st.sampled_from([b"\x02", b""]),
    ),
    st.binary(max_size=60),
    st.sampled_from([b"", b"\0", b"TAGS\x01\xff\x02", b"P\x01" + b"p" * 3000, b"p" * 32_767, b"p" * 32_768]),
)
bodies = st.one_of(st.binary(max_size=300), st.sampled_from([b"", b"b" * 1500, b"b" * 4097]))
sys_flags = st.sampled_from([0, 0, 0, 0x1, 0x8, 0x4, 0xC, 0x30, 0x303, 1 << 31, -1])
hosts = st.sampled_from([*HOSTS[:2] * 3, HOSTS[2]])
numbers = st.sampled_from([0, 0, 0, 1, 1700, -1, (1 << 31) - 1, 1 << 31, 1 << 70])
queues = st.tuples(st.sampled_from([*TOPICS[:2] * 4, *TOPICS]), st.integers(0, 2))
entries = st.lists(
    st.builds(BatchEntry, bodies, properties.filter(lambda each: len(each) < 32_768), st.integers(0, 9)),
    max_size=6,
)
more = st.sampled_from([b"", b"", b"CLUSTER\x01c\x02", b"UNIQ_KEY\x01x", b"\0", b"q" * 32_000])
damage = st.one_of(
    st.just(None), st.just(None), st.just(None), st.tuples(st.integers(0, 80), st.integers(0, 255))
)

ascii_text = st.text(st.characters(codec="ascii", min_codepoint=32), min_size=1, max_size=40)
usual_properties = st.builds(
    lambda tag, key, more: f"UNIQ_KEY\x01{key}\x02TAGS\x01{tag}\x02KEYS\x01{more}\x02".encode(),
    ascii_text,
    ascii_text,
    ascii_text,
)
usual_appends = st.tuples(
    st.just("append"),
    st.tuples(st.sampled_from(TOPICS[:3]), st.integers(0, 2)),
    bodies,
    usual_properties,
    st.sampled_from([0, 0x1, 0x8]),
    st.sampled_from(HOSTS[:2]),
    st.sampled_from(HOSTS[:2]),
    st.integers(0, 1000),
    st.integers(0, 16),
)
usual_batches = st.tuples(
    st.just("batch"),
    st.tuples(st.sampled_from(TOPICS[:3]), st.integers(0, 2)),
    st.lists(st.builds(BatchEntry, bodies, usual_properties, st.integers(0, 9)), min_size=1, max_size=6),
    st.sampled_from([b"", b"CLUSTER\x01c\x02"]),
    st.just(0),
    st.sampled_from(HOSTS[:2]),
    st.just(None),
)
unusual_appends = st.tuples(
    st.just("append"), queues, bodies, properties, sys_flags, hosts, hosts, numbers, numbers
)
unusual_batches = st.tuples(st.just("batch"), queues, entries, more, sys_flags, hosts, damage)
dispatches = st.tuples(st.just("dispatch"), st.sampled_from([1, 2, 5, 1000]))
reads = st.tuples(st.just("read"), queues, st.integers(0, 30), st.integers(1, 40), st.integers(0, 4))
seldom = st.one_of(
    st.tuples(st.just("later"), st.sampled_from([0.0, 0.5, 3.0, 5000.0, -10.0])),
    st.tuples(st.just("delete"), queues),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("flush")),
)
calls = st.lists(
    st.one_of(
        usual_appends,
        usual_batches,
        unusual_appends,
        unusual_batches,
        dispatches,
        reads,
        usual_appends,
        seldom,
    ),
    min_size=5,
    max_size=40,
)


def changes(root: Path, sizes: tuple[int, int, int]) -> StoreSettings:
    segment_bytes, queue_file_bytes, index_units = sizes
    return StoreSettings(
        root=root,
        log_segment_bytes=segment_bytes,
        queue_file_bytes=queue_file_bytes,
        index_slots=7,
        index_units=index_units,
        max_message_bytes=4096,
        disk_warning_percent=100,
    )


class Played:
    """One store and what it answered."""

    def __init__(self, root: Path, sizes: tuple[int, int, int]) -> None:
        self.settings = changes(root, sizes)
        self.clock = ManualClock()
        self.answers: list[object] = []
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.settings, clock=self.clock, start_flusher=False)

    def play(self, call: tuple[Any, ...]) -> None:
        getattr(self, call[0])(*call[1:])

    def append(
        self,
        queue: tuple[str, int],
        body: bytes,
        properties: bytes,
        sys_flag: int,
        born_host: bytes,
        store_host: bytes,
        flag: int,
        reconsume_times: int,
    ) -> None:
        result = self.store.append(
            *queue,
            body,
            properties,
            born_timestamp=flag * 1000,
            born_host=born_host,
            store_host=store_host,
            sys_flag=sys_flag,
            flag=flag,
            reconsume_times=reconsume_times,
            prepared_offset=reconsume_times * 5,
        )
        self.answers.append(result)

    def batch(
        self,
        queue: tuple[str, int],
        entries: list[BatchEntry],
        more: bytes,
        sys_flag: int,
        host: bytes,
        damage: tuple[int, int] | None,
    ) -> None:
        encoded = bytearray(encode_batch(entries))
        if damage is not None and damage[0] < len(encoded):
            encoded[damage[0]] = damage[1]
        answer: AppendResult | str
        try:
            answer = self.store.append_encoded_batch(
                *queue,
                bytes(encoded),
                born_timestamp=7,
                born_host=host,
                store_host=HOSTS[0],
                sys_flag=sys_flag,
                appended_properties=more,
            )
        except RemoteProtocolError as error:
            answer = str(error)
        self.answers.append(answer)

    def dispatch(self, count: int) -> None:
        while self.store.has_dispatch_work:
            self.store.dispatch(count)
        self.answers.append(
            (self.store.statistics().dispatched_offset, self.store.statistics().index_entries)
        )

    def later(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def read(self, queue: tuple[str, int], offset: int, count: int, filtering: int) -> None:
        self.dispatch(1000)
        codes = [None, None, {0}, {2598919, 0}, set(range(200))][filtering]
        result = self.store.read(*queue, offset, count, 500 * count, tag_codes=codes)
        self.answers.append(_told(result))

    def delete(self, queue: tuple[str, int]) -> None:
        self.answers.append(self.store.topics.delete(queue[0]))

    def reopen(self, is_clean: bool) -> None:
        self.dispatch(1000)
        if is_clean:
            self.store.close()
        else:
            self.store.abandon()
        self.open()
        self.answers.append(self.store.recovery)

    def flush(self) -> None:
        self.dispatch(1000)
        self.answers.append(self.store.flushes.flush())

    def end(self) -> dict[str, bytes]:
        self.dispatch(1000)
        self.answers.append(self.store.statistics().appended_messages)
        self.store.close()
        return self.files()

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.settings.root)): path.read_bytes()
            for path in sorted(self.settings.root.rglob("*"))
            if path.is_file()
        }


def _told(result: ReadResult) -> tuple[object, ...]:
    return (
        result.status,
        result.next_offset,
        result.min_offset,
        result.max_offset,
        b"".join(result.views),
        result.message_count,
        result.size_bytes,
        result.suggest_replica,
    )


USUAL = ("append", ("Orders", 0), b"body", b"UNIQ_KEY\x01u1\x02TAGS\x01TagA\x02", 0, HOSTS[0], HOSTS[0], 0, 0)
FIRST = [("append", (topic, queue_id), *USUAL[2:]) for topic in TOPICS[:3] for queue_id in range(3)]
SIZES = [(8192, 200, 64), (1 << 16, 20_000, 5000), (70_000, 40, 2)]


@settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(calls=calls, sizes=st.sampled_from(SIZES))
@example(calls=[USUAL] * 300 + [("dispatch", 1000)], sizes=SIZES[1])
@example(calls=[*[USUAL] * 5, ("dispatch", 2), USUAL, ("delete", ("Orders", 0)), USUAL], sizes=SIZES[0])
def test_the_same_calls_give_the_same_files_and_answers(
    calls: list[tuple[Any, ...]], sizes: tuple[int, int, int]
) -> None:
    root = Path(tempfile.mkdtemp(prefix="store-twins-", dir=IN_MEMORY))
    try:
        compiled = Played(root / "compiled", sizes)
        with interpreted():
            plain = Played(root / "interpreted", sizes)
        assert compiled.store.appender is not None
        assert plain.store.appender is None
        # The first message of each queue is unusual: those that follow are the ones to compare.
        for call in [*FIRST, ("dispatch", 1000), *calls]:
            compiled.play(call)
            with interpreted():
                plain.play(call)
            assert compiled.answers == plain.answers
        compiled_files = compiled.end()
        with interpreted():
            plain_files = plain.end()
        assert compiled.answers == plain.answers
        assert compiled_files.keys() == plain_files.keys()
        for name, content in compiled_files.items():
            assert content == plain_files[name], name
    finally:
        shutil.rmtree(root)


def _is_not_time(position: int) -> bool:
    """Both ways count on store times that do not decrease; a system flag says where the time is."""
    return position != 39 and not 56 <= position < 64


@settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(
    wounds=st.lists(
        st.tuples(st.integers(0, 20), st.integers(0, 170).filter(_is_not_time), st.integers(0, 255)),
        min_size=1,
        max_size=4,
    ),
    count=st.integers(1, 21),
)
@example(wounds=[(0, 0, 0x7F)], count=10)
@example(wounds=[(3, 3, 0)], count=10)
@example(wounds=[(3, 84, 0x7F)], count=10)
@example(wounds=[(6, 87, 0xFF)], count=10)
@example(wounds=[(2, 94, 0)], count=3)
def test_a_damaged_log_is_dispatched_in_the_same_way(wounds: list[tuple[int, int, int]], count: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="store-twins-", dir=IN_MEMORY))
    files = []
    try:
        for name, how in (("compiled", nullcontext()), ("interpreted", interpreted())):
            with how:
                played = Played(root / name, SIZES[0])
                for number in range(count):
                    played.append(
                        (TOPICS[number % 3], 0), b"body", USUAL[3], 0, HOSTS[0], HOSTS[number % 2], 0, 0
                    )
                starts = [each.log_offset for each in played.answers if isinstance(each, AppendResult)]
                log = played.store._log
                for number, position, value in wounds:
                    log.buffer[starts[number % count] + position] = value
                played.store._dispatcher.stop_following()
                played.dispatch(1000)
                files.append(played.files())
                played.store.abandon()
        assert files[0] == files[1]
    finally:
        shutil.rmtree(root)


def test_the_usual_is_not_declined(tmp_path: Path) -> None:
    played = Played(tmp_path, SIZES[1])
    for _ in range(5):
        played.play(USUAL)
    played.dispatch(1000)
    for _ in range(20):
        played.play(USUAL)
    with (
        patch.object(appending, "pack_record_into", side_effect=AssertionError),
        patch.object(dispatch.Dispatcher, "dispatch_record", side_effect=AssertionError),
        patch.object(reading.StoreReader, "_scan", side_effect=AssertionError),
        patch.object(reading.StoreReader, "_slices", side_effect=AssertionError),
    ):
        for _ in range(20):
            played.play(USUAL)
        played.batch(("Orders", 0), [BatchEntry(b"b", b"KEYS\x01k\x02")] * 3, b"", 0, HOSTS[0], None)
        played.dispatch(1000)
        played.read(("Orders", 0), 3, 32, 0)
        played.read(("Orders", 0), 3, 32, 2)
    assert played.store.queues.max_offset("Orders", 0) == 48
    played.store.close()


@pytest.mark.parametrize("filtering", [0, 3])
def test_a_read_goes_on_in_the_next_log_file_without_being_declined(tmp_path: Path, filtering: int) -> None:
    """Files may be small and answers large: many answers have messages of two files."""
    played = Played(tmp_path, (8192, 20_000, 5000))
    for _ in range(200):
        played.play(USUAL)
    played.dispatch(1000)
    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    told: list[Any] = []
    for offset in range(0, 160, 16):
        with (
            patch.object(reading.StoreReader, "_scan", side_effect=AssertionError),
            patch.object(reading.StoreReader, "_slices", side_effect=AssertionError),
        ):
            played.read(("Orders", 0), offset, 32, filtering)
        told.append(played.answers[-1])
        with interpreted():
            played.read(("Orders", 0), offset, 32, filtering)
        assert played.answers[-1] == told[-1]
    assert all(answer[1] == 16 * number + 32 for number, answer in enumerate(told))
    played.store.close()


def test_a_batch_that_begins_a_log_file_is_not_declined(tmp_path: Path) -> None:
    played = Played(tmp_path, (8192, 20_000, 5000))
    played.play(USUAL)
    entries = [BatchEntry(b"b" * 100, b"KEYS\x01k\x02")] * 10
    with patch.object(appending, "decode_batch", side_effect=AssertionError):
        for _ in range(12):
            played.batch(("Orders", 0), entries, b"", 0, HOSTS[0], None)
    assert len(list((tmp_path / "commitlog").iterdir())) > 2
    played.dispatch(1000)
    assert played.store.queues.max_offset("Orders", 0) == 121
    played.store.close()
