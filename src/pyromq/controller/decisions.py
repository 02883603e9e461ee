"""The state machine: a group and a request give the group afterwards and the answer. Pure, and never partial.

A request either changes its group by one complete value or leaves it as it is. The checks of each request,
and their order, are Apache's; where a decision is stricter than Apache's, a comment gives the reason.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from msgspec.structs import replace

from pyromq.controller.election import choose_master
from pyromq.controller.groups import FIRST_BROKER_ID, GroupRecord, Offer, ReplicaRecord
from pyromq.controller.liveness import Heard
from pyromq.controller.returning import EPOCH_GAP, best_of, known_to, uncertainty
from pyromq.protocol.catalogue import Answer, Request
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.brokers import BrokerMemberGroup
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    AlterSyncStateSetAnswer,
    ApplyBrokerId,
    ApplyBrokerIdAnswer,
    CleanBrokerData,
    ElectMaster,
    ElectMasterAnswer,
    ElectMasterResponseBody,
    GetNextBrokerId,
    GetNextBrokerIdAnswer,
    GetReplicaInfo,
    GetReplicaInfoAnswer,
    RegisterBrokerAtController,
    RegisterBrokerAtControllerAnswer,
    ReplicaIdentity,
    ReplicasInfo,
    SyncStateSet,
)

BY_CONTROLLER = -1
"""The broker id in an election that no broker asked for."""


class Situation(NamedTuple):
    """The facts that a decision depends on besides the group."""

    heard: Heard = Heard()
    elects_unclean: bool = False


class GroupDecision(NamedTuple):
    """The group afterwards, which is the same object if nothing changed, and the answer."""

    group: GroupRecord | None
    answer: Answer


def decide(group: GroupRecord | None, request: Request[Any], situation: Situation) -> GroupDecision:
    return _RULES[type(request)](group, request, situation)


def _refuse(group: GroupRecord | None, code: int, remark: str) -> GroupDecision:
    return GroupDecision(group, Answer(code=code, remark=remark))


def _set_of(group: GroupRecord) -> SyncStateSet:
    return SyncStateSet(sync_state_set=set(group.sync_set), sync_state_set_epoch=group.sync_set_epoch)


# Ids


def _next_id(group: GroupRecord | None, request: GetNextBrokerId, _: Situation) -> GroupDecision:
    answer = GetNextBrokerIdAnswer(
        cluster_name=request.cluster_name,
        broker_name=request.broker_name,
        next_broker_id=FIRST_BROKER_ID if group is None else group.next_id,
    )
    return GroupDecision(group, answer)


def _apply_id(group: GroupRecord | None, request: ApplyBrokerId, _: Situation) -> GroupDecision:
    cluster, name, code = request.cluster_name or "", request.broker_name or "", request.register_check_code
    wanted = request.applied_broker_id
    before = group if group is not None else GroupRecord(cluster=cluster, name=name)
    answer = ApplyBrokerIdAnswer(cluster_name=request.cluster_name, broker_name=request.broker_name)
    if not name or not code or wanted is None:
        return _refuse(group, ResponseCode.CONTROLLER_INVALID_REQUEST, "a name, an id and a code are needed")
    if before.replicas and before.cluster != cluster:
        remark = f"broker group {name} belongs to cluster {before.cluster}, not {cluster}"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark)
    if wanted in before.replicas and before.replicas[wanted].check_code == code:
        return GroupDecision(group, answer)  # The broker did not get the first answer.
    # Apache accepts any free id. A broker always asks for the next one first; an id that was cleaned is not
    # free, because its former owner may still use it.
    if wanted != before.next_id:
        remark = f"id {wanted} of broker group {name} is not free; the next one is {before.next_id}"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_ID_INVALID, remark)
    joined = ReplicaRecord(address=code.partition(";")[0], check_code=code)
    after = replace(before, cluster=cluster, next_id=wanted + 1, replicas={**before.replicas, wanted: joined})
    return GroupDecision(after, answer)


def _register(
    group: GroupRecord | None, request: RegisterBrokerAtController, situation: Situation
) -> GroupDecision:
    broker_id, address = request.broker_id, request.broker_address
    known = _entered(group, request)
    if known is None or broker_id is None or broker_id not in known.replicas or not address:
        remark = f"broker {broker_id} of group {request.broker_name} has no id at this controller"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)
    if known.cluster != request.cluster_name:
        remark = f"broker group {known.name} belongs to cluster {known.cluster}, not {request.cluster_name}"
        return _refuse(group, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    epoch = max(request.log_epoch or 0, 0)
    has_master = known.master_id is not None and not situation.heard.is_gone(known.master_id)
    if request.mirrored and epoch > known.master_epoch and not has_master:
        # The record is older than the log: the group has copied another cluster since.
        known = replace(
            known, master_id=None, first_epoch=known.master_epoch, sync_set=frozenset(), offers={}
        )
    if epoch > known.master_epoch and not known.is_without_data:
        remark = (
            f"broker {broker_id} brings epoch {epoch}, but the record of group {known.name} ends with epoch"
            f" {known.master_epoch}: it is the record of other brokers, or an old copy"
        )
        return _refuse(group, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    before = known.replicas[broker_id]
    is_another = before.address != address and (
        not request.incarnation or before.incarnation != request.incarnation
    )
    if before.incarnation and is_another and broker_id in situation.heard.alive:
        # Of two brokers with one id, both would take themselves for the master.
        remark = f"broker {broker_id} of group {known.name} is alive at {before.address}, not at {address}"
        return _refuse(group, ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    here = replace(before, address=address, is_learner=bool(request.learner))
    if known.is_without_data and (epoch or before.brought_epoch is not None):
        here = replace(here, brought_epoch=max(epoch, before.brought_epoch or 0))
    after = _started(
        known, broker_id, replace(here, incarnation=request.incarnation or ""), request.kept_since
    )
    answer = RegisterBrokerAtControllerAnswer(
        cluster_name=request.cluster_name, broker_name=request.broker_name, body=_set_of(after)
    )
    if after.master_id is not None and not situation.heard.is_gone(after.master_id):
        answer.master_broker_id = after.master_id
        answer.master_address = after.master_address
        answer.master_epoch = after.master_epoch
        answer.sync_state_set_epoch = after.sync_set_epoch
    return GroupDecision(after, answer)


def _entered(group: GroupRecord | None, request: RegisterBrokerAtController) -> GroupRecord | None:
    """The group with a broker that brings its id, if there is no record of masters."""
    name, cluster, broker_id = request.broker_name, request.cluster_name, request.broker_id
    if not name or not cluster or request.log_epoch is None:  # java: its brokers bring nothing
        return group
    if broker_id is None or broker_id < FIRST_BROKER_ID:
        return group
    before = group if group is not None else GroupRecord(cluster=cluster, name=name)
    if not before.is_without_data or broker_id in before.replicas:
        return group
    here = ReplicaRecord(address=request.broker_address or "", check_code="", brought_epoch=0)
    next_id = max(before.next_id, broker_id + 1)
    return replace(before, next_id=next_id, replicas={**before.replicas, broker_id: here})


def _started(group: GroupRecord, broker_id: int, here: ReplicaRecord, kept_since: str | None) -> GroupRecord:
    """The group after one of its brokers has started anew, and may have lost messages not yet on disk.

    Apache lets it stay in sync, and even master. Here it is not in sync any more, unless it is the last one
    or says that it has kept everything since the last start known of it; a copy of its files from before that
    names an earlier one. A master writes on only in a new epoch, so that replicas find out what it has lost.
    The version rises each time: a proposal from before the start is never accepted after it.
    """
    before, version = group.replicas[broker_id], group.sync_set_epoch + 1
    if here.incarnation and (here.incarnation, here.address) == (before.incarnation, before.address):
        return group  # The broker did not get the first answer.
    in_sync = group.sync_set
    if not kept_since or kept_since != before.incarnation:
        in_sync = (in_sync - {broker_id}) or in_sync
    after = replace(
        group,
        replicas={**group.replicas, broker_id: here},
        sync_set=in_sync,
        sync_set_epoch=version,
        offers={},
    )
    if broker_id == group.master_id:
        after = replace(after, master_id=None, master_epoch=group.master_epoch + 1)
    return after


# Masters


def _elect(group: GroupRecord | None, request: ElectMaster, situation: Situation) -> GroupDecision:
    asker = None if request.broker_id == BY_CONTROLLER else request.broker_id
    if group is None or not group.replicas or (asker is not None and asker not in group.replicas):
        remark = f"broker group {request.broker_name} has no broker {request.broker_id} at this controller"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)
    if group.is_returning:
        return _elect_returning(group, asker, request, situation)
    if group.is_without_data and asker is not None:
        winner: int | None = asker
    else:
        winner = choose_master(
            group,
            situation.heard,
            designated=asker if request.designate_elect else None,
            elects_unclean=situation.elects_unclean,
        )
    if winner is None:
        return _without_master(group, asker)
    if winner == group.master_id:
        answer = _election_answer(group)
        answer.code = ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        answer.remark = f"broker {winner} is master of group {group.name} already"
        return GroupDecision(group, answer)
    in_sync = group.sync_set.intersection(situation.heard.alive) if winner in group.sync_set else frozenset()
    return _elected(group, winner, group.master_epoch + 1, in_sync)


def _elected(
    group: GroupRecord, winner: int, epoch: int, in_sync: frozenset[int] = frozenset()
) -> GroupDecision:
    """The group with a new master. All who were in sync have everything that was acknowledged, and those that
    may be alive stay. Apache keeps the winner alone; if that has just lost what was not on its disk, messages
    are gone that others still have."""
    after = replace(
        group,
        master_id=winner,
        master_epoch=epoch,
        sync_set=in_sync | {winner},
        sync_set_epoch=group.sync_set_epoch + 1,
        offers={},
    )
    return GroupDecision(after, _election_answer(after))


def _without_master(group: GroupRecord, asker: int | None) -> GroupDecision:
    if asker is not None:
        remark = f"broker group {group.name} has no replica in sync that is alive and may become master"
        return _refuse(group, ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, remark)
    remark = f"the master of broker group {group.name} is gone, and no replica in sync is alive"
    if group.master_id is not None:
        group = replace(group, master_id=None, master_epoch=group.master_epoch + 1)
    return _refuse(group, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, remark)


def _election_answer(group: GroupRecord) -> ElectMasterAnswer:
    members = BrokerMemberGroup(
        cluster=group.cluster,
        broker_name=group.name,
        broker_addrs={broker_id: replica.address for broker_id, replica in group.replicas.items()},
    )
    return ElectMasterAnswer(
        master_broker_id=group.master_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_set_epoch,
        body=ElectMasterResponseBody(broker_member_group=members, sync_state_set=set(group.sync_set)),
    )


def _elect_returning(
    group: GroupRecord, asker: int | None, request: ElectMaster, situation: Situation
) -> GroupDecision:
    """Brokers have come with their logs, and there is no record of the group."""
    no_master = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    offers = dict(group.offers)
    winner: int | None
    if asker is not None and request.designate_elect:
        winner = asker
        doubt = "" if asker in situation.heard.alive else f"broker {asker} is not alive"
    else:
        if asker is not None and request.log_epoch is not None:
            offers[asker] = _offer_in(request)
        group = group if offers == group.offers else replace(group, offers=offers)
        doubt = uncertainty(offers)
        winner = best_of(offers) if offers else None
        if not doubt and winner != asker:  # it may have lost since what it has offered
            doubt = f"broker {winner}, which has most, must ask once more"
    if doubt or winner is None:
        return _refuse(group, no_master, _undecided(group, doubt))
    epochs = [each.brought_epoch or 0 for each in group.replicas.values()]
    newest = max(group.master_epoch, *epochs, *(each.epoch for each in offers.values()))
    # Those that are not back yet keep their ids.
    absent = {
        each: ReplicaRecord(address="", check_code="") for each in known_to(offers) - group.replicas.keys()
    }
    replicas = {**group.replicas, **absent}
    after = replace(group, replicas=replicas, next_id=max(group.next_id, *(each + 1 for each in replicas)))
    return _elected(after, winner, newest + EPOCH_GAP)


def _offer_in(request: ElectMaster) -> Offer:
    return Offer(
        epoch=max(request.log_epoch or 0, 0),
        log_end=request.log_end or 0,
        awaited=_ids_in(request.awaited),
        members=_ids_in(request.members),
    )


def _ids_in(text: str | None) -> frozenset[int]:
    return frozenset(int(each) for each in (text or "").split(";") if each.isdecimal())


def _undecided(group: GroupRecord, doubt: str) -> str:
    return (
        f"this controller has no record of broker group {group.name}, and cannot tell yet which broker has"
        f" everything: {doubt}; an operator can decide with mqadmin electMaster"
    )


# Replicas in sync


def _alter_set(group: GroupRecord | None, request: AlterSyncStateSet, situation: Situation) -> GroupDecision:
    code, remark = _objection(group, request, situation.heard)
    if group is None or remark:
        return _refuse(group, code, remark)
    wanted = frozenset(request.body.sync_state_set)
    after = replace(group, sync_set=wanted, sync_set_epoch=group.sync_set_epoch + 1)
    answer = AlterSyncStateSetAnswer(new_sync_state_set_epoch=after.sync_set_epoch, body=_set_of(after))
    return GroupDecision(after, answer)


def _objection(group: GroupRecord | None, request: AlterSyncStateSet, heard: Heard) -> tuple[int, str]:
    """Why a set cannot replace the present one; the order of the checks is Apache's.

    Apache refuses the present set. Here it is accepted: its new version ends older proposals, and a master
    whose proposal was not answered can decide anew. In Apache, all must be alive; here a replica that was in
    sync may be unheard of for a while without keeping others from joining or leaving.
    """
    wanted, failed = request.body.sync_state_set, ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED
    if group is None or not group.replicas:
        return failed, f"broker group {request.broker_name} is not known to this controller"
    if group.master_id is None or request.master_broker_id != group.master_id:
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"the master of group {group.name} is {group.master_id}, not {request.master_broker_id}",
        )
    if request.master_epoch != group.master_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"the master epoch of group {group.name} is {group.master_epoch}, not {request.master_epoch}",
        )
    if request.body.sync_state_set_epoch != group.sync_set_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"the epoch of the replicas in sync of group {group.name} is {group.sync_set_epoch}, "
            f"not {request.body.sync_state_set_epoch}",
        )
    for each in sorted(wanted):
        if each not in group.replicas:
            return ResponseCode.CONTROLLER_INVALID_REPLICAS, f"group {group.name} has no broker {each}"
        if each not in heard.alive and (each not in group.sync_set or each == group.master_id):
            return ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, f"broker {each} of {group.name} is not alive"
    if group.master_id not in wanted:
        return failed, f"the master {group.master_id} of group {group.name} must be in sync with itself"
    return ResponseCode.SUCCESS, ""


def _replica_info(group: GroupRecord | None, request: GetReplicaInfo, _: Situation) -> GroupDecision:
    if group is None or not group.replicas:
        remark = f"broker group {request.broker_name} is not known to this controller"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST, remark)
    asker = group.replicas.get(request.broker_id) if request.broker_id is not None else None
    if request.broker_id is not None and (asker is None or not asker.address):
        remark = f"broker {request.broker_id} of group {group.name} has not registered at this controller"
        return _refuse(group, ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, remark)
    answer = GetReplicaInfoAnswer(
        master_broker_id=group.master_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        members=None if group.is_returning else ";".join(map(str, sorted(group.candidates))),
        body=_set_of(group),
    )
    return GroupDecision(group, answer)


def replicas_info(group: GroupRecord, heard: Heard) -> ReplicasInfo:
    """A group as operators see it."""
    shown = {
        broker_id: ReplicaIdentity(
            alive=broker_id in heard.alive,
            broker_address=replica.address,
            broker_id=broker_id,
            broker_name=group.name,
            log_epoch=group.offers[broker_id].epoch if broker_id in group.offers else None,
            log_end=group.offers[broker_id].log_end if broker_id in group.offers else None,
        )
        for broker_id, replica in sorted(group.replicas.items())
    }
    return ReplicasInfo(
        master_broker_id=group.master_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        sync_state_set_epoch=group.sync_set_epoch,
        in_sync_replicas=[each for broker_id, each in shown.items() if broker_id in group.sync_set],
        not_in_sync_replicas=[each for broker_id, each in shown.items() if broker_id not in group.sync_set],
        undecided=_undecided(group, uncertainty(group.offers) or "it is being decided")
        if group.is_returning
        else None,
    )


# Forgetting brokers


def _clean(group: GroupRecord | None, request: CleanBrokerData, situation: Situation) -> GroupDecision:
    invalid = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if group is None or not group.replicas:
        return _refuse(group, invalid, f"broker group {request.broker_name} is not known to this controller")
    listed = (request.broker_controller_ids_to_clean or "").strip(" ;")
    try:
        ids = {int(each) for each in listed.split(";")} if listed else set(group.replicas)
    except ValueError:
        return _refuse(group, invalid, f"ids to clean {listed!r}: expected numbers separated by semicolons")
    if not request.is_clean_living_broker:
        for each in sorted(ids & group.replicas.keys()):
            if not situation.heard.is_gone(each):
                return _refuse(group, invalid, f"broker {each} of group {group.name} may be alive")
    return GroupDecision(_without(group, ids), Answer())


def _without(group: GroupRecord, ids: set[int]) -> GroupRecord:
    left = {broker_id: replica for broker_id, replica in group.replicas.items() if broker_id not in ids}
    if len(left) == len(group.replicas):
        return group
    after = replace(
        group,
        replicas=left,
        sync_set=group.sync_set - ids,
        sync_set_epoch=group.sync_set_epoch + 1,
        offers={broker_id: offer for broker_id, offer in group.offers.items() if broker_id not in ids},
    )
    if group.master_id is not None and group.master_id in ids:
        after = replace(after, master_id=None, master_epoch=group.master_epoch + 1)
    # Brokers that come after the last one was cleaned start without data.
    return after if left else replace(after, first_epoch=after.master_epoch)


_RULES: dict[type[Request[Any]], Callable[[GroupRecord | None, Any, Situation], GroupDecision]] = {
    GetNextBrokerId: _next_id,
    ApplyBrokerId: _apply_id,
    RegisterBrokerAtController: _register,
    ElectMaster: _elect,
    AlterSyncStateSet: _alter_set,
    GetReplicaInfo: _replica_info,
    CleanBrokerData: _clean,
}
