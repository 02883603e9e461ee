"""A short disk: what groups lose is told, or kept if the operator wants that."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.faulty_files import FaultyFiles
from tests.support.loop import turn_until
from tests.support.small_stores import TOPIC, append, dispatch_all, small_settings

from pyromq.broker.services.unread import Unread
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.clock import ManualClock
from pyromq.filesystem import Space
from pyromq.remoting.slices import Slices
from pyromq.store.json_table import JsonTable
from pyromq.store.message_store import MessageStore


@dataclass
class World:
    store: MessageStore
    files: FaultyFiles
    offsets: OffsetTable
    unread: Unread

    def clean(self) -> None:
        self.unread.cleaned(self.store.clean())


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    files, clock = FaultyFiles(tmp_path), ManualClock()
    settings = small_settings(
        tmp_path,
        file_reserved_hours=72,
        disk_clean_forcibly_percent=85,
        disk_warning_percent=90,
        delete_batch_max=3,
    )
    store = MessageStore.open(settings, files=files, clock=clock, start_flusher=False)
    for number in range(300):
        assert append(store, b"%d" % number * 100).is_ok
    dispatch_all(store)
    store.flushes.flush()
    offsets = OffsetTable(JsonTable(files, tmp_path / "offsets.json"), clock)
    unread = Unread(store, offsets, Slices(clock))
    running = asyncio.create_task(unread.run())
    yield World(store, files, offsets, unread)
    running.cancel()
    store.close()


async def test_a_full_disk_tells_how_many_messages_each_group_lost(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.offsets.commit("behind", TOPIC, 0, 1)
    world.offsets.commit("ahead", TOPIC, 0, 300)
    world.files.space_now = Space(100, 5, False)
    world.clean()
    first_left = world.store.queues.min_offset(TOPIC, 0)
    assert first_left > 1
    await turn_until(lambda: "messages lost by groups" in caplog.text)
    assert f"messages lost by groups that had not read them: behind {first_left - 1}\n" in caplog.text
    assert "the disk is 95 % full" in caplog.text
    assert f"log offsets 0 to {world.store.log.start};" in caplog.text
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    world.clean()
    second_left = world.store.queues.min_offset(TOPIC, 0)
    await turn_until(lambda: "messages lost by groups" in caplog.text)
    assert f"had not read them: behind {second_left - first_left}\n" in caplog.text


async def test_the_oldest_unread_message_of_all_groups_is_found(world: World) -> None:
    assert await world.unread.first_place() == world.store.log.end
    world.offsets.commit("up to date", TOPIC, 0, 300)
    assert await world.unread.first_place() == world.store.log.end
    world.offsets.commit("behind", TOPIC, 0, 200)
    world.offsets.commit("far behind", TOPIC, 0, 100)
    assert await world.unread.first_place() == world.store.queues.log_offset(TOPIC, 0, 100)


async def test_a_broker_that_keeps_unread_messages_says_why_the_disk_stays_full(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.offsets.commit("far behind", TOPIC, 0, 0)
    world.store.apply_settings(world.store.settings.updated({"keepUnreadMessages": "true"}))
    world.files.space_now = Space(100, 5, False)
    world.clean()
    world.clean()
    assert world.store.queues.min_offset(TOPIC, 0) == 0
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "new messages are refused above 90 %" in caplog.text
    world.offsets.commit("far behind", TOPIC, 0, 300)
    world.store.keep_unread_from(await world.unread.first_place())
    world.clean()
    assert world.store.queues.min_offset(TOPIC, 0) > 0


async def test_a_warning_says_that_a_full_disk_waits_for_the_tier(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.store.keep_until_uploaded(0)
    world.store.clean(on_demand=True)
    world.clean()
    assert not caplog.records
    world.files.space_now = Space(100, 5, False)
    world.clean()
    world.clean()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "the lake tier has no copy of them yet (tierRequired=true)" in caplog.text
