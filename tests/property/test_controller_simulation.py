"""A broker group under its controllers loses nothing, whatever is lost, doubled, delayed or crashes.

`make fuzz TESTS=tests/property/test_controller_simulation.py` looks for new runs and prints their seeds.
"""

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.simulated_group import World

STEPS = 3000


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=examples(25))
@example(0)
def test_two_controllers_before_a_quorum(seed: int) -> None:
    run(World(seed, is_file=False))


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=examples(25))
@example(0)
def test_one_controller_with_a_file(seed: int) -> None:
    run(World(seed, is_file=True))


@given(st.integers(0, 2**63 - 1), st.integers(0, 2))
@settings(max_examples=examples(25))
@example(0, 0)
def test_two_brokers_go_on_without_the_third_unless_it_alone_was_in_sync(seed: int, absent: int) -> None:
    world = World(seed, is_file=False)
    for _ in range(STEPS):
        world.step()
    third = world.brokers[absent]
    if world.truth.group.sync_set == {third.id}:
        world.close()
    else:
        world.calm_down(without=third)


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=examples(25))
@example(0)
def test_controllers_whose_store_is_wiped(seed: int) -> None:
    run(World(seed, is_file=False, loses_store=True))


def test_stores_are_wiped_and_masters_follow_in_those_runs() -> None:
    worlds = [World(seed, is_file=False, loses_store=True) for seed in range(8)]
    for world in worlds:
        run(world)
    assert sum(world.losses for world in worlds) > 8
    assert max(world.truth.group.master_epoch for world in worlds) > 1000


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=examples(25))
@example(0)
def test_a_broker_that_loses_what_it_had_not_flushed(seed: int) -> None:
    run(World(seed, is_file=False, has_weak_broker=True))


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=examples(25))
@example(0)
def test_a_master_that_acknowledges_alone_stops_before_its_successor_begins(seed: int) -> None:
    world = World(seed, is_file=True, is_alone=True)
    for _ in range(STEPS):
        world.step()
    world.close()


def test_masters_acknowledge_alone_in_those_runs() -> None:
    worlds = [World(seed, is_file=True, is_alone=True) for seed in range(8)]
    for world in worlds:
        for _ in range(STEPS):
            world.step()
        world.close()
    assert sum(world.alone_count for world in worlds) > 5
    assert max(world.newest_acknowledger for world in worlds) > 1


def run(world: World) -> None:
    for _ in range(STEPS):
        world.step()
    world.calm_down()


def test_runs_are_eventful_and_repeat() -> None:
    """Else the tests above would promise nothing."""
    masters = acknowledged = 0
    for seed in range(8):
        first, second = World(seed, is_file=False), World(seed, is_file=False)
        for world in (first, second):
            run(world)
        assert (first.truth.group, first.acknowledged) == (second.truth.group, second.acknowledged)
        masters += first.masters
        acknowledged += len(first.acknowledged)
    assert masters >= 8
    assert acknowledged >= 60
