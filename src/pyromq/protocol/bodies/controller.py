"""Replicas, as controllers and brokers report them to each other."""

from pyromq.protocol.bodies.body import Body, Int32, Int64
from pyromq.protocol.bodies.brokers import BrokerMemberGroup


class SyncStateSet(Body):
    """The ids of the brokers that are in sync with their master."""

    sync_state_set: set[Int64] = set()
    sync_state_set_epoch: Int32 = 0


class ElectMasterResponseBody(Body):
    """The group and its replicas in sync, after an election."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: set[Int64] = set()


class ReplicaIdentity(Body):
    """One broker of a group, as the controller knows it."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: Int64 | None = None
    broker_name: str | None = None
    # Ours alone: what it has offered to a controller that has no record of the group.
    log_end: Int64 | None = None
    log_epoch: Int32 | None = None


class ReplicasInfo(Body):
    """The master of a group, and which replicas are in sync with it."""

    in_sync_replicas: list[ReplicaIdentity] = []
    master_address: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 = 0
    not_in_sync_replicas: list[ReplicaIdentity] = []
    sync_state_set_epoch: Int32 = 0
    # Ours alone: why brokers that came with logs have no master yet.
    undecided: str | None = None


class BrokerReplicasInfo(Body):
    """The replicas of several groups, by the group's name."""

    replicas_info_table: dict[str, ReplicasInfo] = {}
