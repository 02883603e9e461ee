"""What a controller decides and masters confirm, looked at after every turn of the loop that changed it.

Whoever may be the next master has what the present one has confirmed, and only the controller says who may.
"""

from tests.simulation.cluster import BROKER_NAME, BROKER_PORT, Server, SimulatedCluster
from tests.simulation.contents import first_difference
from tests.simulation.recording import Recorder

from pyromq.broker.broker import Broker
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.controller.controller import Controller
from pyromq.controller.groups import GroupRecord
from pyromq.controller.journal import MAGIC, replay
from pyromq.controller.settings import ControllerSettings

_ETCD_LEASE_S = ControllerSettings().etcd_lease_seconds
_PROPOSAL_S = 25.0


class _Side:
    """A broker as a master, in the process that it runs in now."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.broker: Broker | None = None
        """It may still be starting."""
        self.side: InSyncMaster | None = None
        self.confirmed = -1

    def look(self) -> None:
        broker = self.server.latest
        if not isinstance(broker, Broker) or broker._parts is None:
            broker = None
        if broker is not self.broker:
            self.broker = broker
            side = broker.replication.master if broker is not None else None
            self.side, self.confirmed = side if isinstance(side, InSyncMaster) else None, -1

    def master(self) -> Broker | None:
        """The broker if it is a master now."""
        self.look()
        return self.broker if self.broker is not None and self.broker.role.now.is_master else None


class GroupRules:
    def __init__(self, cluster: SimulatedCluster, recorder: Recorder) -> None:
        self._cluster = cluster
        self._recorder = recorder
        self.group: GroupRecord | None = None
        """What the controller has decided last; it holds also while the controller is down."""
        self._confirmed: dict[int, int] = {}
        """By epoch: up to where the log is confirmed."""
        self._reached = 0
        self._compared = 0
        """Up to where the logs in sync had the same bytes when they were confirmed."""
        # A bit that flips at rest may flip between the copy and the confirmation; the end of a run is judged.
        self._has_damage = any(fault.kind == "damage" for fault in cluster.plan.faults)
        self._sides = [_Side(server) for server in cluster.brokers]
        self._journal = b""
        """As it was at the last decision."""
        self._elected: int | None = None
        """The last master that the controller chose."""
        self._doubtful_since: dict[Server, float] = {}

    def after_turn(self) -> None:
        group = self._cluster.recorded_group()
        if group is not self.group and group is not None:
            self._decided(group)
        for each in self._sides:
            each.look()
            side = each.side
            if side is not None and side.confirmed != each.confirmed:
                each.confirmed = side.confirmed
                if (broker := each.master()) is not None:
                    self._reached = max(self._reached, side.confirmed)
                    self._has_confirmed(each.server, broker, side.confirmed)

    @property
    def reached(self) -> int:
        """Up to where any master has confirmed the log so far."""
        confirmed = (each.side.confirmed for each in self._sides if each.master() and each.side is not None)
        self._reached = max(self._reached, *confirmed, 0)
        return self._reached

    def look(self) -> None:
        """Every now and then, also if nothing seems to have changed."""
        for each in self._sides:
            if (broker := each.master()) is not None and (side := each.side) is not None:
                self._has_confirmed(each.server, broker, side.confirmed)
                self._check_lease(each.server, broker, side)
                self._check_proposals(each.server, side)
        self._check_leaders()

    def _check_leaders(self) -> None:
        """A controller stops leading before etcd gives its lease away, unless etcd has lost everything."""
        cluster = self._cluster
        leading = [each.host.name for each in cluster.leading()]
        if len(leading) > 1 and cluster.loop.time() > cluster.wiped_s + _ETCD_LEASE_S:
            self._violation("two controllers lead", " and ".join(leading))

    # The controller

    def _decided(self, group: GroupRecord) -> None:
        if group.is_without_data and self._cluster.wiped_s:
            return  # it returns with an epoch above all others
        before, self.group = self.group, group
        self._check_journal(group)
        if group.master_id not in (None, self._elected):
            self._recorder.totals.failovers += self._elected is not None
            self._elected = group.master_id
        if before is None or before == group:
            return
        now, then = (group.master_epoch, group.sync_set_epoch), (before.master_epoch, before.sync_set_epoch)
        if now < then:
            self._violation("a decision was undone", f"epoch and version {then}, now {now}")
        elif group.master_epoch > before.master_epoch and group.master_id is not None:
            is_wiped = bool(self._cluster.wiped_s)
            if group.master_id not in before.sync_set and not before.is_without_data and not is_wiped:
                text = f"broker {group.master_id} of {sorted(before.sync_set)} in epoch {group.master_epoch}"
                self._violation("a master that was not in sync", text)
        for number, replica in group.replicas.items():
            known = before.replicas.get(number)
            has_started = known is not None and replica.incarnation != known.incarnation
            if has_started and now == then:
                text = f"broker {number} has started, the version is still {group.sync_set_epoch}"
                self._violation("a start does not end proposals", text)
        for each in self._sides:
            if (broker := each.master()) is not None and each.side is not None:
                self._check_lease(each.server, broker, each.side)

    def _check_journal(self, group: GroupRecord) -> None:
        """What counts as decided survives a loss of power."""
        if self._cluster.etcd is not None or not self._cluster.controllers:
            return
        controller = self._cluster.controllers[0]
        program = controller.program
        if not isinstance(program, Controller):
            return
        path = program._settings.now.store_path / "groups.journal"
        safe = controller.disk.content.safe(path) or b""
        # It grows by one decision at a time: only that is read, unless it is another journal now.
        new = safe.removeprefix(self._journal)
        self._journal = safe
        found = replay(new if new.startswith(MAGIC) else MAGIC + new, path)[0].get(BROKER_NAME)
        if found != group:
            found = replay(safe, path)[0].get(BROKER_NAME)
        if found != group:
            self._violation("decided, but not on disk", f"the journal has {found}, decided is {group}")

    # Masters

    def _has_confirmed(self, server: Server, broker: Broker, confirmed: int) -> None:
        group, epoch = self.group, broker.role.now.epoch
        if group is None or epoch != group.master_epoch or self._cluster.plan.acknowledges_alone:
            return
        if confirmed < self._confirmed.get(epoch, 0):
            text = f"epoch {epoch}: {self._confirmed[epoch]}, now {confirmed}"
            self._violation("confirmed went back", text)
        self._confirmed[epoch] = confirmed
        is_sync = self._cluster.plan.flush == "SYNC_FLUSH"
        if is_sync and broker.store.flushes.offset < confirmed:
            text = f"{server.host.name} has confirmed {confirmed}, flushed {broker.store.flushes.offset}"
            self._violation("confirmed, but not flushed", text)
        for other in self._cluster.candidates(group):
            copy = self._cluster.broker(other)
            if copy is None or other is server:
                continue
            end = copy.store.flushes.offset if is_sync else copy.store.log.end
            if end < confirmed:
                self._violation(
                    "confirmed without a copy",
                    f"{server.host.name} has confirmed {confirmed}; {other.host.name} is in sync and its log"
                    f" {'is flushed up to' if is_sync else 'ends at'} {end}",
                )
            elif (
                not self._has_damage
                and (at := first_difference(broker.store, copy.store, self._compared, confirmed)) is not None
            ):
                text = f"{server.host.name} and {other.host.name} have other bytes at {at}"
                self._violation("confirmed without a copy", text)
        self._compared = max(self._compared, confirmed)

    def _check_lease(self, server: Server, broker: Broker, side: InSyncMaster) -> None:
        """A master that was replaced by another knows that it may have been, whatever it hears."""
        epoch, group = broker.role.now.epoch, self.group
        process = server.process
        if group is None or epoch >= group.master_epoch or process is None or group.master_id is None:
            return
        if group.replicas[group.master_id].address == f"{server.host.address}:{BROKER_PORT}":
            return  # the controllers had lost their store, and have found it again
        if side.lease.is_held and process.is_running:
            text = f"{server.host.name} of epoch {epoch}, in epoch {group.master_epoch}"
            self._violation("a replaced master holds its lease", text)

    def _check_proposals(self, server: Server, side: InSyncMaster) -> None:
        """A master does not wait for ever for a broker that it has proposed without an answer."""
        in_sync, now = side.in_sync, self._recorder.now_s
        doubtful = frozenset().union(*in_sync._doubtful) if in_sync is not None else frozenset()
        if in_sync is None or doubtful <= in_sync.members or not self._cluster.leading():
            self._doubtful_since.pop(server, None)
        elif now - self._doubtful_since.setdefault(server, now) > _PROPOSAL_S:
            text = f"{server.host.name} waits for {sorted(doubtful)}, in sync are {in_sync.members}"
            self._violation("a proposal of unknown fate", text)

    def _violation(self, invariant: str, text: str) -> None:
        self._recorder.violation(invariant, text)
