"""Nobody takes the place of a live broker, or says goodbye for it, from somewhere else without proof."""

import pytest
from tests.support.route_tables import World

from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode

HOME, AWAY = "10.0.0.1", "10.0.0.66"


def guarded() -> World:
    """Broker `a` registered from home."""
    world = World(guard_live_brokers=True)
    world.register("a", connection="k", origin=HOME, digest="d")
    return world


@pytest.mark.parametrize(
    "claim",
    [
        {"address": "evil:1"},
        {"address": "evil:1", "cluster": "other"},
        {"address": "evil:1", "version": 9},
        {"topics": "mine"},
        {"topics": "mine", "cluster": "other"},
        {"name": "b", "address": "a0:10911"},
        {"digest": "d"},
    ],
    ids=[
        "another address",
        "another cluster",
        "newer topics",
        "its own address",
        "its address elsewhere",
        "another name",
        "a repetition",
    ],
)
def test_a_stranger_cannot_register_in_the_place_of_a_live_broker(claim: dict[str, str]) -> None:
    world = guarded()
    before = world.picture()
    with pytest.raises(Refused, match=f"alive at a0:10911, registered from {HOME}") as refused:
        world.register(connection="stranger", origin=AWAY, **claim)  # type: ignore[arg-type]
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert world.picture() == before
    world.lose("stranger")
    assert world.picture()["brokers"] == {"a": {0: "a0:10911"}}


@pytest.mark.parametrize("cluster", ["c", "other"])
def test_a_stranger_cannot_unregister_a_live_broker(cluster: str) -> None:
    world = guarded()
    before = world.picture()
    with pytest.raises(Refused, match=f"is alive, registered from {HOME}"):
        world.unregister("a", cluster=cluster, connection="stranger", origin=AWAY)
    assert world.picture() == before


@pytest.mark.parametrize("connection", ["k", "l"])
def test_the_host_of_a_broker_unregisters_it_over_any_connection(connection: str) -> None:
    world = guarded()
    world.unregister("a", connection=connection, origin=HOME)
    assert world.picture()["brokers"] == {}


def test_a_connection_that_registered_a_broker_speaks_for_it_wherever_it_seems_to_come_from() -> None:
    world = guarded()
    world.register("a", version=2, connection="k", origin=AWAY)
    world.unregister("a", connection="k", origin="elsewhere")
    assert world.picture()["brokers"] == {}


def test_a_broker_moves_to_another_port_of_its_host() -> None:
    world = guarded()
    world.register("a", address="a0:20911", connection="l", origin=HOME)
    assert world.picture()["brokers"] == {"a": {0: "a0:20911"}}


def test_a_broker_moves_to_another_host_when_the_old_one_has_lost_its_connection() -> None:
    world = guarded()
    world.lose("k")
    world.register("a", address="b:1", connection="l", origin=AWAY)
    assert world.picture()["brokers"] == {"a": {0: "b:1"}}


def test_a_broker_moves_to_another_host_when_the_old_one_has_been_silent() -> None:
    world = guarded()
    world.wait(120_001)
    world.register("a", address="b:1", connection="l", origin=AWAY)
    assert world.picture()["brokers"] == {"a": {0: "b:1"}}


def test_a_new_master_of_a_controller_takes_the_place_of_the_old_one() -> None:
    world = guarded()
    world.register("a", address="b:1", connection="l", origin=AWAY, state_version=1)
    assert world.picture()["brokers"] == {"a": {0: "b:1"}}


def test_replicas_join_a_group_from_other_hosts() -> None:
    world = guarded()
    world.register("a", 1, connection="l", origin=AWAY)
    assert world.picture()["brokers"] == {"a": {0: "a0:10911", 1: "a1:10911"}}


def test_without_the_guard_the_last_one_wins() -> None:
    world = World(guard_live_brokers=False)
    world.register("a", connection="k", origin=HOME)
    world.register("a", address="b:1", connection="l", origin=AWAY)
    assert world.picture()["brokers"] == {"a": {0: "b:1"}}
    world.unregister("a", address="b:1", connection="m", origin="elsewhere")
    assert world.picture()["brokers"] == {}


@pytest.mark.parametrize("timeout_ms", [10**18, -1, 0])
def test_a_broker_cannot_announce_that_it_never_expires(timeout_ms: int) -> None:
    world = World()
    world.register("a", timeout_ms=timeout_ms)
    assert not world.wait(10).brokers
    assert world.wait(3_600_001).brokers


def test_a_broker_without_an_id_stands_in_for_nobody() -> None:
    world = World()
    world.register("a", 1, topics="t", acting_master=True)
    world.register("a", -1, topics="u", acting_master=True)
    assert world.queues("u") == {}
