"""Apache's Java and Go clients at our broker: transactions, delays, timed messages and their recall."""

import time
from collections.abc import Iterator

import pytest
from tests.support.apache import ClientOf, wait_until
from tests.support.apache_releases import ALL_RELEASES, APACHE_4, APACHE_NEWEST, PeerUnavailable
from tests.support.go_client import GoClient, go_peer
from tests.support.java_at_ours import Peers, our_cluster

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS = {
    "transactionTimeOut": "2000",
    "transactionCheckInterval": "1000",
    "recallMessageEnable": "true",
}
COMMIT, ROLLBACK, UNKNOWN = "COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW"


@pytest.fixture(scope="module", params=ALL_RELEASES, ids=str)
def peers(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    with our_cluster(client_of(request.param, "JSON"), "JSON", SETTINGS) as peers:
        yield peers


def test_transactions_end_as_java_says(peers: Peers) -> None:
    topic = peers.new_topic("Ended")
    with peers.client.transactor(peers.name_server, topic) as producer:
        sent = producer.send(topic, b"committed", COMMIT)
        producer.send(topic, b"rolled back", ROLLBACK)
        producer.send(topic, b"asked, committed", UNKNOWN, COMMIT)
        producer.send(topic, b"asked, rolled back", UNKNOWN, ROLLBACK)
        producer.send(topic, b"failed, then committed", "an exception", COMMIT)
        expected = [b"asked, committed", b"committed", b"failed, then committed"]
        wait_until(lambda: peers.bodies(topic) == expected, "what was committed")
        asked = {b"asked, committed", b"asked, rolled back", b"failed, then committed"}
        wait_until(lambda: {row["body"] for row in producer.asked()} >= asked, "questions")
        assert {row["topic"] for row in producer.asked()} == {topic}
        # Everything that is left was rolled back; it is asked about no more, and never seen.
        after = len(producer.asked())
        late = producer.send(topic, b"later", UNKNOWN, COMMIT)
        wait_until(lambda: b"later" in peers.bodies(topic), "a later one")
        assert {row["body"] for row in producer.asked()[after:]} == {b"later"}
    assert sent["state"] == COMMIT
    assert late["state"] == UNKNOWN
    rows = {row["body"]: row for row in peers.read(topic)}
    assert sorted(rows) == sorted([*expected, b"later"])
    committed = rows[b"committed"]
    assert committed["properties"]["UNIQ_KEY"] == sent["msgId"]
    assert (committed["queueId"], committed["sysFlag"] & 0xC) == (sent["queueId"], 8)
    assert committed["preparedTransactionOffset"] < committed["commitLogOffset"]


def test_a_group_consumes_what_was_committed(peers: Peers) -> None:
    topic = peers.new_topic("Consumed")
    with (
        peers.client.member(peers.name_server, topic, topic) as member,
        peers.client.transactor(peers.name_server, topic) as producer,
    ):
        for number in range(5):
            producer.send(topic, b"%d" % number, COMMIT if number % 2 else ROLLBACK)
        assert sorted(row["body"] for row in member.received(2)) == [b"1", b"3"]


def test_another_producer_is_asked_when_the_first_is_gone(peers: Peers) -> None:
    topic = peers.new_topic("Inherited")
    with peers.client.transactor(peers.name_server, topic) as first:
        first.send(topic, b"left open", UNKNOWN, COMMIT, CHECK_IMMUNITY_TIME_IN_SECONDS="5")
    with peers.client.transactor(peers.name_server, topic) as second:
        # Brokers learn of a producer of 5.x with its first message.
        second.send(topic, b"introduces it", ROLLBACK)
        wait_until(lambda: peers.bodies(topic) == [b"left open"], "the commit")
        assert [row["body"] for row in second.asked()] == [b"left open"]


def test_timed_messages_come_at_their_time(peers: Peers) -> None:
    topic = peers.new_topic("Timed")
    now_ms = round(time.time() * 1000)
    times = {
        b"deliver": {"TIMER_DELIVER_MS": str(now_ms + 4000)},
        b"delay ms": {"TIMER_DELAY_MS": "3000"},
        b"delay sec": {"TIMER_DELAY_SEC": "2"},
        b"over": {"TIMER_DELIVER_MS": str(now_ms - 4000)},
    }
    peers.send(*({"topic": topic, "body": body, "properties": found} for body, found in times.items()))
    with peers.client.member(peers.name_server, topic, topic) as member:
        rows = {row["body"]: row for row in member.received(4)}
    assert rows[b"deliver"]["storeTimestamp"] >= now_ms + 4000 - 1000, "as Apache's brokers: to the second"
    assert rows[b"delay ms"]["storeTimestamp"] >= now_ms + 3000 - 1000
    assert rows[b"delay sec"]["storeTimestamp"] >= now_ms + 2000 - 1000
    assert rows[b"over"]["storeTimestamp"] < rows[b"delay sec"]["storeTimestamp"]
    assert {row["topic"] for row in rows.values()} == {topic}


def test_timed_messages_are_taken_back(peers: Peers) -> None:
    topic = peers.new_topic("Recalled")
    [never] = peers.send({"topic": topic, "body": b"never", "properties": {"TIMER_DELAY_MS": "4000"}})
    if peers.client.release is APACHE_4:
        assert never["recallHandle"] == "", "this client knows nothing of it"
        return
    peers.send({"topic": topic, "body": b"in the end", "properties": {"TIMER_DELAY_MS": "6000"}})
    assert peers.client.recall(peers.name_server, topic, never["recallHandle"]) == never["msgId"]
    wait_until(lambda: bool(peers.bodies(topic)), "the other message")
    assert peers.bodies(topic) == [b"in the end"]
    with pytest.raises(RuntimeError, match="CODE: 604"):
        peers.client.recall(peers.name_server, topic, never["recallHandle"])


# ------------------------------------------------------------------------------------------- Go


@pytest.fixture(scope="module", params=[APACHE_NEWEST], ids=str)
def golang(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    try:
        go_peer()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with our_cluster(client_of(request.param, "JSON"), "JSON", SETTINGS) as peers:
        yield peers


def test_go_sends_and_consumes(golang: Peers) -> None:
    topic = golang.new_topic("GoPlain")
    with (
        GoClient("consume", golang.name_server, topic, topic) as consumer,
        GoClient("send", golang.name_server, "go_sending") as producer,
    ):
        producer.send(topic, "plain")
        producer.send(topic, "delayed", delay="1")
        producer.send(topic, "timed", TIMER_DELAY_MS="2000")
        assert sorted(consumer.heard("received", 3)) == ["delayed", "plain", "timed"]
    rows = {row["body"]: row for row in golang.read(topic)}
    for body, delay_ms in ((b"delayed", 1000), (b"timed", 1000)):
        assert rows[body]["storeTimestamp"] - rows[body]["bornTimestamp"] >= delay_ms


def test_transactions_end_as_go_says(golang: Peers) -> None:
    topic = golang.new_topic("GoEnded")
    with GoClient("transact", golang.name_server, topic) as producer:
        producer.send(topic, "committed", local="commit")
        producer.send(topic, "rolled back", local="rollback")
        producer.send(topic, "asked, committed", local="unknown", check="commit")
        producer.send(topic, "asked, rolled back", local="unknown", check="rollback")
        wait_until(lambda: golang.bodies(topic) == [b"asked, committed", b"committed"], "what was committed")
        wait_until(lambda: "asked, rolled back" in producer.heard("asked"), "a question")
        producer.send(topic, "the last", local="commit")
        wait_until(lambda: b"the last" in golang.bodies(topic), "the last message")
    assert golang.bodies(topic) == [b"asked, committed", b"committed", b"the last"]


def test_go_answers_for_a_producer_that_is_gone(golang: Peers) -> None:
    topic = golang.new_topic("GoInherited")
    with GoClient("transact", golang.name_server, topic) as first:
        first.send(topic, "left open", local="unknown", check="commit", CHECK_IMMUNITY_TIME_IN_SECONDS="5")
    with GoClient("transact", golang.name_server, topic) as second:
        second.send(topic, "introduces it", local="rollback")
        second.heard("asked", 1)
        wait_until(lambda: golang.bodies(topic) == [b"left open"], "the commit")
