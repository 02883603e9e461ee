"""What must hold: always, looked at every 50 ms of virtual time, and at the end, when all is quiet.

An invariant looks into the objects of the servers, without a message and without a step of theirs.
"""

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tests.simulation.cluster import BROKER_PORT, Server, SimulatedCluster
from tests.simulation.contents import Contents, differences
from tests.simulation.recording import Recorder

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.controller.groups import BrokerGroup
from pyromq.controller.settings import ControllerSettings
from pyromq.protocol.names import SCHEDULE_TOPIC
from pyromq.store.filenames import offset_name

if TYPE_CHECKING:
    from tests.simulation.loads.load import RunningLoad

LOOK_S = 0.05
_ETCD_LEASE_S = ControllerSettings().etcd_lease_seconds


class Always:
    """Runs beside everything else, until it is cancelled."""

    def __init__(
        self, cluster: SimulatedCluster, recorder: Recorder, loads: Sequence["RunningLoad"] = ()
    ) -> None:
        self._cluster = cluster
        self._loads = loads
        self._recorder = recorder
        self._masters: dict[int, str] = {}
        """By epoch: who was its master."""
        self._flushed: dict[Broker, int] = {}
        self._decided = (0, 0)
        self._elected: int | None = None
        """The last master that the controller chose."""
        self._confirmed: dict[int, int] = {}
        """By epoch: up to where the log is confirmed."""

    async def run(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        cluster = self._cluster
        running = [(each, broker) for each in cluster.brokers if (broker := cluster.broker(each)) is not None]
        for server, broker in running:
            self._check_master(server, broker)
            self._check_flushed(server, broker)
            if broker.role.now.is_master:
                self._check_offsets(server, broker)
        self._check_leaders()
        group = cluster.recorded_group()
        if group is not None:
            self._check_decisions(group)
            self._check_confirmed(group)
        for load in self._loads:
            load.look()

    def _check_master(self, server: Server, broker: Broker) -> None:
        role = broker.role.now
        if not role.is_master or not role.epoch:
            return
        name = server.host.name
        known = self._masters.get(role.epoch)
        if known is None:
            self._masters[role.epoch] = name
            self._recorder.event("master", f"{name} {role.epoch}")
        elif known != name:
            self._recorder.violation("two masters", f"{known} and {name} in epoch {role.epoch}")

    def _check_flushed(self, server: Server, broker: Broker) -> None:
        """What was declared safe last is on the disk."""
        store = broker.store
        end, checked = store.flushed_offset, self._flushed.get(broker, 0)
        if end <= checked:
            return
        self._flushed[broker] = end
        size = store.settings.log_segment_bytes
        first = (end - 1) // size * size
        start = max(first, checked, store.log_start)
        file = server.disk.content.live.get(store.paths.commit_log / offset_name(first))
        safe = file.content[start - first : end - first] if file is not None else b""
        if safe != bytes(store.log_bytes(start, end - start)):
            self._recorder.violation(
                "flushed, but not on disk", f"{server.host.name}: the log from {start} to {end}"
            )

    def _check_leaders(self) -> None:
        """A controller stops leading before etcd gives its lease away, unless etcd has lost everything."""
        cluster = self._cluster
        leading = [each.host.name for each in cluster.leading()]
        if len(leading) > 1 and cluster.loop.time() > cluster.wiped_s + _ETCD_LEASE_S:
            self._recorder.violation("two controllers lead", " and ".join(leading))

    def _check_decisions(self, group: BrokerGroup) -> None:
        """A group without a record, because the store was lost, returns with an epoch above all others."""
        now = group.master_epoch, group.sync_set_epoch
        if group.is_without_data and self._cluster.wiped_s:
            return
        if now < self._decided:
            self._recorder.violation("a decision was undone", f"epoch and version {self._decided}, now {now}")
        self._decided = now
        if group.master_id not in (None, self._elected):
            self._recorder.totals.failovers += self._elected is not None
            self._elected = group.master_id

    def _check_confirmed(self, group: BrokerGroup) -> None:
        """What the present master has confirmed is at every broker that may follow it."""
        cluster = self._cluster
        master = cluster.master()
        broker = cluster.broker(master) if master is not None else None
        if master is None or broker is None or group.master_epoch != broker.role.now.epoch:
            return
        side = broker.replication.master
        confirmed = side.confirmed if isinstance(side, InSyncMaster) else 0
        if confirmed < self._confirmed.get(group.master_epoch, 0):
            self._recorder.violation(
                "confirmed went back",
                f"epoch {group.master_epoch}: {self._confirmed[group.master_epoch]}, now {confirmed}",
            )
        self._confirmed[group.master_epoch] = confirmed
        in_sync = {group.replicas[each].address for each in group.sync_set}
        for server in cluster.brokers:
            other = cluster.broker(server)
            is_in_sync = f"{server.host.address}:{BROKER_PORT}" in in_sync
            if not is_in_sync or other is None or other.role.now.epoch != group.master_epoch:
                continue
            if other.store.log_end < confirmed:
                self._recorder.violation(
                    "confirmed without a copy",
                    f"{master.host.name} has confirmed {confirmed}; {server.host.name} is in sync and its log"
                    f" ends at {other.store.log_end}",
                )

    def _check_offsets(self, server: Server, broker: Broker) -> None:
        """No position is behind the end of its queue on the same broker."""
        for what, offset, end in positions_ahead(broker):
            self._recorder.violation(
                "a position ahead of its queue", f"{server.host.name}: {what} is {offset}, the end {end}"
            )


def positions_ahead(broker: Broker) -> Iterator[tuple[str, int, int]]:
    """Positions of groups and of delays that are further than the queue: what, where, the end."""
    parts = broker._started
    store, tables = parts.store, parts.tables
    for topic, group in tables.offsets.pairs():
        for queue_id, offset in tables.offsets.queues(group, topic).items():
            end = store.next_offset(topic, queue_id)
            if offset > end:
                yield f"the offset of {group} in {topic} {queue_id}", offset, end
    for level, offset in tables.delay_offsets.all().items():
        end = store.next_offset(SCHEDULE_TOPIC, level - 1)
        if offset > end:
            yield f"the progress of delay level {level}", offset, end


def at_the_end(cluster: SimulatedCluster, contents: list[Contents]) -> Iterator[tuple[str, str]]:
    """The violations, when everything has healed and is quiet: short name, what is wrong."""
    for one, other in itertools.combinations(contents, 2):
        for sentence in differences(one, other):
            yield "logs differ", sentence
        if one.store.log_end != other.store.log_end:
            ends = f"{one.broker} {one.store.log_end}, {other.broker} {other.store.log_end}"
            yield "logs end at different places", ends
    for each in contents:
        for sentence in each.damage:
            yield "damage in a log", sentence
        for sentence in each.queue_problems():
            yield "a queue differs from its log", sentence
    for server in cluster.servers:
        # A front does not start without a name server.
        for sentence in server.failed_starts if server is not cluster.front else ():
            yield "a server did not start", sentence
        for sentence in server.ended:
            yield "a server ended by itself", sentence
