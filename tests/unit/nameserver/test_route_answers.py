"""Route bodies: what is in them, and that they are encoded once."""

from typing import Any

import pytest
from tests.support.route_tables import READ_WRITE, World

from pyromq.nameserver.route_answers import RouteAnswers
from pyromq.protocol import json_body
from pyromq.protocol.requests.routes import TopicRouteData
from pyromq.protocol.requests.topics import TopicQueueMappingInfo


def _find(world: World, topic: str, **form: Any) -> bytes:
    body = world.table.answers.find(topic, **{"strict": False, **form})
    assert body is not None
    return body


def test_an_unknown_topic_has_no_route() -> None:
    world = World()
    world.register("a")
    assert world.route("x") is None


def test_the_plain_dialect_has_bare_numbers_as_keys() -> None:
    world = World()
    world.register("a", 0, "t")
    assert _find(world, "t") == (
        b'{"brokerDatas":[{"brokerAddrs":{0:"a0:10911"},"brokerName":"a","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


def test_the_strict_dialect_quotes_keys_and_escapes_what_is_not_ascii() -> None:
    world = World()
    world.register("broker-ä", 0, "t", address="a0:10911", zone="z")
    assert _find(world, "t", strict=True) == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"a0:10911"},"brokerName":"broker-\\u00E4","cluster":"c",'
        b'"enableActingMaster":false,"zoneName":"z"}],"filterServerTable":{},'
        b'"queueDatas":[{"brokerName":"broker-\\u00E4","perm":6,'
        b'"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":8}]}'
    )


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("order", [None, "a:8;b:8"])
@pytest.mark.parametrize("mapped", [False, True])
def test_a_composed_answer_is_the_same_as_one_encoded_as_a_whole(
    strict: bool, order: str | None, mapped: bool
) -> None:
    world = World()
    mapping = TopicQueueMappingInfo(bname="a", topic="t", curr_id_map={0: 0, 1: 1}, total_queues=2)
    world.register(
        "a", 0, "t", mappings={"t": mapping} if mapped else {}, filter_servers=["f:1"], zone="zone"
    )
    world.register("a", 1, filter_servers=["g:1"], zone="zone")
    world.register("bé", 0, "t", acting_master=True)
    body = _find(world, "t", strict=strict, order_configuration=order)
    route = json_body.decode(body, TopicRouteData)
    assert route.order_topic_conf == order
    assert (route.topic_queue_mapping_by_broker is not None) == mapped
    assert route.filter_server_table == {"a0:10911": ["f:1"], "a1:10911": ["g:1"]}
    assert body == (json_body.encode_strict(route) if strict else json_body.encode(route))


def test_a_route_is_encoded_once() -> None:
    world = World()
    world.register("a", 0, "t u")
    first = _find(world, "t")
    assert _find(world, "t") is first
    assert _find(world, "u") is first, "topics with the same queues share their answer"
    assert world.table.answers.encodings == 1


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda w: w.register("b", 0, "x", version=2), id="another broker changed"),
        pytest.param(lambda w: w.register("a", 0, "t"), id="its broker said the same again"),
        pytest.param(lambda w: w.register("a", 0, "t new", version=9), id="its broker has a new topic"),
        pytest.param(lambda w: w.heartbeat("a", 0), id="its broker is alive"),
    ],
)
def test_an_answer_is_kept_when(event: Any) -> None:
    world = World()
    world.register("a", 0, "t")
    world.register("b", 0, "x")
    kept = _find(world, "t")
    event(world)
    assert _find(world, "t") is kept


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(lambda w: w.register("a", 1), id="a replica came"),
        pytest.param(lambda w: w.unregister("a", 2), id="a replica left"),
        pytest.param(lambda w: w.register("a", 0, "t", address="x:1"), id="an address changed"),
        pytest.param(lambda w: w.register("a", 0, "t", zone="z"), id="a zone changed"),
        pytest.param(lambda w: w.register("a", 0, "t", acting_master=True), id="acting masters are allowed"),
        pytest.param(lambda w: w.register("a", 0, "t", filter_servers=["f:1"]), id="filter servers came"),
        pytest.param(lambda w: w.register("b", 0, "t"), id="a broker joined"),
        pytest.param(lambda w: w.wipe("a"), id="a permission was wiped"),
        pytest.param(lambda w: w.table.register_topic("t", [("b", READ_WRITE)]), id="queues came by hand"),
    ],
)
def test_an_answer_is_made_anew_when(event: Any) -> None:
    world = World()
    world.register("a", 0, "t")
    world.register("a", 2)
    world.register("b", 0, "x")
    old = _find(world, "t")
    event(world)
    assert _find(world, "t") != old


def test_beyond_its_budget_the_cache_starts_again() -> None:
    world = World()
    tables = world.table._tables
    world.register("a", 0, "t")
    world.register("b", 0, "u")
    size = len(_find(world, "t"))
    answers = RouteAnswers(tables, budget_bytes=size + 10)
    tables.queues.forget_all_answers()
    for topic in ("t", "u", "t", "u"):
        assert answers.find(topic, strict=False) is not None
    assert answers.encodings == 4
    assert sum(len(layout.answers) for layout in tables.queues.layouts) == 1


class TestActingMaster:
    def _world(self, *, acting: bool = True) -> World:
        world = World()
        world.register("a", 0, "t rmq_sys_SYNC_BROKER_MEMBER_a", connection="k", acting_master=acting)
        world.register("a", 2, acting_master=acting)
        world.register("a", 1, acting_master=acting)
        world.lose("k")
        return world

    def test_the_smallest_replica_takes_the_place_of_a_missing_master(self) -> None:
        assert self._world().addresses("t", acting_masters=True) == {"a": {0: "a1:10911", 2: "a2:10911"}}

    def test_only_in_the_answer(self) -> None:
        world = self._world()
        world.addresses("t", acting_masters=True)
        assert world.addresses("t") == {"a": {1: "a1:10911", 2: "a2:10911"}}
        assert world.table.member_addresses("a") == {1: "a1:10911", 2: "a2:10911"}

    def test_not_while_there_is_a_master(self) -> None:
        world = self._world()
        world.register("a", 0, "t", acting_master=True)
        world.wipe("a")
        assert world.addresses("t", acting_masters=True) == {
            "a": {0: "a0:10911", 1: "a1:10911", 2: "a2:10911"}
        }

    def test_not_in_a_group_that_does_not_allow_it(self) -> None:
        assert self._world(acting=False).addresses("t", acting_masters=True) == {
            "a": {1: "a1:10911", 2: "a2:10911"}
        }

    def test_not_for_a_topic_that_is_still_writable(self) -> None:
        world = self._world()
        world.allow("a")
        assert world.addresses("t", acting_masters=True) == {"a": {1: "a1:10911", 2: "a2:10911"}}

    def test_not_for_topics_of_broker_groups_themselves(self) -> None:
        world = self._world()
        assert world.addresses("rmq_sys_SYNC_BROKER_MEMBER_a", acting_masters=True) == {
            "a": {1: "a1:10911", 2: "a2:10911"}
        }


class TestZones:
    def _world(self) -> World:
        world = World()
        world.register("a", 0, "t", zone="East", filter_servers=["f:1"])
        world.register("b", 0, "t", zone="west", filter_servers=["g:1"])
        world.register("n", 0, "t")
        return world

    def test_only_brokers_of_the_zone_are_told(self) -> None:
        route = self._world().route("t", zone="east")
        assert route is not None
        assert [each.broker_name for each in route.broker_datas] == ["a"]
        assert [each.broker_name for each in route.queue_datas] == ["a"]
        assert route.filter_server_table == {"a0:10911": ["f:1"]}

    def test_a_group_without_a_master_is_told_everywhere(self) -> None:
        world = self._world()
        world.register("r", 1, "t", zone="north", acting_master=False)
        assert sorted(world.addresses("t", zone="EAST")) == ["a", "r"]

    def test_an_acting_master_is_a_master(self) -> None:
        world = self._world()
        world.register("r", 1, "t", zone="north", acting_master=True)
        assert sorted(world.addresses("t", zone="east", acting_masters=True)) == ["a"]
        assert sorted(world.addresses("t", zone="east")) == ["a", "r"]

    def test_a_zone_without_brokers_gets_an_empty_route(self) -> None:
        assert _find(self._world(), "t", zone="south") == (
            b'{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}'
        )

    def test_the_answer_is_in_the_plain_dialect_even_if_strict_was_asked_for(self) -> None:
        world = self._world()
        assert _find(world, "t", zone="east", strict=True) == _find(world, "t", zone="east")
        assert b'{0:"a0:10911"}' in _find(world, "t", zone="east", strict=True)

    def test_invented_zones_do_not_fill_the_cache(self) -> None:
        world = self._world()
        for number in range(100):
            _find(world, "t", zone=f"invented-{number}")
        assert world.table.answers.encodings == 1
