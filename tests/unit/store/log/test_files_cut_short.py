"""Log files that somebody cuts short while the store has them mapped."""

import os
from pathlib import Path

from tests.support.small_stores import TOPIC, append, bodies_of, dispatch_all, small_settings

from pyromq.clock import ManualClock
from pyromq.store.faults import Fault
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus

BODIES = [b"%04d" % number * 30 for number in range(100)]


def open_store(root: Path, clock: ManualClock) -> MessageStore:
    return MessageStore.open(small_settings(root), clock=clock, start_flusher=False)


def filled(root: Path, clock: ManualClock) -> MessageStore:
    store = open_store(root, clock)
    for body in BODIES:
        append(store, body)
    dispatch_all(store)
    store.flushes.flush()
    return store


def test_a_file_cut_short_is_noticed_and_named_and_nothing_is_stored_any_more(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    assert store.read(TOPIC, 0, 50).message_count, "its file is mapped"
    cut = tmp_path / "commitlog" / f"{8192:020d}"
    os.truncate(cut, 100)
    clock.advance(2)
    store.upkeep()
    assert store.faults & Fault.NOT_WRITEABLE
    reason = store.statistics().fault_reason
    assert reason.startswith(f"{cut} was truncated while in use and lost its last 8092 bytes: stop")
    refused = append(store, b"more")
    assert (refused.status, refused.reason) == (AppendStatus.SERVICE_NOT_AVAILABLE, reason)
    store.close()


def test_touching_what_was_cut_off_is_no_fault_after_it_was_noticed(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    for cut in sorted((tmp_path / "commitlog").iterdir())[:3]:
        store.log.record_at(int(cut.name))
        os.truncate(cut, 0)
    clock.advance(2)
    store.upkeep()
    for offset in range(0, 20_000, 100):
        assert store.log.record_at(offset) is None
    store.close()


def test_the_next_start_says_what_is_lost_and_keeps_the_rest(tmp_path: Path) -> None:
    clock = ManualClock()
    store = filled(tmp_path, clock)
    first = store.log.record_at(8192)
    assert first is not None
    os.truncate(tmp_path / "commitlog" / f"{8192:020d}", 0)
    clock.advance(2)
    store.upkeep()
    store.close()
    with open_store(tmp_path, clock) as store:
        (damage,) = store.recovery.damage
        assert (damage.start, damage.end) == (8192, 16384)
        bodies = bodies_of(store)
        assert len(bodies) == len(BODIES) - store.recovery.messages_missing
        assert set(bodies) < set(BODIES)
        assert 0 < store.recovery.messages_missing < 45
        assert append(store, b"next").queue_offset == len(BODIES)
