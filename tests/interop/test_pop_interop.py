"""Apache's Java clients of 5.x in pop mode at our broker, which says who pops what."""

from collections.abc import Iterator

import pytest
from tests.support.apache import ClientOf, wait_until
from tests.support.apache_releases import APACHE_5, APACHE_NEWEST
from tests.support.java_at_ours import Peers, our_cluster

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=(APACHE_5, APACHE_NEWEST), ids=str)
def peers(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    with our_cluster(client_of(request.param, "JSON"), "JSON") as peers:
        yield peers


def popping_group(peers: Peers, topic: str) -> str:
    """A group called like its topic."""
    peers.mqadmin("updateSubGroup", "-b", peers.broker.address, "-g", topic)
    peers.mqadmin(
        "setConsumeMode", "-b", peers.broker.address, "-t", topic, "-g", topic, "-m", "POP", "-q", "0"
    )
    return topic


def test_java_members_share_messages_by_pop(peers: Peers) -> None:
    topic = peers.new_topic("Popped")
    group = popping_group(peers, topic)
    sent = [f"m{number}".encode() for number in range(40)]
    with (
        peers.client.member(peers.name_server, group, topic, pop=True) as one,
        peers.client.member(peers.name_server, group, topic, pop=True) as other,
    ):
        peers.send(*({"topic": topic, "body": body} for body in sent))
        wait_until(lambda: len(one.received()) + len(other.received()) >= len(sent), "all messages")
        found = [row["body"] for row in (*one.received(), *other.received())]
        assert sorted(found) == sorted(sent)
        # One entry for all queues of the broker.
        assert one.queues(topic) == other.queues(topic) == set()


def test_a_message_that_java_fails_comes_again(peers: Peers) -> None:
    topic = peers.new_topic("Failed")
    group = popping_group(peers, topic)
    with peers.client.member(peers.name_server, group, topic, pop=True, fails=1) as member:
        peers.send({"topic": topic, "body": b"stubborn"})
        first, second = member.received(2)
    assert (first["reconsumeTimes"], second["reconsumeTimes"]) == (0, 1)
    assert first["body"] == second["body"] == b"stubborn"
    assert second["topic"] == topic
