"""Whatever brokers and operators ask of a controller, in whatever order, its groups make sense."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.controller.decisions import Situation, decide
from pyromq.controller.groups import GroupRecord, decode_group, encode_group
from pyromq.controller.liveness import Heard, Vitals
from pyromq.protocol.catalogue import (
    Answer,
    Request,
    declaration_of,
    decode_answer,
    encode_answer,
    encode_request,
)
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.controller import (
    AlterSyncStateSet,
    ApplyBrokerId,
    CleanBrokerData,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    RegisterBrokerAtController,
    SyncStateSet,
)

IDS = st.integers(1, 4) | st.sampled_from((-1, 0, 2**63 - 1))
MAYBE_IDS = IDS | st.none()
CLUSTERS = st.sampled_from(("c", "c", "c", "other", None))
NAMES = {"cluster_name": CLUSTERS, "broker_name": st.just("g")}
SETS = st.builds(
    SyncStateSet, sync_state_set=st.sets(IDS, max_size=4), sync_state_set_epoch=st.integers(0, 6)
)
REQUESTS: st.SearchStrategy[Request[Any]] = st.one_of(
    st.builds(GetNextBrokerId, **NAMES),
    st.builds(
        ApplyBrokerId,
        **NAMES,
        applied_broker_id=MAYBE_IDS,
        register_check_code=st.sampled_from(("h:1;1", "h:2;2", "", None)),
    ),
    st.builds(
        RegisterBrokerAtController,
        **NAMES,
        broker_id=MAYBE_IDS,
        broker_address=st.sampled_from(("h:1", "h:9", None)),
    ),
    st.builds(
        ElectMaster,
        cluster_name=st.just("c"),
        broker_name=st.just("g"),
        broker_id=IDS,
        designate_elect=st.booleans(),
    ),
    st.builds(
        AlterSyncStateSet,
        broker_name=st.just("g"),
        master_broker_id=MAYBE_IDS,
        master_epoch=st.integers(0, 6) | st.none(),
        body=SETS,
    ),
    st.builds(GetReplicaInfo, broker_name=st.just("g")),
    st.builds(
        CleanBrokerData,
        **NAMES,
        broker_controller_ids_to_clean=st.sampled_from((None, "", "1", "2;3", "1;2;3;4", "x", ";")),
        is_clean_living_broker=st.booleans(),
    ),
)
SITUATIONS = st.builds(
    Situation,
    heard=st.builds(
        Heard,
        alive=st.dictionaries(IDS, st.builds(Vitals, IDS, IDS, IDS), max_size=4),
        lost=st.frozensets(IDS, max_size=3),
        is_complete=st.booleans(),
    ),
    elects_unclean=st.booleans(),
)


@given(st.lists(st.tuples(REQUESTS, SITUATIONS), max_size=40))
@settings(max_examples=examples(60))
def test_a_group_makes_sense_after_every_request(asked: list[tuple[Request[Any], Situation]]) -> None:
    group: GroupRecord | None = None
    masters: dict[int, int] = {}
    for request, situation in asked:
        decision = decide(group, request, situation)
        can_be_sent(request, decision.answer)
        after = decision.group
        if decision.answer.code not in (ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE):
            assert after is group
        if after is None:
            continue
        makes_sense(after)
        assert decode_group(encode_group(after)) == after
        if group is not None:
            assert after.next_id >= group.next_id
            assert after.master_epoch >= group.master_epoch
            assert after.sync_set_epoch >= group.sync_set_epoch
            if after.sync_set != group.sync_set:
                assert after.sync_set_epoch > group.sync_set_epoch
        if after.master_id is not None:
            assert masters.setdefault(after.master_epoch, after.master_id) == after.master_id
        group = after


def makes_sense(group: GroupRecord) -> None:
    assert group.sync_set <= group.replicas.keys()
    assert all(each < group.next_id for each in group.replicas)
    assert group.master_id is None or group.master_id in group.sync_set


def can_be_sent(request: Request[Any], answer: Answer) -> None:
    """Refusals become errors; everything else arrives as it was."""
    if type(answer) is Answer:
        return
    declaration = declaration_of(type(request))
    frame = encode_answer(declaration, answer, encode_request(request, 1))
    assert decode_answer(type(request), frame) == answer
