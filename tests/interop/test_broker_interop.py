"""Apache's Java clients at our name server and broker: every way to send, find, filter and consume."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.support.apache import ClientOf, wait_until
from tests.support.apache_releases import RELEASES
from tests.support.java_at_ours import Peers, our_cluster

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FORMS = ("JSON", "ROCKETMQ")


@pytest.fixture(
    scope="module", params=[(r, f) for r in RELEASES for f in FORMS], ids=lambda p: f"{p[0]}-{p[1]}"
)
def peers(request: pytest.FixtureRequest, client_of: ClientOf) -> Iterator[Peers]:
    release, form = request.param
    with our_cluster(client_of(release, form), form) as peers:
        yield peers


# ------------------------------------------------------------------------------------------- sending


@pytest.mark.parametrize("way", ["sync", "async"])
def test_a_message_is_stored_as_it_was_sent(peers: Peers, way: str) -> None:
    topic = peers.new_topic("Sent")
    [sent] = peers.send(
        {
            "topic": topic,
            "body": b"hello \xff\x00",
            "tags": "TagA",
            "keys": "k1 k2",
            "flag": 7,
            "way": way,
            "properties": {"colour": "grün 中文"},
        }
    )
    assert sent["status"] == "SEND_OK"
    [row] = peers.read(topic)
    assert row["body"] == b"hello \xff\x00"
    assert row["flag"] == 7
    assert row["properties"].items() >= {"TAGS": "TagA", "KEYS": "k1 k2", "colour": "grün 中文"}.items()
    assert row["properties"]["UNIQ_KEY"] == sent["msgId"]
    assert (row["queueId"], row["queueOffset"]) == (sent["queueId"], sent["queueOffset"])
    assert row["storeHost"] == peers.broker.address
    assert row["bornHost"].startswith("127.0.0.1:")


def test_a_oneway_message_arrives(peers: Peers) -> None:
    topic = peers.new_topic("Oneway")
    assert peers.send(*({"topic": topic, "body": b"%d" % n, "way": "oneway"} for n in range(10))) == []
    wait_until(lambda: peers.bodies(topic) == sorted(b"%d" % n for n in range(10)), "ten messages")


def test_a_batch_lands_in_one_queue_in_its_order(peers: Peers) -> None:
    topic = peers.new_topic("Batch")
    bodies = [b"part %d" % n for n in range(30)]
    [sent] = peers.send(
        *({"topic": topic, "body": body, "tags": f"T{n}", "batch": "one"} for n, body in enumerate(bodies))
    )
    assert len(sent["msgId"].split(",")) == len(sent["offsetMsgId"].split(",")) == 30
    rows = peers.read(topic)
    assert [row["body"] for row in rows] == bodies
    assert {row["queueId"] for row in rows} == {sent["queueId"]}
    assert [row["properties"]["TAGS"] for row in rows] == [f"T{n}" for n in range(30)]
    assert sent["msgId"].split(",") == [row["properties"]["UNIQ_KEY"] for row in rows]


def test_a_message_of_nearly_four_megabytes_arrives(peers: Peers) -> None:
    topic = peers.new_topic("Big")
    body = random.Random(1).randbytes(4 * 1024 * 1024 - 1000)
    peers.send({"topic": topic, "body": body}, compressOver=1 << 30)
    [row] = peers.read(topic)
    assert row["body"] == body
    assert row["sysFlag"] & 1 == 0


def test_a_message_that_is_too_big_is_refused(peers: Peers) -> None:
    topic = peers.new_topic("TooBig")
    said = peers.mqadmin(
        "updateBrokerConfig", "-b", peers.broker.address, "-k", "maxMessageSize", "-v", "1000"
    )
    assert "success" in said
    with pytest.raises(RuntimeError, match="CODE: 13"):
        peers.send({"topic": topic, "body": b"x" * 1001})
    peers.mqadmin("updateBrokerConfig", "-b", peers.broker.address, "-k", "maxMessageSize", "-v", "4194304")
    assert peers.bodies(topic) == []


def test_a_compressed_message_is_kept_compressed(peers: Peers) -> None:
    topic = peers.new_topic("Compressed")
    peers.send({"topic": topic, "body": b"very much the same " * 2000})
    [row] = peers.read(topic)
    assert row["body"] == b"very much the same " * 2000
    assert row["storeSize"] < 2000


def test_the_fast_port_takes_messages(peers: Peers) -> None:
    topic = peers.new_topic("Fast")
    [sent] = peers.send({"topic": topic, "body": b"through the side door"}, vip=True)
    assert sent["status"] == "SEND_OK"
    assert peers.bodies(topic) == [b"through the side door"]


def test_a_topic_is_made_by_its_first_message(peers: Peers) -> None:
    topic = peers.unused_topic("MadeBySending")
    peers.send({"topic": topic, "body": b"first"})
    wait_until(lambda: topic in peers.mqadmin("topicList").split(), "the new topic's route")
    assert peers.bodies(topic) == [b"first"]


# ------------------------------------------------------------------------------------------- finding


def test_messages_are_found_by_key_and_by_both_ids(peers: Peers) -> None:
    topic = peers.new_topic("Found")
    sent = peers.send(
        *({"topic": topic, "body": b"%d" % n, "keys": f"key{n} every"} for n in range(5)),
    )
    wait_until(lambda: len(peers.client.query(peers.name_server, topic, "every")) == 5, "an index")
    [by_key] = peers.client.query(peers.name_server, topic, "key3")
    assert by_key["body"] == b"3"
    for message_id in (sent[3]["msgId"], sent[3]["offsetMsgId"]):
        assert peers.client.view(peers.name_server, topic, message_id) == by_key
    with pytest.raises(RuntimeError, match="CODE: 208"):
        peers.client.query(peers.name_server, topic, "no-such-key")


# ------------------------------------------------------------------------------------------- consuming


def test_a_group_gets_every_message_once(peers: Peers) -> None:
    topic = peers.new_topic("Consumed")
    bodies = sorted(b"message %d" % n for n in range(100))
    peers.send(*({"topic": topic, "body": body} for body in bodies[:50]))
    with peers.client.member(peers.name_server, topic, topic) as member:
        member.received(50)
        peers.send(*({"topic": topic, "body": body} for body in bodies[50:]))
        assert sorted(row["body"] for row in member.received(100)) == bodies
        peers.wait_committed(topic)
    # The next member starts behind what is committed.
    peers.send({"topic": topic, "body": b"the next one"})
    with peers.client.member(peers.name_server, topic, topic) as member:
        assert [row["body"] for row in member.received(1)] == [b"the next one"]


def test_a_polling_consumer_commits_where_it_is(peers: Peers) -> None:
    topic = peers.new_topic("Polled")
    peers.send(*({"topic": topic, "body": b"%d" % n} for n in range(20)))
    rows = peers.client.poll(peers.name_server, topic, 20, topic)
    assert sorted(row["body"] for row in rows) == sorted(b"%d" % n for n in range(20))
    peers.send({"topic": topic, "body": b"later"})
    assert [row["body"] for row in peers.client.poll(peers.name_server, topic, 1, topic)] == [b"later"]


def test_tags_choose_messages(peers: Peers) -> None:
    topic = peers.new_topic("Tagged")
    peers.send(
        *({"topic": topic, "body": tag.encode(), "tags": tag} for tag in ("A", "B", "C", "A")),
        {"topic": topic, "body": b"none"},
    )
    with peers.client.member(peers.name_server, topic, topic, expression="A || C") as member:
        assert sorted(row["body"] for row in member.received(3)) == [b"A", b"A", b"C"]


def test_sql_chooses_messages(peers: Peers) -> None:
    topic = peers.new_topic("Sql")
    peers.send(
        *({"topic": topic, "body": b"%d" % n, "properties": {"a": str(n)}} for n in range(10)),
        {"topic": topic, "body": b"odd one", "tags": "odd"},
    )
    expression = "(a IS NOT NULL AND a BETWEEN 3 AND 5) OR TAGS = 'odd'"
    with peers.client.member(peers.name_server, topic, topic, expression=expression, sql=True) as member:
        assert sorted(row["body"] for row in member.received(4)) == [b"3", b"4", b"5", b"odd one"]


def test_wrong_sql_is_refused(peers: Peers) -> None:
    topic = peers.new_topic("WrongSql")
    with (
        pytest.raises(RuntimeError, match="CODE: 23"),
        peers.client.member(peers.name_server, topic, topic, expression="a >>> 3", sql=True),
    ):
        pass


@pytest.mark.parametrize("fails", [0, 1])
def test_ordered_consumers_keep_the_order_of_each_queue(peers: Peers, fails: int) -> None:
    topic = peers.new_topic("Ordered", queues=3)
    peers.send(
        *({"topic": topic, "body": b"%d" % n, "queue": n % 3} for n in range(30 if not fails else 6)),
    )
    count = 30 if not fails else 12
    with (
        peers.client.member(peers.name_server, topic, topic, ordered=True, fails=fails) as one,
        peers.client.member(peers.name_server, topic, topic, ordered=True, fails=fails) as two,
    ):
        wait_until(lambda: len(one.received() + two.received()) >= count, "all messages")
        rows = one.received() + two.received()
    for queue in range(3):
        # Whoever had a queue had it alone: what was consumed is in order, even with a change of hands.
        seen = [int(row["body"]) for row in rows if row["queueId"] == queue]
        assert sorted(set(seen)) == list(range(queue, 30 if not fails else 6, 3))
        assert seen == sorted(seen)


def test_a_delayed_message_comes_later(peers: Peers) -> None:
    topic = peers.new_topic("Delayed")
    peers.send({"topic": topic, "body": b"late", "delay": 1}, {"topic": topic, "body": b"at once"})
    with peers.client.member(peers.name_server, topic, topic) as member:
        rows = {row["body"]: row for row in member.received(2)}
    late = rows[b"late"]
    assert late["topic"] == topic
    assert late["storeTimestamp"] - late["bornTimestamp"] >= 1000
    assert late["properties"]["REAL_TOPIC"] == topic
    assert rows[b"at once"]["storeTimestamp"] < late["storeTimestamp"]


def test_a_message_nobody_can_consume_is_retried_and_then_dead(peers: Peers) -> None:
    topic = peers.new_topic("Retried")
    [sent] = peers.send({"topic": topic, "body": b"poison", "tags": "T", "keys": "K"})
    with peers.client.member(peers.name_server, topic, topic, fails=9, attempts=2) as member:
        rows = member.received(3)
        assert [row["reconsumeTimes"] for row in rows] == [0, 1, 2]
        assert {row["topic"] for row in rows} == {topic}
        dead_letters = f"%DLQ%{topic}"
        wait_until(lambda: dead_letters in peers.mqadmin("topicList").split(), "a dead letter queue")
        # Java gives a message back once more when the answer does not come in time.
        dead, *again = peers.client.read(peers.name_server, dead_letters, at_least=1)
    assert {row["properties"]["UNIQ_KEY"] for row in again} <= {sent["msgId"]}
    assert dead["body"] == b"poison"
    assert (
        dead["properties"].items()
        >= {
            "TAGS": "T",
            "KEYS": "K",
            "ORIGIN_MESSAGE_ID": sent["offsetMsgId"],
            "UNIQ_KEY": sent["msgId"],
            "RETRY_TOPIC": topic,
        }.items()
    )


def test_a_message_that_failed_once_comes_again(peers: Peers) -> None:
    topic = peers.new_topic("FailedOnce")
    peers.send({"topic": topic, "body": b"stumbling"})
    with peers.client.member(peers.name_server, topic, topic, fails=1) as member:
        assert [row["reconsumeTimes"] for row in member.received(2)] == [0, 1]


def test_every_member_of_a_broadcast_group_gets_everything(peers: Peers) -> None:
    topic = peers.new_topic("Broadcast")
    bodies = sorted(b"%d" % n for n in range(20))
    with (
        peers.client.member(peers.name_server, topic, topic, broadcast=True) as one,
        peers.client.member(peers.name_server, topic, topic, broadcast=True) as two,
    ):
        wait_until(lambda: len(one.queues(topic)) == len(two.queues(topic)) == 4, "all queues")
        peers.send(*({"topic": topic, "body": body} for body in bodies))
        for member in (one, two):
            assert sorted(row["body"] for row in member.received(20)) == bodies


def test_members_divide_the_queues_and_take_over_from_each_other(peers: Peers) -> None:
    topic = peers.new_topic("Divided", queues=6)
    every = {(peers.broker.name, queue) for queue in range(6)}
    with peers.client.member(peers.name_server, topic, topic) as one:
        wait_until(lambda: one.queues(topic) == every, "all queues for the only member")
        with peers.client.member(peers.name_server, topic, topic) as two:
            wait_until(
                lambda: (
                    len(one.queues(topic)) == len(two.queues(topic)) == 3
                    and one.queues(topic) | two.queues(topic) == every
                ),
                "half of the queues for each",
            )
            peers.send(*({"topic": topic, "body": b"%d" % n, "queue": n % 6} for n in range(60)))
            wait_until(lambda: len(one.received() + two.received()) == 60, "all messages")
            assert {row["queueId"] for row in two.received()} == {queue for _, queue in two.queues(topic)}
            assert len({row["body"] for row in one.received() + two.received()}) == 60
            peers.wait_committed(topic, queues=6)
        wait_until(lambda: one.queues(topic) == every, "all queues for the one who stayed")
        before = len(one.received())
        peers.send(*({"topic": topic, "body": b"more", "queue": n % 6} for n in range(6)))
        rows = one.received(before + 6)[before:]
        assert {row["queueId"] for row in rows} == set(range(6))


def test_a_request_is_replied_to(peers: Peers) -> None:
    topic = peers.new_topic("Asked")
    with peers.client.member(peers.name_server, topic, topic, reply="re: ") as member:
        wait_until(lambda: len(member.queues(topic)) == 4, "all queues")
        for question in (b"what?", b"who?"):
            reply = peers.client.request(peers.name_server, {"topic": topic, "body": question})
            assert reply["body"] == b"re: " + question


# ------------------------------------------------------------------------------------------- offsets


def test_a_group_is_set_back_while_it_runs(peers: Peers) -> None:
    topic = peers.new_topic("SetBack")
    peers.send(*({"topic": topic, "body": b"%d" % n} for n in range(8)))
    with peers.client.member(peers.name_server, topic, topic) as member:
        member.received(8)
        said = peers.mqadmin("resetOffsetByTime", "-g", topic, "-t", topic, "-s", "1000")
        assert said.count(topic) or peers.broker.name in said, said
        rows = member.received(16)
    assert sorted(row["body"] for row in rows) == sorted([b"%d" % n for n in range(8)] * 2)


def test_a_group_is_set_back_while_it_is_away(peers: Peers) -> None:
    topic = peers.new_topic("SetBackAway")
    peers.send(*({"topic": topic, "body": b"%d" % n} for n in range(8)))
    with peers.client.member(peers.name_server, topic, topic) as member:
        member.received(8)
    said = peers.mqadmin("resetOffsetByTime", "-g", topic, "-t", topic, "-s", "1000")
    assert peers.broker.name in said
    with peers.client.member(peers.name_server, topic, topic) as member:
        assert sorted(row["body"] for row in member.received(8)) == [b"%d" % n for n in range(8)]


def test_a_group_skips_what_it_has_not_consumed(peers: Peers) -> None:
    topic = peers.new_topic("Skipped")
    with peers.client.member(peers.name_server, topic, topic, expression="wanted") as member:
        wait_until(lambda: len(member.queues(topic)) == 4, "all queues")
        peers.send({"topic": topic, "body": b"first", "tags": "wanted"})
        member.received(1)
    peers.send(*({"topic": topic, "body": b"%d" % n} for n in range(8)))
    peers.mqadmin("skipAccumulatedMessage", "-g", topic, "-t", topic)
    peers.send({"topic": topic, "body": b"last"})
    with peers.client.member(peers.name_server, topic, topic) as member:
        assert [row["body"] for row in member.received(1)] == [b"last"]


# ------------------------------------------------------------------------------------------- around it


def test_a_traced_message_leaves_its_trace(peers: Peers) -> None:
    topic = peers.new_topic("Traced")
    [sent] = peers.send({"topic": topic, "body": b"followed"}, trace=True)

    def traced() -> bool:
        said = peers.mqadmin("queryMsgTraceById", "-i", sent["msgId"])
        return "Pub" in said and topic in said and "#ConsumerGroup" in said

    with peers.client.member(peers.name_server, topic, topic, trace=True) as member:
        member.received(1)
        wait_until(traced, "a trace")
