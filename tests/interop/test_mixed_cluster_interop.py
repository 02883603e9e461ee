"""Our servers among Apache's: clients find and use both kinds without telling them apart."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

from pyromq import Message, Producer, PushConsumer

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

FORMS = ("JSON", "ROCKETMQ")
APACHES, OURS = "broker-apache", "broker-ours"
# What ours has as well; a message has to fit into one file of the log.
SETTINGS = {"enablePropertyFilter": "true", "mappedFileSizeCommitLog": str(16 << 20)}


# ------------------------------------------------------------------------------- our broker, Apache's names


@pytest.mark.parametrize("release", RELEASES, ids=str)
@pytest.mark.parametrize("form", FORMS)
def test_our_broker_registers_with_apaches_name_server(
    release: Release, form: str, client_of: ClientOf
) -> None:
    client = client_of(release, form)
    with ApacheNameServer(release, header_form=form) as names:
        settings = {"serializeTypeCurrentRPC": form, "registerNameServerPeriod": "60000"}
        with OwnBroker(names.address, settings=settings) as broker:
            wait_for_broker(names.address, broker.name)
            client.create_topic(names.address, broker.address, "Found", queues=3)
            bodies = sorted(b"message %d" % number for number in range(30))
            client.send(names.address, [{"topic": "Found", "body": body} for body in bodies])
            client.send(names.address, [{"topic": "MadeBySending", "body": b"first"}])
            # A change is registered long before the next period.
            wait_until(
                lambda: "MadeBySending" in topics_at(names.address),
                "the new topic's route",
                timeout_s=30,
            )
            assert [row["body"] for row in client.read(names.address, "MadeBySending")] == [b"first"]
            consumed = client.consume(names.address, "Found", 30, group="finders")
            assert sorted(row["body"] for row in consumed) == bodies
            assert len(client.queues(names.address, "Found")) == 3
            assert broker.terminate() == 0
        # It said goodbye: long before anyone would have missed it.
        wait_for_broker(names.address, broker.name, present=False)


@pytest.mark.parametrize("release", RELEASES, ids=str)
def test_our_brokers_compressed_registration_is_understood(release: Release, client_of: ClientOf) -> None:
    client = client_of(release, "JSON")
    with (
        ApacheNameServer(release) as names,
        OwnBroker(names.address, settings={"compressedRegister": "true"}) as broker,
    ):
        wait_for_broker(names.address, broker.name)
        assert {"TBW102", "SELF_TEST_TOPIC"} <= set(client.mqadmin("topicList", "-n", names.address).split())


# ------------------------------------------------------------------------------- one of each


@dataclass(frozen=True)
class Mixed:
    own_names: str
    apaches_names: str
    client: ApacheClient

    @property
    def names(self) -> str:
        return f"{self.own_names};{self.apaches_names}"

    def create_topic(self, topic: str, queues: int = 2) -> None:
        count = str(queues)
        self.client.mqadmin(
            "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", count, "-w", count, "-n", self.names
        )
        for server in (self.own_names, self.apaches_names):
            wait_until(
                lambda server=server: len(self._queues(server, topic)) == 2 * queues,  # type: ignore[misc]
                f"a route of {topic} over both brokers",
            )

    def _queues(self, server: str, topic: str) -> list[tuple[str, int]]:
        if topic not in topics_at(server):
            return []
        return self.client.queues(server, topic)


@pytest.fixture(scope="module", params=RELEASES, ids=str)
def mixed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, client_of: ClientOf
) -> Iterator[Mixed]:
    release = request.param
    client = client_of(release, "JSON")
    store: Path = tmp_path_factory.mktemp("store")
    with OwnNameServer() as own_names, ApacheNameServer(release) as apaches_names:
        mixed = Mixed(own_names.address, apaches_names.address, client)
        with (
            ApacheBroker(release, mixed.names, store, name=APACHES, settings=SETTINGS),
            OwnBroker(mixed.names, name=OURS) as own_broker,
        ):
            for server in (mixed.own_names, mixed.apaches_names):
                for broker in (APACHES, OURS):
                    wait_for_broker(server, broker)
            yield mixed
            assert " ERROR " not in own_broker.output(), own_broker.output()


def test_both_name_servers_tell_of_both_brokers(mixed: Mixed) -> None:
    mixed.create_topic("Everywhere")
    listings = []
    for server in (mixed.own_names, mixed.apaches_names):
        assert set(mixed.client.queues(server, "Everywhere")) == {
            (broker, queue) for broker in (APACHES, OURS) for queue in range(2)
        }
        rows = mixed.client.mqadmin("clusterList", "-n", server).splitlines()
        # From the sixth column on it is about the brokers' load.
        listings.append(sorted(row.split()[:5] for row in rows if "broker-" in row))
    assert listings[0] == listings[1]
    assert [row[1] for row in listings[0]] == [APACHES, OURS]


@pytest.mark.parametrize("through", ["our", "apaches"])
def test_a_group_consumes_one_topic_from_both_brokers(mixed: Mixed, through: str) -> None:
    """Two members, each of whom knows one name server only, divide the queues of both brokers."""
    topic = f"Divided-{through}"
    mixed.create_topic(topic)
    first, second = mixed.own_names, mixed.apaches_names
    sender = first if through == "our" else second
    client = mixed.client
    with client.member(first, topic, topic) as one, client.member(second, topic, topic) as two:
        wait_until(
            lambda: (
                len(one.queues(topic)) == len(two.queues(topic)) == 2
                and len(one.queues(topic) | two.queues(topic)) == 4
            ),
            "two queues for each member",
        )
        sent = client.send(sender, [{"topic": topic, "body": b"%d" % number} for number in range(100)])
        assert {row["brokerName"] for row in sent} == {APACHES, OURS}
        wait_until(lambda: len(one.received() + two.received()) >= 100, "all messages")
        rows = one.received() + two.received()
        assert sorted(int(row["body"]) for row in rows) == list(range(100))
        assert one.received()
        assert two.received()
        client.wait_committed(mixed.names, topic, topic, queues=4)


KINDS: dict[str, dict[str, Any]] = {
    "sync": {"way": "sync"},
    "async": {"way": "async"},
    "oneway": {"way": "oneway"},
    "big": {"body": random.Random(1).randbytes(1 << 20)},
    "compressed": {"body": b"very much the same " * 2000},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_message_reaches_both_brokers(mixed: Mixed, kind: str) -> None:
    topic = f"Kind-{kind}"
    mixed.create_topic(topic)
    messages = [{"topic": topic, "body": b"%d" % number, **KINDS[kind]} for number in range(16)]
    mixed.client.send(mixed.names, messages)
    rows = mixed.client.read(mixed.names, topic, at_least=16)
    assert sorted(row["body"] for row in rows) == sorted(each["body"] for each in messages)
    assert len({row["storeHost"] for row in rows}) == 2


def test_batches_reach_both_brokers(mixed: Mixed) -> None:
    topic = "Batched"
    mixed.create_topic(topic)
    sent = [
        mixed.client.send(
            mixed.names, [{"topic": topic, "body": b"%d" % number, "batch": "one"} for number in range(5)]
        )[0]
        for _ in range(8)
    ]
    assert {row["brokerName"] for row in sent} == {APACHES, OURS}
    rows = mixed.client.read(mixed.names, topic, at_least=40)
    assert sorted(row["body"] for row in rows) == sorted([b"%d" % number for number in range(5)] * 8)


@pytest.mark.parametrize(
    ("name", "options"),
    [("Tags", {"expression": "T1 || T3"}), ("Sql", {"expression": "number IN ('1', '3')", "sql": True})],
)
def test_only_what_is_wanted_comes_from_both_brokers(
    mixed: Mixed, name: str, options: dict[str, object]
) -> None:
    topic = f"Wanted-{name}"
    mixed.create_topic(topic)
    mixed.client.send(
        mixed.names,
        [
            {
                "topic": topic,
                "body": b"%d" % number,
                "tags": f"T{number}",
                "properties": {"number": number},
            }
            # Queues take turns, and each is to get what is wanted and what is not.
            for number in (0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2)
        ],
    )
    with mixed.client.member(mixed.names, topic, topic, **options) as member:
        rows = member.received(8)
    assert sorted(row["body"] for row in rows) == [b"1"] * 4 + [b"3"] * 4
    assert len({row["storeHost"] for row in rows}) == 2


def test_delayed_messages_come_later_from_both_brokers(mixed: Mixed) -> None:
    topic = "Later"
    mixed.create_topic(topic)
    sent = mixed.client.send(mixed.names, [{"topic": topic, "body": b"late", "delay": 1} for _ in range(8)])
    assert {row["brokerName"] for row in sent} == {APACHES, OURS}
    with mixed.client.member(mixed.names, topic, topic) as member:
        rows = member.received(8)
    assert all(row["storeTimestamp"] - row["bornTimestamp"] >= 1000 for row in rows)
    assert len({row["storeHost"] for row in rows}) == 2


def test_dead_letters_lie_on_both_brokers(mixed: Mixed) -> None:
    topic = "Poison"
    mixed.create_topic(topic)
    mixed.client.send(mixed.names, [{"topic": topic, "body": b"%d" % n} for n in range(8)])
    with mixed.client.member(mixed.names, topic, topic, fails=9, attempts=1):
        rows = mixed.client.read(mixed.names, f"%DLQ%{topic}", at_least=8)
    assert {row["body"] for row in rows} == {b"%d" % n for n in range(8)}
    assert len({row["storeHost"] for row in rows}) == 2


def test_everyone_of_a_broadcast_group_gets_everything_of_both_brokers(mixed: Mixed) -> None:
    topic = "ToAll"
    mixed.create_topic(topic)
    client = mixed.client
    with (
        client.member(mixed.own_names, topic, topic, broadcast=True) as one,
        client.member(mixed.apaches_names, topic, topic, broadcast=True) as two,
    ):
        wait_until(lambda: len(one.queues(topic)) == len(two.queues(topic)) == 4, "all queues")
        sent = client.send(mixed.names, [{"topic": topic, "body": b"%d" % n} for n in range(8)])
        assert {row["brokerName"] for row in sent} == {APACHES, OURS}
        for member in (one, two):
            assert sorted(row["body"] for row in member.received(8)) == [b"%d" % n for n in range(8)]


def test_requests_are_replied_to_through_both_brokers(mixed: Mixed) -> None:
    topic = "Asked"
    mixed.create_topic(topic)
    with mixed.client.member(mixed.names, topic, topic, reply="re: ") as member:
        wait_until(lambda: len(member.queues(topic)) == 4, "all queues")
        for number in range(8):
            reply = mixed.client.request(mixed.names, {"topic": topic, "body": b"%d" % number})
            assert reply["body"] == b"re: %d" % number
        assert len({row["storeHost"] for row in member.received(8)}) == 2


def test_a_group_is_set_back_on_both_brokers(mixed: Mixed) -> None:
    topic = "SetBack"
    mixed.create_topic(topic)
    sent = mixed.client.send(mixed.names, [{"topic": topic, "body": b"%d" % n} for n in range(8)])
    assert {row["brokerName"] for row in sent} == {APACHES, OURS}
    with mixed.client.member(mixed.names, topic, topic) as member:
        member.received(8)
        # Apache's brokers set no group back that has not committed.
        mixed.client.wait_committed(mixed.names, topic, topic, queues=4)
        said = mixed.client.mqadmin(
            "resetOffsetByTime", "-g", topic, "-t", topic, "-s", "1000", "-n", mixed.names
        )
        assert APACHES in said, said
        assert OURS in said, said
        rows = member.received(16)
    assert sorted(row["body"] for row in rows) == sorted([b"%d" % n for n in range(8)] * 2)


def test_our_consumer_and_javas_are_members_of_one_group(mixed: Mixed) -> None:
    """They agree who reads which queue without talking to each other: both rules must be the same."""
    topic = "Shared"
    mixed.create_topic(topic)
    client = mixed.client
    ours: list[bytes] = []
    consumer = PushConsumer(topic, mixed.names, start_from="first")
    consumer.subscribe(topic, "*", lambda message: ours.append(message.body))

    def held_by_us() -> set[tuple[str, int]]:
        return {(queue.broker_name, queue.queue_id) for queue in consumer.assigned if queue.topic == topic}

    with client.member(mixed.names, topic, topic) as javas, consumer:
        wait_until(
            lambda: (
                len(held_by_us()) == len(javas.queues(topic)) == 2
                and len(held_by_us() | javas.queues(topic)) == 4
            ),
            "two queues for each member",
        )
        with Producer("senders", mixed.names) as producer:
            for number in range(40):
                producer.send(Message(topic, b"%d" % number))
        wait_until(lambda: len(ours) + len(javas.received()) >= 40, "all messages")
        bodies = ours + [row["body"] for row in javas.received()]
        assert sorted(map(int, bodies)) == list(range(40))
        assert ours
        assert javas.received()


def test_what_fails_is_retried_on_the_broker_it_came_from(mixed: Mixed) -> None:
    topic = "RetriedOnBoth"
    mixed.create_topic(topic)
    client = mixed.client
    sent = client.send(mixed.names, [{"topic": topic, "body": b"%d" % number} for number in range(8)])
    assert {row["brokerName"] for row in sent} == {APACHES, OURS}
    with client.member(mixed.names, topic, topic, fails=1) as member:
        rows = member.received(16)
    attempts = sorted((int(row["body"]), row["reconsumeTimes"]) for row in rows)
    assert attempts == [(number, times) for number in range(8) for times in (0, 1)]
    first_store = {row["body"]: row["storeHost"] for row in rows if row["reconsumeTimes"] == 0}
    for row in rows:
        assert row["storeHost"] == first_store[row["body"]]


def test_ordered_consumers_lock_queues_on_both_brokers(mixed: Mixed) -> None:
    topic = "OrderedOnBoth"
    mixed.create_topic(topic)
    client = mixed.client
    client.send(mixed.names, [{"topic": topic, "body": b"%d" % number} for number in range(60)])
    with (
        client.member(mixed.names, topic, topic, ordered=True) as one,
        client.member(mixed.names, topic, topic, ordered=True) as two,
    ):
        wait_until(lambda: len(one.received() + two.received()) >= 60, "all messages")
        rows = one.received() + two.received()
    places = {(row["storeHost"], row["queueId"]) for row in rows}
    assert len(places) == 4
    for place in places:
        offsets = [row["queueOffset"] for row in rows if (row["storeHost"], row["queueId"]) == place]
        assert offsets == sorted(offsets)


def test_messages_are_found_by_key_on_both_brokers(mixed: Mixed) -> None:
    topic = "FoundOnBoth"
    mixed.create_topic(topic)
    client = mixed.client
    sent = client.send(
        mixed.names, [{"topic": topic, "body": b"%d" % number, "keys": "every"} for number in range(10)]
    )
    assert {row["brokerName"] for row in sent} == {APACHES, OURS}
    wait_until(lambda: len(client.query(mixed.names, topic, "every")) == 10, "all messages by key")
    for row in sent[:4]:
        for message_id in (row["msgId"], row["offsetMsgId"]):
            found = client.view(mixed.names, topic, message_id)
            assert found["properties"]["UNIQ_KEY"] == row["msgId"]
