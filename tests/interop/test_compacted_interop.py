"""Compacted topics at our broker, with Apache's Java clients: they see the newest value of each key."""

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from tests.interop.test_pop_interop import popping_group
from tests.support.apache import ClientOf, wait_until
from tests.support.apache_releases import APACHE_4, APACHE_5
from tests.support.java_at_ours import Peers, our_cluster

from pyromq.cli.mqadmin.tree import mqadmin

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

KEYS, MESSAGES = 5, 60
NEWEST = {f"key-{number % KEYS}": b"%d" % number for number in range(MESSAGES - KEYS, MESSAGES)}


@pytest.fixture(scope="module", params=(APACHE_4, APACHE_5), ids=str)
def peers(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    often = {"compactionScheduleInternal": "50"}
    with our_cluster(client_of(request.param, "ROCKETMQ"), "ROCKETMQ", often) as peers:
        yield peers


def keyed(topic: str, first: int, last: int) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "body": b"%d" % number, "queue": 0, "keys": f"key-{number % KEYS}"}
        for number in range(first, last)
    ]


def table(rows: list[dict[str, Any]]) -> dict[str, bytes]:
    return {row["properties"]["KEYS"]: row["body"] for row in rows}


@pytest.fixture
def topic(peers: Peers) -> str:
    """A compacted topic, made by our tool, for 4.9 knows no attributes; Java has filled it."""
    name = peers.unused_topic("Compacted")
    words = ["updateTopic", "-n", peers.name_server, "-b", peers.broker.address, "-t", name]
    made = CliRunner().invoke(mqadmin, [*words, "-r", "1", "-w", "1", "-a", "+cleanup.policy=COMPACTION"])
    assert made.exit_code == 0, made.output
    peers.send(*keyed(name, 0, MESSAGES))
    wait_until(lambda: len(peers.read(name)) == KEYS, "only the newest values are left")
    return name


def test_java_reads_the_newest_value_of_each_key(peers: Peers, topic: str) -> None:
    rows = peers.read(topic)
    assert table(rows) == NEWEST
    assert [row["queueOffset"] for row in rows] == list(range(MESSAGES - KEYS, MESSAGES))


def test_a_group_gets_the_table_then_every_change_and_commits(peers: Peers, topic: str) -> None:
    with peers.client.member(peers.name_server, topic, topic) as member:
        assert table(member.received(KEYS)) == NEWEST
        peers.send(*keyed(topic, 100, 102))
        assert [row["body"] for row in member.received(KEYS + 2)[KEYS:]] == [b"100", b"101"]
    peers.wait_committed(topic, 1)
    with peers.client.member(peers.name_server, topic, topic) as again:
        peers.send(*keyed(topic, 102, 103))
        assert [row["body"] for row in again.received(1)] == [b"102"]


def test_a_java_message_without_a_key_is_refused_with_the_reason(peers: Peers, topic: str) -> None:
    with pytest.raises(RuntimeError, match="needs a key"):
        peers.send({"topic": topic, "body": b"lost"})


def test_java_members_pop_the_table(peers: Peers, topic: str) -> None:
    if peers.client.release == APACHE_4:
        pytest.skip("clients of 4.9 do not pop")
    group = popping_group(peers, topic)
    with peers.client.member(peers.name_server, group, topic, pop=True) as member:
        assert table(member.received(KEYS)) == NEWEST


def test_a_java_transaction_changes_the_table_when_it_is_committed(peers: Peers, topic: str) -> None:
    with peers.client.transactor(peers.name_server, f"T-{topic}") as transactor:
        transactor.send(topic, b"no", "ROLLBACK_MESSAGE", keys="key-1")
        transactor.send(topic, b"yes", "COMMIT_MESSAGE", keys="key-0")
    wait_until(lambda: table(peers.read(topic)) == NEWEST | {"key-0": b"yes"}, "the committed value")
