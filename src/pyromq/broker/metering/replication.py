"""How replication stands."""

from pyromq.broker.replication.assembly import Replication
from pyromq.broker.replication.in_sync_master import InSyncMaster
from pyromq.broker.tables.role import RoleTable
from pyromq.metrics import Labels, Metrics
from pyromq.store.message_store import MessageStore


def register_replication(
    metrics: Metrics, store: MessageStore, role: RoleTable, replication: Replication
) -> None:
    master, replica = replication.master, replication.replica

    def behind() -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for link in master.links:
            found[(link.name,)] = max(found.get((link.name,), 0), store.log.end - link.acknowledged)
        return found

    metrics.gauge(
        "pyromq_broker_is_master", "1 on a master, 0 on a replica.", lambda: int(role.now.is_master)
    )
    metrics.gauge(
        "pyromq_broker_ready",
        "1 while /ready answers 200.",
        lambda: int(not store.faults and not replication.problem),
    )
    metrics.labelled_gauge(
        "pyromq_broker_replica_behind_bytes",
        "Bytes of the log that a replica, by id or host, has not acknowledged.",
        behind,
        ("replica",),
    )
    metrics.gauge(
        "pyromq_broker_replicas_in_sync",
        "Connected replicas that are near the end of the log.",
        lambda: sum(map(master.is_in_sync, master.links)),
    )
    metrics.gauge(
        "pyromq_broker_connected_to_master",
        "1 if this replica copies the log of its master, 0 otherwise and on a master.",
        lambda: int(replica.is_connected),
    )
    repair = replication.repair
    metrics.gauge(
        "pyromq_broker_log_damaged_bytes",
        "Bytes of the log that are damaged, and that no broker of the group could replace yet.",
        lambda: repair.damaged_bytes,
    )
    metrics.gauge(
        "pyromq_broker_log_repaired_bytes",
        "Damaged bytes of the log that were replaced by those of another broker since the start.",
        lambda: repair.repaired_bytes,
    )
    metrics.gauge(
        "pyromq_broker_log_scrubs",
        "How often all of the log was read since the start.",
        lambda: repair.scrubs,
    )
    if (mirror := replication.mirror) is not None:
        metrics.gauge("pyromq_mirror", "1 on a mirror of another cluster.", lambda: int(mirror.is_on))
        metrics.gauge(
            "pyromq_mirror_behind_bytes",
            "Bytes of the other cluster's log that are not here, as of its master's last answer; 0 if this is"
            " not a mirror.",
            lambda: mirror.behind_bytes if mirror.is_on else 0,
        )
        metrics.gauge(
            "pyromq_mirror_silent_seconds",
            "Time since the other cluster's master answered, or since the start; 0 if this is not a mirror.",
            lambda: mirror.silent_s if mirror.is_on else 0,
        )
    if isinstance(master, InSyncMaster):
        metrics.gauge(
            "pyromq_broker_master_epoch",
            "The epoch of the master that this broker is, or follows; 0 before a controller named one.",
            lambda: replication.epoch,
        )
        metrics.gauge(
            "pyromq_broker_in_sync_set",
            "Brokers in sync with this master, itself among them; 0 on a replica.",
            lambda: len(master.in_sync.members) if master.in_sync is not None else 0,
        )
        metrics.gauge(
            "pyromq_broker_unconfirmed_bytes",
            "Bytes of the log that readers do not see yet, because not all in sync have them.",
            lambda: store.log.end - master.confirmed,
        )
