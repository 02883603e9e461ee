"""How brokers leave the tables: by saying so, by losing their connection, by silence."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.route_tables import World

Script = Callable[[World], Any]


def case(sentence: str, *steps: Script, rules: dict[str, bool] | None = None, **expected: Any) -> Any:
    return pytest.param(steps, rules or {}, expected, id=sentence)


ACTING: dict[str, Any] = {"acting_master": True}
TELL = {"notify_min_broker_id": True}


def _group_of_three(w: World) -> None:
    for id_ in (0, 1, 2):
        w.register("a", id_, "t", **ACTING, connection=id_)


@pytest.mark.parametrize(
    ("steps", "rules", "expected"),
    [
        case(
            "the last broker of a name takes the name, its topics and its cluster along",
            lambda w: w.register("a", 0, "t"),
            lambda w: w.unregister("a", 0),
            brokers={},
            clusters={},
            topics={},
            live=0,
            changed="t",
        ),
        case(
            "topics that other brokers have stay with those",
            lambda w: w.register("a", 0, "t u"),
            lambda w: w.register("b", 0, "u"),
            lambda w: w.unregister("a", 0),
            clusters={"c": ["b"]},
            topics={"u": "b:6"},
            changed="t u",
        ),
        case(
            "a replica that leaves changes addresses and nothing else",
            lambda w: w.register("a", 0, "t"),
            lambda w: w.register("a", 1),
            lambda w: w.unregister("a", 1),
            brokers={"a": {0: "a0:10911"}},
            topics={"t": "a:6"},
            live=1,
            changed="t",
        ),
        case(
            "a master that leaves replicas behind keeps its topics writable if nobody acts for it",
            lambda w: w.register("a", 0, "t"),
            lambda w: w.register("a", 1),
            lambda w: w.unregister("a", 0),
            brokers={"a": {1: "a1:10911"}},
            topics={"t": "a:6"},
        ),
        case(
            "a master that leaves replicas behind that may act for it takes the write permission along",
            _group_of_three,
            lambda w: w.unregister("a", 0),
            brokers={"a": {1: "a1:10911", 2: "a2:10911"}},
            topics={"t": "a:4"},
            changed="t",
        ),
        case(
            "a replica that leaves its master does not take the write permission along",
            _group_of_three,
            lambda w: w.unregister("a", 1),
            topics={"t": "a:6"},
        ),
        case(
            "the address decides which id leaves, not the id that is named",
            lambda w: w.register("a", 0, "t", address="x:1"),
            lambda w: w.register("a", 1, address="y:1"),
            lambda w: w.unregister("a", 0, address="y:1"),
            brokers={"a": {0: "x:1"}},
        ),
        case(
            "an address that is not in the group leaves nothing behind and takes nothing along",
            lambda w: w.register("a", 0, "t"),
            lambda w: w.unregister("a", 0, address="x:1"),
            brokers={"a": {0: "a0:10911"}},
            topics={"t": "a:6"},
            live=1,
            changed="",
        ),
        case(
            "an unknown broker leaves without effect",
            lambda w: w.register("a", 0, "t"),
            lambda w: w.unregister("b", 0),
            brokers={"a": {0: "a0:10911"}},
            changed="",
        ),
        case(
            "a farewell under a name it never had does not take a broker out of sight",
            lambda w: w.register("a", 0, "t", address="x:1", connection="k"),
            lambda w: w.unregister("b", 0, address="x:1"),
            brokers={"a": {0: "x:1"}},
            live=1,
        ),
        case(
            "a broker that went by two names stays alive under the other one",
            lambda w: w.register("a", 0, "t", address="x:1", connection="k"),
            lambda w: w.register("b", 0, "u", address="x:1", connection="k"),
            lambda w: w.unregister("a", 0, address="x:1"),
            brokers={"b": {0: "x:1"}},
            topics={"u": "b:6"},
            live=1,
        ),
        case(
            "filter servers leave with their broker",
            lambda w: w.register("a", 0, "t", filter_servers=["f:1"]),
            lambda w: w.register("a", 1, filter_servers=["g:1"]),
            lambda w: w.unregister("a", 0),
            filters={"a1:10911": ["g:1"]},
        ),
        case(
            "the broker of another cluster at the same address stays alive",
            lambda w: w.register("a", 0, "t", address="x:1"),
            lambda w: w.register("b", 0, "t", address="x:1", cluster="d"),
            lambda w: w.unregister("a", 0, address="x:1"),
            clusters={"d": ["b"]},
            live=1,
            topics={"t": "b:6"},
        ),
        case(
            "a name that was seen in two clusters leaves both",
            lambda w: w.register("a", 0, "t", address="x:1", cluster="d"),
            lambda w: w.register("a", 0, "t", address="x:1", cluster="c"),
            lambda w: w.register("b", 0, "t", cluster="d"),
            lambda w: w.unregister("a", 0, address="x:1", cluster="c"),
            clusters={"d": ["b"]},
        ),
        case(
            "those who stay are told of the new smallest id",
            _group_of_three,
            lambda w: w.unregister("a", 0),
            rules=TELL,
            notices=[(("a1:10911", "a2:10911"), 1, "a0:10911")],
        ),
        case(
            "nobody is told when another than the smallest id leaves",
            _group_of_three,
            lambda w: w.unregister("a", 1),
            rules=TELL,
            notices=[],
        ),
        case(
            "nobody is told in a group without acting masters",
            lambda w: w.register("a", 0),
            lambda w: w.register("a", 1),
            lambda w: w.unregister("a", 0),
            rules=TELL,
            notices=[],
        ),
        case(
            "nobody is told unless so configured", _group_of_three, lambda w: w.unregister("a", 0), notices=[]
        ),
        case(
            "a lost connection takes its broker along",
            lambda w: w.register("a", 0, "t", connection="k"),
            lambda w: w.register("b", 0, "t", connection="l"),
            lambda w: w.lose("k"),
            brokers={"b": {0: "b0:10911"}},
            topics={"t": "b:6"},
            live=1,
            changed="t",
        ),
        case(
            "a lost connection takes every broker along that spoke through it",
            lambda w: w.register("a", 0, "t", connection="k"),
            lambda w: w.register("b", 0, "u", connection="k"),
            lambda w: w.lose("k"),
            brokers={},
            topics={},
            live=0,
            changed="t u",
        ),
        case(
            "a connection lost after the broker moved to another one takes nothing along",
            lambda w: w.register("a", 0, "t", connection="old"),
            lambda w: w.register("a", 0, "t", connection="new"),
            lambda w: w.lose("old"),
            brokers={"a": {0: "a0:10911"}},
            live=1,
            changed="",
        ),
        case(
            "a lost connection without a broker means nothing",
            lambda w: w.register("a", 0, "t", connection="k"),
            lambda w: w.lose("l"),
            live=1,
            changed="",
        ),
        case(
            "a lost master tells its replicas",
            _group_of_three,
            lambda w: w.lose(0),
            rules=TELL,
            topics={"t": "a:4"},
            notices=[(("a1:10911", "a2:10911"), 1, "a0:10911")],
        ),
        case(
            "a broker whose id was taken over leaves without harm to its successor",
            lambda w: w.register("a", 0, "t", address="x:1", connection="k", **ACTING),
            lambda w: w.register("a", 0, "t", address="y:1", connection="l", **ACTING),
            lambda w: w.lose("k"),
            rules=TELL,
            brokers={"a": {0: "y:1"}},
            topics={"t": "a:6"},
            live=1,
            changed="",
            notices=[],
        ),
        case(
            "a broker that was renamed without a farewell leaves under both names",
            lambda w: w.register("a", 0, "t", address="x:1", connection="k"),
            lambda w: w.register("b", 0, "t", address="x:1", connection="k"),
            lambda w: w.lose("k"),
            brokers={},
            topics={},
            live=0,
        ),
        case(
            "a broker that comes back brings its topics back",
            lambda w: w.register("a", 0, "t", connection="k"),
            lambda w: w.lose("k"),
            lambda w: w.register("a", 0, "t", connection="l"),
            topics={"t": "a:6"},
            changed="t",
        ),
    ],
)
def test_leaving(steps: tuple[Script, ...], rules: dict[str, bool], expected: dict[str, Any]) -> None:
    world = World(**rules)
    for step in steps:
        step(world)
    picture = world.picture()
    assert {key: picture[key] for key in expected} == expected


def test_a_broker_without_a_timeout_of_its_own_expires_after_the_configured_silence() -> None:
    world = World(broker_expiry_ms=30_000)
    world.register("a", 0, "t", connection="k")
    assert world.wait(30_000).brokers == []
    expired = world.wait(1)
    assert [key.address for key in expired.brokers] == ["a0:10911"]
    assert expired.connections == ["k"]
    assert world.picture()["topics"] == {}


def test_two_minutes_of_silence_are_allowed_unless_configured_otherwise() -> None:
    world = World()
    world.register("a", 0, "t")
    assert world.wait(120_000).brokers == []
    assert len(world.wait(1).brokers) == 1


def test_a_broker_expires_after_the_timeout_it_announced() -> None:
    world = World()
    world.register("a", 0, "t", timeout_ms=10_000)
    world.register("b", 0, "t")
    assert world.wait(10_000).brokers == []
    assert [key.address for key in world.wait(1).brokers] == ["a0:10911"]
    assert world.picture()["topics"] == {"t": "b:6"}


def test_a_shorter_timeout_counts_from_the_registration_that_announces_it() -> None:
    world = World()
    world.register("a", 0, "t")
    world.wait(50_000)
    world.register("a", 0, "t", timeout_ms=1000)
    assert len(world.wait(1001).brokers) == 1


@pytest.mark.parametrize(
    "sign",
    [
        pytest.param(lambda w: w.heartbeat("a", 0), id="a heartbeat"),
        pytest.param(lambda w: w.table.data_version("c", "a0:10911", w.now_ms), id="a data version query"),
        pytest.param(lambda w: w.register("a", 0, "t"), id="a registration"),
    ],
)
def test_a_sign_of_life_keeps_a_broker(sign: Script) -> None:
    world = World(broker_expiry_ms=1000)
    world.register("a", 0, "t")
    for _ in range(5):
        assert world.wait(900).brokers == []
        sign(world)
    assert len(world.wait(1001).brokers) == 1


def test_heartbeats_of_an_unknown_broker_are_ignored() -> None:
    world = World()
    world.register("a", 0, "t")
    assert not world.heartbeat("b", 0)
    assert not world.heartbeat("a", 0, cluster="d")
    assert world.picture()["live"] == 1


def test_the_stored_data_version_is_told_to_those_who_ask() -> None:
    world = World()
    world.register("a", 0, "t", version=4)
    stored = world.table.data_version("c", "a0:10911", 0)
    assert stored is not None
    assert stored.counter == 4
    assert world.table.data_version("c", "elsewhere:1", 0) is None


def test_expired_brokers_of_one_group_leave_together() -> None:
    world = World(notify_min_broker_id=True, broker_expiry_ms=1000)
    _group_of_three(world)
    world.register("a", 2, "t", **ACTING, timeout_ms=9000)
    expired = world.wait(1001)
    assert {key.address for key in expired.brokers} == {"a0:10911", "a1:10911"}
    assert world.picture()["notices"] == [(("a2:10911",), 2, "a1:10911")]
    assert world.picture()["topics"] == {"t": "a:4"}


def test_a_silent_broker_whose_id_was_taken_over_does_not_stay_in_the_live_table() -> None:
    world = World(broker_expiry_ms=1000)
    world.register("a", 0, "t", address="x:1")
    world.wait(500)
    world.register("a", 0, "t", address="y:1")
    world.wait(501)
    assert world.picture()["live"] == 1
    assert world.picture()["brokers"] == {"a": {0: "y:1"}}


def test_the_table_says_when_to_look_for_silent_brokers() -> None:
    world = World(broker_expiry_ms=1000)
    assert world.table.next_expiry_check_ms() is None
    world.register("a", 0, "t")
    world.register("b", 0, "t", timeout_ms=200)
    assert world.table.next_expiry_check_ms() == 200
    world.unregister("b", 0)
    assert world.table.next_expiry_check_ms() == 1000
