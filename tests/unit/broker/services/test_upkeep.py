"""Upkeep: a store that was in trouble goes on by itself."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.loop import turn_until
from tests.support.small_stores import STORE_HOST, TOPIC, append, bodies_of, small_settings

from pyromq.broker.flow.appending import Appending
from pyromq.broker.flow.durability import Durability
from pyromq.broker.services.upkeep import Upkeep
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.broker.tables.statistics import Statistics
from pyromq.clock import ManualClock
from pyromq.store.message_store import MessageStore
from pyromq.store.results import QueueAdvance
from pyromq.store.retention import Retention


def upkeep(
    store: MessageStore, clock: ManualClock, on_advance: Callable[[QueueAdvance], None] = lambda _: None
) -> Upkeep:
    appending = Appending(store, STORE_HOST, Durability(store, clock), RoleTable(Role()), clock)
    appending.on_advance(on_advance)
    return Upkeep(store, appending, Statistics(clock), QueueLocks(), clock, lambda _: None)


async def test_what_a_full_disk_kept_from_the_queues_follows_without_a_new_message(tmp_path: Path) -> None:
    files, clock = FaultyFiles(tmp_path), ManualClock()
    store = MessageStore.open(small_settings(tmp_path), files=files, clock=clock, start_flusher=False)
    append(store, b"accepted")
    files.failures["create"] = errno.ENOSPC
    store.dispatch()
    assert store.faults
    files.failures.clear()
    clock.advance(1.1)
    carried = asyncio.Event()
    running = asyncio.create_task(upkeep(store, clock, lambda _: carried.set()).run())
    await asyncio.wait_for(carried.wait(), 60)
    running.cancel()
    assert bodies_of(store) == [b"accepted"]
    store.close()


async def test_files_that_cannot_be_removed_are_told_of_and_nothing_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    store = MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False)
    told = asyncio.Event()

    def refuse(*_: object, **__: object) -> None:
        told.set()
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Retention, "_remove_segments", refuse)
    monkeypatch.setattr(Retention, "_is_hour_to_delete", lambda _: True)
    running = asyncio.create_task(upkeep(store, clock).run())
    await asyncio.wait_for(told.wait(), 60)
    assert not running.done()
    assert "expired files could not be removed: [Errno 30] Read-only file system" in caplog.text
    running.cancel()
    store.close()


async def test_a_clock_that_was_set_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    store = MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False)
    running = asyncio.create_task(upkeep(store, clock).run())
    clock.set_ahead(-7200)
    await turn_until(lambda: "the clock is 2 hours behind the time of the log" in caplog.text)
    clock.set_ahead(7200 + 5 * 86_400)
    await turn_until(lambda: "the clock jumped ahead by 5 days" in caplog.text)
    running.cancel()
    assert len(caplog.records) == 2
    store.close()


async def test_damage_that_was_mended_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    store = MessageStore.open(small_settings(tmp_path), clock=clock, start_flusher=False)
    append(store, b"one")
    store.dispatch()
    queue = store.queues.find(TOPIC, 0)
    assert queue is not None
    buffer, position = queue.place(0)
    buffer[position : position + 20] = bytes(20)
    assert bodies_of(store) == [b"one"]
    woken = asyncio.Event()
    running = asyncio.create_task(upkeep(store, clock, lambda _: woken.set()).run())
    await asyncio.wait_for(woken.wait(), 60)
    running.cancel()
    assert f"damage in the store: queue {TOPIC}/0: unit 0 points to log offset 0, size 0" in caplog.text
    store.close()
