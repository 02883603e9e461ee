"""Apache's brokers, clients and admin tool at our NameServer, as they are at their own.

One broker registers at both name servers, so both are in the same state; a question put to both must get the
same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.apache import (
    ApacheBroker,
    ApacheClient,
    ApacheNameServer,
    ClientOf,
    topics_at,
    wait_for_broker,
    wait_until,
)
from tests.support.apache_releases import RELEASES, Release
from tests.support.own_nameserver import OwnNameServer

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FORMS = ("JSON", "ROCKETMQ")


@dataclass(frozen=True)
class Peers:
    ours: OwnNameServer
    apaches: ApacheNameServer
    broker: ApacheBroker
    client: ApacheClient

    def both(self, *command: str) -> tuple[str, str]:
        """What mqadmin says at our name server and at Apache's; their addresses made alike."""
        return self.at(self.ours.address, *command), self.at(self.apaches.address, *command)

    def at(self, name_server: str, *command: str) -> str:
        said = self.client.mqadmin(*command, "-n", name_server)
        # Stack traces name the thread's line numbers in mqadmin, not in the name server.
        # The releases point to different pages for help.
        lines = [line for line in said.splitlines() if not line.startswith(("\tat ", "See http"))]
        return "\n".join(lines).replace(name_server, "NAMESERVER")

    def create_topic(self, topic: str, queues: int = 4) -> None:
        """Once only: a registration that is still on its way would undo what is done to one name server."""
        self.client.create_topic(self.ours.address, self.broker.address, topic, queues)
        wait_until(
            lambda: topic in topics_at(self.apaches.address),
            f"the route of {topic} at Apache's",
        )


@pytest.fixture(
    scope="module", params=[(r, f) for r in RELEASES for f in FORMS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def peers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client_of: ClientOf
) -> Iterator[Peers]:
    release, form = request.param
    store = tmp_path_factory.mktemp("store")
    with (
        OwnNameServer({"rocketmqHome": str(tmp_path_factory.mktemp("home"))}) as ours,
        ApacheNameServer(release, header_form=form) as apaches,
        ApacheBroker(release, f"{ours.address};{apaches.address}", store, header_form=form) as broker,
    ):
        client = client_of(release, form)
        for server in (ours.address, apaches.address):
            wait_for_broker(server, broker.name)
        yield Peers(ours, apaches, broker, client)


# ------------------------------------------------------------------------------------------- administration


def test_the_cluster_list_is_apaches(peers: Peers) -> None:
    ours, apaches = peers.both("clusterList")
    # From the fifth column on it is about the broker's load.
    assert _columns(ours, 5) == _columns(apaches, 5)
    assert ["DefaultCluster", "broker-a", "0", peers.broker.address] in [row[:4] for row in _columns(ours, 5)]


def test_the_topic_list_is_apaches(peers: Peers) -> None:
    peers.create_topic("Listed")
    ours, apaches = peers.both("topicList")
    assert sorted(ours.split()) == sorted(apaches.split())
    assert {"Listed", "TBW102", "SELF_TEST_TOPIC"} <= set(ours.split())


def test_the_topic_list_with_clusters_is_apaches(peers: Peers) -> None:
    ours, apaches = peers.both("topicList", "-c")
    assert _columns(ours, 3) == _columns(apaches, 3)


@pytest.mark.parametrize("topic", ["Routed", "NoSuchTopic"])
def test_a_route_is_apaches(peers: Peers, topic: str) -> None:
    peers.create_topic("Routed", queues=3)
    ours, apaches = peers.both("topicRoute", "-t", topic)
    assert ours == apaches
    assert ("broker-a" in ours) is (topic == "Routed")


def test_the_clusters_of_a_topic_are_apaches(peers: Peers) -> None:
    peers.create_topic("Clustered")
    ours, apaches = peers.both("topicClusterList", "-t", "Clustered")
    assert ours == apaches
    assert "DefaultCluster" in ours


def test_broker_status_is_found_through_the_cluster(peers: Peers) -> None:
    command = ("brokerStatus", "-c", "DefaultCluster")
    # Apache's broker has no statistics in its first second, and fails.
    wait_until(lambda: "NoSuchElementException" not in peers.at(peers.ours.address, *command), "statistics")
    ours, apaches = peers.both(*command)
    assert _keys(ours) == _keys(apaches)
    assert "brokerVersion" in _keys(ours)


def test_key_values_are_kept_and_deleted(peers: Peers) -> None:
    ours, apaches = peers.both("updateKvConfig", "-s", "space", "-k", "colour", "-v", "blue, 中文")
    assert ours == apaches
    for server in (peers.ours.address, peers.apaches.address):
        value, table = peers.client.key_values(server, "space", "colour")
        assert value == "blue, 中文"
        assert table == {"colour": "blue, 中文"}
    ours, apaches = peers.both("deleteKvConfig", "-s", "space", "-k", "colour")
    assert ours == apaches
    for server in (peers.ours.address, peers.apaches.address):
        with pytest.raises(RuntimeError, match="CODE: 22"):
            peers.client.key_values(server, "space", "colour")


def test_order_configuration_reaches_routes_once_switched_on(peers: Peers) -> None:
    peers.create_topic("Ordered")
    for command in (
        ["updateOrderConf", "-m", "put", "-t", "Ordered", "-v", "broker-a:4"],
        ["updateOrderConf", "-m", "get", "-t", "Ordered"],
        ["topicRoute", "-t", "Ordered"],
        ["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true"],
        ["topicRoute", "-t", "Ordered"],
        ["updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false"],
        ["updateOrderConf", "-m", "delete", "-t", "Ordered"],
        ["updateOrderConf", "-m", "get", "-t", "Ordered"],
    ):
        ours, apaches = peers.both(*command)
        assert ours == apaches, command


def test_order_configuration_is_in_the_route_while_it_is_on(peers: Peers) -> None:
    peers.create_topic("OrderedToo")
    peers.both("updateOrderConf", "-m", "put", "-t", "OrderedToo", "-v", "broker-a:4")
    assert "broker-a:4" not in peers.at(peers.ours.address, "topicRoute", "-t", "OrderedToo")
    peers.both("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    assert "broker-a:4" in peers.at(peers.ours.address, "topicRoute", "-t", "OrderedToo")
    peers.both("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    peers.both("updateOrderConf", "-m", "delete", "-t", "OrderedToo")


def test_every_setting_apache_shows_is_shown_with_its_default(peers: Peers) -> None:
    ours, apaches = (_settings(said) for said in peers.both("getNamesrvConfig"))
    machine = {"listenPort", "kvConfigPath", "configStorePath", "rocketmqHome"}
    missing = apaches.keys() - ours.keys()
    assert not missing
    different = {key for key in apaches.keys() - machine if ours[key] != apaches[key]}
    assert not different, {key: (ours[key], apaches[key]) for key in different}


def test_a_changed_setting_is_shown_and_survives_in_the_file(peers: Peers) -> None:
    ours, apaches = peers.both("updateNamesrvConfig", "-k", "serverSocketBacklog", "-v", "2048")
    assert ours == apaches
    for said in peers.both("getNamesrvConfig"):
        assert _settings(said)["serverSocketBacklog"] == "2048"
    assert "serverSocketBacklog=2048" in (peers.ours.home / "namesrv.conf").read_text()


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "rocketmqHome"])
def test_a_protected_setting_is_refused_and_stays(peers: Peers, key: str) -> None:
    ours, _ = peers.both("getNamesrvConfig")
    refusal = peers.at(peers.ours.address, "updateNamesrvConfig", "-k", key, "-v", "elsewhere")
    assert "success" not in refusal
    after, _ = peers.both("getNamesrvConfig")
    assert _settings(after)[key] == _settings(ours)[key] != "elsewhere"


def test_write_permission_is_wiped_and_given_back(peers: Peers) -> None:
    peers.create_topic("Wiped")
    for command in (
        ["wipeWritePerm", "-b", "broker-a"],
        ["topicRoute", "-t", "Wiped"],
        ["addWritePerm", "-b", "broker-a"],
        ["topicRoute", "-t", "Wiped"],
        ["wipeWritePerm", "-b", "no-such-broker"],
    ):
        ours, apaches = peers.both(*command)
        assert ours == apaches, command


def test_a_deleted_topic_has_no_route(peers: Peers) -> None:
    peers.create_topic("Deleted")
    both = f"{peers.ours.address};{peers.apaches.address}"
    peers.client.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Deleted", "-n", both)
    for server in (peers.ours.address, peers.apaches.address):
        assert "Deleted" not in peers.at(server, "topicList").split()


# ------------------------------------------------------------------------------------------- messages


def test_messages_travel_through_routes_found_at_our_name_server(peers: Peers) -> None:
    peers.create_topic("Travelled")
    bodies = {b"message %d" % number for number in range(20)}
    peers.client.send(peers.ours.address, [{"topic": "Travelled", "body": body} for body in bodies])
    assert len(peers.client.queues(peers.ours.address, "Travelled")) == 4
    assert {row["body"] for row in peers.client.read(peers.ours.address, "Travelled", len(bodies))} == bodies
    consumed = peers.client.consume(peers.ours.address, "Travelled", len(bodies), group="travellers")
    assert {row["body"] for row in consumed} == bodies


def test_a_topic_made_by_its_first_message_is_routed(peers: Peers) -> None:
    [sent] = peers.client.send(peers.ours.address, [{"topic": "MadeBySending", "body": b"first"}])
    assert sent["status"] == "SEND_OK"
    wait_until(
        lambda: "MadeBySending" in peers.at(peers.ours.address, "topicList").split(), "the new topic's route"
    )
    assert [row["body"] for row in peers.client.read(peers.ours.address, "MadeBySending", 1)] == [b"first"]


# ------------------------------------------------------------------------------------------- coming and going


@pytest.fixture(params=RELEASES, ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    assert isinstance(request.param, Release)
    return request.param


@pytest.mark.parametrize("leave", [ApacheBroker.kill, ApacheBroker.terminate], ids=["killed", "stopped"])
def test_a_broker_that_leaves_is_gone_from_every_route(
    release: Release, leave: Callable[[ApacheBroker], None], tmp_path: Path, client_of: ClientOf
) -> None:
    client = client_of(release, "JSON")
    with OwnNameServer() as ours:
        with ApacheBroker(release, ours.address, tmp_path / "store") as broker:
            wait_for_broker(ours.address, "broker-a")
            leave(broker)
            # Long before the two minutes of silence after which a broker is given up.
            wait_until(lambda: not topics_at(ours.address), "empty", 60)
        assert "broker-a" not in client.mqadmin("clusterList", "-n", ours.address)


def test_a_compressed_registration_is_understood(
    release: Release, tmp_path: Path, client_of: ClientOf
) -> None:
    client = client_of(release, "JSON")
    with (
        OwnNameServer() as ours,
        ApacheBroker(release, ours.address, tmp_path / "store", settings={"compressedRegister": "true"}),
    ):
        wait_for_broker(ours.address, "broker-a")
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(
            client.mqadmin("topicList", "-n", ours.address).split()
        )


def test_a_master_and_its_replica_are_one_broker(
    release: Release, tmp_path: Path, client_of: ClientOf
) -> None:
    client = client_of(release, "JSON")
    with (
        OwnNameServer() as ours,
        ApacheBroker(release, ours.address, tmp_path / "master") as master,
        ApacheBroker(release, ours.address, tmp_path / "replica", broker_id=1) as replica,
    ):
        wait_for_broker(ours.address, "broker-a")
        wait_until(
            lambda: replica.address in client.mqadmin("clusterList", "-n", ours.address),
            "a registered replica",
        )
        client.create_topic(ours.address, master.address, "Replicated")
        route = client.mqadmin("topicRoute", "-t", "Replicated", "-n", ours.address)
        assert master.address in route
        assert replica.address in route
        assert route.count("readQueueNums") == 1


def test_brokers_and_clients_survive_the_loss_of_one_of_two_name_servers(
    release: Release, tmp_path: Path, client_of: ClientOf
) -> None:
    client = client_of(release, "JSON")
    with OwnNameServer() as first, OwnNameServer() as second:
        both = f"{first.address};{second.address}"
        with ApacheBroker(release, both, tmp_path / "store") as broker:
            for server in (first, second):
                wait_for_broker(server.address, "broker-a")
            client.create_topic(both, broker.address, "Survivor")
            client.send(both, [{"topic": "Survivor", "body": b"before"}])
            assert first.terminate() == 0
            # Java's client asks one name server per attempt; the application tries again.
            wait_until(lambda: _can_send(client, both, "Survivor", b"after"), "a message sent")
            read = client.read(second.address, "Survivor", at_least=2)
            assert {row["body"] for row in read} == {b"before", b"after"}


def _can_send(client: ApacheClient, name_servers: str, topic: str, body: bytes) -> bool:
    try:
        return bool(client.send(name_servers, [{"topic": topic, "body": body}]))
    except RuntimeError as refusal:
        if "connect to" in str(refusal) or "No route info" in str(refusal):
            return False
        raise


# ------------------------------------------------------------------------------------------- reading output


def _columns(table: str, count: int) -> list[list[str]]:
    """The first columns of mqadmin's table, its rows in one order."""
    return sorted(line.split()[:count] for line in table.splitlines() if line and not line.startswith("#"))


def _keys(listing: str) -> set[str]:
    """The second column of `127.0.0.1:1234   key   : value`."""
    return {line.split()[1].rstrip(":") for line in listing.splitlines() if line.count(":") > 1}


def _settings(listing: str) -> dict[str, str]:
    pairs = (re.match(r"(\S+)\s*=\s*(.*)", line.strip()) for line in listing.splitlines())
    return {pair[1]: pair[2] for pair in pairs if pair}
