"""A deletion that is killed before any of its file operations is done or was never begun."""

import shutil
from pathlib import Path
from random import Random

import pytest
from tests.support.dying_files import DyingFiles, Killed
from tests.support.small_stores import append, bodies_of, dispatch_all, small_settings

from pyromq.clock import ManualClock
from pyromq.filesystem import Files
from pyromq.store.message_store import MessageStore
from pyromq.store.offline import OfflineStore

X, OTHER = "X", "Other"
OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(3)]


def open_store(root: Path, files: Files | None = None) -> MessageStore:
    return MessageStore.open(small_settings(root), files=files, clock=ManualClock(), start_flusher=False)


def send(store: MessageStore, bodies: list[bytes], topic: str = X, queues: int = 1) -> None:
    for number, body in enumerate(bodies):
        assert append(store, body, topic=topic, queue_id=number % queues, properties=b"KEYS\x01k\x02").is_ok


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "later"])
def test_a_deletion_killed_at_any_file_operation_is_done_or_not_begun(tmp_path: Path, is_first: bool) -> None:
    def delete_and_die(root: Path, dies_at: int, random: Random | None) -> tuple[bool, int]:
        root.mkdir()
        with open_store(root) as store:
            if not is_first:
                send(store, OLD, "Before")
                store.topics.delete("Before")
            send(store, OLD, queues=2)
            send(store, OLD, OTHER)
        files = DyingFiles(root)
        store = open_store(root, files)
        files.operations, files.dies_at = 0, dies_at
        try:
            store.topics.delete(X)
            store.flushes.flush()
            is_killed = False
        except Killed:
            is_killed = True
        files.dies_at = 1 << 62
        store.abandon()
        if random is not None:
            files.crash(random)
        return is_killed, files.operations

    is_killed, count = delete_and_die(tmp_path / "whole", 1 << 62, Random(0))
    assert not is_killed
    assert count > 5
    outcomes = set()
    for dies_at in range(count):
        for seed in range(3):
            root = tmp_path / f"{dies_at}-{seed}"
            # The first time the process alone dies, then the power goes as well.
            assert delete_and_die(root, dies_at, Random(seed) if seed else None)[0]
            with open_store(root) as store:
                assert bodies_of(store, OTHER) == OLD
                is_deleted = not store.topics.names().count(X)
                outcomes.add((is_deleted, bool(store.topics.unfinished_deletions())))
                if not is_deleted:
                    assert [bodies_of(store, X, queue_id) for queue_id in (0, 1)] == [OLD[::2], OLD[1::2]]
                    store.topics.delete(X)
                assert not (root / "consumequeue" / X).exists()
                assert not store.log.query(X, "k", 64)
                for topic in store.topics.unfinished_deletions():
                    store.topics.finish_deletion(topic)
                send(store, NEW)
                dispatch_all(store)
            shutil.rmtree(root / "consumequeue")
            with open_store(root) as store:
                assert bodies_of(store, X) == NEW
                assert not store.topics.unfinished_deletions()
            with OfflineStore(root) as closed:
                assert not closed.verify().damage
    assert outcomes == {(False, False), (True, True), (True, False)}


def test_a_start_killed_at_any_file_operation_still_finishes_the_deletion(tmp_path: Path) -> None:
    pattern = tmp_path / "pattern"
    with open_store(pattern) as store:
        send(store, OLD, queues=2)
        dispatch_all(store)
        store.flushes.flush()
        kept = tmp_path / "queues"
        shutil.copytree(pattern / "consumequeue", kept)
        store.topics.delete(X)
        send(store, NEW)
        store.abandon()
    shutil.rmtree(pattern / "consumequeue")
    shutil.copytree(kept, pattern / "consumequeue")  # the removal was not safe yet

    dies_at = 0
    while True:
        root = tmp_path / str(dies_at)
        shutil.copytree(pattern, root)
        files = DyingFiles(root)
        files.dies_at = dies_at
        try:
            open_store(root, files).abandon()
            is_killed = False
        except Killed:
            is_killed = True
        files.dies_at = 1 << 62
        files.crash(Random(dies_at))
        with open_store(root) as store:
            assert bodies_of(store, X) == NEW
            assert store.queues.ids(X) == [0]
        if not is_killed:
            break
        dies_at += 1
    assert dies_at > 5


def test_what_else_a_deletion_means_is_done_before_it_counts_as_finished(tmp_path: Path) -> None:
    def die() -> None:
        raise Killed

    store = open_store(tmp_path)
    send(store, OLD)
    with pytest.raises(Killed):
        store.topics.delete(X, die)
    store.abandon()
    store = open_store(tmp_path)
    assert store.topics.unfinished_deletions() == [X]
    store.abandon()
    store = open_store(tmp_path)
    store.topics.finish_deletion(X)
    store.abandon()
    with open_store(tmp_path) as store:
        assert not store.topics.unfinished_deletions()
