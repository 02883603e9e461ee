"""The parts of replication in a broker, as one value."""

from dataclasses import dataclass
from typing import Self

from pyromq.broker.context import Context
from pyromq.broker.flow.appending import Appending
from pyromq.broker.replication.acting_master import ActingMaster
from pyromq.broker.replication.compacted_sync import CompactedSync
from pyromq.broker.replication.controller_session import ControllerSession
from pyromq.broker.replication.ha_status import HaStatus
from pyromq.broker.replication.identity import IdentityFiles
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.replication.master import Master
from pyromq.broker.replication.mirror import Mirror
from pyromq.broker.replication.repair import Repair
from pyromq.broker.replication.replica import Replica
from pyromq.broker.replication.table_changes import TableChanges
from pyromq.broker.replication.table_sync import TableSync
from pyromq.broker.replication.timer_sync import TimerSync
from pyromq.broker.services.registration import Registration
from pyromq.broker.table_fitting import fit_to_cut, fit_to_log
from pyromq.config.settings_file import SettingsFile
from pyromq.remoting.access.keeping import AccessRules
from pyromq.remoting.dialer import Dialer
from pyromq.security.replica_hello import HelloReader


@dataclass(frozen=True, slots=True, eq=False)
class Replication:
    master: Master
    replica: Replica
    table_changes: TableChanges
    table_sync: TableSync
    timer_sync: TimerSync
    compacted_sync: CompactedSync
    acting_master: ActingMaster
    status: HaStatus
    repair: Repair
    session: ControllerSession | None
    mirror: Mirror | None
    """Both are None without a controller."""

    @classmethod
    def build(
        cls,
        context: Context,
        appending: Appending,
        registration: Registration,
        dialer: Dialer,
        access: AccessRules,
        settings_file: SettingsFile,
    ) -> Self:
        live, store, tables, clock = context.live, context.store, context.tables, context.clock
        session: ControllerSession | None = None
        mirror: Mirror | None = None
        master: Master
        replica = Replica(live, store, appending, tables.role, dialer, clock, registration.register_soon)
        registration.on_master(replica.master_is_at)
        if live.now.controller_mode:
            master = in_sync = InSyncMaster(live, store, appending.durability, tables.role, clock)
            identity = IdentityFiles(
                store.files, store.paths.broker_identity, live.now.broker_cluster_name, live.now.broker_name
            )
            address = registration.broker_address
            mirror = Mirror(
                *(context, replica, dialer, identity, settings_file, address), role_known=registration.release
            )
            session = ControllerSession(
                *(context, in_sync, replica, dialer, mirror),
                role_known=registration.release,
                before_leading=lambda: fit_to_log(store, tables),
            )
            replica.on_confirmed(in_sync.master_confirms, lambda: fit_to_cut(store, tables))
        else:
            master = Master(live, store, appending.durability, tables.role, clock)
        appending.at_turn_end(master.pump)
        repair = Repair(context, appending, replica, dialer, registration.broker_address)
        master.begins_at = repair.look_at
        if live.now.asks_replicas and (control := access.control) is not None:
            master.new_hello = lambda: HelloReader(
                live.now.broker_cluster_name, live.now.broker_name, control.secrets_of_server
            )
        return cls(
            master,
            replica,
            TableChanges(live, store, tables, context.slices, access, master),
            TableSync(context, access, appending, replica, dialer),
            TimerSync(store, tables, replica, dialer),
            CompactedSync(store, tables, replica, dialer),
            ActingMaster(live, store, tables, master, replica, registration, dialer),
            HaStatus(live, store, tables.role, master, replica, mirror, clock),
            repair,
            session,
            mirror,
        )

    @property
    def is_master_near(self) -> bool:
        """Whether this broker is a replica whose readers find the rest at the master."""
        return self.replica.is_connected and not self.acting_master.is_acting and not self.is_mirror

    @property
    def is_mirror(self) -> bool:
        return self.mirror is not None and self.mirror.is_on

    async def leave(self) -> None:
        """This broker stops. Its senders have their answers: another one may be master from now on."""
        await self.master.close()
        if self.session is not None:
            await self.session.leave()

    @property
    def services(self) -> list[object]:
        parts: list[object] = [
            self.master,
            self.replica,
            self.table_changes,
            self.table_sync,
            self.timer_sync,
            self.compacted_sync,
            self.acting_master,
            self.status,
            self.repair,
        ]
        return [*parts, *filter(None, (self.session, self.mirror))]

    @property
    def epoch(self) -> int:
        """Of the master that this broker is, or follows; 0 without a controller."""
        return self.session.epoch if self.session is not None else 0

    @property
    def problem(self) -> str:
        """A warning for the operator before anyone relies on this broker; empty if all is well."""
        of_session = self.session.problem if self.session is not None else ""
        if self.mirror is not None and self.mirror.is_on:
            of_session = self.mirror.problem
        return self.replica.problem or of_session or self.repair.problem
