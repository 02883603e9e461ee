"""The controller's state machine: what each request does to a group, and how it is answered."""

from typing import Any

import pytest
from msgspec.structs import replace

from pyromq.controller.decisions import BY_CONTROLLER, GroupDecision, Situation, decide
from pyromq.controller.groups import GroupRecord, ReplicaRecord, decode_group, encode_group
from pyromq.controller.liveness import Heard, Vitals
from pyromq.errors import StoreError
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    ElectMasterAnswer,
    GetNextBrokerId,
    GetNextBrokerIdAnswer,
    GetReplicaInfo,
    GetReplicaInfoAnswer,
    RegisterBrokerAtController,
    RegisterBrokerAtControllerAnswer,
    SyncStateSet,
)

GROUP = GroupRecord(
    cluster="c",
    name="g",
    next_id=4,
    replicas={
        1: ReplicaRecord("h:1", "h:1;5"),
        2: ReplicaRecord("h:2", "h:2;6"),
        3: ReplicaRecord("h:3", "h:3;7"),
    },
    master_id=1,
    master_epoch=5,
    sync_set=frozenset({1, 2}),
    sync_set_epoch=9,
)


def alive(*ids: int, **vitals: Vitals) -> Situation:
    return Situation(Heard({each: vitals.get(f"b{each}", Vitals(5, 100)) for each in ids}))


def apply_id(wanted: int, code: str = "h:9;1", cluster: str = "c") -> ApplyBrokerId:
    return ApplyBrokerId(
        cluster_name=cluster, broker_name="g", applied_broker_id=wanted, register_check_code=code
    )


def register(
    broker_id: int,
    address: str = "",
    cluster: str = "c",
    incarnation: str | None = None,
    kept_since: str | None = None,
    log_epoch: int | None = None,
) -> RegisterBrokerAtController:
    return RegisterBrokerAtController(
        cluster_name=cluster,
        broker_name="g",
        broker_id=broker_id,
        broker_address=address or f"h:{broker_id}",
        incarnation=incarnation,
        kept_since=kept_since,
        log_epoch=log_epoch,
    )


def elect(broker_id: int = BY_CONTROLLER, designate: bool = False) -> ElectMaster:
    return ElectMaster(cluster_name="c", broker_name="g", broker_id=broker_id, designate_elect=designate)


def alter(*ids: int, master: int = 1, epoch: int = 5, set_epoch: int = 9) -> AlterSyncStateSet:
    return AlterSyncStateSet(
        broker_name="g",
        master_broker_id=master,
        master_epoch=epoch,
        body=SyncStateSet(sync_state_set=set(ids), sync_state_set_epoch=set_epoch),
    )


def changed(decision: GroupDecision) -> GroupRecord:
    assert decision.answer.code == ResponseCode.SUCCESS, decision.answer
    assert decision.group is not None
    return decision.group


def facts(*values: object) -> tuple[object, ...]:
    return values


def refused(group: GroupRecord | None, request: Any, situation: Situation, code: ResponseCode) -> None:
    decision = decide(group, request, situation)
    assert ResponseCode(decision.answer.code) is code, decision.answer
    assert decision.group is group
    assert decision.answer.remark


def test_a_group_survives_being_stored() -> None:
    assert decode_group(encode_group(GROUP)) == GROUP


@pytest.mark.parametrize("data", [b"", b"{}", b'{"version":2,"group":{"cluster":"c","name":"g"}}'])
def test_a_group_of_another_format_is_not_read(data: bytes) -> None:
    with pytest.raises(StoreError):
        decode_group(data)


# Ids


@pytest.mark.parametrize(("group", "expected"), [(None, 1), (GROUP, 4)])
def test_the_next_id_counts_up(group: GroupRecord | None, expected: int) -> None:
    decision = decide(group, GetNextBrokerId(cluster_name="c", broker_name="g"), Situation())
    assert isinstance(decision.answer, GetNextBrokerIdAnswer)
    assert decision.answer.next_broker_id == expected
    assert decision.group is group


def test_an_id_is_given_once_and_again_only_to_its_owner() -> None:
    first = changed(decide(None, apply_id(1, "h:1;5"), Situation()))
    assert facts(first.next_id, first.replicas) == (2, {1: ReplicaRecord("h:1", "h:1;5")})
    assert decide(first, apply_id(1, "h:1;5"), Situation()).group is first
    refused(first, apply_id(1, "h:2;5"), Situation(), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    refused(first, apply_id(3), Situation(), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    refused(None, apply_id(2), Situation(), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    assert changed(decide(first, apply_id(2), Situation())).replicas.keys() == {1, 2}


def test_a_group_belongs_to_one_cluster() -> None:
    refused(GROUP, apply_id(4, cluster="other"), Situation(), ResponseCode.CONTROLLER_BROKER_ID_INVALID)
    refused(GROUP, register(1, cluster="other"), Situation(), ResponseCode.CONTROLLER_INVALID_REQUEST)


def test_a_claim_without_a_code_is_refused() -> None:
    refused(None, apply_id(1, ""), Situation(), ResponseCode.CONTROLLER_INVALID_REQUEST)


# Registration


def test_a_registration_names_the_master_unless_it_is_gone() -> None:
    for situation, named in ((alive(1), 1), (Situation(Heard(is_complete=False)), 1), (alive(2), None)):
        decision = decide(GROUP, register(3), situation)
        assert isinstance(decision.answer, RegisterBrokerAtControllerAnswer)
        assert decision.answer.master_broker_id == named
        assert decision.answer.body == SyncStateSet(sync_state_set={1, 2}, sync_state_set_epoch=10)


def test_a_registration_needs_an_id() -> None:
    for group, broker_id in ((None, 1), (GROUP, 4)):
        need = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
        refused(group, register(broker_id), Situation(), need)


def test_a_registration_from_another_address_moves_the_broker() -> None:
    assert changed(decide(GROUP, register(3, "new:3"), Situation())).replicas[3].address == "new:3"


def test_a_restarted_replica_is_not_in_sync_any_more() -> None:
    after = changed(decide(GROUP, register(2), alive(1)))
    assert facts(after.sync_set, after.sync_set_epoch, after.master_id) == ({1}, 10, 1)


def test_a_restarted_master_must_be_elected_again() -> None:
    decision = decide(GROUP, register(1), alive(1, 2))
    after = changed(decision)
    assert facts(after.master_id, after.master_epoch, after.sync_set) == (None, 6, {2})
    assert isinstance(decision.answer, RegisterBrokerAtControllerAnswer)
    assert decision.answer.master_broker_id is None
    won = changed(decide(after, elect(1), alive(1, 2)))
    assert facts(won.master_id, won.master_epoch, won.sync_set) == (2, 7, {2})


def test_the_last_replica_in_sync_stays_it_when_it_restarts() -> None:
    alone = replace(GROUP, sync_set=frozenset({1}))
    after = changed(decide(alone, register(1), alive(2)))
    assert facts(after.master_id, after.master_epoch, after.sync_set) == (None, 6, {1})
    assert changed(decide(after, elect(1), alive(1, 2))).master_id == 1


def test_a_proposal_from_before_a_restart_is_not_accepted_after_it() -> None:
    proposal = alter(1, 2, 3, set_epoch=9)
    assert changed(decide(GROUP, proposal, alive(1, 2, 3))).sync_set == {1, 2, 3}
    restarted = changed(decide(GROUP, register(3), alive(1, 2, 3)))
    fenced = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    refused(restarted, proposal, alive(1, 2, 3), fenced)


def started(
    group: GroupRecord, broker_id: int, incarnation: str = "", kept_since: str | None = None
) -> GroupRecord:
    request = register(broker_id, incarnation=incarnation, kept_since=kept_since)
    return changed(decide(group, request, alive(1, 2, 3)))


def test_a_restarted_broker_that_has_lost_nothing_since_its_last_start_stays_in_sync() -> None:
    """Else two of three that restart are useless until the third is back."""
    everyone = frozenset({1, 2, 3})
    group = GROUP
    for each in everyone:
        group = started(group, each, f"first {each}")
    group = replace(group, sync_set=everyone, master_id=3)
    for each in (1, 2):
        group = started(group, each, f"second {each}", kept_since=f"first {each}")
        assert group.sync_set == everyone
    assert changed(decide(group, elect(1), alive(1, 2))).master_id == 1
    master = started(group, 3, "second 3", kept_since="first 3")
    assert facts(master.sync_set, master.master_id) == (everyone, None)


def test_a_broker_that_comes_with_an_older_copy_of_its_files_is_not_in_sync() -> None:
    group = started(started(GROUP, 2, "first"), 2, "second", kept_since="first")
    group = replace(group, sync_set=frozenset({1, 2}))
    for kept_since in ("first", None, ""):
        assert started(group, 2, "third", kept_since).sync_set == {1}
    assert started(GROUP, 2, "first", kept_since="").sync_set == {1}  # nothing was known of it


def test_a_promoted_mirror_replaces_an_older_record_unless_its_master_lives() -> None:
    def promoted(broker_id: int) -> RegisterBrokerAtController:
        return replace(register(broker_id, log_epoch=1003), mirrored=True)

    request = promoted(2)
    for may_live in (alive(1), Situation(Heard(is_complete=False))):
        refused(GROUP, request, may_live, ResponseCode.CONTROLLER_INVALID_REQUEST)
    back = changed(decide(GROUP, request, alive(3)))
    assert back.is_returning
    assert facts(back.master_id, back.sync_set, back.replicas.keys()) == (None, set(), {1, 2, 3})
    refused(back, elect(3), alive(2, 3), ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE)
    asks = replace(elect(2), log_epoch=1003, log_end=7, members="2", awaited="")
    led = changed(decide(back, asks, alive(2, 3)))
    assert facts(led.master_id, led.master_epoch, led.sync_set) == (2, 2003, {2})
    # The next one of the group follows: the record is as new as its log.
    after = changed(decide(led, promoted(3), alive(2)))
    assert facts(after.master_id, after.master_epoch) == (2, 2003)


def test_a_broker_that_registers_twice_in_one_life_has_restarted_once() -> None:
    once = replace(started(GROUP, 2, "first"), sync_set=frozenset({1, 2}))
    assert decide(once, register(2, incarnation="first"), alive(1)).group is once
    assert started(once, 2).sync_set == {1}  # brokers of Apache do not say


# Elections


def test_the_first_broker_that_asks_becomes_the_first_master() -> None:
    fresh = replace(GROUP, master_id=None, master_epoch=0, sync_set=frozenset(), sync_set_epoch=0)
    decision = decide(fresh, elect(2), Situation())
    after = changed(decision)
    assert facts(after.master_id, after.master_epoch, after.sync_set, after.sync_set_epoch) == (2, 1, {2}, 1)
    assert isinstance(decision.answer, ElectMasterAnswer)
    assert decision.answer.master_address == "h:2"
    assert decision.answer.body is not None
    assert decision.answer.body.broker_member_group is not None
    assert decision.answer.body.broker_member_group.broker_addrs == {1: "h:1", 2: "h:2", 3: "h:3"}


def test_a_master_that_may_be_alive_stays() -> None:
    for situation in (alive(1, 2), Situation(Heard({2: Vitals()}, is_complete=False))):
        decision = decide(GROUP, elect(2), situation)
        assert decision.answer.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        assert isinstance(decision.answer, ElectMasterAnswer)
        assert (decision.answer.master_broker_id, decision.answer.master_epoch) == (1, 5)
        assert decision.group is GROUP


def test_a_master_whose_connection_closed_is_gone_even_while_others_are_unheard() -> None:
    heard = Heard({2: Vitals()}, lost=frozenset({1}), is_complete=False)
    assert changed(decide(GROUP, elect(), Situation(heard))).master_id == 2


def test_a_replica_in_sync_follows_the_master() -> None:
    after = changed(decide(GROUP, elect(), alive(2, 3)))
    assert facts(after.master_id, after.master_epoch, after.sync_set, after.sync_set_epoch) == (2, 6, {2}, 10)


def test_an_election_keeps_those_in_sync_that_may_be_alive() -> None:
    """The winner may have crashed a moment ago, and lost what was not on its disk: others have it."""
    group = replace(GROUP, sync_set=frozenset({1, 2, 3}))
    assert changed(decide(group, elect(), alive(3))).sync_set == {3}
    after = changed(decide(group, elect(), alive(2, 3)))
    assert facts(after.master_id, after.sync_set) == (2, {2, 3})
    restarted = changed(decide(after, register(2), alive(2, 3)))
    assert facts(restarted.master_id, restarted.sync_set) == (None, {3})
    assert changed(decide(restarted, elect(2), alive(2, 3))).master_id == 3


@pytest.mark.parametrize(
    ("second", "third", "winner"),
    [
        (Vitals(5, 100), Vitals(6, 1), 3),
        (Vitals(5, 100), Vitals(5, 101), 3),
        (Vitals(5, 100, priority=9), Vitals(5, 100, priority=3), 3),
        (Vitals(5, 100), Vitals(5, 100), 2),
        (Vitals(5, 2**33), Vitals(5, 1), 2),  # Apache compares 32 bits of the difference.
    ],
)
def test_the_replica_that_has_most_wins(second: Vitals, third: Vitals, winner: int) -> None:
    group = replace(GROUP, sync_set=frozenset({1, 2, 3}))
    assert changed(decide(group, elect(), alive(2, 3, b2=second, b3=third))).master_id == winner


def test_nobody_out_of_sync_is_elected_unless_that_is_allowed() -> None:
    decision = decide(GROUP, elect(), alive(3))
    assert decision.answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    after = decision.group
    assert after is not None
    assert facts(after.master_id, after.master_epoch, after.sync_set) == (None, 6, {1, 2})
    assert decide(after, elect(), alive(3)).group is after
    refused(after, elect(3), alive(3), ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    unclean = Situation(alive(3).heard, elects_unclean=True)
    assert changed(decide(after, elect(3), unclean)).master_id == 3


def test_an_operator_may_designate_a_replica_in_sync() -> None:
    assert changed(decide(GROUP, elect(2, designate=True), alive(1, 2))).master_id == 2
    refused(GROUP, elect(3, designate=True), alive(1, 2, 3), ResponseCode.CONTROLLER_ELECT_MASTER_FAILED)
    unknown = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    refused(GROUP, elect(7, designate=True), alive(1, 2), unknown)
    refused(None, elect(), alive(), unknown)


# Replicas in sync


def test_the_master_changes_the_replicas_in_sync() -> None:
    after = changed(decide(GROUP, alter(1, 2, 3), alive(1, 2, 3)))
    assert facts(after.sync_set, after.sync_set_epoch, after.master_epoch) == ({1, 2, 3}, 10, 5)


def test_a_replica_in_sync_that_is_not_heard_of_keeps_no_other_from_joining_or_leaving() -> None:
    assert changed(decide(GROUP, alter(1, 2, 3), alive(1, 3))).sync_set == {1, 2, 3}
    everyone = replace(GROUP, sync_set=frozenset({1, 2, 3}))
    assert changed(decide(everyone, alter(1, 2), alive(1))).sync_set == {1, 2}
    refused(everyone, alter(1, 2), alive(2), ResponseCode.CONTROLLER_BROKER_NOT_ALIVE)  # the master itself


def test_the_present_set_gets_a_new_version_so_that_older_proposals_end() -> None:
    after = changed(decide(GROUP, alter(1, 2), alive(1, 2)))
    assert facts(after.sync_set, after.sync_set_epoch) == ({1, 2}, 10)
    fenced = ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH
    refused(after, alter(1, 2, 3, set_epoch=9), alive(1, 2, 3), fenced)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (alter(1, master=2), ResponseCode.CONTROLLER_INVALID_MASTER),
        (alter(1, epoch=4), ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        (alter(1, set_epoch=8), ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        (alter(1, 9), ResponseCode.CONTROLLER_INVALID_REPLICAS),
        (alter(1, 3), ResponseCode.CONTROLLER_BROKER_NOT_ALIVE),
        (alter(2), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
    ],
)
def test_a_set_that_cannot_replace_the_present_one_is_refused(
    request_: AlterSyncStateSet, code: ResponseCode
) -> None:
    refused(GROUP, request_, alive(1, 2), code)


def test_what_is_not_known_is_refused() -> None:
    refused(None, alter(1), alive(1), ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED)
    unknown = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    refused(None, GetReplicaInfo(broker_name="g"), Situation(), unknown)


# Forgetting brokers


def clean(ids: str | None = None, force: bool = False) -> CleanBrokerData:
    return CleanBrokerData(
        cluster_name="c", broker_name="g", broker_controller_ids_to_clean=ids, is_clean_living_broker=force
    )


@pytest.mark.parametrize("request_", [clean(), clean("1"), clean("2;1"), clean("x")])
def test_a_broker_that_may_be_alive_is_not_cleaned(request_: CleanBrokerData) -> None:
    refused(GROUP, request_, alive(1), ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA)


def test_a_broker_is_cleaned() -> None:
    after = changed(decide(GROUP, clean("2"), alive(1)))
    assert facts(after.replicas.keys(), after.sync_set, after.sync_set_epoch) == ({1, 3}, {1}, 10)
    assert facts(after.master_id, after.master_epoch, after.next_id) == (1, 5, 4)
    assert decide(after, clean("2"), alive(1)).group is after


def test_a_cleaned_master_is_none_any_more() -> None:
    after = changed(decide(GROUP, clean("1", force=True), alive(1, 2)))
    assert facts(after.master_id, after.master_epoch, after.sync_set) == (None, 6, {2})


def test_a_cleaned_group_starts_again_with_higher_numbers() -> None:
    gone = changed(decide(GROUP, clean(), alive()))
    assert not gone.replicas
    unknown = ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
    refused(gone, GetReplicaInfo(broker_name="g"), Situation(), unknown)
    need = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    refused(gone, register(1), Situation(), need)
    joined = changed(decide(gone, apply_id(4, cluster="d"), Situation()))
    assert joined.cluster == "d"
    first = changed(decide(joined, elect(4), Situation()))
    assert facts(first.master_id, first.master_epoch) == (4, 7)


# A controller that has lost its record of a group


def offer(broker_id: int, epoch: int, end: int, *, awaited: str = "", members: str = "1;2;3") -> ElectMaster:
    return ElectMaster(
        cluster_name="c",
        broker_name="g",
        broker_id=broker_id,
        log_epoch=epoch,
        log_end=end,
        awaited=awaited,
        members=members,
    )


def returned(*brokers: tuple[int, int]) -> GroupRecord:
    """Brokers that have registered, by id and newest epoch."""
    group: GroupRecord | None = None
    for broker_id, epoch in brokers:
        request = register(broker_id, incarnation=f"{broker_id}", log_epoch=epoch)
        group = changed(decide(group, request, alive(1, 2, 3)))
    assert group is not None
    return group


def undecided(group: GroupRecord, request: ElectMaster, text: str, situation: Situation) -> GroupRecord:
    decision = decide(group, request, situation)
    assert decision.answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert text in (decision.answer.remark or "")
    assert decision.group is not None
    assert decision.group.master_id is None
    return decision.group


def test_brokers_that_return_keep_their_ids_and_get_no_master_before_all_have_offered_their_logs() -> None:
    """The stale one comes first, and restarts: it must not become master of those that have more."""
    everyone = alive(1, 2, 3)
    group = returned((3, 4))
    for start in range(3):
        request = register(3, incarnation=f"again {start}", log_epoch=4)
        group = changed(decide(group, request, everyone))
        group = undecided(group, offer(3, 4, 700), "brokers [1, 2] have not offered", everyone)
        assert group.master_epoch == 0
    for each in (1, 2):
        request = register(each, incarnation=f"{each}", log_epoch=5)
        group = changed(decide(group, request, everyone))
    assert group.next_id == 4
    group = undecided(group, offer(3, 4, 700), "brokers [1, 2] have not offered", everyone)
    group = undecided(group, offer(2, 5, 1000), "brokers [1] have not offered", everyone)
    group = undecided(group, offer(1, 5, 900), "broker 2, which has most, must ask once more", everyone)
    after = changed(decide(group, offer(2, 5, 1000), everyone))
    assert facts(after.master_id, after.sync_set, after.offers) == (2, {2}, {})
    assert after.master_epoch == 1005  # newer than any that a broker may know


def test_what_was_offered_before_another_broker_started_does_not_count() -> None:
    """It may have been that one's replica then, and have more by now."""
    everyone = alive(1, 2, 3)
    group = returned((2, 5), (3, 5))
    group = undecided(group, offer(2, 5, 90, members="1;2;3"), "[1, 3]", everyone)
    group = undecided(group, offer(3, 5, 85, members="1;2;3"), "[1]", everyone)
    group = changed(decide(group, register(1, incarnation="1", log_epoch=5), everyone))
    group = undecided(group, offer(1, 5, 80), "brokers [2, 3] have not offered", everyone)
    group = undecided(group, offer(2, 5, 95), "brokers [3] have not offered", everyone)
    assert changed(decide(group, offer(3, 5, 100), everyone)).master_id == 3


def test_a_running_master_leads_again_when_all_that_it_waits_for_are_there() -> None:
    everyone = alive(1, 2)
    group = returned((1, 5), (2, 5))
    group = undecided(group, offer(2, 5, 1000), "brokers [1, 3] have not offered", everyone)
    after = changed(decide(group, offer(1, 5, 900, awaited="1;2"), everyone))
    assert after.master_id == 1


def test_a_master_that_was_replaced_does_not_lead_again() -> None:
    """The one that replaced it was in sync with it, so it is waited for."""
    everyone = alive(1, 2, 3)
    group = returned((1, 5), (2, 6))
    group = undecided(group, offer(1, 5, 1000, awaited="1;2"), "brokers [2] have not offered", everyone)
    group = undecided(group, offer(2, 6, 900, awaited="2;3"), "brokers [3] have not offered", everyone)
    group = changed(decide(group, register(3, incarnation="3", log_epoch=6), everyone))
    for request in (offer(1, 5, 1100, awaited="1;2"), offer(3, 6, 850)):
        group = undecided(group, request, "have not offered", everyone)
    assert changed(decide(group, offer(2, 6, 900, awaited="2;3"), everyone)).master_id == 2


def test_an_operator_chooses_when_a_broker_does_not_return() -> None:
    group = undecided(returned((3, 4)), offer(3, 4, 700), "mqadmin electMaster", alive(3))
    assert changed(decide(group, elect(3, designate=True), alive(3))).master_id == 3
    undecided(group, elect(3, designate=True), "broker 3 is not alive", alive())


def test_the_broker_that_has_most_leads_only_if_it_asks_after_all_have_offered_their_logs() -> None:
    """Otherwise it may have died meanwhile, and come back with less than it has offered."""
    group = undecided(returned((1, 5), (2, 5)), offer(1, 5, 1000, awaited="1;2"), "[2]", alive(1, 2))
    group = undecided(group, offer(2, 5, 1000, members="1;2"), "broker 1, which has most", alive(1, 2))
    again = changed(decide(group, register(1, incarnation="again", log_epoch=5), alive(1, 2)))
    again = undecided(again, offer(1, 5, 900, members="1;2"), "[2]", alive(1, 2))
    assert changed(decide(again, offer(2, 5, 1000, members="1;2"), alive(1, 2))).master_id == 2
    assert changed(decide(group, offer(1, 5, 1000, awaited="1;2"), alive(1, 2))).master_id == 1


def test_a_learner_is_not_waited_for_after_a_lost_store_and_never_becomes_master() -> None:
    """It never stands for election: the others would wait for ever."""
    request = replace(register(3, incarnation="1"), learner=True)
    group = changed(decide(GROUP, request, alive(1, 2, 3)))
    told = decide(group, GetReplicaInfo(broker_name="g"), alive(1, 2, 3)).answer
    assert isinstance(told, GetReplicaInfoAnswer)
    assert told.members == "1;2"
    unclean = alive(3)._replace(elects_unclean=True)
    assert decide(group, elect(), unclean).answer.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    again = changed(decide(group, register(3, incarnation="2"), alive(1, 2, 3)))
    assert changed(decide(again, elect(), unclean)).master_id == 3


def test_a_broker_that_does_not_know_the_others_is_not_chosen_without_an_operator() -> None:
    undecided(returned((1, 5)), offer(1, 5, 1000, members=""), "does not know which others", alive(1))


def test_a_log_that_is_newer_than_the_record_is_not_taken_in() -> None:
    """The record is an old copy, or of other brokers that took the name: theirs would be cut off."""
    invalid = ResponseCode.CONTROLLER_INVALID_REQUEST
    refused(GROUP, register(2, log_epoch=6), alive(1), invalid)
    need = ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    refused(GROUP, register(7, log_epoch=5), alive(1), need)
    assert changed(decide(GROUP, register(2, log_epoch=5), alive(1))).replicas[2].brought_epoch is None


def test_a_broker_that_has_an_id_and_nothing_in_its_log_leads_nobody_before_the_others_have_come() -> None:
    group = undecided(returned((3, 0)), offer(3, 0, 0), "brokers [1, 2] have not offered", alive(3))
    refused(group, register(7), alive(3), ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED)


def test_a_log_from_before_the_controller_begins_the_first_epoch() -> None:
    joined = changed(decide(None, apply_id(1), Situation()))
    there = changed(decide(joined, register(1, log_epoch=0), Situation()))
    first = changed(decide(there, offer(1, 0, 5000, members=""), Situation()))
    assert facts(first.master_id, first.master_epoch) == (1, 1)


def test_a_broker_without_a_log_leads_no_group_to_which_others_bring_theirs() -> None:
    group = changed(decide(returned((1, 5)), apply_id(2), alive(1, 2)))
    undecided(group, elect(2), "no broker has offered its log", alive(1, 2))


def test_of_two_brokers_with_one_id_the_one_that_is_alive_keeps_it() -> None:
    group = changed(decide(GROUP, register(2, incarnation="first"), alive(1)))
    other = register(2, "h:9", incarnation="other")
    refused = decide(group, other, alive(1, 2))
    assert refused.group is group
    assert refused.answer.code == ResponseCode.CONTROLLER_INVALID_REQUEST
    assert refused.answer.remark == "broker 2 of group g is alive at h:2, not at h:9"
    # A restart at the same address, and one at another address once the controller has noticed its end.
    assert changed(decide(group, register(2, incarnation="again"), alive(1, 2))) is not group
    assert changed(decide(group, other, alive(1))).replicas[2].address == "h:9"
