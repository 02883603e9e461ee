"""The console before Apache's servers: what they tell is shown, and what they do not tell is not guessed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.support.apache import ApacheBroker, ApacheNameServer
from tests.support.apache_releases import RELEASES, Release
from tests.support.name_servers import name_server

from pyromq.admin import groups, messages, offsets, route_differences, topics
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.console.watch import Watch
from pyromq.console.watch.values import BrokerKind
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.addresses import format_address

# A JVM takes its time to start, and longer on a busy machine.
pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC, GROUP = "orders", "shop"


async def until(question: Callable[[], Awaitable[object]]) -> None:
    """Ask until the answer is not empty; what is not there yet is no answer."""
    for _ in range(600):
        with suppress(NotFound):
            if await question():
                return
        await asyncio.sleep(0.1)
    raise AssertionError("it did not happen within a minute")


@pytest.fixture(params=RELEASES, ids=str)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A broker of Apache at a name server of ours."""
    release: Release = request.param
    async with name_server(tmp_path / "names") as names:
        namesrv = format_address(*names.address)
        broker = ApacheBroker(release, namesrv, tmp_path / "store")
        await asyncio.to_thread(broker.start)
        try:
            async with Cluster(namesrv, timeout_s=60.0) as cluster:
                await until(cluster.members)
                yield cluster
        finally:
            await asyncio.to_thread(broker.kill)


async def test_the_tables_of_an_apache_broker_become_a_snapshot(cluster: Cluster) -> None:
    (member,) = await cluster.masters()
    config = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
    await topics.put(cluster, [member.address], config)
    await groups.put(cluster, [member.address], SubscriptionGroupConfig(group_name=GROUP))
    await until(lambda: cluster.route(TOPIC))
    for _ in range(5):
        await messages.send(cluster, TOPIC, b"x", broker_name=member.broker_name, queue_id=0)
    for queue_id, offset in ((0, 3), (1, 0)):
        queue = MessageQueue(TOPIC, member.broker_name, queue_id)
        await offsets.commit(cluster, member.address, GROUP, queue, offset)
    async with Watch(cluster) as watch:
        snapshot = await watch.look()
        while snapshot.silent:  # java: 4.9 fails to tell its figures in its first second
            watch.changed_something()
            snapshot = await watch.look()
        (broker,) = snapshot.brokers
        assert (broker.source, broker.told.problem, broker.lists_told.problem) == (BrokerKind.APACHE, "", "")
        assert broker.version.startswith(("V4_9", "V5_3"))
        assert None not in (broker.disk_ratio, broker.disk_free_bytes, broker.started_ms)
        assert None not in (broker.flush_behind_bytes, broker.dispatch_behind_bytes, broker.log_bytes)
        assert broker.store is None
        topic = snapshot.topics[TOPIC]
        assert (topic.queues, topic.worst_lag, topic.worst_group, topic.messages) == (2, 2, GROUP, None)
        group = snapshot.groups[GROUP]
        assert (group.lag, group.members, group.lost) == (2, None, None)
        assert group.oldest_unread_ms is not None
        assert not [each for each in snapshot.problems if each.about != "group"]


@pytest.mark.parametrize("release", RELEASES, ids=str)
async def test_a_name_server_of_apache_is_compared_by_names(release: Release, tmp_path: Path) -> None:
    names = ApacheNameServer(release)
    await asyncio.to_thread(names.start)
    try:
        async with name_server(tmp_path) as ours:
            servers = [names.address, format_address(*ours.address)]
            async with Cluster(servers, timeout_s=60.0) as cluster, Watch(cluster) as watch:
                snapshot = await watch.look()
                assert [each.told.problem for each in snapshot.name_servers] == ["", ""]
                assert [each.brokers for each in snapshot.name_servers] == [0, 0]
                assert snapshot.name_servers[0].topics is not None
                found = await route_differences.of_name_servers(cluster)
                assert found.servers == servers
                assert not found.has_compared_routes
    finally:
        await asyncio.to_thread(names.kill)
