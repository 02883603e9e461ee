"""Copies of tables: an operator is promised what every broker in sync has, and only by their master."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.small_stores import small_settings

from pyromq.broker.flow.durability import Durability
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.table_copies import TableCopies
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import NOT_ELECTED, Role, RoleTable
from pyromq.clock import ManualClock
from pyromq.config.live import LiveSettings
from pyromq.errors import Refused
from pyromq.protocol.codes import REPLICA_REMARK
from pyromq.protocol.names import MASTER_ID
from pyromq.store.message_store import MessageStore

OWN, REPLICA = 1, 2
OPEN: Any = SimpleNamespace(is_open=True)


class Group:
    """A master of epoch 1 with one replica, which has all tables; then something changes."""

    def __init__(self, store: MessageStore) -> None:
        self.clock, self.role = ManualClock(), RoleTable(NOT_ELECTED)
        settings = BrokerSettings(
            controller_mode=True, controller_addr="127.0.0.1:9878", all_in_sync=True, min_in_sync_replicas=2
        )
        live = LiveSettings(settings)
        self.master = InSyncMaster(live, store, Durability(store, self.clock), self.role, self.clock)
        self.master.lead(OWN, frozenset({OWN, REPLICA}), 1)
        self.role.change(Role(MASTER_ID, 1))
        self.changes = 0
        self.copies = TableCopies(self.master, lambda: (self.changes,), lambda: 60_000)
        self.copies.heard(REPLICA, (0,), OPEN)
        self.changes = 1


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    with MessageStore.open(small_settings(tmp_path), clock=ManualClock(), start_flusher=False) as store:
        yield Group(store)


async def test_a_change_is_promised_when_the_replica_in_sync_has_it(group: Group) -> None:
    waiting = asyncio.ensure_future(group.copies.begin()())
    await asyncio.sleep(0)
    group.copies.heard(REPLICA, (1,), OPEN)
    assert await waiting is None


async def test_a_master_that_was_replaced_before_its_change_was_written_does_not_promise_it(
    group: Group,
) -> None:
    copied = group.copies.begin()
    group.role.change(Role(REPLICA, 2))
    with pytest.raises(Refused, match="no longer the master"):
        await copied()


@pytest.mark.parametrize("is_elected_again", [False, True])
async def test_a_master_that_was_replaced_promises_no_change(group: Group, is_elected_again: bool) -> None:
    waiting = asyncio.ensure_future(group.copies.begin()())
    await asyncio.sleep(0)
    group.role.change(Role(REPLICA, 2))
    if is_elected_again:
        group.master.lead(OWN, frozenset({OWN}), 3)
        group.role.change(Role(MASTER_ID, 3))
    group.copies.heard(REPLICA, (1,), OPEN)
    with pytest.raises(Refused, match="no longer the master"):
        await waiting


@pytest.mark.parametrize("is_elected_meanwhile", [False, True])
async def test_a_replica_promises_no_change_and_says_so(group: Group, is_elected_meanwhile: bool) -> None:
    group.role.change(Role(REPLICA, 2))
    copied = group.copies.begin()
    if is_elected_meanwhile:
        group.master.lead(OWN, frozenset({OWN}), 3)
        group.role.change(Role(MASTER_ID, 3))
    assert await copied() == REPLICA_REMARK


@pytest.mark.parametrize("is_of_apache", [False, True])
async def test_a_new_master_waits_for_a_replica_in_sync_that_has_not_asked_yet(
    group: Group, is_of_apache: bool
) -> None:
    other = 3
    group.master.lead(OWN, frozenset({OWN, REPLICA, other}), 2)
    group.copies.heard(REPLICA, (1,), OPEN)
    waiting = asyncio.ensure_future(group.copies.begin()())
    await asyncio.sleep(0)
    assert not waiting.done()
    if is_of_apache:  # it has come for the log, and one of ours would have asked for tables before
        assert group.master.in_sync is not None
        group.master.in_sync.reported(other, 0, 0, group.clock.monotonic())
        group.copies.heard(REPLICA, (1,), OPEN)
    else:
        group.copies.heard(other, (1,), OPEN)
    await waiting
