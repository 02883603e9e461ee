"""Small mistakes are reported where they are made."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.consumer_cluster import ConsumerCluster, consumer_cluster

from pyromq import aio
from pyromq.client.values import Message
from pyromq.errors import BadMessage, ConfigError


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def test_a_brokers_address_is_not_taken_for_a_name_server(cluster: ConsumerCluster) -> None:
    address = cluster.standalone.brokers[0].advertised_address
    async with aio.Producer("orders", address) as producer:
        with pytest.raises(ConfigError, match="it may be a broker"):
            await producer.send(Message("Orders", b"x"))
    consumer = aio.PushConsumer("billing", address)
    consumer.subscribe("Orders", "*", print)
    with pytest.raises(ConfigError, match="it may be a broker"):
        await consumer.start()


@pytest.mark.parametrize("linger_ms", [None, 0])
async def test_a_message_has_one_tag_and_a_topic_that_is_no_template(
    cluster: ConsumerCluster, linger_ms: float | None
) -> None:
    async with aio.Producer("orders", cluster.namesrv, linger_ms=linger_ms) as producer:
        await producer.send(Message("Orders", b"x"))
        with pytest.raises(BadMessage, match="a message has one tag"):
            await producer.send(Message("Orders", b"x", tags="Created||Paid"))
        with pytest.raises(BadMessage, match="the template of new topics"):
            await producer.send(Message("TBW102", b"x"))


async def test_a_priority_without_effect_is_logged_once(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("Orders")
    async with aio.Producer("orders", cluster.namesrv) as producer:
        for _ in range(3):
            await producer.send(Message("Orders", b"x", priority=3))
    assert caplog.text.count("priorities have no effect topic=Orders") == 1


async def test_an_acknowledgement_that_comes_too_late_says_so(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("Orders")
    await cluster.send("Orders", 2)
    async with aio.SimpleConsumer("billing", cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        first = (await consumer.receive(1))[0]
        assert await consumer.ack(first) is True
        second = (await consumer.receive(1))[0]
        monkeypatch.setattr(type(second), "invisible_until_ms", 0)
        assert await consumer.ack(second) is False


def test_a_message_can_be_copied_with_changes() -> None:
    message = Message("Orders", b"x", tags="Created", keys=["o-1"])
    assert message.replace(tags="Paid") == Message("Orders", b"x", tags="Paid", keys=["o-1"])
