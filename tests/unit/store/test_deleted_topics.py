"""A deleted topic stays deleted, and one made again keeps every message, however queues are built again."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.protocol.record import decode_record
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore

X, OTHER = "X", "Other"
OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(3)]


@pytest.fixture(params=[False, True], ids=["compiled", "interpreted"], autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.param:
        yield
        return
    with interpreted():
        yield


def open_store(root: Path, files: Files | None = None, **changes: Any) -> MessageStore:
    settings = small_settings(root, **changes)
    return MessageStore.open(settings, files=files, clock=ManualClock(), start_flusher=False)


def send(store: MessageStore, bodies: list[bytes], topic: str = X, queues: int = 1) -> None:
    for number, body in enumerate(bodies):
        properties = b"KEYS\x01k\x02UNIQ_KEY\x01" + body.hex().encode() + b"\x02"
        result = append(store, body, topic=topic, queue_id=number % queues, properties=properties)
        assert result.is_ok


def found_by_key(store: MessageStore, key: str = "k", topic: str = X) -> list[bytes]:
    return [decode_record(each).body for each in store.log.query(topic, key, 64)]


def is_sound(root: Path) -> bool:
    with OfflineStore(root) as store:
        assert not store.verify().damage
    return True


def made_again(root: Path, old_queues: int = 1, new_queues: int = 1) -> None:
    """A store in which X was deleted and made again, closed cleanly."""
    with open_store(root) as store:
        send(store, OLD, queues=old_queues)
        send(store, OLD, OTHER)
        dispatch_all(store)
        store.topics.delete(X)
        send(store, NEW, queues=new_queues)


def without_marks(root: Path) -> None:
    """As if Apache's broker had deleted the topics: it notes that nowhere."""
    (root / "deletions").unlink()


# Building queues again


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "apache"])
@pytest.mark.parametrize("what", ["consumequeue", "consumequeue/X"])
@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_queues_that_are_built_again_have_the_new_messages_and_not_the_old_ones(
    tmp_path: Path, is_noted: bool, what: str, has_checkpoint: bool
) -> None:
    made_again(tmp_path)
    shutil.rmtree(tmp_path / what)
    if not is_noted:
        without_marks(tmp_path)
    if not has_checkpoint:
        (tmp_path / "checkpoint").unlink()
        shutil.rmtree(tmp_path / "consumequeue", ignore_errors=True)
    for _ in range(2):
        with open_store(tmp_path) as store:
            assert bodies_of(store, X) == NEW
            assert bodies_of(store, OTHER) == OLD
            assert store.queues.next_offset(X, 0) == len(NEW)
        assert is_sound(tmp_path)


@pytest.mark.parametrize(("old_queues", "new_queues"), [(4, 2), (2, 3)])
def test_a_topic_made_again_with_other_queues_gets_only_those_when_they_are_built_again(
    tmp_path: Path, old_queues: int, new_queues: int
) -> None:
    made_again(tmp_path, old_queues, new_queues)
    shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert store.queues.ids(X) == list(range(new_queues))
        for queue_id in range(new_queues):
            assert bodies_of(store, X, queue_id) == NEW[queue_id::new_queues]


def test_offsets_go_on_where_the_new_generation_ended(tmp_path: Path) -> None:
    made_again(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert append(store, b"more", topic=X).queue_offset == len(NEW)
        dispatch_all(store)
        assert bodies_of(store, X) == [*NEW, b"more"]
        assert store.queues.offset_by_time(X, 0, 0) == 0


def test_a_topic_deleted_many_times_has_what_came_last(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        for round_ in range(4):
            send(store, [b"%d" % round_] * (5 - round_))
            if round_ % 2:
                dispatch_all(store)
            if round_ < 3:
                store.topics.delete(X)
    shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == [b"3"] * 2
    assert is_sound(tmp_path)


# Crashes


@pytest.mark.parametrize("is_noted", [True, False], ids=["noted", "apache"])
def test_a_crash_after_another_topic_was_deleted_brings_nothing_into_a_live_one(
    tmp_path: Path, is_noted: bool
) -> None:
    made_again(tmp_path)
    if not is_noted:
        without_marks(tmp_path)
    store = open_store(tmp_path)
    assert store.topics.delete(OTHER) == 1
    store.abandon()
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW
        assert store.topics.names() == [X]


@pytest.mark.parametrize("is_dispatched", [True, False])
@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_crash_after_a_deletion_brings_nothing_back(
    tmp_path: Path, is_dispatched: bool, is_flushed: bool
) -> None:
    store = open_store(tmp_path)
    send(store, OLD)
    if is_dispatched:
        dispatch_all(store)
    if is_flushed:
        store.flushes.flush()
    store.topics.delete(X)
    store.abandon()
    store = open_store(tmp_path)
    assert not store.topics.names()
    send(store, NEW)
    dispatch_all(store)
    assert bodies_of(store, X) == NEW
    assert found_by_key(store) == NEW
    store.abandon()
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW
        assert found_by_key(store) == NEW
    assert is_sound(tmp_path)


def test_messages_that_were_not_dispatched_when_their_topic_was_deleted_never_are(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, OLD)
        store.topics.delete(X)
        send(store, NEW[:1])
        dispatch_all(store)
        assert bodies_of(store, X) == NEW[:1]
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW[:1]
        assert found_by_key(store) == NEW[:1]


def test_messages_where_a_lost_tail_of_the_log_was_are_newer_than_the_deletion(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, OLD[:1])
    flushed = store.flushes.flush()
    send(store, OLD[1:])
    store.topics.delete(X)
    store.abandon()
    segment = tmp_path / "commitlog" / f"{0:020d}"
    content = segment.read_bytes()
    segment.write_bytes(content[:flushed].ljust(len(content), b"\0"))
    with open_store(tmp_path) as store:
        assert store.statistics().log_end_offset == flushed
        send(store, NEW)
        dispatch_all(store)
        assert bodies_of(store, X) == NEW
    shutil.rmtree(tmp_path / "consumequeue")
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW
        assert found_by_key(store) == NEW


def test_a_deletion_that_stayed_unfinished_leaves_a_topic_with_new_messages_alone(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_store(tmp_path) as store:
        send(store, OLD)
        with pytest.raises(StoreError, match=r"topic X cannot be deleted: .*No space"):
            store.topics.delete(X, fail)
        assert store.topics.unfinished_deletions() == [X]
        send(store, NEW)
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW
        assert not store.topics.unfinished_deletions()


def test_a_deletion_that_the_disk_does_not_take_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    forgotten: list[str] = []
    with open_store(tmp_path, files) as store:
        send(store, OLD)
        dispatch_all(store)
        files.failures["write"] = errno.ENOSPC
        with pytest.raises(StoreError, match=r"topic X cannot be deleted: .*No space"):
            store.topics.delete(X, lambda: forgotten.append(X))
        files.failures.clear()
        assert not forgotten
        assert bodies_of(store, X) == OLD
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == OLD


# Look-ups


class NotingFiles(Files):
    """Notes what makes a deletion safe, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[str] = []

    def overwrite(self, path: Path, position: int, content: bytes) -> None:
        super().overwrite(path, position, content)
        if path.name == "deletions":
            self.noted.append(content.split()[1].decode())

    def remove_tree(self, path: Path) -> None:
        self.noted.append(f"removed {path.name}")
        super().remove_tree(path)

    def sync_directory(self, directory: Path) -> None:
        super().sync_directory(directory)
        self.noted.append(f"synced {directory.name}")


def test_the_mark_is_safe_before_queues_go_and_they_are_gone_before_the_deletion_is_finished(
    tmp_path: Path,
) -> None:
    files = NotingFiles()
    with open_store(tmp_path, files) as store:
        send(store, OLD)
        store.topics.delete("first")
        dispatch_all(store)
        files.noted.clear()
        store.topics.begin_deletion(X)
        assert files.noted == ["deleted", "removed X"], "the loop waits for one sync only"
        files.noted.clear()
        store.topics.finish_deletion(X)
        assert files.noted == ["synced consumequeue", "finished"]


def test_messages_of_a_deleted_generation_are_not_found_by_key(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, OLD)
        send(store, OLD, OTHER)
        dispatch_all(store)
        store.topics.delete(X)
        assert not found_by_key(store)
        assert not found_by_key(store, OLD[0].hex())
        send(store, NEW)
        dispatch_all(store)
        assert found_by_key(store) == NEW
        assert len(store.log.query(X, "k", 3)) == 3, "old ones do not take the places of new ones"
        assert found_by_key(store, topic=OTHER) == OLD
    with open_store(tmp_path) as store:
        assert found_by_key(store) == NEW
        assert not found_by_key(store, OLD[0].hex())


# Expiry


def test_marks_are_forgotten_when_the_log_they_speak_of_is_gone(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, OLD)
        store.topics.delete(X)
        send(store, [bytes(2000)] * 12)
        dispatch_all(store)
        store.flushes.flush()
        assert (tmp_path / "deletions").exists()
        for path in (tmp_path / "commitlog").iterdir():
            os.utime(path, (1, 1))
        assert store.clean(on_demand=True).segments_removed
        assert not (tmp_path / "deletions").exists()
    with open_store(tmp_path) as store:
        assert store.queues.next_offset(X, 0) == 12


# Stores that others have had


def test_a_queue_into_which_another_broker_put_old_messages_again_loses_them(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, OLD)
        dispatch_all(store)
        kept = tmp_path / "kept"
        shutil.copytree(tmp_path / "consumequeue", kept)
        store.topics.delete(X)
    shutil.rmtree(tmp_path / "consumequeue", ignore_errors=True)
    kept.rename(tmp_path / "consumequeue")
    marks = (tmp_path / "deletions").rename(tmp_path / "aside")
    with open_store(tmp_path) as store:  # one that knows nothing of marks
        assert bodies_of(store, X) == OLD
        send(store, NEW)
    marks.rename(tmp_path / "deletions")
    with open_store(tmp_path) as store:
        assert bodies_of(store, X) == NEW
        assert (store.queues.min_offset(X, 0), store.queues.max_offset(X, 0)) == (5, 8)
    assert is_sound(tmp_path)


def test_the_files_of_a_queue_are_believed_where_no_deletion_is_noted(tmp_path: Path) -> None:
    made_again(tmp_path)
    without_marks(tmp_path)
    assert is_sound(tmp_path)
    with open_store(tmp_path) as store:
        assert not store.recovery.remarks
        assert bodies_of(store, X) == NEW


# Tools


def test_a_look_from_outside_tells_of_deletions(tmp_path: Path) -> None:
    made_again(tmp_path)
    with OfflineStore(tmp_path) as store:
        (deletion,) = store.deletions
        assert (deletion.topic, deletion.is_finished) == (X, True)
        assert [each.body for each in store.messages(X)] == NEW
        assert store.verify().is_sound


def test_a_topic_that_was_deleted_and_not_made_again_is_no_damage(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, OLD)
        send(store, OLD, OTHER)
        store.topics.delete(X)
    assert is_sound(tmp_path)


def test_garbage_in_the_file_of_deletions_refuses_the_start_and_is_damage_to_tools(tmp_path: Path) -> None:
    made_again(tmp_path)
    path = tmp_path / "deletions"
    path.write_bytes(path.read_bytes().replace(b'"X"', b'"Y"'))
    with pytest.raises(StoreError, match=r"line 2 is damaged"):
        open_store(tmp_path)
    with OfflineStore(tmp_path) as store:
        assert any("line 2 is damaged" in each for each in store.remarks)
        assert any("line 2 is damaged" in each for each in store.verify().damage)
