"""The picture of a broker group, joined from what its members and the controller tell."""

from pyromq.admin.cluster import BrokerMember
from pyromq.admin.replication import BrokerReport, joined
from pyromq.protocol.requests.controller import ReplicaIdentity, ReplicasInfo
from pyromq.protocol.requests.replication import (
    EpochEntry,
    HAClientRuntimeInfo,
    HAConnectionRuntimeInfo,
    HARuntimeInfo,
)

MASTER, REPLICA = BrokerMember("c", "a", 0, "h:1"), BrokerMember("c", "a", 1, "h:2")


def master(*, end: int = 100, replicas: int = 1, in_sync: bool = True) -> BrokerReport:
    connections = [HAConnectionRuntimeInfo(addr=f"h:{number}", in_sync=in_sync) for number in range(replicas)]
    status = HARuntimeInfo(master=True, master_commit_log_max_offset=end, ha_connection_info=connections)
    return BrokerReport(MASTER, status)


def replica(*, end: int = 90, epoch: int | None = None) -> BrokerReport:
    client = HAClientRuntimeInfo(master_addr="h:3", max_offset=end, transferred_byte_in_second=7)
    epochs = [] if epoch is None else [EpochEntry(epoch=epoch)]
    return BrokerReport(REPLICA, HARuntimeInfo(ha_client_runtime_info=client), epochs)


def test_a_replica_follows_its_master_and_is_behind() -> None:
    picture = joined("c", "a", [master(), replica()], None)
    first, second = picture.members
    assert (first.is_master, first.log_end, first.is_in_sync) == (True, 100, True)
    assert (second.behind_bytes, second.follows, second.bytes_per_s, second.is_in_sync) == (
        10,
        "h:3",
        7,
        True,
    )
    assert picture.remarks == []


def test_the_controller_says_who_is_in_sync() -> None:
    controlled = ReplicasInfo(master_address="h:1", in_sync_replicas=[ReplicaIdentity(broker_id=0)])
    picture = joined("c", "a", [master(), replica()], controlled)
    assert [each.is_in_sync for each in picture.members] == [True, False]


def test_a_silent_member_stays_in_the_picture() -> None:
    picture = joined("c", "a", [master(replicas=0), BrokerReport(REPLICA, problem="no answer")], None)
    silent = picture.members[1]
    assert (silent.problem, silent.log_end, silent.behind_bytes, silent.is_in_sync) == (
        "no answer",
        None,
        None,
        None,
    )


def test_what_is_wrong_is_remarked() -> None:
    assert joined("c", "a", [replica()], None).remarks == ["no member is master: nothing can be sent"]
    client = HAClientRuntimeInfo(max_offset=5, mirror_of="n:1", mirror_behind=7)
    mirror = BrokerReport(REPLICA, HARuntimeInfo(ha_client_runtime_info=client))
    shown = joined("c", "a", [mirror], None)
    assert shown.remarks == [f"{REPLICA.address} is a mirror of the cluster at n:1"]
    assert [each.behind_bytes for each in shown.members] == [7]
    assert joined("c", "a", [master(replicas=0), replica()], None).remarks == [
        "the master has 0 replicas connected, 1 are registered"
    ]
    elsewhere = ReplicasInfo(master_address="h:9")
    assert joined("c", "a", [master(), replica()], elsewhere).remarks == [
        "the controller named h:9 master, h:1 acts as it"
    ]
    epochs = [BrokerReport(MASTER, master().status, [EpochEntry(epoch=3)]), replica(epoch=2)]
    assert joined("c", "a", epochs, None).remarks == ["members are in different epochs: 2, 3"]
