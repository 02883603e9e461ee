"""A new master: its senders wait for the first replica in sync, and are refused only if none comes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from tests.support.fake_transport import FakeTransport
from tests.support.small_stores import append, small_settings

from pyromq.broker.flow.durability import Durability
from pyromq.broker.replication.epoch_replica_link import EpochReplicaLink
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import NOT_ELECTED, Role, RoleTable
from pyromq.clock import ManualClock
from pyromq.config.live import LiveSettings
from pyromq.protocol.epoch_replication import MasterGreeting, MasterReader, ReplicaGreeting, encode_report
from pyromq.protocol.names import MASTER_ID
from pyromq.store.message_store import MessageStore
from pyromq.store.results import AppendStatus

REPLICA = 2


class Group:
    """A broker that may become the master, and the replicas that connect to it."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.role = RoleTable(NOT_ELECTED)
        self.durability = Durability(store, self.clock)
        settings = BrokerSettings(
            controller_mode=True, controller_addr="127.0.0.1:9878", all_in_sync=True, min_in_sync_replicas=2
        )
        self.master = InSyncMaster(LiveSettings(settings), store, self.durability, self.role, self.clock)
        self.answers: list[AppendStatus] = []

    def elect(self, epoch: int = 1) -> None:
        """As the session does it."""
        self.store.begin_epoch(epoch)
        self.master.lead(1, frozenset({1}), epoch)
        self.role.change(Role(MASTER_ID, epoch))
        self.hold_lease()

    def hold_lease(self) -> None:
        lease = self.master.lease
        lease.renew(self.clock.since_boot())
        lease.confirm(lease.ask())
        self.master.look()

    def send(self) -> None:
        """One message; its answer comes to `answers`."""
        assert not self.role.barrier, "refused"
        self.durability.when_safe(append(self.store, b"0"), self.answers.append)
        self.master.pump()

    def is_readable(self) -> bool:
        return self.durability.is_readable

    def connect(self) -> tuple[EpochReplicaLink, FakeTransport]:
        link = cast(EpochReplicaLink, self.master._make_link())
        transport = FakeTransport(link)
        link.connection_made(transport)
        link.data_received(ReplicaGreeting(REPLICA).encode())
        return link, transport

    def report(self, link: EpochReplicaLink) -> None:
        """The replica has everything, and the controller confirms the set that follows from it."""
        link.data_received(encode_report(self.store.log.end))
        wanted, in_sync = self.master.wanted_set(), self.master.in_sync
        if wanted is not None and in_sync is not None:
            self.master.controller_says(wanted, in_sync.version + 1, is_answer=True)


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    with MessageStore.open(small_settings(tmp_path)) as store:
        made = Group(store)
        yield made
        await made.master.close()


def greetings(transport: FakeTransport) -> list[MasterGreeting]:
    said = MasterReader().feed(b"".join(transport.writes))
    return [each for each in said if isinstance(each, MasterGreeting)]


async def test_what_is_sent_before_a_replica_is_in_sync_is_acknowledged_when_it_is(group: Group) -> None:
    group.elect()
    group.send()
    assert group.answers == []  # the lease is held, but one broker is not two
    link, _ = group.connect()
    group.report(link)
    group.send()
    assert group.answers == [AppendStatus.PUT_OK]
    link.data_received(encode_report(group.store.log.end))
    assert group.answers == [AppendStatus.PUT_OK] * 2


async def test_senders_are_refused_when_no_replica_comes(group: Group) -> None:
    group.elect()
    group.clock.advance(1.5)
    group.hold_lease()
    assert group.role.barrier.startswith("in-sync replicas not enough: 1 brokers are in sync")


async def test_a_replica_that_comes_in_sync_lets_senders_in_at_once(group: Group) -> None:
    group.elect()
    group.clock.advance(1.5)
    group.hold_lease()
    assert group.role.barrier
    link, _ = group.connect()
    group.report(link)
    assert not group.role.barrier  # without a tick


async def test_a_replica_counts_as_in_sync_only_when_the_controller_says_so(group: Group) -> None:
    """It may refuse, and then a single broker has what was acknowledged."""
    group.elect()
    link, _ = group.connect()
    link.data_received(encode_report(group.store.log.end))
    assert group.master.wanted_set() == frozenset({1, REPLICA})
    group.send()
    link.data_received(encode_report(group.store.log.end))
    assert group.answers == []
    group.clock.advance(1.5)
    group.hold_lease()
    assert group.role.barrier.startswith("in-sync replicas not enough: 1 brokers are in sync")
    group.master.controller_says(frozenset({1, REPLICA}), 2, is_answer=True)
    assert not group.role.barrier
    assert group.answers == [AppendStatus.PUT_OK]


async def test_a_replica_connects_anew_when_it_may_have_restarted(group: Group) -> None:
    """It has registered, but its old connection is open as far as the master knows."""
    group.elect()
    link, transport = group.connect()
    link.data_received(encode_report(group.store.log.end))
    group.master.controller_says(frozenset({1}), 2)
    assert transport.is_aborted
    assert group.master.wanted_set() is None


async def test_a_replica_that_connects_again_counts_with_what_it_reports_then(group: Group) -> None:
    """It may have restarted with less, before its old connection was missed."""
    group.elect()
    group.send()
    first, _ = group.connect()
    first.data_received(encode_report(group.store.log.end))
    second, _ = group.connect()
    second.data_received(encode_report(0))
    assert group.master.in_sync is not None
    assert [each.offset for each in group.master.in_sync.reports.values()] == [0]
    assert group.master.wanted_set() is None


async def test_members_of_the_set_stay_connected_when_a_broker_registers(group: Group) -> None:
    group.elect()
    link, transport = group.connect()
    group.report(link)
    group.master.controller_says(frozenset({1, REPLICA}), 9)
    assert not transport.is_aborted


async def test_a_master_that_loses_its_last_replica_later_refuses_at_once(group: Group) -> None:
    group.elect()
    link, _ = group.connect()
    group.report(link)
    group.send()
    link.connection_lost(None)
    assert group.master.wanted_set() == frozenset({1})
    group.master.controller_says(frozenset({1}), 3)
    assert group.role.barrier.startswith("in-sync replicas not enough")
    assert group.answers == []  # nor is acknowledged what had been accepted before


async def test_what_is_older_than_the_epoch_is_readable_without_a_second_broker(group: Group) -> None:
    append(group.store, b"0")
    group.elect()
    start = group.store.log.end
    group.send()
    assert group.durability.replicated_offset == start < group.store.log.end


async def test_with_synchronous_flush_nothing_is_confirmed_before_the_master_has_flushed_it(
    tmp_path: Path,
) -> None:
    """Replicas have flushed it, but the master may lose power and be elected again."""
    settings = small_settings(tmp_path, flush_disk_type="SYNC_FLUSH")
    with MessageStore.open(settings, start_flusher=False) as store:
        group = Group(store)
        group.elect()
        link, _ = group.connect()
        group.report(link)
        flushed = store.flushes.offset
        group.send()
        link.data_received(encode_report(store.log.end))
        assert group.durability.replicated_offset == group.master.confirmed == flushed < store.log.end
        store.flushes.flush_log()
        await asyncio.sleep(0)  # the flusher tells the loop
        assert group.durability.replicated_offset == group.master.confirmed == store.log.end
        assert group.answers == [AppendStatus.PUT_OK]
        await group.master.close()


async def test_a_replica_that_comes_before_the_election_is_answered_after_it(group: Group) -> None:
    link, transport = group.connect()
    assert transport.writes == []
    group.elect(7)
    assert [each.epochs for each in greetings(transport)] == [((7, 0),)]
    group.report(link)
    group.send()
    link.data_received(encode_report(group.store.log.end))
    assert group.answers == [AppendStatus.PUT_OK]


async def test_a_replica_that_reports_before_it_was_answered_is_disconnected(group: Group) -> None:
    link, transport = group.connect()
    link.data_received(encode_report(0))
    assert transport.is_aborted


@pytest.mark.parametrize("next_role", [Role(MASTER_ID, 2), Role(1, 2)])
async def test_a_replica_that_has_heard_older_epochs_connects_anew(group: Group, next_role: Role) -> None:
    group.elect()
    link, transport = group.connect()
    group.report(link)
    group.role.change(next_role)
    assert transport.is_aborted


async def test_a_replica_that_waits_is_sent_away_when_another_broker_is_elected(group: Group) -> None:
    _, transport = group.connect()
    group.role.change(Role(1, 1))
    assert transport.is_aborted


async def test_only_what_cannot_be_cut_off_is_sent_from_the_files(group: Group) -> None:
    group.elect()
    link, _ = group.connect()
    group.report(link)
    group.send()
    group.report(link)
    end = group.store.log.end
    group.send()
    assert link._fixed_end == group.master.confirmed == end < group.store.log.end


async def test_readers_of_a_new_master_see_nothing_until_its_log_is_confirmed(group: Group) -> None:
    group.elect()
    link, _ = group.connect()
    group.report(link)
    assert group.is_readable()
    append(group.store, b"0")
    group.store.dispatch(1 << 20, group.store.log.end)  # as a replica does that is about to lead
    group.master.lead(1, frozenset({1, REPLICA}), 3)
    group.role.change(Role(MASTER_ID, 2))
    assert not group.is_readable(), "the other one may become master, and lack the message"
    link, _ = group.connect()
    group.report(link)
    assert group.is_readable()
