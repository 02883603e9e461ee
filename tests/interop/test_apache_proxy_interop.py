"""Apache's proxy before our name server and broker, with RocketMQ's own Python client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.test_proxy_at_apache_interop import LANGUAGE, SETTINGS, Place
from tests.support.apache_proxy import ApacheProxy
from tests.support.apache_releases import PeerUnavailable
from tests.support.official_clients import program_of
from tests.support.own_broker import OwnBroker
from tests.support.own_nameserver import OwnNameServer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    try:
        program_of(LANGUAGE)
        with (
            OwnNameServer() as names,
            OwnBroker(names.address, settings=SETTINGS) as broker,
            ApacheProxy(names.address) as proxy,
        ):
            yield Place(proxy.address, broker.address, names.address)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))


def test_a_message_goes_through_our_broker_and_comes_again_when_its_handling_failed(place: Place) -> None:
    topic = place.create_topic("ApacheFrontNormal", "NORMAL")
    with (
        # Not a simple consumer: Apache's proxy fails at a receive that overtakes the client's settings.
        place.client("push", topic, "ApacheFrontGroup", "*", "fail once") as consumer,
        place.client("produce", topic, "normal", "1") as producer,
    ):
        producer.wait("ready")
        assert [each["attempt"] for each in consumer.wait("received", 2)] == [1, 2]


def test_our_broker_asks_for_the_end_of_a_transaction_through_apaches_proxy(place: Place) -> None:
    topic = place.create_topic("ApacheFrontTransaction", "TRANSACTION")
    with (
        place.client("push", topic, "ApacheFrontTransactionGroup") as consumer,
        place.client("produce", topic, "check", "1") as producer,
    ):
        assert producer.wait("checked")[0]["body"] == "check-0"
        assert consumer.bodies(1) == ["check-0"]


def test_messages_of_a_group_come_in_their_order(place: Place) -> None:
    topic = place.create_topic("ApacheFrontFifo", "FIFO")
    group = place.create_group("ApacheFrontFifoGroup", consume_message_orderly=True)
    with (
        place.client("produce", topic, "fifo", "4") as producer,
        place.client("push", topic, group) as consumer,
    ):
        producer.wait("ready")
        found = consumer.wait("received", 4)
        for name, expected in (("group-0", ["fifo-0", "fifo-2"]), ("group-1", ["fifo-1", "fifo-3"])):
            assert [each["body"] for each in found if each["group"] == name] == expected
