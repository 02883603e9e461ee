"""Plans of static topics: where queues go, and what does not fit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.admin.failures import BadPlan
from pyromq.admin.static_topics import Holders, before, grown, moved, verified
from pyromq.protocol.requests.topics import TopicConfigAndQueueMapping, TopicRemappingDetailWrapper
from pyromq.protocol.static_topics import UNDECIDED, whole, whole_problem

NOW = 1_700_000_000_000
NAMES = ("a", "b", "c", "d")


def leaders(known: Holders) -> list[str]:
    details = [each.mapping_detail for each in known.values() if each.mapping_detail is not None]
    return [items[-1].bname or "" for items in whole(details).values()]


def settled(plan: TopicRemappingDetailWrapper) -> Holders:
    """What the brokers have once the places are decided."""
    for config in plan.broker_config_map.values():
        assert config.mapping_detail is not None
        for items in config.mapping_detail.hosted_queues.values():
            if items[-1].logic_offset == UNDECIDED:
                items[-1].logic_offset = items[-2].logic_offset + 10_000
    return plan.broker_config_map


@settings(max_examples=examples(100))
@given(
    st.integers(1, 20),
    st.sets(st.sampled_from(NAMES), min_size=1),
    st.lists(st.sets(st.sampled_from(NAMES), min_size=1), max_size=5),
)
def test_queues_are_spread_evenly_and_few_of_them_move(
    total: int, first: set[str], later: list[set[str]]
) -> None:
    known = settled(grown("t", total, first, {}, NOW))
    counts = [leaders(known).count(name) for name in first]
    assert (sum(counts), max(counts) - min(counts) <= 1) == (total, True)
    for targets in later:
        led = leaders(known)
        try:
            plan = moved("t", targets, known, NOW)
        except BadPlan:
            assert set(led) <= targets
            continue
        was = {name: each.mapping_detail.epoch for name, each in known.items() if each.mapping_detail}
        known = settled(plan)
        now = leaders(known)
        counts = [now.count(name) for name in targets]
        assert (sum(counts), max(counts) - min(counts) <= 1) == (total, True)
        assert not plan.broker_to_map_in & plan.broker_to_map_out
        assert plan.epoch > max(was.values())
        stay = sum(min(led.count(name), now.count(name)) for name in targets)
        assert sum(old == new for old, new in zip(led, now, strict=True)) == stay


def test_more_queues_leave_those_that_are_there() -> None:
    known = grown("t", 2, {"a"}, {}, NOW).broker_config_map
    plan = grown("t", 5, {"b"}, known, NOW)
    assert leaders(plan.broker_config_map) == ["a", "a", "b", "b", "a"]
    assert plan.broker_config_map["a"].write_queue_nums == 3
    assert plan.epoch == known_epoch(known) + 1000
    with pytest.raises(BadPlan, match="has 5 queues"):
        grown("t", 5, {"a"}, plan.broker_config_map, NOW)


def known_epoch(known: Holders) -> int:
    return before("t", known).epoch


def test_a_queue_that_comes_back_gets_a_new_queue_of_its_broker() -> None:
    known = settled(grown("t", 1, {"a"}, {}, NOW))
    for target in ("b", "a", "b"):
        known = settled(moved("t", {target}, known, NOW))
    detail = known["b"].mapping_detail
    assert detail is not None
    places = [(each.bname, each.queue_id) for each in detail.hosted_queues[0]]
    assert places == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert whole_problem({n: c.mapping_detail for n, c in known.items() if c.mapping_detail}) is None


def test_a_plan_from_a_file_is_checked() -> None:
    plan = grown("t", 1, {"a"}, {}, NOW)
    assert verified(plan, "t") is plan
    with pytest.raises(BadPlan, match="has a plan for t: expected one for u"):
        verified(plan, "u")
    with pytest.raises(BadPlan, match="is not static"):
        moved("t", {"a"}, {"a": TopicConfigAndQueueMapping(topic_name="t")}, NOW)
    with pytest.raises(BadPlan, match="there is no static topic"):
        moved("t", {"a"}, {}, NOW)
    with pytest.raises(BadPlan, match="lead all queues"):
        moved("t", {"a"}, plan.broker_config_map, NOW)
