"""Damage in the log: everything outside the damaged bytes stays readable, and the bytes are set aside.

The only exception is a torn tail: damage with no sound record behind it ends the log.
"""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import TOPIC, append, dispatch_all, messages_in, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.protocol.record import StoredMessage, decode_record, scan_record
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.results import Boundary, ReadStatus

COUNT = 100
QUEUES = 2
SEGMENT_BYTES = 8192


class Place(NamedTuple):
    """A message that was stored, and where its record lies."""

    body: bytes
    queue_id: int
    queue_offset: int
    start: int
    end: int


def reopen(root: Path, **changes: Any) -> MessageStore:
    return MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Path, list[Place]]]:
    """A store that was closed and one that crashed."""
    made = {}
    for crash in (False, True):
        root = tmp_path_factory.mktemp("original")
        made[crash] = (root, make(root, crash))
    return made


class Fill(Protocol):
    def __call__(self, root: Path, *, crash: bool = False) -> list[Place]: ...


@pytest.fixture(scope="module")
def fill(originals: dict[bool, tuple[Path, list[Place]]]) -> Fill:
    """Make a store of a hundred messages."""

    def copy(root: Path, *, crash: bool = False) -> list[Place]:
        shutil.copytree(originals[crash][0], root, dirs_exist_ok=True)
        return originals[crash][1]

    return copy


def make(root: Path, crash: bool) -> list[Place]:
    clock = ManualClock()
    store = MessageStore.open(small_settings(root), clock=clock, start_flusher=False)
    places = []
    for number in range(COUNT):
        body = b"%04d" % number * (20 + number % 7 * 10)
        clock.advance(1)
        result = append(
            store, body, queue_id=number % QUEUES, properties=b"UNIQ_KEY\x01u%d\x02TAGS\x01a\x02" % number
        )
        end = result.log_offset + result.size_bytes
        places.append(Place(body, number % QUEUES, result.queue_offset, result.log_offset, end))
        if number == COUNT // 2:
            dispatch_all(store)
            store.flushes.flush()
    dispatch_all(store)
    store.flushes.flush_log()
    store.abandon() if crash else store.close()
    return places


def spoil(root: Path, start: int, content: bytes) -> None:
    """Overwrite bytes of the log, over the borders of its files."""
    while content:
        path = root / "commitlog" / f"{start - start % SEGMENT_BYTES:020d}"
        room = SEGMENT_BYTES - start % SEGMENT_BYTES
        with path.open("r+b") as stream:
            stream.seek(start % SEGMENT_BYTES)
            stream.write(content[:room])
        start, content = start + len(content[:room]), content[room:]


def flip(root: Path, offset: int) -> None:
    path = root / "commitlog" / f"{offset - offset % SEGMENT_BYTES:020d}"
    content = bytearray(path.read_bytes())
    content[offset % SEGMENT_BYTES] ^= 0x55
    path.write_bytes(content)


def lose_the_checkpoint(root: Path) -> None:
    (root / "checkpoint").unlink()


def lose_the_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_both(root: Path) -> None:
    lose_the_checkpoint(root)
    lose_the_queues(root)


def readable(store: MessageStore) -> list[tuple[int, int, bytes]]:
    """Queue, queue offset and body of every message that the queues lead to and whose record is sound."""
    found = []
    for queue_id in store.queues.ids(TOPIC):
        offset = store.queues.min_offset(TOPIC, queue_id)
        while offset < store.queues.max_offset(TOPIC, queue_id):
            result = store.read(TOPIC, queue_id, offset, 1)
            assert result.next_offset > offset  # by more than one if the queue begins later than it seemed
            found += [
                (queue_id, offset, message.body)
                for message in sound_messages(result)
                if (message.queue_id, message.queue_offset) == (queue_id, offset)
            ]
            offset = result.next_offset
    return found


def sound_messages(result: Any) -> list[StoredMessage]:
    try:
        return messages_in(result)
    except Exception:  # a unit of the trusted part that leads into the damage
        return []


def check(store: MessageStore, expected: list[Place]) -> None:
    found = set(readable(store))
    missing = [each for each in expected if (each.queue_id, each.queue_offset, each.body) not in found]
    assert not missing
    for queue_id in range(QUEUES):
        mine = [each.queue_offset for each in expected if each.queue_id == queue_id]
        assert store.queues.next_offset(TOPIC, queue_id) > max(mine, default=-1)


def outside(places: list[Place], start: int, end: int) -> list[Place]:
    return [each for each in places if each.end <= start or each.start >= end]


def damaged_files(root: Path) -> list[Path]:
    return sorted((root / "damaged").iterdir()) if (root / "damaged").exists() else []


# One byte

_FIELDS = {
    "size": 0,
    "low byte of the size": 3,
    "magic": 5,
    "checksum": 9,
    "queue": 15,
    "high byte of the queue": 12,
    "queue offset": 27,
    "middle of the queue offset": 24,
    "high byte of the queue offset": 20,
    "log offset": 35,
    "system flag": 39,
    "store time": 57,
    "body length": 87,
    "body": 100,
    "last byte of the properties": -1,
    "topic": -40,
}


@pytest.mark.parametrize("field", _FIELDS)
@pytest.mark.parametrize("number", [0, 61, 98])
@pytest.mark.parametrize("lose", [lose_the_checkpoint, lose_both])
def test_one_flipped_byte_costs_one_message(
    tmp_path: Path, fill: Fill, number: int, field: str, lose: Callable[[Path], None]
) -> None:
    places = fill(tmp_path, crash=True)
    lose(tmp_path)
    place = places[number]
    flip(tmp_path, (place.start if _FIELDS[field] >= 0 else place.end) + _FIELDS[field])
    expected = [each for each in places if each is not place]
    with reopen(tmp_path) as store:
        check(store, expected)
    with reopen(tmp_path) as store:
        check(store, expected)
        if lose is lose_the_checkpoint:  # somebody knows how many there were
            assert append(store, b"next").queue_offset >= COUNT // QUEUES
    lose_both(tmp_path)
    with reopen(tmp_path) as store:
        check(store, expected)


def test_the_report_says_what_is_lost_and_where_it_is_kept(tmp_path: Path, fill: Fill) -> None:
    places = fill(tmp_path, crash=True)
    lose_the_checkpoint(tmp_path)
    place = places[30]
    before = (tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}").read_bytes()
    flip(tmp_path, place.start + 100)
    with reopen(tmp_path) as store:
        report = store.recovery
        (damage,) = report.damage
        assert (damage.start, damage.end, damage.records) == (place.start, place.end, 1)
        assert report.messages_missing == 1
        (kept,) = damage.kept_as
        assert kept.parent == tmp_path / "damaged"
        assert str(damage).startswith(
            f"damage in the log from offset {place.start} to {place.end}, {place.end - place.start} bytes ("
        )
        assert "skipped; 1 record began there; the bytes are kept in" in str(damage)
        content = bytearray(kept.read_bytes())
        content[100] ^= 0x55
        assert bytes(content) == before[place.start - SEGMENT_BYTES : place.end - SEGMENT_BYTES]
    with OfflineStore(tmp_path) as seen:
        verification = seen.verify()
        assert verification.is_sound
        assert verification.filled == [(place.start, place.end)]
        assert verification.messages_missing == 1


def test_the_log_stays_a_row_of_records_that_every_walk_can_follow(tmp_path: Path, fill: Fill) -> None:
    places = fill(tmp_path, crash=True)
    lose_the_checkpoint(tmp_path)
    flip(tmp_path, places[10].start)
    flip(tmp_path, places[11].start)
    spoil(tmp_path, places[50].start, Random(1).randbytes(9000))
    with reopen(tmp_path):
        pass
    with OfflineStore(tmp_path) as seen:
        end = seen.log_end
    offset = 0
    topics = set()
    while offset < end:
        content = (tmp_path / "commitlog" / f"{offset - offset % SEGMENT_BYTES:020d}").read_bytes()
        position = offset % SEGMENT_BYTES
        outline = scan_record(content, position)
        if outline is None:
            assert struct.unpack_from(">i", content, position)[0] == SEGMENT_BYTES - position
            offset += SEGMENT_BYTES - position
        else:
            assert outline.log_offset == offset
            decode_record(content, position)
            topics.add(outline.topic)
            offset += outline.size
    assert topics == {TOPIC, "DAMAGED"}
    with reopen(tmp_path) as store:
        assert store.topics.names() == [TOPIC], "no queue is made for what stands where damage was"


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("lose", [lose_the_queues, lose_both, lose_the_checkpoint, lambda _: None])
def test_a_page_of_zeros_costs_only_the_messages_in_it(
    tmp_path: Path, fill: Fill, crash: bool, lose: Callable[[Path], None]
) -> None:
    places = fill(tmp_path, crash=crash)
    lose(tmp_path)
    spoil(tmp_path, SEGMENT_BYTES + 4096, bytes(4096))
    expected = outside(places, SEGMENT_BYTES + 4096, SEGMENT_BYTES + 8192)
    for _ in range(2):
        with reopen(tmp_path) as store:
            check(store, expected)


def test_time_and_first_offset_are_found_across_a_gap(tmp_path: Path, fill: Fill) -> None:
    places = fill(tmp_path, crash=True)
    lose_both(tmp_path)
    first, last = places[20], places[79]
    spoil(tmp_path, first.start, bytes(last.end - first.start))
    with reopen(tmp_path) as store:
        assert store.recovery.messages_missing == 60
        assert store.queues.min_offset(TOPIC, 0) == 0
        start_ms = ManualClock().now_ms()
        for number in (0, 10, 19, 80, 90, 99):
            place = places[number]
            found = store.queues.offset_by_time(TOPIC, place.queue_id, start_ms + 1000 * (number + 1))
            assert found == place.queue_offset
            found = store.queues.offset_by_time(
                TOPIC, place.queue_id, start_ms + 1000 * (number + 1), Boundary.UPPER
            )
            assert found == place.queue_offset
        assert 10 <= store.queues.offset_by_time(TOPIC, 0, start_ms + 1000 * 50) <= 40
        for offset, following in ((10, 20), (20, 30), (30, 40)):  # a file of units at a time
            result = store.read(TOPIC, 0, offset, 32)
            assert (result.status, result.next_offset) == (ReadStatus.MESSAGE_WAS_REMOVING, following)


# Files


def forget_unused_files(root: Path, places: list[Place]) -> None:
    for path in (root / "commitlog").iterdir():
        if int(path.name) >= places[-1].end:
            path.unlink()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("lose", [lose_the_queues, lose_both, lose_the_checkpoint, lambda _: None])
def test_a_missing_file_leaves_the_others_readable(
    tmp_path: Path, fill: Fill, crash: bool, lose: Callable[[Path], None]
) -> None:
    places = fill(tmp_path, crash=crash)
    lose(tmp_path)
    gone = tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}"
    content = gone.read_bytes()
    gone.unlink()
    expected = outside(places, SEGMENT_BYTES, 2 * SEGMENT_BYTES)
    with OfflineStore(tmp_path) as seen:
        seen.verify()
        assert len(list(seen.records())) == len(expected)
    for _ in range(2):
        with reopen(tmp_path) as store:
            check(store, expected)
            assert store.statistics().log_start_offset == 0
    gone.write_bytes(content)
    lose_both(tmp_path)
    with reopen(tmp_path) as store:
        check(store, places)


def test_the_report_names_missing_files(tmp_path: Path, fill: Fill) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
    with reopen(tmp_path) as store:
        assert store.recovery.remarks == [
            "commitlog: 1 files from 8192 to 16384 are missing: their messages are skipped;"
            " blank files replace them until you put them back"
        ]


def test_a_gap_too_wide_for_one_log_stops_the_start(tmp_path: Path, fill: Fill) -> None:
    fill(tmp_path)
    (tmp_path / "commitlog" / f"{SEGMENT_BYTES * 5000:020d}").write_bytes(b"x" * SEGMENT_BYTES)
    before = contents_of(tmp_path)
    with pytest.raises(StoreError, match=r"files are missing between .* move them to another directory"):
        reopen(tmp_path)
    assert contents_of(tmp_path) == before


def test_a_file_cut_short_stops_the_start_changes_nothing_and_says_what_to_do(
    tmp_path: Path, fill: Fill
) -> None:
    places = fill(tmp_path)
    short = tmp_path / "commitlog" / f"{SEGMENT_BYTES:020d}"
    os.truncate(short, 5000)
    before = contents_of(tmp_path)
    with pytest.raises(StoreError, match=rf"has 5000 bytes, expected 8192: .* truncate -s 8192 {short}"):
        reopen(tmp_path)
    assert contents_of(tmp_path) == before
    os.truncate(short, SEGMENT_BYTES)
    lose_both(tmp_path)
    with reopen(tmp_path) as store:
        check(store, outside(places, SEGMENT_BYTES + 5000, 2 * SEGMENT_BYTES))


def contents_of(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name != "lock"
    }


# Nothing comes back


def test_bytes_behind_a_cut_never_come_back(tmp_path: Path, fill: Fill) -> None:
    places = fill(tmp_path, crash=True)
    lose_the_checkpoint(tmp_path)
    # Nothing sound from 90 on, though only one byte of each record is wrong.
    for place in places[90:]:
        flip(tmp_path, place.start + 100)
    files = FaultyFiles(tmp_path)
    store = MessageStore.open(small_settings(tmp_path), files=files, clock=ManualClock(), start_flusher=False)
    tail = store.recovery.damage[-1]
    assert (tail.start, tail.end, tail.is_tail, tail.records) == (
        places[90].start,
        places[-1].end,
        True,
        10,
    )
    assert b"".join(path.read_bytes() for path in tail.kept_as)[100 : 100 + 4] != b"\0" * 4
    # A record of the same size goes in the place of the first one cut off, and the power goes.
    append(store, places[90].body, properties=b"UNIQ_KEY\x01u%d\x02TAGS\x01a\x02" % 90)
    store.flushes.flush_log()
    store.abandon()
    files.crash(Random(7))
    lose_both(tmp_path) if (tmp_path / "consumequeue").exists() else None
    with reopen(tmp_path) as store:
        assert not store.recovery.damage
        assert len(readable(store)) == 91
        check(store, places[:91])


def test_a_stray_file_in_the_way_of_the_log_is_moved_aside(tmp_path: Path, fill: Fill) -> None:
    places = fill(tmp_path)
    forget_unused_files(tmp_path, places)
    last = places[-1].end - places[-1].end % SEGMENT_BYTES
    stray = tmp_path / "commitlog" / f"{last + 2 * SEGMENT_BYTES:020d}"
    with reopen(tmp_path) as store:
        stray.write_bytes(b"stale" * 1638 + b"xx")
        for _ in range(100):
            assert append(store, b"m" * 200).is_ok
        dispatch_all(store)
    assert stray.with_name(stray.name + ".stray").exists()
    with reopen(tmp_path) as store:
        assert not store.recovery.damage


def test_a_start_that_is_interrupted_while_it_mends_is_made_up_for(
    tmp_path: Path, fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = fill(tmp_path, crash=True)
    lose_the_checkpoint(tmp_path)
    flip(tmp_path, places[10].start + 100)
    flip(tmp_path, places[70].start + 100)
    overwrite = FaultyFiles.overwrite
    for survived in range(6):
        calls = 0

        def be_killed(files: FaultyFiles, path: Path, position: int, content: bytes) -> None:
            nonlocal calls
            calls += 1
            if calls > survived:  # noqa: B023 - used up within this round
                raise KeyboardInterrupt
            overwrite(files, path, position, content)

        with monkeypatch.context() as patched:
            patched.setattr(FaultyFiles, "overwrite", be_killed)
            try:
                MessageStore.open(
                    small_settings(tmp_path),
                    files=FaultyFiles(tmp_path),
                    clock=ManualClock(),
                    start_flusher=False,
                ).abandon()
            except KeyboardInterrupt:
                continue
    with reopen(tmp_path) as store:
        check(store, [each for each in places if each not in (places[10], places[70])])


# Anything


@settings(max_examples=examples(25))
@example(start=0, length=433, kind="garbage", crash=False, lost=None, seed=0)
@given(
    start=st.integers(0, 26_000),
    length=st.one_of(st.integers(1, 300), st.integers(1, 12_000)),
    kind=st.sampled_from(["zeros", "garbage", "ones", "elsewhere"]),
    crash=st.booleans(),
    lost=st.sampled_from([None, lose_the_checkpoint, lose_the_queues, lose_both]),
    seed=st.integers(0, 1 << 16),
)
def test_damage_of_any_range_loses_no_record_outside_it(
    tmp_path_factory: pytest.TempPathFactory,
    fill: Fill,
    start: int,
    length: int,
    kind: str,
    crash: bool,
    lost: Callable[[Path], None] | None,
    seed: int,
) -> None:
    root = tmp_path_factory.mktemp("damaged")
    places = fill(root, crash=crash)
    start = min(start, places[-1].end - 1)
    length = min(length, places[-1].end - start)
    if kind == "zeros":
        content = bytes(length)
    elif kind == "ones":
        content = b"\xff" * length
    elif kind == "garbage":
        content = Random(seed).randbytes(length)
    else:  # a piece of the log in the wrong place: sound records that do not say their own offset
        log = b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))
        source = Random(seed).randrange(places[-1].end)
        content = (log[source:] + log)[:length]
    spoil(root, start, content)
    if lost is not None:
        lost(root)
    expected = outside(places, start, start + length)
    for _ in range(2):
        with reopen(root) as store:
            check(store, expected)
            assert {each[2] for each in readable(store)} <= {each.body for each in places}
    shutil.rmtree(root)


# Looked at from outside


@pytest.mark.parametrize("position", [0, 5, 35, 100])
def test_verifying_names_the_damaged_range_and_checks_everything_behind_it(
    tmp_path: Path, fill: Fill, position: int
) -> None:
    places = fill(tmp_path)
    place = places[30]
    flip(tmp_path, place.start + position)
    before = contents_of(tmp_path)
    with OfflineStore(tmp_path) as seen:
        result = seen.verify()
        size = place.end - place.start
        assert result.damage[0].startswith(f"log offsets {place.start} to {place.end}, {size} bytes: ")
        assert (result.damaged_bytes, result.messages_missing) == (size, 1)
        is_readable = position == 100  # the body alone is wrong
        assert result.records == COUNT - 1 + is_readable
        assert result.units == COUNT
    assert contents_of(tmp_path) == before


@pytest.mark.parametrize("number", [0, 1, 2, 40, 61, 95, 96, 97, 98, 99])
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("lose", [lose_the_checkpoint, lose_both])
def test_a_record_that_seems_to_begin_its_queue_again_hides_no_other(
    tmp_path: Path, fill: Fill, number: int, offset: int, lose: Callable[[Path], None]
) -> None:
    if lose is lose_both and not offset and number >= COUNT - QUEUES:
        number = 97  # of the last one nobody could tell that its topic was not made again
    places = fill(tmp_path, crash=True)
    lose(tmp_path)
    spoil(tmp_path, places[number].start + 20, struct.pack(">q", offset))
    with reopen(tmp_path) as store:
        check(store, [each for each in places if each is not places[number]])
