"""Replication as a picture: for each broker group its members, who follows whom, who is in sync, and epochs.

Each broker reports its own side; a controller, if there is one, reports who is master and which replicas
count. A broker that does not answer stays in the picture, with the reason.
"""

from collections.abc import Sequence

import msgspec

from pyromq.admin import brokers, controllers
from pyromq.admin.cluster import BrokerMember, Cluster
from pyromq.errors import PyroError, Refused
from pyromq.protocol.catalogue import Int64
from pyromq.protocol.requests.controller import ReplicasInfo
from pyromq.protocol.requests.replication import EpochEntry, HARuntimeInfo


class MemberPicture(msgspec.Struct, frozen=True, rename="camel"):
    """One broker of a group. None means not reported; `problem` is why it did not answer."""

    address: str
    broker_id: int
    is_master: bool
    problem: str = ""
    log_end: Int64 | None = None
    behind_bytes: Int64 | None = None
    """How much of its master's log a replica lacks."""
    is_in_sync: bool | None = None
    follows: str | None = None
    """The replication address that a replica copies from."""
    bytes_per_s: int | None = None
    epochs: list[EpochEntry] = []
    """Which masters wrote its log; without a controller there are none."""
    mirror_of: str | None = None
    """The name servers of the cluster that it copies, if it is a mirror; `behind_bytes` is of that one."""


class GroupPicture(msgspec.Struct, frozen=True, rename="camel"):
    cluster: str
    broker_name: str
    members: list[MemberPicture]
    controlled: ReplicasInfo | None = None
    """Master and replicas in sync as the controller knows them; None without one."""
    remarks: list[str] = []

    @property
    def has_master(self) -> bool:
        return any(member.is_master for member in self.members)


async def pictures(
    cluster: Cluster, cluster_name: str | None = None, controller_addresses: Sequence[str] = ()
) -> list[GroupPicture]:
    """Every broker group. Without `controller_addresses` the brokers' settings name the controllers."""
    groups: dict[tuple[str, str], list[BrokerMember]] = {}
    for member in await cluster.members(cluster_name):
        groups.setdefault((member.cluster, member.broker_name), []).append(member)
    found = []
    for (name, broker_name), members in groups.items():
        told = [await _look(cluster, member) for member in members]
        found.append(
            joined(name, broker_name, told, await _controlled(cluster, members, controller_addresses))
        )
    return found


class BrokerReport(msgspec.Struct, frozen=True):
    """The report of one broker about itself."""

    member: BrokerMember
    status: HARuntimeInfo | None = None
    epochs: list[EpochEntry] = []
    log_end: int | None = None
    problem: str = ""


async def _look(cluster: Cluster, member: BrokerMember) -> BrokerReport:
    try:
        status = await brokers.ha_status(cluster, member.address)
        try:
            told = await controllers.epochs(cluster, member.address)
        except Refused:  # java: without a controller, and before 5.0
            return BrokerReport(member, status)
        return BrokerReport(member, status, told.epoch_list, told.max_offset)
    except PyroError as problem:
        return BrokerReport(member, problem=str(problem))


async def _controlled(
    cluster: Cluster, members: list[BrokerMember], addresses: Sequence[str]
) -> ReplicasInfo | None:
    if not addresses:
        (settings,) = await cluster.known([brokers.config(cluster, members[0].address)])
        if not settings or settings.get("enableControllerMode") != "true":
            return None
        addresses = [each for each in settings.get("controllerAddr", "").split(";") if each]
    if not addresses:
        return None
    name = members[0].broker_name
    (found,) = await cluster.known([controllers.replicas(cluster, addresses, [name])])
    return None if found is None else found.get(name)


def joined(
    cluster: str, broker_name: str, told: list[BrokerReport], controlled: ReplicasInfo | None
) -> GroupPicture:
    """Pure. The master knows how far its replicas are; a replica knows whom it follows."""
    master = next((each for each in told if each.status is not None and each.status.master), None)
    master_end = (
        None if master is None or master.status is None else master.status.master_commit_log_max_offset
    )
    connected = [] if master is None or master.status is None else master.status.ha_connection_info
    in_sync = {each.broker_id for each in controlled.in_sync_replicas} if controlled is not None else None
    members = []
    for each in told:
        is_master = each.member.is_master if each.status is None else each.status.master
        end, behind, follows, speed = each.log_end, None, None, None
        mirror_of = None
        if each.status is not None and is_master:
            end = each.status.master_commit_log_max_offset
        elif each.status is not None:
            mine = each.status.ha_client_runtime_info
            end, follows, speed = mine.max_offset, mine.master_addr or None, mine.transferred_byte_in_second
            behind = None if master_end is None else max(0, master_end - mine.max_offset)
            if (mirror_of := mine.mirror_of) is not None:
                behind = mine.mirror_behind
        members.append(
            MemberPicture(
                address=each.member.address,
                broker_id=each.member.broker_id,
                is_master=is_master,
                problem=each.problem,
                log_end=end,
                behind_bytes=behind,
                is_in_sync=None if in_sync is None else is_master or each.member.broker_id in in_sync,
                follows=follows,
                bytes_per_s=speed,
                epochs=each.epochs,
                mirror_of=mirror_of,
            )
        )
    if in_sync is None and connected and len(connected) == sum(not each.is_master for each in members):
        # Without a controller only the master judges, and it names connections, not brokers.
        verdicts = {each.in_sync for each in connected}
        verdict = verdicts.pop() if len(verdicts) == 1 else None
        members = [
            msgspec.structs.replace(each, is_in_sync=True if each.is_master else verdict) for each in members
        ]
    return GroupPicture(
        cluster, broker_name, members, controlled, _remarks(members, len(connected), controlled)
    )


def _remarks(members: list[MemberPicture], connected: int, controlled: ReplicasInfo | None) -> list[str]:
    remarks = []
    masters = [member for member in members if member.is_master]
    replicas = [member for member in members if not member.is_master and not member.problem]
    mirrors = [member for member in members if member.mirror_of]
    remarks += [f"{each.address} is a mirror of the cluster at {each.mirror_of}" for each in mirrors]
    if not masters and not mirrors:
        remarks.append("no member is master: nothing can be sent")
    if len(masters) > 1:
        remarks.append(f"several members act as master: {', '.join(each.address for each in masters)}")
    if masters and connected < len(replicas):
        remarks.append(f"the master has {connected} replicas connected, {len(replicas)} are registered")
    if controlled is not None and masters and controlled.master_address not in (None, masters[0].address):
        remarks.append(
            f"the controller named {controlled.master_address} master, {masters[0].address} acts as it"
        )
    newest = {member.epochs[-1].epoch for member in members if member.epochs}
    if len(newest) > 1:
        remarks.append(f"members are in different epochs: {', '.join(map(str, sorted(newest)))}")
    return remarks
