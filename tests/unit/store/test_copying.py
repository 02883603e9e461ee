"""A replica's log is a prefix of its master's, with the same queues, however the stream was cut."""

import errno
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.small_stores import append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.filesystem import Files, Writer
from pyromq.store.deletions import Deletion
from pyromq.store.log import commit_log
from pyromq.store.message_store import MessageStore

TOPIC = "Orders"


@pytest.fixture(params=["compiled", "interpreted", "every piece is large"], autouse=True)
def _every_way(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "compiled":
        yield
        return
    with interpreted() if request.param == "interpreted" else patch.object(commit_log, "_LARGE_BYTES", 1):
        yield


def open_store(root: Path, **changes: Any) -> MessageStore:
    return MessageStore.open(small_settings(root, **changes), clock=ManualClock(), start_flusher=False)


def open_replica(root: Path, **changes: Any) -> MessageStore:
    store = open_store(root, **changes)
    store.copying.begin()
    return store


def send(store: MessageStore, count: int, topic: str = TOPIC, size: int = 300) -> list[bytes]:
    bodies = [b"%d " % number + bytes([65 + number % 26]) * size for number in range(count)]
    for body in bodies:
        assert append(store, body, topic=topic, properties=b"KEYS\x01k\x02").is_ok
    dispatch_all(store)
    return bodies


def copy(master: MessageStore, replica: MessageStore, offset: int | None = None, step: int = 1000) -> None:
    """Stream the rest of the master's log, in pieces of `step` bytes."""
    offset = replica.log.end if offset is None else offset
    while offset < master.log.end:
        piece = master.log.bytes_at(offset, step)
        replica.copying.append(offset, piece)
        offset += len(piece)
    dispatch_all(replica)


def whole_log(store: MessageStore) -> bytes:
    offset, pieces = store.log.start, []
    while offset < store.log.end:
        piece = store.log.bytes_at(offset, 1 << 20)
        pieces.append(bytes(piece))
        offset += len(piece)
    return b"".join(pieces)


def test_a_replica_has_the_masters_bytes_queues_and_index(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        bodies = send(master, 60)
        copy(master, replica)
        assert whole_log(replica) == whole_log(master)
        assert bodies_of(replica, TOPIC, 0) == bodies
        assert len(replica.log.query(TOPIC, "k", 64)) == len(master.log.query(TOPIC, "k", 64))
        assert replica.statistics().last_store_timestamp == master.statistics().last_store_timestamp


@pytest.mark.parametrize("step", [1, 7, 8, 91, 4096, 8192])
def test_pieces_of_any_size_give_the_same_log(tmp_path: Path, step: int) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        bodies = send(master, 30)
        copy(master, replica, step=step)
        assert whole_log(replica) == whole_log(master)
        assert bodies_of(replica, TOPIC, 0) == bodies


def test_the_log_ends_with_its_last_whole_record(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        send(master, 1)
        whole = master.log.end
        send(master, 1)
        replica.copying.append(0, master.log.bytes_at(0, whole + 100))
        assert replica.log.end == whole
        assert not replica.log.bytes_at(whole, 100)
        replica.copying.append(whole + 100, master.log.bytes_at(whole + 100, 1 << 20))
        assert replica.log.end == master.log.end


def test_a_part_of_a_record_leaves_no_trace(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        bodies = send(master, 2)
        replica.copying.append(0, master.log.bytes_at(0, master.log.end - 5))
        end = replica.log.end
        replica.copying.drop_part()
        file = next((tmp_path / "r" / "commitlog").iterdir())
        assert not any(file.read_bytes()[end:])
        copy(master, replica)
        assert bodies_of(replica, TOPIC, 0) == bodies


class ShortWriter(Writer):
    """Takes a few bytes at a time, and none when the disk is full."""

    def write(self, position: int, content: memoryview) -> int:
        if position >= 5000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(position, content[:300])


class ShortFiles(Files):
    def open_for_writing(self, path: Path) -> Writer:
        return ShortWriter(path)


def test_a_disk_that_becomes_full_inside_a_piece_leaves_whole_records_and_zeros(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, patch.object(commit_log, "_LARGE_BYTES", 1):
        send(master, 15)
        assert 5000 < master.log.end < 8192
        settings = small_settings(tmp_path / "r")
        with MessageStore.open(
            settings, files=ShortFiles(), clock=ManualClock(), start_flusher=False
        ) as replica:
            replica.copying.begin()
            with pytest.raises(StoreError, match="No space left"):
                replica.copying.append(0, master.log.bytes_at(0, master.log.end))
            replica.copying.drop_part()
            end = replica.log.end
            assert 4000 < end <= 5400
            file = next((tmp_path / "r" / "commitlog").iterdir()).read_bytes()
            assert file[:end] == whole_log(master)[:end]
            assert not any(file[end:])


def test_a_replica_that_crashed_inside_a_record_continues_at_the_last_whole_one(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master:
        bodies = send(master, 30)
        replica = open_replica(tmp_path / "r")
        offset, cut = 0, master.log.end - 40
        while offset < cut:
            piece = master.log.bytes_at(offset, min(100, cut - offset))
            replica.copying.append(offset, piece)
            offset += len(piece)
        end = replica.log.end
        replica.abandon()
        with open_replica(tmp_path / "r") as replica:
            assert replica.log.end == end
            copy(master, replica)
            assert whole_log(replica) == whole_log(master)
            assert bodies_of(replica, TOPIC, 0) == bodies


@pytest.mark.parametrize("is_behind_checkpoint", [False, True])
def test_a_replica_keeps_nothing_behind_a_hole_in_what_was_not_synced(
    tmp_path: Path, is_behind_checkpoint: bool
) -> None:
    with open_store(tmp_path / "m") as master:
        bodies = send(master, 30)
        replica = open_replica(tmp_path / "r")
        copy(master, replica)
        if is_behind_checkpoint:
            replica.flushes.flush()
        bodies += send(master, 5, size=301)
        copy(master, replica)
        replica.abandon()
        hole = bodies[31 if is_behind_checkpoint else 3]
        for path in (tmp_path / "r" / "commitlog").iterdir():
            path.write_bytes(path.read_bytes().replace(hole, bytes(len(hole))))
        settings = small_settings(tmp_path / "r")
        with MessageStore.open(settings, start_flusher=False, has_group=True) as replica:
            replica.copying.begin()
            assert replica.recovery.stopped_because
            assert not replica.recovery.is_whole
            assert whole_log(master).startswith(whole_log(replica))
            copy(master, replica)
            assert whole_log(replica) == whole_log(master)
            assert bodies_of(replica, TOPIC, 0) == bodies


def test_an_empty_replica_begins_where_the_master_begins(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master:
        bodies = send(master, 60)
        last_file = master.log.end - master.log.end % 8192
        with open_replica(tmp_path / "r") as replica:
            copy(master, replica, last_file)
            assert replica.log.start == last_file
            kept = bodies_of(replica, TOPIC, 0)
        assert kept
        assert bodies[-len(kept) :] == kept
        with open_replica(tmp_path / "r") as replica:
            assert (replica.log.start, replica.log.end) == (last_file, master.log.end)
            assert bodies_of(replica, TOPIC, 0) == kept
            assert replica.queues.max_offset(TOPIC, 0) == master.queues.max_offset(TOPIC, 0)


def test_bytes_that_do_not_continue_the_log_are_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        send(master, 3)
        copy(master, replica)
        with pytest.raises(StoreError, match=f"offset 7, the replica needs {replica.log.end}"):
            replica.copying.append(7, memoryview(b"x"))


def test_bytes_from_inside_a_record_are_noticed(tmp_path: Path) -> None:
    """A longer replica whose master has grown past its end is sent the middle of other records."""
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        send(master, 3)
        copy(master, replica)
        end = replica.log.end
        with open_store(tmp_path / "other") as other:
            send(other, 20, size=311)
            with pytest.raises(StoreError, match="the master's"):
                replica.copying.append(end, other.log.bytes_at(end, 4000))
        replica.copying.drop_part()
        assert replica.log.end == end
        assert whole_log(replica) == whole_log(master)


def test_a_master_with_other_file_sizes_is_noticed(tmp_path: Path) -> None:
    with (
        open_store(tmp_path / "m", log_segment_bytes=4096) as master,
        open_replica(tmp_path / "r") as replica,
    ):
        send(master, 30)
        with pytest.raises(StoreError, match="the same mappedFileSizeCommitLog"):
            copy(master, replica)


@settings(max_examples=examples(60))
@given(st.data())
def test_damaged_bytes_are_refused_or_copied_but_never_break_the_store(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("damaged")
    with open_store(root / "m") as master:
        send(master, 6, size=60)
        log = bytearray(whole_log(master))
    at = data.draw(st.integers(0, len(log) - 1))
    log[at] ^= data.draw(st.integers(1, 255))
    step = data.draw(st.integers(1, len(log)))
    with open_replica(root / "r") as replica:
        try:
            for offset in range(0, len(log), step):
                replica.copying.append(offset, memoryview(log)[offset : offset + step])
        except StoreError:
            replica.copying.drop_part()
        assert whole_log(replica) == bytes(log[: replica.log.end])
        dispatch_all(replica)


def copy_flipped(root: Path, log: bytes, at: int, bits: int) -> int:
    """Copy a log in which one byte is changed; where the replica's log ends then."""
    sent = bytearray(log)
    sent[at] ^= bits
    with open_replica(root) as replica, suppress(StoreError):
        replica.copying.append(0, memoryview(sent))
    return replica.log.end


@pytest.mark.parametrize("bit", range(8))
def test_a_bit_that_was_flipped_on_the_way_does_not_count_and_the_bytes_are_taken_again(
    tmp_path: Path, bit: int
) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        bodies = send(master, 3)
        log = bytearray(whole_log(master))
        log[log.index(bodies[1]) + 100] ^= 1 << bit
        with pytest.raises(StoreError, match="CRC of the body"):
            replica.copying.append(0, memoryview(log))
        replica.copying.drop_part()
        assert replica.log.end == master.log.end // 3
        copy(master, replica)
        assert whole_log(replica) == whole_log(master)
        assert bodies_of(replica, TOPIC, 0) == bodies


@settings(max_examples=examples(40))
@given(data=st.data())
def test_compiled_and_interpreted_code_refuse_the_same_records(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("flipped")
    with open_store(root / "m") as master:
        send(master, 2, topic="%RETRY%g-1", size=5)
        send(master, 1, topic="Größe.1", size=5)
        send(master, 1, size=0)
        log = whole_log(master)
    at, bits = data.draw(st.integers(0, len(log) - 1)), data.draw(st.integers(1, 255))
    compiled_end = copy_flipped(root / "c", log, at, bits)
    with interpreted():
        assert copy_flipped(root / "i", log, at, bits) == compiled_end


def test_a_topic_deleted_and_made_again_by_the_master_starts_over(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        send(master, 5)
        copy(master, replica)
        master.topics.delete(TOPIC)
        bodies = send(master, 3)
        copy(master, replica)  # no mark has come: an Apache master has none
        assert bodies_of(replica, TOPIC, 0) == bodies


@pytest.mark.parametrize("is_early", [True, False])
def test_a_masters_deletion_hides_the_same_messages(tmp_path: Path, is_early: bool) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        send(master, 5)
        if not is_early:
            copy(master, replica)
        master.topics.delete(TOPIC)
        bodies = send(master, 3)
        if not is_early:
            copy(master, replica)
        (deletion,) = master.topics.deletions()
        assert replica.copying.delete_topic(deletion)
        assert not replica.copying.delete_topic(deletion)
        copy(master, replica)
        assert bodies_of(replica, TOPIC, 0) == bodies
        assert len(replica.log.query(TOPIC, "k", 64)) == len(bodies)


def test_a_deletion_without_new_messages_removes_the_queues(tmp_path: Path) -> None:
    with open_replica(tmp_path / "r") as replica, open_store(tmp_path / "m") as master:
        send(master, 5)
        copy(master, replica)
        assert replica.copying.delete_topic(Deletion(TOPIC, master.log.end, 1))
        assert TOPIC not in replica.topics.names()


def test_a_replica_that_becomes_master_continues_the_queues(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master, open_replica(tmp_path / "r") as replica:
        bodies = send(master, 5)
        replica.copying.append(0, master.log.bytes_at(0, master.log.end))
        replica.copying.end()
        assert append(replica, b"own").queue_offset == 5
        dispatch_all(replica)
        assert bodies_of(replica, TOPIC, 0) == [*bodies, b"own"]


def test_the_last_record_is_found(tmp_path: Path) -> None:
    with open_store(tmp_path / "m") as master:
        assert master.copying.last_record() is None
        send(master, 5)
        place, record = master.copying.last_record() or (0, memoryview(b""))
        assert place + len(record) == master.log.end


def test_a_deletion_of_a_longer_log_hides_nothing_that_a_new_master_appends(tmp_path: Path) -> None:
    with open_replica(tmp_path) as store:
        assert store.copying.delete_topic(Deletion(TOPIC, 50_000, 1))
        store.begin_epoch(1)
        store.copying.end()
        assert bodies_of(store, TOPIC) == []
        bodies = send(store, 5)
        assert bodies_of(store, TOPIC) == bodies
    with open_store(tmp_path) as store:
        assert bodies_of(store, TOPIC) == bodies
