"""The controller decides which broker of a group is the master; brokers and operators ask it."""

from pyromq.protocol.body import Body
from pyromq.protocol.catalogue import BROKER, CONTROLLER, Answer, BodyAnswer, Int32, Int64, Request, request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.needs import GET, UPDATE, cluster
from pyromq.protocol.requests.brokers import BrokerMemberGroup


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


class AlterSyncStateSetAnswer(Answer):
    new_sync_state_set_epoch: Int32 = 0
    body: SyncStateSet | None = None


@request(1001, to=CONTROLLER, needs=(cluster(UPDATE),), java_name="controller_alter_sync_state_set")
class AlterSyncStateSet(Request[AlterSyncStateSetAnswer]):
    """Report to the controller which replicas are in sync with their master."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time: Int64 | None = None
    body: SyncStateSet


class ElectMasterAnswer(Answer):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    body: ElectMasterResponseBody | None = None


# A master that is still alive stays master, and the answer says who it is.
@request(
    1002,
    to=CONTROLLER,
    needs=(cluster(UPDATE),),
    accepts=(ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST),
    java_name="controller_elect_master",
)
class ElectMaster(Request[ElectMasterAnswer]):
    """Have the controller choose a master, or make one broker the master."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time: Int64 | None = None
    # Ours alone, for a controller that has lost its store: the newest epoch of the broker's log and its end,
    # the brokers that a running master waits for, and all that are known; ids separated by semicolons.
    log_epoch: Int32 | None = None
    log_end: Int64 | None = None
    awaited: str | None = None
    members: str | None = None


class RegisterBrokerAtControllerAnswer(Answer):
    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    body: SyncStateSet | None = None


@request(1003, to=CONTROLLER, needs=(cluster(UPDATE),), java_name="controller_register_broker")
class RegisterBrokerAtController(Request[RegisterBrokerAtControllerAnswer]):
    """Register the address of a broker; the answer names its master."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time: Int64 | None = None
    # Ours alone: names for the time since the broker has started, and for an earlier start since which it has
    # lost nothing of its log.
    incarnation: str | None = None
    kept_since: str | None = None
    # Ours alone: the newest epoch of the broker's log, and whether it never is in sync.
    log_epoch: Int32 | None = None
    learner: bool | None = None
    # Ours alone: whether the log was copied from another cluster since the broker was in its group.
    mirrored: bool | None = None


class GetReplicaInfoAnswer(Answer):
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    # Ours alone: all brokers of the group, separated by semicolons.
    members: str | None = None
    body: SyncStateSet


@request(1004, to=CONTROLLER, needs=(cluster(GET),), java_name="controller_get_replica_info")
class GetReplicaInfo(Request[GetReplicaInfoAnswer]):
    """Read the master of a group and the replicas that are in sync."""

    broker_name: str | None = None
    # Ours alone: the broker that asks; the answer says whether it must register.
    broker_id: Int64 | None = None


class GetControllerMetadataAnswer(Answer):
    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


@request(1005, to=CONTROLLER, needs=(cluster(GET),), java_name="controller_get_metadata_info")
class GetControllerMetadata(Request[GetControllerMetadataAnswer]):
    """Read which controller is the leader."""


@request(1006, to=CONTROLLER, needs=(cluster(GET),), java_name="controller_get_sync_state_data")
class GetSyncStateData(Request[BodyAnswer[BrokerReplicasInfo]]):
    """Read the replicas in sync of several broker groups."""

    body: list[str]


@request(1008, to=BROKER, needs=(cluster(UPDATE),))
class NotifyBrokerRoleChanged(Request[Answer]):
    """Tell a broker its new master."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None
    body: SyncStateSet


@request(1011, to=CONTROLLER, needs=(cluster(UPDATE),))
class CleanBrokerData(Request[Answer]):
    """Have the controller forget brokers of a group."""

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time: Int64 | None = None


class GetNextBrokerIdAnswer(Answer):
    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


@request(1012, to=CONTROLLER, needs=(cluster(GET),), java_name="controller_get_next_broker_id")
class GetNextBrokerId(Request[GetNextBrokerIdAnswer]):
    """Read the next free broker id of a group."""

    cluster_name: str | None = None
    broker_name: str | None = None


class ApplyBrokerIdAnswer(Answer):
    cluster_name: str | None = None
    broker_name: str | None = None


@request(1013, to=CONTROLLER, needs=(cluster(UPDATE),), java_name="controller_apply_broker_id")
class ApplyBrokerId(Request[ApplyBrokerIdAnswer]):
    """Claim an id for a broker; a text in the claim identifies the broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None
