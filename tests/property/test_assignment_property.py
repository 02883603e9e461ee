"""Whatever the members and the queues: each queue has one owner, and all members name the same one."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples

from pyromq.cluster.assignment import (
    Assignment,
    Average,
    AverageByCircle,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    my_share,
)
from pyromq.protocol.body import MessageQueue

ROOMS = ("north", "south", "west")

queues = st.sets(
    st.builds(
        MessageQueue,
        st.just("Orders"),
        st.sampled_from([f"{room}@broker-{letter}" for room in ROOMS for letter in "ab"]),
        st.integers(0, 15),
    ),
    min_size=1,
    max_size=40,
)
members = st.sets(
    st.builds("{}@{}".format, st.sampled_from(ROOMS), st.integers(0, 99)), min_size=1, max_size=12
)


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


def room_of_member(member: str) -> str:
    return member.partition("@")[0]


RULES: list[Assignment] = [
    Average(),
    AverageByCircle(),
    ByMachineRoom(frozenset(ROOMS)),
    ConsistentHash(),
    ConsistentHash(virtual_nodes=1),
    MachineRoomNearby(Average(), room_of_queue, room_of_member),
    MachineRoomNearby(ConsistentHash(), room_of_queue, room_of_member),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@every_rule
@settings(max_examples=examples(50))
@given(queues=queues, members=members)
def test_every_queue_has_exactly_one_owner(
    rule: Assignment, queues: set[MessageQueue], members: set[str]
) -> None:
    shares = [queue for member in members for queue in my_share(rule, member, queues, members)]
    assert sorted(shares) == sorted(queues)


@every_rule
@settings(max_examples=examples(50))
@given(queues=queues, members=members, seed=st.integers())
def test_the_order_in_which_queues_and_members_are_listed_does_not_matter(
    rule: Assignment, queues: set[MessageQueue], members: set[str], seed: int
) -> None:
    shuffled_queues, shuffled_members = list(queues), list(members)
    random.Random(seed).shuffle(shuffled_queues)
    random.Random(seed).shuffle(shuffled_members)
    for member in members:
        assert my_share(rule, member, queues, members) == my_share(
            rule, member, shuffled_queues, shuffled_members
        )


@pytest.mark.parametrize("rule", [Average(), AverageByCircle()], ids=lambda rule: rule.name)
@settings(max_examples=examples(50))
@given(queues=queues, members=members)
def test_shares_differ_by_one_queue_at_most(
    rule: Assignment, queues: set[MessageQueue], members: set[str]
) -> None:
    sizes = [len(my_share(rule, member, queues, members)) for member in members]
    assert max(sizes) - min(sizes) <= 1


@settings(max_examples=examples(50))
@given(queues=queues, members=members, newcomer=st.just("zulu@1"))
def test_a_newcomer_on_the_ring_takes_queues_but_moves_none_between_the_others(
    queues: set[MessageQueue], members: set[str], newcomer: str
) -> None:
    rule = ConsistentHash()
    for member in members:
        before = set(my_share(rule, member, queues, members))
        after = set(my_share(rule, member, queues, members | {newcomer}))
        assert after <= before


@every_rule
@settings(max_examples=examples(50))
@given(queues=queues, members=members)
def test_a_member_unknown_to_the_group_gets_nothing(
    rule: Assignment, queues: set[MessageQueue], members: set[str]
) -> None:
    assert my_share(rule, "stranger", queues, members) == []
