"""Clients that are there before the cluster, or while a broker is away, wait for it within their time."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.client_cluster import ClientCluster, client_cluster
from tests.support.loop import turn_until
from tests.support.tcp_proxy import TcpProxy

from pyromq import aio
from pyromq.client.values import Message
from pyromq.errors import TransportError
from pyromq.remoting.dialer import MAX_BACKOFF_S

LONG_S = 120.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClientCluster]:
    async with client_cluster(tmp_path) as running:
        await running.add_broker("a")
        yield running


@pytest.fixture
async def away(cluster: ClientCluster) -> AsyncIterator[TcpProxy]:
    """A way to the name server that leads nowhere until it is started."""
    async with TcpProxy(cluster.name_server.address, "127.0.0.2", cluster.name_server.address[1]) as proxy:
        await proxy.cut()
        yield proxy


async def test_a_consumer_that_starts_before_the_cluster_waits_for_it(
    away: TcpProxy, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = aio.PushConsumer("billing", away.address, start_timeout_s=LONG_S)
    consumer.subscribe("Orders", "*", lambda message: None)
    starting = asyncio.create_task(consumer.start())
    await turn_until(lambda: "waiting up to 120 s for a name server: no name server can be" in caplog.text)
    assert not starting.done()
    await away.start()
    await starting
    await consumer.close()
    assert caplog.text.count("waiting up to") == 1


async def test_a_consumer_whose_cluster_never_comes_says_so_in_one_error(away: TcpProxy) -> None:
    consumer = aio.PushConsumer("billing", away.address, start_timeout_s=0)
    consumer.subscribe("Orders", "*", lambda message: None)
    with pytest.raises(TransportError, match=r"no name server can be reached \(namesrv=127.0.0.2") as failed:
        await consumer.start()
    cause = failed.value.__cause__
    assert not isinstance(cause, TransportError), "the same reason is told once"
    assert cause is None or cause.__cause__ is None


async def test_a_message_that_is_sent_before_the_cluster_is_there_arrives_later(away: TcpProxy) -> None:
    async with aio.Producer("orders", away.address, send_timeout_s=LONG_S) as producer:
        sending = asyncio.create_task(producer.send(Message("Orders", b"early")))
        dialer = producer._started().session._dialer
        await turn_until(lambda: dialer.statistics().failed_attempts > 1)
        assert not sending.done()
        await away.start()
        await sending


def test_pauses_between_attempts_to_connect_are_shorter_than_a_send_waits() -> None:
    assert aio.Producer("orders", "127.0.0.1:9876").settings.send_timeout_s > 2 * MAX_BACKOFF_S
