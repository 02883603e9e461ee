"""Registrations with very many topics: put in place part by part, gone at once, forgotten bit by bit."""

import logging
from collections.abc import Iterator

import pytest
from tests.support.route_tables import READ_WRITE, World

from pyromq.errors import Refused
from pyromq.nameserver.inventory_reading import (
    InventoryLimits,
    UnreadRegistration,
    read_inventory,
    unread_registration,
)
from pyromq.nameserver.queue_layouts import SWEPT_AT_ONCE
from pyromq.nameserver.registration import PART_TOPICS, Announcement, Inventory, Registered
from pyromq.protocol import registration
from pyromq.protocol.body import DataVersion
from pyromq.protocol.codes import CURRENT_VERSION
from pyromq.protocol.registration import RegisterBrokerBody
from pyromq.protocol.requests.topics import TopicConfig, TopicConfigAndMappingSerializeWrapper

TOPICS = [f"t{number}" for number in range(2 * PART_TOPICS + 1)]
VERSION = DataVersion(counter=3)


def begin(world: World, topics: list[str] = TOPICS) -> Iterator[Registered]:
    return world.table.register_in_parts(
        Announcement("c", "a0:10911", "a", 0),
        Inventory(VERSION, dict.fromkeys(topics, READ_WRITE)),
        digest="large",
        connection="k",
        origin=None,
        now_ms=0,
    )


def test_each_part_tells_its_own_topics_and_the_last_one_completes_the_registration() -> None:
    world = World()
    told = []
    for registered in begin(world):
        told.append(registered.changes.all_topics())
        is_known = world.table.data_version("c", "a0:10911", 0) == VERSION
        assert is_known == registered.is_complete
    assert [len(topics) for topics in told] == [PART_TOPICS, PART_TOPICS, 1]
    assert set().union(*told) == set(TOPICS)
    assert world.table.sizes().topics == len(TOPICS)


def test_a_complete_registration_is_recognised_when_it_is_repeated() -> None:
    world = World()
    for _ in begin(world):
        again = world.table.repeat(
            Announcement("c", "a0:10911", "a", 0), digest="large", connection="k", origin=None, now_ms=1
        )
    assert again is not None
    assert world.table.repetitions == 1


def test_a_broker_that_leaves_between_two_parts_stays_away() -> None:
    world = World()
    parts = begin(world)
    next(parts)
    world.lose("k")
    assert list(parts) == []
    assert world.picture()["topics"] == {}


def test_a_broker_that_registers_anew_between_two_parts_ends_the_old_registration() -> None:
    world = World()
    parts = begin(world)
    next(parts)
    world.register("a", topics="mine", version=4)
    assert list(parts) == []
    assert world.table.data_version("c", "a0:10911", 0) != VERSION


def test_topics_of_a_broker_that_left_are_gone_before_they_are_forgotten() -> None:
    world = World()
    list(begin(world))
    assert world.lose("k").all_topics() == set(TOPICS)
    assert world.route(TOPICS[0]) is None
    assert world.table.all_topics().topic_list == []
    assert world.table.sizes().topics == 0

    world.register("b", topics=TOPICS[:1])
    assert world.changed == {TOPICS[0]}
    world.delete(TOPICS[1])
    assert world.changed == set()
    sweeps = 0
    while world.table.needs_sweeping:
        world.table.sweep()
        sweeps += 1
    assert sweeps == -(-len(TOPICS[1:]) // SWEPT_AT_ONCE)
    assert world.picture()["topics"] == {TOPICS[0]: "b:6"}


def test_many_small_layouts_are_forgotten_bit_by_bit_too() -> None:
    world = World()
    shapes = {topic: READ_WRITE._replace(read_queues=number % 50) for number, topic in enumerate(TOPICS)}
    world.register("a", topics=shapes, connection="k")
    assert world.lose("k").all_topics() == set(TOPICS)
    assert world.table.needs_sweeping
    assert world.table.sizes().topics == 0


def unread(*topics: TopicConfig, packed: bool = False) -> UnreadRegistration:
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigAndMappingSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics}
        )
    )
    encode = registration.encode_compressed if packed else registration.encode_plain
    return unread_registration(encode(body, CURRENT_VERSION), compressed=packed, version=CURRENT_VERSION)


@pytest.mark.parametrize(("read", "write"), [(2_000_000_000, 8), (8, 2_000_000_000), (-1, 8), (8, -1)])
def test_a_topic_with_an_absurd_number_of_queues_is_left_out_and_the_others_are_not(
    read: int, write: int, caplog: pytest.LogCaptureFixture
) -> None:
    body = unread(
        TopicConfig(topic_name="absurd", read_queue_nums=read, write_queue_nums=write),
        TopicConfig(topic_name="large", read_queue_nums=100, write_queue_nums=100),
    )
    with caplog.at_level(logging.WARNING):
        inventory = read_inventory(body, InventoryLimits(topics=10, queues=100), "a")
    assert list(inventory.shapes) == ["large"]
    assert f"absurd({read} read, {write} write)" in caplog.text


def test_topics_that_are_all_different_are_refused() -> None:
    body = unread(*(TopicConfig(topic_name=f"t{n}", read_queue_nums=n) for n in range(1001)))
    with pytest.raises(Refused, match="1001 different"):
        read_inventory(body, InventoryLimits(topics=10_000, queues=10_000), "a")


def test_what_is_packed_or_long_is_not_read_while_others_wait() -> None:
    assert unread(TopicConfig(topic_name="t")).is_short
    assert not unread(TopicConfig(topic_name="t"), packed=True).is_short
    assert not unread(*(TopicConfig(topic_name=f"t{n}") for n in range(1000))).is_short


def test_topics_whose_queues_become_equal_to_those_of_many_others_move_bit_by_bit() -> None:
    world = World()
    world.register("a", topics=TOPICS[:1], connection="k")
    world.register("a", topics=TOPICS, connection="k", version=2)
    world.register("b", topics=TOPICS[1:], connection="m")
    assert world.table.sizes().layouts == 2

    assert world.lose("m").all_topics() == set(TOPICS[1:])
    assert world.picture()["topics"] == dict.fromkeys(TOPICS, "a:6")
    sweeps = 0
    while world.table.needs_sweeping:
        world.table.sweep()
        sweeps += 1
    assert sweeps >= len(TOPICS[1:]) // SWEPT_AT_ONCE
    assert world.table.sizes().layouts == 1
    assert world.table.sizes().topics == len(TOPICS)


def test_absent_topics_of_a_large_broker_are_removed_part_by_part() -> None:
    world = World(delete_absent_topics=True)
    list(begin(world))
    remaining = TOPICS[-1:]
    removed = [registered.changes.all_topics() for registered in begin(world, remaining)]
    assert all(len(topics) <= PART_TOPICS for topics in removed)
    assert set().union(*removed) == set(TOPICS) - set(remaining)
    assert world.table.all_topics().topic_list == remaining
