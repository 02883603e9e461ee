"""Topics and permissions by the hand of an administrator, and the lists they ask for."""

import pytest
from tests.support.route_tables import READ_ONLY, READ_WRITE, World

from pyromq.nameserver.queue_layouts import QueueShape


def test_wiping_clears_the_write_bit_of_every_topic_of_the_broker() -> None:
    world = World()
    world.register("a", 0, {"t": READ_WRITE, "u": READ_ONLY, "v": QueueShape(1, 1, 7, 0)})
    world.register("b", 0, "t")
    assert world.wipe("a") == 3
    assert world.picture()["topics"] == {"t": "a:4 b:6", "u": "a:4", "v": "a:5"}
    assert world.changed == {"t", "v"}


def test_adding_sets_the_permission_to_exactly_read_and_write() -> None:
    world = World()
    world.register("a", 0, {"t": READ_ONLY, "u": READ_WRITE, "v": QueueShape(1, 1, 1, 0)})
    assert world.allow("a") == 3
    assert world.picture()["topics"] == {"t": "a:6", "u": "a:6", "v": "a:6"}
    assert world.changed == {"t", "v"}


def test_permissions_of_an_unknown_broker_touch_no_topic() -> None:
    world = World()
    world.register("a")
    assert world.wipe("b") == 0
    assert world.changed == set()


def test_deleting_a_topic_forgets_it_everywhere() -> None:
    world = World()
    world.register("a", 0, "t u")
    world.register("b", 0, "t", cluster="d")
    world.delete("t")
    assert world.picture()["topics"] == {"u": "a:6"}
    assert world.changed == {"t"}


def test_deleting_a_topic_in_a_cluster_leaves_it_in_others() -> None:
    world = World()
    world.register("a", 0, "t u")
    world.register("b", 0, "t", cluster="d")
    world.delete("t", "c")
    assert world.picture()["topics"] == {"t": "b:6", "u": "a:6"}


def test_deleting_a_topic_in_its_only_cluster_forgets_it() -> None:
    world = World()
    world.register("a", 0, "t u")
    world.delete("t", "c")
    assert world.picture()["topics"] == {"u": "a:6"}


@pytest.mark.parametrize(("topic", "cluster"), [("x", None), ("x", "c"), ("t", "unknown")])
def test_deleting_what_is_not_there_changes_nothing(topic: str, cluster: str | None) -> None:
    world = World()
    world.register("a", 0, "t")
    world.delete(topic, cluster)
    assert world.picture()["topics"] == {"t": "a:6"}
    assert world.changed == set()


def test_an_empty_cluster_name_deletes_everywhere() -> None:
    world = World()
    world.register("a", 0, "t")
    world.delete("t", "")
    assert world.picture()["topics"] == {}


def test_registering_a_topic_adds_and_replaces_queues() -> None:
    world = World()
    world.register("a", 0, "t")
    world.register("b", 0, "")
    changes = world.table.register_topic("t", [("a", READ_ONLY), ("b", READ_WRITE)])
    assert world.picture()["topics"] == {"t": "a:4 b:6"}
    assert changes.all_topics() == {"t"}


def test_registering_a_topic_stops_at_the_first_unknown_broker() -> None:
    world = World()
    world.register("a", 0, "t")
    world.register("b", 0, "")
    world.table.register_topic("t", [("a", READ_ONLY), ("unknown", READ_WRITE), ("b", READ_WRITE)])
    assert world.picture()["topics"] == {"t": "a:4"}


def test_registering_a_new_topic_with_an_unknown_broker_does_nothing() -> None:
    world = World()
    world.register("a", 0, "")
    assert not world.table.register_topic("t", [("a", READ_ONLY), ("unknown", READ_WRITE)])
    assert world.picture()["topics"] == {}


def test_registering_a_topic_without_queues_does_nothing() -> None:
    world = World()
    world.register("a", 0, "")
    assert not world.table.register_topic("t", [])
    assert world.table.all_topics().topic_list == []


def test_the_list_of_all_topics() -> None:
    world = World()
    assert world.table.all_topics().topic_list == []
    world.register("a", 0, "t u")
    world.register("b", 0, "u v")
    assert sorted(world.table.all_topics().topic_list) == ["t", "u", "v"]


def test_the_topics_of_a_cluster() -> None:
    world = World()
    world.register("a", 0, "t u")
    world.register("b", 0, "u")
    world.register("x", 0, "u v", cluster="d")
    assert sorted(world.table.topics_of_cluster("c").topic_list) == ["t", "u"]
    assert sorted(world.table.topics_of_cluster("d").topic_list) == ["u", "v"]
    assert world.table.topics_of_cluster("unknown").topic_list == []


def test_system_topics_are_the_clusters_and_the_brokers() -> None:
    world = World()
    nobody = world.table.system_topics()
    assert (nobody.topic_list, nobody.broker_addr) == ([], None)
    world.register("a", 0, "t")
    world.register("x", 0, "t", cluster="d")
    topics = world.table.system_topics()
    assert sorted(topics.topic_list) == ["a", "c", "d", "x"]
    assert topics.broker_addr == "a0:10911"


def test_unit_lists_go_by_the_flags_of_the_topic() -> None:
    world = World()
    world.register("a", 0, {f"flag{flag}": QueueShape(1, 1, 6, flag) for flag in range(4)})
    assert sorted(world.table.unit_topics().topic_list) == ["flag1", "flag3"]
    assert sorted(world.table.unit_subscribed_topics().topic_list) == ["flag2", "flag3"]
    assert world.table.unit_subscribed_shared_topics().topic_list == ["flag2"]


def test_cluster_info_names_every_broker_with_its_addresses() -> None:
    world = World()
    world.register("a", 1, "t", zone="z", acting_master=True)
    world.register("a", 0, "t", zone="z", acting_master=True)
    info = world.table.cluster_info()
    assert info.cluster_addr_table == {"c": ["a"]}
    data = info.broker_addr_table["a"]
    assert list(data.broker_addrs.items()) == [(0, "a0:10911"), (1, "a1:10911")]
    assert (data.cluster, data.zone_name, data.enable_acting_master) == ("c", "z", True)


def test_members_of_a_broker_group() -> None:
    world = World()
    world.register("a", 1)
    world.register("a", 0)
    assert world.table.member_addresses("a") == {0: "a0:10911", 1: "a1:10911"}
    assert world.table.member_addresses("unknown") == {}


def test_sizes_count_every_table() -> None:
    world = World()
    world.register("a", 0, "t u", filter_servers=["f:1"])
    world.register("b", 0, "u")
    sizes = world.table.sizes()
    assert (sizes.topics, sizes.layouts, sizes.topic_broker_pairs) == (2, 2, 3)
    assert (sizes.broker_groups, sizes.clusters, sizes.live_brokers, sizes.filter_servers) == (2, 1, 2, 1)


def digests(world: World) -> dict[str, str]:
    found: dict[str, str] = {}
    for layout in world.table.layouts():
        found |= world.table.digests(layout)
    return found


def test_equal_routes_have_equal_digests_on_every_name_server() -> None:
    one, other = World(), World()
    for world, order in ((one, "ab"), (other, "ba")):
        for name in order:
            world.register(name, 0, {"t": READ_WRITE, "u": READ_ONLY})
    assert digests(one) == digests(other)
    assert digests(one)["t"] != digests(one)["u"]


def test_a_digest_changes_with_addresses_queues_and_permissions() -> None:
    world = World()
    world.register("a", 0, "t u")
    before = digests(world)
    world.register("a", 1, "t u")
    replicated = digests(world)
    assert replicated["t"] != before["t"]
    world.wipe("a")
    assert digests(world)["t"] not in (before["t"], replicated["t"])
