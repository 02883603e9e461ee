"""The console's poller over real sockets: what it knows of our brokers and of Apache's, what it asks, and
what it says of servers that are silent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.console_browser import Browser
from tests.support.told_cluster import ToldBroker, ToldCluster

from pyromq.admin import groups, messages, offsets, topics
from pyromq.admin.cluster import Cluster
from pyromq.clock import ManualClock
from pyromq.console.app import make_app
from pyromq.console.security.users import Users
from pyromq.console.settings import ConsoleSettings
from pyromq.console.state import State
from pyromq.console.watch import Snapshot, Watch, forecast
from pyromq.console.watch.values import BrokerKind, GroupState
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.standalone import Standalone, StandaloneSettings
from pyromq.testing.clusters import on_held_ports

TOPIC, GROUP = "orders", "shop"


async def look_again(watch: Watch) -> Snapshot:
    watch.changed_something()
    return await watch.look()


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Standalone]:
    settings = StandaloneSettings(
        store=tmp_path / "store",
        namesrv_port=0,
        broker_port=0,
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with Standalone(settings) as running:
        yield running


async def test_a_cluster_of_ours_is_told_by_one_request_to_each_broker(running: Standalone) -> None:
    address = running.broker.advertised_address
    async with Cluster(running.namesrv) as cluster, Watch(cluster) as watch:
        await topics.put(
            cluster, [address], TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
        )
        await groups.put(cluster, [address], SubscriptionGroupConfig(group_name=GROUP))
        for _ in range(3):
            await messages.send(cluster, TOPIC, b"x", broker_name="broker-a", queue_id=1)
        await offsets.commit(cluster, address, GROUP, MessageQueue(TOPIC, "broker-a", 1), 1)
        assert watch.snapshot.is_first
        snapshot = await watch.look()
        (broker,) = snapshot.brokers
        assert (broker.source, broker.told.problem, broker.lists_told.problem) == (BrokerKind.PYROMQ, "", "")
        assert broker.store is not None
        assert broker.store.fault == ""
        assert broker.store.retention_hours == 72
        assert broker.disk_ratio is not None
        assert broker.disk_total_bytes
        topic = snapshot.topics[TOPIC]
        assert (topic.queues, topic.messages, topic.worst_lag, topic.worst_group) == (2, 3, 2, GROUP)
        assert not topic.is_system
        assert snapshot.topics["TBW102"].is_system
        group = snapshot.groups[GROUP]
        assert (group.lag, group.state, group.members, group.lost) == (2, GroupState.EMPTY, 0, 0)
        assert group.age_ms(cluster.clock.now_ms()) is not None
        (server,) = snapshot.name_servers
        assert server.topics == len(snapshot.topics)
        assert server.brokers == 1
        assert [each.kind for each in snapshot.problems] == ["group-unread"]


async def test_what_changes_is_in_the_next_snapshot(running: Standalone) -> None:
    address = running.broker.advertised_address
    async with Cluster(running.namesrv) as cluster, Watch(cluster) as watch:
        await topics.put(
            cluster, [address], TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1)
        )
        first = await look_again(watch)
        assert first.topics[TOPIC].in_per_s is None
        await messages.send(cluster, TOPIC, b"x")
        await topics.put(cluster, [address], TopicConfig(topic_name="more"))
        while "more" not in watch.snapshot.topics:  # the broker counts at most once a second
            await look_again(watch)
        assert watch.snapshot.topics[TOPIC].messages == 1
        assert watch.snapshot.topics[TOPIC].in_per_s
        await topics.delete(cluster, TOPIC, "DefaultCluster")
        while TOPIC in watch.snapshot.topics:
            await look_again(watch)


def told_brokers(count: int = 2) -> list[ToldBroker]:
    brokers = [ToldBroker(f"broker-{number}") for number in range(count)]
    for broker in brokers:
        broker.add_topic(TOPIC)
        broker.add_topic("quiet")
        broker.read[TOPIC, GROUP] = {0: (100, 40), 1: (10, 10)}
    return brokers


async def test_a_cluster_of_apache_is_told_by_its_tables() -> None:
    async with (
        ToldCluster(*told_brokers()) as told,
        Cluster(told.namesrv) as cluster,
        Watch(cluster) as watch,
    ):
        snapshot = await watch.look()
        assert [each.source for each in snapshot.brokers] == [BrokerKind.APACHE, BrokerKind.APACHE]
        first = snapshot.brokers[0]
        assert (first.in_per_s, first.out_per_s, first.disk_ratio) == (12.5, 7.5, 0.42)
        assert (first.flush_behind_bytes, first.log_bytes, first.store) == (1536, 4000, None)
        assert first.disk_free_bytes == 512 * 1024**3
        assert snapshot.topics[TOPIC].worst_lag == 120
        assert snapshot.topics["quiet"].in_per_s is None
        group = snapshot.groups[GROUP]
        assert (group.lag, group.members, group.lost) == (120, None, None)
        assert group.oldest_unread_ms == 1_699_999_000_000
        assert snapshot.name_servers[0].topics == 2


async def test_brokers_that_do_not_tell_whether_they_are_ready_are_named_as_unknown(tmp_path: Path) -> None:
    async with ToldCluster(*told_brokers()) as told:
        settings = ConsoleSettings(namesrv_addr=told.namesrv, home=tmp_path, anonymous_role="VIEWER")
        state = State(settings, Users(settings.users_file))
        shown = state.clusters["default"]
        async with shown.cluster, shown.watch:
            snapshot = await shown.watch.look()
            assert len(snapshot.unknown) == 2
            page = (await Browser(make_app(state)).get("/c/default/")).text
    assert f"Not known whether these brokers are ready: {', '.join(snapshot.unknown)}." in page


async def test_requests_depend_on_the_number_of_brokers_alone() -> None:
    asked = []
    for objects in (1, 300):
        brokers = told_brokers()
        for number in range(objects):
            for broker in brokers:
                broker.add_topic(f"t{number}")
                broker.read[f"t{number}", f"g{number}"] = {0: (5, 1)}
        async with ToldCluster(*brokers) as told, Cluster(told.namesrv) as cluster, Watch(cluster) as watch:
            snapshot = await watch.look()
            assert len(snapshot.topics) == objects + 2
            asked.append(told.requests)
    assert asked[0] == asked[1]
    assert asked[0] == {
        "GetClusterInfo": 1,
        "GetAllTopics": 1,
        "30206": 1,
        "30028": 2,
        "GetBrokerRuntimeInfo": 2,
        "GetBrokerConfig": 2,
        "GetAllTopicConfigs": 2,
        "GetAllConsumerOffsets": 2,
        "GetBrokerConsumeStats": 2,
    }


async def test_reading_a_snapshot_asks_nothing() -> None:
    async with (
        ToldCluster(*told_brokers()) as told,
        Cluster(told.namesrv) as cluster,
        Watch(cluster) as watch,
    ):
        snapshot = await watch.look()
        before = told.requests
        for _ in range(200):
            assert sorted(watch.snapshot.topics.values(), key=lambda topic: topic.worst_lag or 0)
            assert watch.snapshot.groups[GROUP].topics
            assert watch.readings("group", GROUP, "lag", 3600.0)
        assert told.requests == before
        assert watch.snapshot is snapshot


async def test_each_question_has_its_own_pace() -> None:
    clock = ManualClock()
    async with (
        ToldCluster(*told_brokers(1)) as told,
        Cluster(told.namesrv, clock=clock) as cluster,
        Watch(cluster) as watch,
    ):
        await watch.look()
        for _ in range(120):
            clock.advance(5.0)
            await watch.look()
        asked = told.requests
        assert 110 <= asked["GetBrokerRuntimeInfo"] <= 125
        assert 110 <= asked["GetClusterInfo"] <= 125
        assert 35 <= asked["GetAllConsumerOffsets"] <= 45
        assert 8 <= asked["GetBrokerConsumeStats"] <= 13
        assert 2 <= asked["GetAllTopicConfigs"] <= 4
        assert asked["30028"] <= 3


async def test_a_silent_broker_keeps_its_last_figures_with_the_reason() -> None:
    clock = ManualClock()
    brokers = told_brokers()
    async with (
        ToldCluster(*brokers) as told,
        Cluster(told.namesrv, clock=clock, timeout_s=2.0) as cluster,
        Watch(cluster) as watch,
    ):
        at_ms = (await watch.look()).brokers[1].told.at_ms
        await brokers[1].server.stop(grace_s=0)
        clock.advance(10.0)
        snapshot = await watch.look()
        silent = snapshot.brokers[1]
        assert snapshot.silent == (silent,)
        assert silent.told.at_ms == at_ms
        assert silent.told.problem
        assert silent.in_per_s == 12.5
        assert snapshot.topics[TOPIC].worst_lag == 120
        assert snapshot.topics[TOPIC].told.problem == "" or snapshot.topics[TOPIC].told.at_ms == at_ms
        assert "broker-silent" in {each.kind for each in snapshot.problems}


async def test_a_silent_name_server_is_a_problem_and_no_empty_table() -> None:
    async with (
        ToldCluster(*told_brokers()) as told,
        Cluster([told.namesrv, "127.0.0.1:1"], timeout_s=2.0) as cluster,
        Watch(cluster) as watch,
    ):
        snapshot = await watch.look()
        assert len(snapshot.brokers) == 2
        assert snapshot.name_servers[1].brokers is None
        assert snapshot.name_servers[1].told.problem
        assert [each.kind for each in snapshot.problems if each.about != "group"] == ["nameserver-silent"]


async def test_a_broker_that_leaves_the_routes_leaves_the_lists_and_is_still_named() -> None:
    clock = ManualClock()
    async with (
        ToldCluster(*told_brokers()) as told,
        Cluster(told.namesrv, clock=clock) as cluster,
        Watch(cluster) as watch,
    ):
        await watch.look()
        gone = told.brokers.pop()
        clock.advance(5.0)
        await watch.look()
        snapshot = await watch.look()
        assert [each.name for each in snapshot.brokers] == ["broker-0"]
        assert snapshot.topics[TOPIC].worst_lag == 60
        assert [(each.key, each.address) for each in snapshot.gone] == [("broker-1/0", gone.address)]
        assert "broker-gone" in {each.kind for each in snapshot.problems}
        told.brokers.append(gone)
        clock.advance(5.0)
        await watch.look()
        assert watch.snapshot.gone == ()
        await gone.server.stop(grace_s=0)


async def test_the_forecast_of_a_disk_is_computed_every_half_minute_and_not_with_each_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[int] = []
    compute = forecast.full_disk

    def counted(ratios: forecast.Readings, limit: float, now_ms: int) -> forecast.FullDisk | None:
        computed.append(now_ms)
        return compute(ratios, limit, now_ms)

    monkeypatch.setattr("pyromq.console.watch.views.full_disk", counted)
    clock = ManualClock()
    async with (
        ToldCluster(*told_brokers(1)) as told,
        Cluster(told.namesrv, clock=clock) as cluster,
        Watch(cluster) as watch,
    ):
        for _ in range(8):
            await watch.look()
            clock.advance(5.0)
        computed.clear()
        for _ in range(60):
            await watch.look()
            clock.advance(5.0)
    assert len(computed) == 10


async def test_the_poller_runs_until_it_is_cancelled_and_tells_listeners() -> None:
    async with (
        ToldCluster(*told_brokers()) as told,
        Cluster(told.namesrv) as cluster,
        Watch(cluster) as watch,
    ):
        heard: list[int] = []
        watch.on_snapshot(lambda snapshot: heard.append(snapshot.version))
        task = asyncio.create_task(watch.run())
        snapshot = await watch.first(30.0)
        assert snapshot.version == 1
        assert heard[0] == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_controllers_and_sets_in_sync_are_asked_for(tmp_path: Path) -> None:
    small = {"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400}
    settings = StandaloneSettings(store=tmp_path, replicas=2, store_settings=small)
    with on_held_ports(settings) as settled:
        async with (
            Standalone(settled) as running,
            Cluster(running.namesrv) as cluster,
            Watch(cluster) as watch,
        ):
            snapshot = await watch.look()
            (controller,) = snapshot.controllers
            assert controller.is_leader
            assert controller.groups is not None
            (group,) = controller.groups
            assert (group.name, group.in_sync, group.not_in_sync) == ("broker-a", (1, 2), ())
            assert (snapshot.problems, snapshot.unknown) == ((), ())
            replica = 1 - running.master_number()
            await running.kill_broker(replica)
            async with asyncio.timeout(60):
                while "broker-not-in-sync" not in {each.kind for each in snapshot.problems}:
                    snapshot = await look_again(watch)
