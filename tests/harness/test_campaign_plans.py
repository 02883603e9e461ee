"""A seed gives the same faults every time, and only faults that the cluster can have."""

from hypothesis import given
from hypothesis import strategies as st
from tests.campaign.faults import Faults
from tests.campaign.network import CLIENTS, Network
from tests.campaign.plans import ALONE, LEADER, MASTER, Planned, Shape, kinds_for, plan

PAIR = Shape(brokers=("b0", "b1"), name_servers=("n0",), small_disks=True)
SINGLE = Shape(brokers=("b0",), name_servers=("n0",), controllers=("c0",))
SHARED = Shape(brokers=("b0", "b1"), name_servers=("n0",), controllers=("c0", "c1", "c2"), etcds=("e0",))
SEEDS = st.integers(0, 10**9)


@given(SEEDS, st.sampled_from([PAIR, SINGLE, SHARED]))
def test_the_same_seed_gives_the_same_plan(seed: int, shape: Shape) -> None:
    assert plan(seed, shape, 60) == plan(seed, shape, 60)


@given(SEEDS, st.sampled_from([PAIR, SINGLE, SHARED]))
def test_faults_are_in_time_and_hit_only_parties_that_are_there(seed: int, shape: Shape) -> None:
    parties = {*shape.brokers, *shape.name_servers, *shape.controllers, *shape.etcds, CLIENTS, MASTER, LEADER}
    planned = plan(seed, shape, 60)
    assert planned
    assert [each.at_s for each in planned] == sorted(each.at_s for each in planned)
    for each in planned:
        assert each.at_s < 60
        assert set(each.targets) <= parties
        assert len(set(each.targets)) == len(each.targets)
        assert each.kind in kinds_for(shape)


@given(SEEDS)
def test_only_small_disks_are_filled(seed: int) -> None:
    assert "full_disk" not in {each.kind for each in plan(seed, SINGLE, 60)}


@given(SEEDS)
def test_a_fault_that_takes_data_from_a_broker_comes_alone(seed: int) -> None:
    planned = plan(seed, SHARED, 60)
    for each in planned:
        if each.kind in ALONE:
            assert [other for other in planned if other.at_s == each.at_s] == [each]


@given(SEEDS)
def test_a_plan_can_be_limited_to_some_kinds(seed: int) -> None:
    assert {each.kind for each in plan(seed, PAIR, 60, ("kill", "hang"))} <= {"kill", "hang"}


def test_every_kind_of_fault_is_chosen_sooner_or_later_and_can_be_inflicted() -> None:
    chosen = {each.kind for seed in range(50) for each in plan(seed, PAIR, 60)}
    assert chosen == set(kinds_for(PAIR))
    assert all(hasattr(Faults, f"_{kind}") for kind in chosen)


def test_only_where_there_are_several_controllers_their_leader_is_hit_and_parted_from_etcd() -> None:
    hit = {
        shape: {each.targets for seed in range(50) for each in plan(seed, shape, 60)}
        for shape in (SINGLE, SHARED)
    }
    assert {(LEADER,), ("e0",), (LEADER, "e0"), ("e0", LEADER)} <= hit[SHARED]
    assert not any(LEADER in targets for targets in hit[SINGLE])


async def test_a_fault_hits_whoever_has_the_role_at_its_time_and_parts_nobody_from_itself() -> None:
    cut: list[tuple[str, str]] = []

    class Recorded(Network):
        def cut(self, sender: str, receiver: str) -> None:
            cut.append((sender, receiver))

    async def find_master() -> str:
        return "b1"

    async def find_leader() -> str:
        return "c2"

    async def wait_whole() -> None:
        raise AssertionError("a cut takes no data from a broker")

    faults = Faults({}, {}, Recorded(), find_master, find_leader, wait_whole)
    for targets in (("b0", MASTER), (MASTER, "b1"), (LEADER, "e0"), (MASTER, LEADER)):
        await faults.inflict(Planned(0.0, 0.0, "one_way_cut", targets))
    assert cut == [("b0", "b1"), ("c2", "e0"), ("b1", "c2")]
