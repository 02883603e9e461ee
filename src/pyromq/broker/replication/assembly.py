"""The parts of replication in a broker, as one value."""

from dataclasses import dataclass
from typing import Self

from pyromq.broker.flow.appending import Appending
from pyromq.broker.replication.acting_master import ActingMaster
from pyromq.broker.replication.ha_status import HaStatus
from pyromq.broker.replication.master import Master
from pyromq.broker.replication.replica import Replica
from pyromq.broker.replication.table_changes import TableChanges
from pyromq.broker.replication.table_sync import TableSync
from pyromq.broker.replication.timer_sync import TimerSync
from pyromq.broker.services.registration import Registration
from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.all_tables import Tables
from pyromq.clock import Clock
from pyromq.config.live import LiveSettings
from pyromq.remoting.dialer import Dialer
from pyromq.remoting.slices import Slices
from pyromq.store.message_store import MessageStore


@dataclass(frozen=True, slots=True, eq=False)
class Replication:
    master: Master
    replica: Replica
    table_changes: TableChanges
    table_sync: TableSync
    timer_sync: TimerSync
    acting_master: ActingMaster
    status: HaStatus

    @classmethod
    def build(
        cls,
        live: LiveSettings[BrokerSettings],
        store: MessageStore,
        tables: Tables,
        appending: Appending,
        registration: Registration,
        dialer: Dialer,
        slices: Slices,
        clock: Clock,
    ) -> Self:
        master = Master(live, store, appending.durability, tables.role, clock)
        appending.at_turn_end(master.pump)
        replica = Replica(live, store, appending, tables.role, dialer, clock, registration.register_soon)
        registration.on_master(replica.master_is_at)
        return cls(
            master,
            replica,
            TableChanges(store, tables, slices),
            TableSync(store, tables, replica, dialer, clock),
            TimerSync(store, tables, replica, dialer),
            ActingMaster(live, store, tables, master, replica, registration, dialer),
            HaStatus(store, tables.role, master, replica, clock),
        )

    @property
    def is_master_near(self) -> bool:
        """Whether this broker is a replica whose readers find the rest at the master."""
        return self.replica.is_connected and not self.acting_master.is_acting

    @property
    def services(self) -> list[object]:
        return [
            self.master,
            self.replica,
            self.table_changes,
            self.table_sync,
            self.timer_sync,
            self.acting_master,
            self.status,
        ]
