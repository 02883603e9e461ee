"""What each kind of registration leaves in the tables, one line a behaviour."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.support.route_tables import READ_ONLY, READ_WRITE, World

from pyromq.nameserver.queue_layouts import QueueShape
from pyromq.protocol.requests.topics import TopicQueueMappingInfo


@dataclass
class Case:
    sentence: str
    script: Callable[[World], Any]
    expected: dict[str, Any]
    rules: dict[str, bool] | None = None


def _then(*steps: Callable[[World], Any]) -> Callable[[World], Any]:
    def script(world: World) -> None:
        for step in steps:
            step(world)

    return script


CASES = [
    Case(
        "a first registration creates cluster, broker, live entry and topics",
        lambda w: w.register("a", 0, "t u"),
        {
            "clusters": {"c": ["a"]},
            "brokers": {"a": {0: "a0:10911"}},
            "live": 1,
            "topics": {"t": "a:6", "u": "a:6"},
            "changed": "t u",
        },
    ),
    Case(
        "a first registration may carry exactly one topic",
        lambda w: w.register("a", 0, "t"),
        {"brokers": {"a": {0: "a0:10911"}}, "topics": {"t": "a:6"}},
    ),
    Case(
        "a registration without topics makes the broker known",
        lambda w: w.register("a", 0, ""),
        {"brokers": {"a": {0: "a0:10911"}}, "topics": {}, "live": 1},
    ),
    Case(
        "two brokers share a topic",
        _then(lambda w: w.register("a"), lambda w: w.register("b", 0, "t")),
        {"clusters": {"c": ["a", "b"]}, "topics": {"t": "a:6 b:6", "u": "a:6"}, "changed": "t"},
    ),
    Case(
        "a broker name keeps the cluster it was first seen in, and is listed in both",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 1, cluster="d")),
        {"clusters": {"c": ["a"], "d": ["a"]}, "brokers": {"a": {0: "a0:10911", 1: "a1:10911"}}, "live": 2},
    ),
    Case(
        "a changed data version replaces queues",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 0, {"t": READ_ONLY}, version=2)),
        {"topics": {"t": "a:4", "u": "a:6"}, "changed": "t"},
    ),
    Case(
        "an unchanged data version leaves known queues alone",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 0, {"t": READ_ONLY})),
        {"topics": {"t": "a:6", "u": "a:6"}, "changed": ""},
    ),
    Case(
        "an unchanged data version still brings an unknown topic",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 0, "t u v")),
        {"topics": {"t": "a:6", "u": "a:6", "v": "a:6"}, "changed": "v"},
    ),
    Case(
        "an unchanged data version brings a topic that only other brokers have",
        _then(
            lambda w: w.register("a"),
            lambda w: w.register("b", 0, "v"),
            lambda w: w.register("a", 0, "t u v"),
        ),
        {"topics": {"t": "a:6", "u": "a:6", "v": "a:6 b:6"}, "changed": "v"},
    ),
    Case(
        "a topic missing from a registration stays",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 0, "t", version=2)),
        {"topics": {"t": "a:6", "u": "a:6"}},
    ),
    Case(
        "a topic missing from a registration goes if so configured",
        _then(
            lambda w: w.register("a"),
            lambda w: w.register("b", 0, "u"),
            lambda w: w.register("a", 0, "t", version=2),
        ),
        {"topics": {"t": "a:6", "u": "b:6"}, "changed": "u"},
        rules={"delete_absent_topics": True},
    ),
    Case(
        "a topic missing from a registration goes even at an unchanged version, if so configured",
        _then(lambda w: w.register("a"), lambda w: w.register("a", 0, "t")),
        {"topics": {"t": "a:6"}, "changed": "u"},
        rules={"delete_absent_topics": True},
    ),
    Case(
        "no topic goes when the registration has mappings of static topics",
        _then(
            lambda w: w.register("a"),
            lambda w: w.register(
                "a", 0, "t", version=2, mappings={"t": TopicQueueMappingInfo(bname="a", topic="t")}
            ),
        ),
        {"topics": {"t": "a:6", "u": "a:6"}},
        rules={"delete_absent_topics": True},
    ),
    Case(
        "a replica of an old broker registers no topics",
        lambda w: w.register("a", 1, "t u"),
        {"brokers": {"a": {1: "a1:10911"}}, "topics": {}, "live": 1},
    ),
    Case(
        "the smallest replica of a new broker registers its topics",
        lambda w: w.register("a", 1, "t", acting_master=False),
        {"topics": {"t": "a:6"}, "acting": set()},
    ),
    Case(
        "a replica that may act as master registers its topics read-only",
        lambda w: w.register("a", 1, "t", acting_master=True),
        {"topics": {"t": "a:4"}, "acting": {"a"}},
    ),
    Case(
        "a replica with a smaller one beside it registers no topics",
        _then(
            lambda w: w.register("a", 1, "t", acting_master=True),
            lambda w: w.register("a", 2, "t u", acting_master=True),
        ),
        {"topics": {"t": "a:4"}},
    ),
    Case(
        "a replica beside its master registers no topics",
        _then(
            lambda w: w.register("a", 0, "t", acting_master=True),
            lambda w: w.register("a", 1, "t u", acting_master=True),
        ),
        {"topics": {"t": "a:6"}, "changed": "t"},
    ),
    Case(
        "a returning master makes topics writable again",
        _then(
            lambda w: w.register("a", 1, "t", acting_master=True),
            lambda w: w.register("a", 0, "t", acting_master=True),
        ),
        {"topics": {"t": "a:6"}, "brokers": {"a": {0: "a0:10911", 1: "a1:10911"}}},
    ),
    Case(
        "a replica promoted to master gives up its old id",
        _then(lambda w: w.register("a", 1, address="x:1"), lambda w: w.register("a", 0, "t", address="x:1")),
        {"brokers": {"a": {0: "x:1"}}, "topics": {"t": "a:6"}, "live": 1},
    ),
    Case(
        "a master demoted to replica gives up id 0",
        _then(lambda w: w.register("a", 0, address="x:1"), lambda w: w.register("a", 3, address="x:1")),
        {"brokers": {"a": {3: "x:1"}}},
    ),
    Case(
        "a broker that comes back at another address takes over its id",
        _then(lambda w: w.register("a", 0, address="x:1"), lambda w: w.register("a", 0, address="y:1")),
        {"brokers": {"a": {0: "y:1"}}, "live": 2, "changed": "t u"},
    ),
    Case(
        "an id in use by a live broker with a greater state version is not taken over",
        _then(
            lambda w: w.register("a", 0, "t", address="x:1", state_version=5),
            lambda w: w.register("a", 0, "t u", address="y:1", state_version=4),
        ),
        {"brokers": {"a": {0: "x:1"}}, "topics": {"t": "a:6"}, "live": 1, "changed": ""},
    ),
    Case(
        "a broker that loses its id to one with a greater state version is no longer alive",
        _then(
            lambda w: w.register("a", 1, "t", address="y:1"),
            lambda w: w.register("a", 0, "t", address="x:1", state_version=5),
            lambda w: w.register("a", 0, "t", address="y:1", state_version=4),
        ),
        {"brokers": {"a": {0: "x:1"}}, "live": 1, "changed": "t"},
    ),
    Case(
        "an id in use by a live broker with an equal state version is taken over",
        _then(
            lambda w: w.register("a", 0, "t", address="x:1", state_version=5),
            lambda w: w.register("a", 0, "t", address="y:1", state_version=5),
        ),
        {"brokers": {"a": {0: "y:1"}}},
    ),
    Case(
        "an id in use by a dead broker is taken over whatever the state version",
        _then(
            lambda w: w.register("a", 0, "t", address="x:1", state_version=5, connection="k"),
            lambda w: w.register("a", 1, "t"),
            lambda w: w.lose("k"),
            lambda w: w.register("a", 0, "t", address="y:1", state_version=4),
        ),
        {"brokers": {"a": {0: "y:1", 1: "a1:10911"}}},
    ),
    Case(
        "filter servers are shown in routes",
        lambda w: w.register("a", 0, "t", filter_servers=["f:1"]),
        {"filters": {"a0:10911": ["f:1"]}},
    ),
    Case(
        "an empty list of filter servers removes them",
        _then(
            lambda w: w.register("a", 0, "t", filter_servers=["f:1"]),
            lambda w: w.register("a", 0, "t", filter_servers=[]),
        ),
        {"filters": {}, "changed": "t"},
    ),
    Case(
        "an old broker that knows no filter servers leaves them alone",
        _then(
            lambda w: w.register("a", 0, "t", filter_servers=["f:1"]),
            lambda w: w.register("a", 0, "t", filter_servers=None),
        ),
        {"filters": {"a0:10911": ["f:1"]}, "changed": ""},
    ),
    Case(
        "zone and acting master are those of the last registration in the group",
        _then(
            lambda w: w.register("a", 0, "t", zone="z1", acting_master=True),
            lambda w: w.register("a", 1, "t", zone="z2", acting_master=None),
        ),
        {"zones": {"a": "z2"}, "acting": set(), "changed": "t"},
    ),
    Case(
        "a registration that changes nothing changes no route",
        _then(lambda w: w.register("a", zone="z"), lambda w: w.register("a", zone="z")),
        {"changed": ""},
    ),
    Case(
        "a new smallest id is told to the others of the group",
        _then(lambda w: w.register("a", 2), lambda w: w.register("a", 3), lambda w: w.register("a", 1)),
        {"notices": [(("a2:10911", "a3:10911"), 1, None)]},
        rules={"notify_min_broker_id": True},
    ),
    Case(
        "a first replica tells nobody",
        lambda w: w.register("a", 2),
        {"notices": []},
        rules={"notify_min_broker_id": True},
    ),
    Case(
        "a promoted replica, alone in its group, is told of its own smallest id",
        _then(lambda w: w.register("a", 2, address="x:1"), lambda w: w.register("a", 0, address="x:1")),
        {"notices": [(("x:1",), 0, None)]},
        rules={"notify_min_broker_id": True},
    ),
    Case(
        "nobody is told of a smallest id unless so configured",
        _then(lambda w: w.register("a", 2), lambda w: w.register("a", 1)),
        {"notices": []},
    ),
    Case(
        "a deleted topic comes back with the next registration, at an unchanged version",
        _then(lambda w: w.register("a"), lambda w: w.delete("t"), lambda w: w.register("a")),
        {"topics": {"t": "a:6", "u": "a:6"}, "changed": "t"},
    ),
    Case(
        "a wiped permission survives registrations at an unchanged version",
        _then(lambda w: w.register("a", 0, "t"), lambda w: w.wipe("a"), lambda w: w.register("a", 0, "t")),
        {"topics": {"t": "a:4"}, "changed": ""},
    ),
    Case(
        "a wiped permission ends with a registration at a changed version",
        _then(
            lambda w: w.register("a", 0, "t"),
            lambda w: w.wipe("a"),
            lambda w: w.register("a", 0, "t", version=2),
        ),
        {"topics": {"t": "a:6"}, "changed": "t"},
    ),
]


@pytest.mark.parametrize("with_digests", [False, True], ids=["read in full", "with digests"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_registration(case: Case, with_digests: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(**(case.rules or {}))
    if with_digests:
        _always_with_digest(world, monkeypatch)
    case.script(world)
    picture = world.picture()
    assert {key: picture[key] for key in case.expected} == case.expected


def _always_with_digest(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = world.table.register

    def register(who: Any, read_inventory: Any, **rest: Any) -> Any:
        inventory = read_inventory()
        digest = repr((inventory, inventory.shapes))
        return plain(who, read_inventory, **{**rest, "digest": digest})

    monkeypatch.setattr(world.table, "register", register)


def test_a_replica_is_told_the_address_of_its_live_master() -> None:
    world = World()
    master = world.register("a", 0, ha_address="ha:1")
    replica = world.register("a", 1)
    assert (master.master_address, master.master_ha_address) == (None, None)
    assert (replica.master_address, replica.master_ha_address) == ("a0:10911", "ha:1")


def test_a_replica_is_told_the_address_of_its_master_on_repetitions_too() -> None:
    world = World()
    world.register("a", 0, ha_address="ha:1")
    world.register("a", 1, digest="d")
    replica = world.register("a", 1, digest="d")
    assert world.table.repetitions == 1
    assert (replica.master_address, replica.master_ha_address) == ("a0:10911", "ha:1")


def test_a_replica_is_told_nothing_of_a_master_in_another_cluster() -> None:
    world = World()
    world.register("a", 0)
    assert world.register("a", 1, cluster="d").master_address is None


def test_a_broker_is_a_newcomer_once() -> None:
    world = World()
    assert world.register("a", 0, connection="k").is_new
    assert not world.register("a", 0, version=2, connection="k").is_new
    world.lose("k")
    assert world.register("a", 0).is_new


def test_a_repetition_is_not_read_again() -> None:
    world = World()
    world.register("a", 0, "t", digest="d")
    world.register("a", 0, "something else", digest="d")
    assert world.picture()["topics"] == {"t": "a:6"}
    assert world.table.repetitions == 1


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda w: w.delete("t"), id="a topic was deleted"),
        pytest.param(lambda w: w.delete("t", "c"), id="a topic was deleted in its cluster"),
        pytest.param(lambda w: w.register("a", 0, "v", digest="e"), id="another body came in between"),
        pytest.param(lambda w: w.register("a", 0, digest="d", zone="z"), id="it moved to another zone"),
        pytest.param(lambda w: w.register("a", 0, digest="d", timeout_ms=5), id="its timeout changed"),
        pytest.param(lambda w: w.unregister("a", 0), id="it left"),
        pytest.param(lambda w: w.lose("k"), id="its connection was lost"),
        pytest.param(lambda w: w.wait(120_001), id="it was silent for too long"),
        pytest.param(lambda w: w.register("a", 0, address="x:1"), id="another broker took its id"),
        pytest.param(
            lambda w: w.table.register_topic("v", [("a", READ_WRITE)]), id="a topic was registered by hand"
        ),
    ],
)
def test_a_registration_is_read_again_after(event: Callable[[World], Any]) -> None:
    world = World()
    world.register("a", 0, "t u", digest="d", connection="k")
    event(world)
    before = world.table.repetitions
    world.register("a", 0, "t u", digest="d", connection="k")
    assert world.table.repetitions == before


def test_a_replica_that_became_the_smallest_is_read_again() -> None:
    world = World()
    world.register("a", 0, "t", connection="k", acting_master=True)
    world.register("a", 1, "t", digest="d", acting_master=True)
    world.lose("k")
    world.delete("t")
    world.register("a", 1, "t", digest="d", acting_master=True)
    assert world.picture()["topics"] == {"t": "a:4"}


def test_a_repetition_keeps_the_broker_alive() -> None:
    world = World()
    world.register("a", 0, digest="d")
    assert world.wait(119_000).brokers == []
    world.register("a", 0, digest="d")
    assert world.wait(119_000).brokers == []
    assert world.table.repetitions == 1


def test_a_repetition_moves_the_broker_to_its_new_connection() -> None:
    world = World()
    world.register("a", 0, digest="d", connection="old")
    world.register("a", 0, digest="d", connection="new")
    assert not world.lose("old")
    assert world.lose("new").all_topics() == {"t", "u"}


def test_mappings_of_static_topics_are_kept_under_the_name_they_carry() -> None:
    world = World()
    mapping = TopicQueueMappingInfo(bname="elsewhere", topic="t", total_queues=8, curr_id_map={0: 1})
    world.register("a", 0, "t", mappings={"t": mapping})
    route = world.route("t")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"elsewhere": mapping}


def test_mappings_of_an_unchanged_version_are_not_merged() -> None:
    world = World()
    world.register("a", 0, "t")
    world.register("a", 0, "t", mappings={"t": TopicQueueMappingInfo(bname="a", topic="t")})
    route = world.route("t")
    assert route is not None
    assert route.topic_queue_mapping_by_broker is None


def test_mappings_stay_when_the_broker_leaves() -> None:
    world = World()
    mapping = TopicQueueMappingInfo(bname="a", topic="t")
    world.register("a", 0, "t", mappings={"t": mapping})
    world.unregister("a")
    world.register("b", 0, "t")
    route = world.route("t")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": mapping}


def test_queues_keep_numbers_permission_and_flags() -> None:
    world = World()
    world.register("a", 0, {"t": QueueShape(3, 5, 6, 2)})
    assert world.queues("t") == {"a": QueueShape(3, 5, 6, 2)}
