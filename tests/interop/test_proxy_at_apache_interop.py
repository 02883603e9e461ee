"""mqproxy before Apache's name server and broker, with RocketMQ's own Python client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.apache_releases import APACHE_5, PeerUnavailable
from tests.support.official_clients import OfficialClient, program_of
from tests.support.server_programs import PROXY

from pyromq.errors import Refused
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.routes import GetRoute
from pyromq.protocol.requests.topics import CreateOrUpdateTopic
from pyromq.remoting.dialer import Dialer

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SETTINGS = {"transactionTimeOut": "2000", "transactionCheckInterval": "1000"}
LANGUAGE = "python5"


class Place(NamedTuple):
    target: str
    broker: str
    names: str

    def create_topic(self, topic: str, kind: str) -> str:
        asyncio.run(self._ask(_topic(topic, kind)))
        asyncio.run(self._wait_for_route(topic))
        return topic

    async def _wait_for_route(self, topic: str) -> None:
        """Apache's broker answers before its name server knows the topic."""
        dialer = Dialer()
        async with asyncio.timeout(60):
            while True:
                with suppress(Refused):
                    await dialer.call(self.names, GetRoute(topic=topic), 30)
                    break
                await asyncio.sleep(0.1)
        await dialer.close()

    def create_group(self, group: str, **settings: Any) -> str:
        body = SubscriptionGroupConfig(group_name=group, **settings)
        asyncio.run(self._ask(CreateOrUpdateGroup(body=body)))
        return group

    async def _ask(self, request: Any) -> None:
        dialer = Dialer()
        await dialer.call(self.broker, request, 30)
        await dialer.close()

    def client(self, role: str, *arguments: str) -> OfficialClient:
        return OfficialClient(LANGUAGE, self.target, role, *arguments)


def _topic(topic: str, kind: str) -> CreateOrUpdateTopic:
    return CreateOrUpdateTopic(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        attributes=f"+message.type={kind}",
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    try:
        program_of(LANGUAGE)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    home: Any = tmp_path_factory.mktemp("proxy")
    store = tmp_path_factory.mktemp("store")
    options = ("--log-dir", "", "-o", "bindAddress=127.0.0.1", "--port", "0")
    with (
        ApacheNameServer(APACHE_5) as names,
        ApacheBroker(APACHE_5, names.address, store, settings=SETTINGS) as broker,
        PROXY.running(home, "-n", names.address, *options) as proxy,
    ):
        yield Place(proxy.boot["address"], broker.address, names.address)


def test_messages_go_through_apaches_broker_and_come_again_when_given_back(place: Place) -> None:
    topic = place.create_topic("FrontNormal", "NORMAL")
    with (
        place.client("produce", topic, "normal", "2") as producer,
        place.client("simple", topic, "FrontGroup", "2", "nack") as consumer,
    ):
        producer.wait("ready")
        consumer.wait("done")
        assert sorted(each["attempt"] for each in consumer.wait("received", 4)) == [1, 1, 2, 2]


def test_a_transaction_is_checked_by_apaches_broker(place: Place) -> None:
    topic = place.create_topic("FrontTransaction", "TRANSACTION")
    with (
        place.client("push", topic, "FrontTransactionGroup") as consumer,
        place.client("produce", topic, "check", "1") as producer,
    ):
        assert producer.wait("checked")[0]["body"] == "check-0"
        assert consumer.bodies(1) == ["check-0"]
