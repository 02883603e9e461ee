"""The shares that Java members compute for themselves, so that ours leave them alone."""

import pytest

from pyromq.cluster.assignment import (
    Assignment,
    Average,
    AverageByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    _ring_hash,
    my_share,
)
from pyromq.errors import ConfigError
from pyromq.protocol.body import MessageQueue


def some_queues(count: int, broker: str = "brokerName") -> list[MessageQueue]:
    return [MessageQueue("topic", broker, number) for number in range(count)]


def some_members(count: int) -> list[str]:
    return [f"CID_PREFIX{number}" for number in range(count)]


def shares(rule: Assignment, queues: list[MessageQueue], members: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in my_share(rule, member, queues, members)] for member in members]


@pytest.mark.parametrize(
    ("rule", "queue_count", "member_count", "expected"),
    [
        (Average(), 8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (Average(), 2, 3, [[0], [1], []]),
        (Average(), 4, 4, [[0], [1], [2], [3]]),
        (Average(), 10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
        (AverageByCircle(), 8, 3, [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (AverageByCircle(), 10, 4, [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]),
        (AverageByCircle(), 2, 3, [[0], [1], []]),
    ],
)
def test_shares_are_those_of_java(
    rule: Assignment, queue_count: int, member_count: int, expected: list[list[int]]
) -> None:
    assert shares(rule, some_queues(queue_count), some_members(member_count)) == expected


def test_configured_queues_are_taken_whoever_else_is_there() -> None:
    rule = ByConfig(tuple(some_queues(2)))
    assert shares(rule, some_queues(8), some_members(2)) == [[0, 1], [0, 1]]


def test_configured_queues_of_other_topics_are_left_for_those() -> None:
    rule = ByConfig((MessageQueue("other", "b", 0),))
    assert shares(rule, some_queues(8), some_members(1)) == [[]]


def test_machine_rooms_keep_to_the_rooms_that_were_configured() -> None:
    queues = [MessageQueue("topic", "room1@broker-a" if n < 5 else "room2@broker-b", n) for n in range(10)]
    assert shares(ByMachineRoom(frozenset({"room1"})), queues, some_members(2)) == [[0, 1, 4], [2, 3]]


def test_brokers_without_a_room_in_their_name_belong_to_no_machine_room() -> None:
    queues = some_queues(2, "room1") + some_queues(2, "room1@") + some_queues(2, "room1@a@b")
    assert shares(ByMachineRoom(frozenset({"room1"})), queues, some_members(1)) == [[]]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("cid1-0", 791514465), ("MessageQueue [topic=T, brokerName=b, queueId=0]", 562732085)],
)
def test_places_on_the_ring_are_those_of_java(key: str, expected: int) -> None:
    assert _ring_hash(key) == expected


def test_the_ring_needs_nodes() -> None:
    with pytest.raises(ConfigError):
        ConsistentHash(virtual_nodes=0)


def nearby(inner: Assignment) -> MachineRoomNearby:
    return MachineRoomNearby(
        inner, lambda queue: queue.broker_name.partition("-")[0], lambda member: member.partition("-")[0]
    )


def test_nearby_members_have_the_queues_of_their_room_to_themselves() -> None:
    queues = some_queues(5, "A-broker") + some_queues(5, "B-broker")
    members = ["A-1", "A-2", "B-1"]
    assert shares(nearby(Average()), queues, members) == [[0, 1, 2], [3, 4], [0, 1, 2, 3, 4]]


def test_queues_of_a_room_without_members_are_shared_by_all() -> None:
    queues = some_queues(3, "A-broker") + some_queues(4, "C-broker")
    members = ["A-1", "B-1"]
    assert shares(nearby(Average()), queues, members) == [[0, 1, 2, 0, 1], [2, 3]]


def test_an_unknown_room_is_an_error_because_members_could_not_agree() -> None:
    with pytest.raises(ConfigError, match="a room for every broker"):
        my_share(nearby(Average()), "A-1", some_queues(1, "-broker"), ["A-1"])


def test_nearby_is_named_after_the_rule_within() -> None:
    assert nearby(AverageByCircle()).name == "MACHINE_ROOM_NEARBY-AVG_BY_CIRCLE"
