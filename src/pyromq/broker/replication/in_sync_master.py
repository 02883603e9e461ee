"""The master's side of replication under a controller: a message is confirmed when all in sync have it.

The controller promotes only replicas in sync, so a confirmed message survives its master. A master that waits
for no replica, because it is alone in sync or because the settings say so, confirms only while it holds its
lease: a master that was replaced confirms nothing.

Replicas of a new master are in sync a moment later. Until then senders wait for their answer, and are not
refused: a refused sender would have to guess when to try again.
"""

import asyncio
import logging
from typing import cast

from pyromq.broker.flow.durability import Durability
from pyromq.broker.replication.epoch_replica_link import EpochReplicaLink
from pyromq.broker.replication.in_sync_set import InSyncSet
from pyromq.broker.replication.lease import Lease
from pyromq.broker.replication.master import Master
from pyromq.broker.replication.replica_link import ReplicaLink
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.role import Role, RoleTable
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.store.message_store import MessageStore

_log = logging.getLogger(__name__)

_SPREAD_S = 0.01
_PATIENCE_S = 1.0
"""So long a new master lets senders wait for its first replicas."""


class InSyncMaster(Master):
    def __init__(
        self,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        durability: Durability,
        role: RoleTable,
        clock: Clock,
    ) -> None:
        self.lease = Lease(clock, live.now.controller_timeout_ms / 1000)
        self.in_sync: InSyncSet | None = None
        """None on a replica."""
        self.confirmed = 0
        self._role = role
        self._own_id = -1
        self._wanted = asyncio.Event()
        self._spreading: asyncio.TimerHandle | None = None
        self._patient_until = float("-inf")
        durability.hide_unconfirmed()  # another master may not have it
        super().__init__(live, store, durability, role, clock)
        durability.on_progress(self._tell_durability)

    # What the session does

    def lead(self, own_id: int, members: frozenset[int], version: int) -> None:
        """This broker is about to be the master of an epoch that begins at the end of its log."""
        self._own_id = own_id
        now = self._clock.monotonic()
        self.in_sync = InSyncSet(own_id, members, version, self._store.log.end, now)
        self.confirmed = 0
        self._patient_until = now + _PATIENCE_S
        self._durability.hide_unconfirmed()  # its queues have all of its log, and another one may lack it
        self.lease.doubt()

    def controller_says(self, members: frozenset[int], version: int, *, is_answer: bool = False) -> None:
        """The set of this epoch that counts. `is_answer`: it is the one that this broker has proposed."""
        in_sync = self.in_sync
        if in_sync is None or version <= in_sync.version:
            return
        if in_sync.members != members:
            _log.info("in sync: %s version=%d", sorted(members), version)
        in_sync.confirmed_by_controller(members, version, is_answer=is_answer)
        if not is_answer:
            for link in list(self._links):
                replica = cast(EpochReplicaLink, link)
                if replica.greeting is not None and replica.broker_id not in members:
                    link.close("a broker has registered, perhaps this one after a restart", logging.INFO)
        self.look()

    def wanted_set(self) -> frozenset[int] | None:
        """The set that the controller should confirm; None if its set is right."""
        if self.in_sync is None:
            return None
        max_behind_s = self._live.now.replica_max_behind_ms / 1000
        wanted = self.in_sync.propose(
            self._store.log.end, self._clock.monotonic(), max_behind_s, self.has_tables
        )
        self.look()
        return wanted

    async def wait_for_news(self, timeout_s: float) -> None:
        """Return when the set may have to change, or after the time-out."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._wanted.wait()
        except TimeoutError:
            return
        finally:
            self._wanted.clear()

    # Settings and role

    def _apply_settings(self, settings: BrokerSettings) -> None:
        self._replicas = settings.in_sync_replicas - 1
        """Number of replicas that must have a message, besides all in sync."""
        self._waits = settings.all_in_sync or self._replicas > 0
        self._min_in_sync = settings.min_in_sync_replicas
        super()._apply_settings(settings)

    def wants_tables_at(self, broker_id: int, *, is_watching: bool) -> bool:
        return self._is_master and self.in_sync is not None and broker_id in self.in_sync.awaited

    @property
    def expected(self) -> frozenset[int]:
        return self.in_sync.expected if self._is_master and self.in_sync is not None else frozenset()

    @property
    def reign(self) -> object | None:
        return self.in_sync

    def tables_copied(self, broker_id: int) -> None:
        if self.in_sync is not None and broker_id not in self.in_sync.members:
            self._wanted.set()

    @property
    def acknowledges_alone(self) -> bool:
        return not self._waits

    def _role_changed(self, role: Role) -> None:
        if role == self._last_role:
            return
        self._last_role = role
        self._is_master = role.is_master
        for link in list(self._links):
            if not (role.is_master and cast(EpochReplicaLink, link).answer_late()):
                # Replicas must see the new epochs.
                link.close(f"epoch {role.epoch} has begun", logging.INFO)
        self._durability.give_up()
        if role.is_master:
            self.look()
        else:
            self.in_sync = None
            self._durability.replicated(self.confirmed)

    _last_role: Role | None = None

    # The watermark

    def _tell_durability(self) -> None:
        # With synchronous flush what it has not flushed itself is not confirmed, whoever else has it.
        in_sync, end = self.in_sync, self._store.dispatch_limit
        if in_sync is None or not self._is_master:
            return
        if len(in_sync.certain) < self._min_in_sync:
            end = min(end, max(self.confirmed, in_sync.epoch_start))
        confirmed = in_sync.confirm(end)
        if self._waits:
            reported = sorted((each.offset for each in in_sync.reports.values()), reverse=True)
            counts = [end, *reported, *[0] * self._replicas]
            offset = min(confirmed, counts[self._replicas])
        else:
            offset = end
        if self._is_alone(in_sync) and not self.lease.is_held:
            offset = self.confirmed
        if offset > self.confirmed or self._durability.replicated_offset != self.confirmed:
            self.confirmed = max(offset, self.confirmed)
            self._durability.replicated(self.confirmed)
            if self._links and self._spreading is None:
                self._spreading = asyncio.get_running_loop().call_later(_SPREAD_S, self._spread)

    def _spread(self) -> None:
        """Tell replicas what is confirmed, unless they heard it with what was sent since."""
        self._spreading = None
        for link in self._links:
            if cast(EpochReplicaLink, link).told_confirmed < self.confirmed:
                link.beat()

    def _is_alone(self, in_sync: InSyncSet) -> bool:
        """Whether no other broker proves, by what it acknowledges, that this one is still the master."""
        return not self._waits or in_sync.awaited == {self._own_id}

    def master_confirms(self, offset: int) -> None:
        """On a replica: its master says up to where readers may see the log."""
        self.confirmed = offset
        self._durability.replicated(offset)

    def look(self) -> None:
        """Bar senders, or let them in again: by the lease, and by the number of brokers in sync."""
        in_sync = self.in_sync
        if in_sync is None or not self._is_master:
            return
        reason = ""
        if self._is_alone(in_sync) and not self.lease.is_held:
            reason = "this master accepts no messages: it has lost its controller and may have been replaced"
        elif len(in_sync.certain) < self._min_in_sync:
            reason = (
                f"in-sync replicas not enough: {len(in_sync.certain)} brokers are in sync,"
                f" minInSyncReplicas is {self._min_in_sync}"
            )
        if not reason:
            self._patient_until = float("-inf")
        elif self._clock.monotonic() < self._patient_until:
            reason = ""  # What is sent meanwhile is confirmed when it may be.
        self._role.bar(reason)
        self._tell_durability()

    # The links

    def _make_link(self) -> ReplicaLink:
        return EpochReplicaLink(self, self._store, self._clock, self.new_hello())

    _serves_early = True
    """A replica may hear of its new master before that hears of it: it gets its answer then."""

    def greeted(self, link: EpochReplicaLink) -> bool:
        for each in list(self._links):
            if each is not link and cast(EpochReplicaLink, each).broker_id == link.broker_id:
                each.close("it has connected again", logging.INFO)
                if self.in_sync is not None:
                    self.in_sync.lost(link.broker_id)  # it may have restarted with less
        return self._is_master

    def acknowledged(self, link: ReplicaLink) -> None:
        replica = cast(EpochReplicaLink, link)
        in_sync, end = self.in_sync, self._store.log.end
        if in_sync is None or replica.is_learner or not replica.is_started:
            return
        in_sync.reported(replica.broker_id, replica.acknowledged, end, self._clock.monotonic())
        if replica.broker_id not in in_sync.members:
            self._wanted.set()
        self._tell_durability()

    def lost(self, link: ReplicaLink) -> None:
        super().lost(link)
        broker_id = cast(EpochReplicaLink, link).broker_id
        others = [cast(EpochReplicaLink, each).broker_id for each in self._links]
        if self.in_sync is not None and broker_id not in others:
            self.in_sync.lost(broker_id)
            self._wanted.set()

    def is_in_sync(self, link: ReplicaLink) -> bool:
        return self.in_sync is not None and cast(EpochReplicaLink, link).broker_id in self.in_sync.members

    async def close(self) -> None:
        if self._spreading is not None:
            self._spreading.cancel()
        self.in_sync = None  # replicas that are hung up on stay in sync: one of them shall be master
        await super().close()

    def pump(self) -> None:
        super().pump()
        if self.in_sync is not None and self._is_alone(self.in_sync):
            self._tell_durability()

    def tick(self) -> None:
        super().tick()
        self.look()
