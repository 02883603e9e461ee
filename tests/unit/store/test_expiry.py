"""Queues that begin later than the log: by age, by size and by a purge, and after every kind of restart."""

import errno
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.faulty_files import FaultyFiles
from tests.support.small_stores import TOPIC, append, bodies_of, dispatch_all, interpreted, small_settings

from pyromq.clock import ManualClock
from pyromq.errors import StoreError
from pyromq.filesystem import Files
from pyromq.store.expiry import QueueLimit
from pyromq.store.log.log_time import CONFIRMED_AFTER_S
from pyromq.store.message_store import MessageStore
from pyromq.store.results import ReadStatus


@pytest.fixture(params=[False, True], ids=["compiled", "interpreted"], autouse=True)
def _both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    if not request.param:
        yield
        return
    with interpreted():
        yield


def open_store(root: Path, clock: ManualClock | None = None, files: Files | None = None) -> MessageStore:
    clock = clock if clock is not None else ManualClock()
    return MessageStore.open(small_settings(root), files=files, clock=clock, start_flusher=False)


def send(store: MessageStore, *bodies: bytes, topic: str = TOPIC) -> None:
    for body in bodies:
        assert append(store, body, topic=topic).is_ok
    dispatch_all(store)


BODIES = [b"message %d" % number for number in range(6)]


def kept(store: MessageStore, topic: str = TOPIC) -> int:
    """How many messages readers get; the last ones, and all that the queue says it has."""
    first = store.queues.min_offset(topic, 0)
    assert store.queues.max_offset(topic, 0) == len(BODIES)
    if first:
        below = store.read(topic, 0, first - 1)
        assert (below.status, below.next_offset) == (ReadStatus.OFFSET_TOO_SMALL, first)
    assert bodies_of(store, topic) == BODIES[first:]
    return len(BODIES) - first


# Purges


@pytest.mark.parametrize("is_clean", [True, False], ids=["closed", "crashed"])
def test_a_purge_survives_a_restart_and_leaves_other_queues_alone(tmp_path: Path, is_clean: bool) -> None:
    store = open_store(tmp_path)
    send(store, *BODIES)
    send(store, *BODIES, topic="Other")
    assert store.expiry.purge(TOPIC, 0, 4, 1) == 4
    assert kept(store) == 2
    store.flushes.flush()
    store.close() if is_clean else store.abandon()
    with open_store(tmp_path) as store:
        assert kept(store) == 2
        assert kept(store, "Other") == 6
        send(store, b"new")
        assert bodies_of(store) == [*BODIES[4:], b"new"]


def test_a_purge_that_a_replica_takes_over_before_it_has_the_queue_counts(tmp_path: Path) -> None:
    with open_store(tmp_path / "master") as master, open_store(tmp_path / "replica") as replica:
        send(master, *BODIES)
        master.expiry.purge(TOPIC, 0, 4, 1)
        replica.copying.begin()
        replica.copying.append(0, master.log.bytes_at(0, master.log.end))
        replica.expiry.copy(master.expiry.purges())
        dispatch_all(replica)
        assert kept(replica) == 2


def test_what_was_purged_after_it_had_expired_stays_away_without_the_limit(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, *BODIES)
        store.expiry.limit(TOPIC, QueueLimit(max_bytes=1))
        assert kept(store) == 1
        assert store.expiry.purge(TOPIC, 0, 5, 1) == 5
        store.expiry.limit(TOPIC, None)
        assert kept(store) == 1


def test_a_whole_queue_is_purged_and_takes_new_messages(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, *BODIES)
        assert store.expiry.purge(TOPIC, 0, -1, 1) == 6
        assert kept(store) == 0
        assert store.expiry.purge(TOPIC, 0, -1, 1) == 6
        send(store, b"new")
        assert bodies_of(store) == [b"new"]
    with open_store(tmp_path) as store:
        assert bodies_of(store) == [b"new"]


def test_a_purge_beyond_the_queue_or_of_no_queue_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, *BODIES)
        store.expiry.purge(TOPIC, 0, 2, 1)
        for offset in (1, 7):
            with pytest.raises(StoreError, match=f"has messages 2 to 6, and not {offset}"):
                store.expiry.purge(TOPIC, 0, offset, 1)
        with pytest.raises(StoreError, match="no messages in queue 9"):
            store.expiry.purge(TOPIC, 9, -1, 1)
        assert kept(store) == 4


def test_a_purge_that_the_disk_does_not_take_changes_nothing(tmp_path: Path) -> None:
    files = FaultyFiles(tmp_path)
    with open_store(tmp_path, files=files) as store:
        send(store, *BODIES)
        files.failures["write"] = errno.ENOSPC
        with pytest.raises(StoreError, match=r"cannot be purged: .*No space"):
            store.expiry.purge(TOPIC, 0, 4, 1)
        assert kept(store) == 6
        files.failures.clear()


def test_messages_that_take_the_place_of_purged_ones_in_the_log_are_readable(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, *BODIES[:3])
        end = store.log.end
        send(store, *BODIES[3:])
        store.expiry.purge(TOPIC, 0, -1, 1)
        store.cutting.cut(end)
        assert store.queues.min_offset(TOPIC, 0) == store.queues.max_offset(TOPIC, 0) == 3
        send(store, b"x", b"y")
        assert bodies_of(store) == [b"x", b"y"]
    with open_store(tmp_path) as store:
        assert bodies_of(store) == [b"x", b"y"]


def test_the_file_of_purges_goes_with_the_log_that_it_speaks_of(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        send(store, *BODIES)
        store.expiry.purge(TOPIC, 0, 4, 1)
        assert (tmp_path / "purges").exists()
        assert [(each.topic, each.log_offset) for each in store.expiry.purges()] == [
            (f"0@{TOPIC}", store.queues.log_offset(TOPIC, 0, 4))
        ]
        store.expiry._purges.forget_before(store.log.end)
        assert not (tmp_path / "purges").exists()


# Limits


def test_messages_expire_at_their_age_and_return_if_the_limit_goes(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock) as store:
        for body in BODIES:
            send(store, body)
            clock.advance(10)
        store.expiry.limit(TOPIC, QueueLimit(max_age_ms=35_000))
        assert kept(store) == 3
        clock.advance(10)
        assert kept(store) == 2
        clock.advance(100)
        assert kept(store) == 0
        store.expiry.limit(TOPIC, None)
        assert kept(store) == 6
        store.expiry.purge(TOPIC, 0, 1, 1)
        store.expiry.limit(TOPIC, QueueLimit(max_age_ms=1_000_000))
        assert kept(store) == 5


def test_a_limit_is_applied_to_what_a_pull_reads_without_asking_for_the_beginning(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock) as store:
        send(store, *BODIES)
        store.expiry.limit(TOPIC, QueueLimit(max_age_ms=5_000))
        assert store.read(TOPIC, 0, 0).message_count
        clock.advance(6)
        assert store.read(TOPIC, 0, 0).status is ReadStatus.OFFSET_TOO_SMALL


@settings(max_examples=examples(25), deadline=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 900), min_size=1, max_size=40), min_size=1, max_size=4),
    max_bytes=st.integers(1, 12_000),
)
def test_the_newest_messages_that_fit_are_kept_however_they_come(
    sizes: list[list[int]], max_bytes: int
) -> None:
    with TemporaryDirectory() as root, open_store(Path(root)) as store:
        store.expiry.limit(TOPIC, QueueLimit(max_bytes=max_bytes))
        stored: list[int] = []
        for batch in sizes:
            for size in batch:
                result = append(store, b"x" * size)
                stored.append(result.size_bytes)
            dispatch_all(store)
            first = store.queues.min_offset(TOPIC, 0)
            assert first < len(stored)
            assert sum(stored[first:]) <= max_bytes or first == len(stored) - 1
            assert first == 0 or sum(stored[first - 1 :]) > max_bytes
            assert len(bodies_of(store)) == len(stored) - first


def test_a_clock_that_may_be_wrong_at_the_start_hides_nothing(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_store(tmp_path, clock) as store:
        send(store, *BODIES)
    clock.advance(3 * 365 * 86_400)
    with open_store(tmp_path, clock) as store:
        store.expiry.limit(TOPIC, QueueLimit(max_age_ms=3_600_000))
        assert kept(store) == len(BODIES)
        clock.advance(CONFIRMED_AFTER_S)
        assert kept(store) == 0
