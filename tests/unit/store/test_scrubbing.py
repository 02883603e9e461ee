"""Damage in the log is found wherever it is, and replaced only by what another broker surely has there."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.small_stores import TOPIC, append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.protocol.record import decode_records
from pyromq.store import scrubbing
from pyromq.store.log.damage import Damage
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore
from pyromq.store.offline_repair import repair
from pyromq.store.results import ReadStatus
from pyromq.store.scrubbing import NotThere

BODIES = [b"#%d " % number + b"x" * 300 for number in range(60)]


@pytest.fixture(params=["compiled", "interpreted", "small pieces"], autouse=True)
def _every_way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled":
        yield
        return
    with interpreted() if request.param == "interpreted" else patch.object(scrubbing, "_PIECE_BYTES", 500):
        yield


def open_store(root: Path, bodies: list[bytes] = BODIES, **changes: Any) -> MessageStore:
    """Equal stores have equal logs: they take their time from one clock."""
    store = MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)
    if not store.log.end:
        for body in bodies:
            assert append(store, body).is_ok
        dispatch_all(store)
    return store


def whole_log(store: MessageStore) -> bytes:
    offset, pieces = store.log.start, []
    while offset < store.log.end:
        pieces.append(bytes(store.log.bytes_at(offset, 1 << 30)))
        offset += len(pieces[-1])
    return b"".join(pieces)


def found_in(store: MessageStore) -> list[Damage]:
    offset, found = store.log.start, []
    while offset < store.log.end:
        before = offset
        offset, damage = store.scrubbing.check(offset, store.log.end)
        assert offset > before
        if damage is not None:
            found.append(damage)
    return found


def view_of(store: MessageStore) -> Callable[[int], bytes | None]:
    def view(offset: int) -> bytes | None:
        record = store.log.record_at(offset)
        return None if record is None else bytes(record)

    return view


def replace(store: MessageStore, damage: Damage, view: Callable[[int], bytes | None]) -> None:
    steps, record = store.scrubbing.replacing(damage), None
    while True:
        try:
            wanted = steps.send(record)
        except StopIteration:
            break
        record = view(wanted) if isinstance(wanted, int) else wanted()
    for _ in store.queues.restore_units(damage):
        pass


def test_a_sound_log_has_no_damage(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert len(whole_log(store)) > 2 * 8192
        assert not found_in(store)


@settings(max_examples=examples(60))
@given(place=st.floats(0, 1, exclude_max=True), bits=st.integers(1, 255))
@example(place=0.0, bits=128)
def test_what_was_flipped_anywhere_is_found_or_does_no_harm_and_is_replaced(
    tmp_path_factory: pytest.TempPathFactory, place: float, bits: int
) -> None:
    root = tmp_path_factory.mktemp("flipped")
    with open_store(root / "a") as store, open_store(root / "b") as other:
        sound = whole_log(other)
        at = int(place * len(sound))
        store.scrubbing.put_back(at, bytes([sound[at] ^ bits]))
        for damage in found_in(store):
            assert damage.start <= at < damage.end
            replace(store, damage, view_of(other))
            assert whole_log(store) == sound
        assert not found_in(store)


def test_a_large_record_is_checked_as_well(tmp_path: Path) -> None:
    bodies = [b"a" * 10, b"b" * 3_000_000, b"c" * 10]
    files = {"log_segment_bytes": 8 << 20}
    with (
        open_store(tmp_path / "a", bodies, **files) as store,
        open_store(tmp_path / "b", bodies, **files) as other,
    ):
        assert not found_in(store)
        at = whole_log(store).index(b"bbb") + 2_000_000
        store.scrubbing.put_back(at, b"x")
        (damage,) = found_in(store)
        replace(store, damage, view_of(other))
        assert whole_log(store) == whole_log(other)


@pytest.mark.parametrize("is_last", [False, True])
def test_what_recovery_has_filled_is_replaced_and_is_in_its_queue_again(
    tmp_path: Path, is_last: bool
) -> None:
    with open_store(tmp_path / "b") as other:
        store = open_store(tmp_path / "a")
        sound = whole_log(store)
        store.abandon()
        (tmp_path / "a" / "checkpoint").unlink()
        path = tmp_path / "a" / "commitlog" / f"{0:020}"
        last = max(number for number, body in enumerate(BODIES) if sound.find(body) < 8192)
        hole = BODIES[last if is_last else 5]
        path.write_bytes(path.read_bytes().replace(hole, bytes(len(hole))))
        with open_store(tmp_path / "a") as store:
            assert len(bodies_of(store)) == len(BODIES) - 1
            (damage,) = found_in(store)
            replace(store, damage, view_of(other))
            assert whole_log(store) == sound
            assert bodies_of(store) == BODIES


def test_a_blank_at_the_end_of_a_file_is_made_again(tmp_path: Path) -> None:
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as other:
        blank = whole_log(store).index(b"\xcb\xd4\x31\x94")
        store.scrubbing.put_back(blank, b"\0")
        (damage,) = found_in(store)
        assert (damage.start, damage.end) == (blank - 4, 8192)
        replace(store, damage, view_of(other))
        assert not found_in(store)


def test_bytes_of_another_history_are_not_taken(tmp_path: Path) -> None:
    others = [body.replace(b"x", b"y") for body in BODIES]
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b", others) as other:
        store.scrubbing.put_back(100, b"?")
        before = whole_log(store)
        (damage,) = found_in(store)
        with pytest.raises(NotThere, match="another record"):
            replace(store, damage, view_of(other))
        assert whole_log(store) == before


@pytest.mark.parametrize("at", [100, 4])
def test_damage_of_another_broker_is_not_taken(tmp_path: Path, at: int) -> None:
    with open_store(tmp_path / "a") as store, open_store(tmp_path / "b") as other:
        for each in (store, other):
            each.scrubbing.put_back(at, b"?")
        (damage,) = found_in(store)
        with pytest.raises(NotThere, match="either"):
            replace(store, damage, view_of(other))


@pytest.mark.parametrize("is_gap", [False, True])
def test_a_directory_is_repaired_without_a_broker(tmp_path: Path, is_gap: bool) -> None:
    with open_store(tmp_path / "b") as other:
        with open_store(tmp_path / "a") as store:
            store.scrubbing.put_back(whole_log(store).index(BODIES[5]) - 82, b"??")
            if is_gap:
                assert len(bodies_of(store)) == len(BODIES) - 1  # the reader found no message there
        with OfflineStore(tmp_path / "a") as offline:
            ((damage, reason),) = repair(offline, view_of(other))
            assert not reason
            assert damage.end - damage.start == len(other.log.record_at(damage.start) or b"")
            assert [TOPIC in remark for remark in offline.remarks] == ([True] if is_gap else [])
        with open_store(tmp_path / "a") as store:
            assert bodies_of(store) == BODIES
            assert not found_in(store)


@pytest.mark.parametrize("number", [0, 5])
def test_a_damaged_body_from_the_disk_ends_a_read_while_other_brokers_are_asked(
    tmp_path: Path, number: int
) -> None:
    open_store(tmp_path).close()
    with open_store(tmp_path) as store:
        store.scrubbing.put_back(whole_log(store).index(BODIES[number]), b"?")
        asked: list[int] = []
        is_awaited = True

        def ask(offset: int) -> bool:
            asked.append(offset)
            return is_awaited

        store.ask_others(ask)
        found = store.read(TOPIC, 0, 0)
        assert found.next_offset == found.message_count == number
        assert found.size_bytes == sum(map(len, found.views)) == store.queues.log_offset(TOPIC, 0, number)
        assert found.status is (ReadStatus.FOUND if number else ReadStatus.QUEUE_IS_MENDED)
        assert store.read(TOPIC, 0, number).status is ReadStatus.QUEUE_IS_MENDED
        assert set(asked) == {store.queues.log_offset(TOPIC, 0, number)}
        is_awaited = False  # no other broker has it
        assert len(bodies_of_anything(store)) == len(BODIES)


def bodies_of_anything(store: MessageStore) -> list[bytes]:
    offset, bodies = 0, list[bytes]()
    while offset < store.queues.max_offset(TOPIC, 0):
        found = store.read(TOPIC, 0, offset)
        offset = found.next_offset
        bodies += [each.body for view in found.views for each in decode_records(view)]
    return bodies
