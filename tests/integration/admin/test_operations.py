"""The operations of a cluster against a running one, with a consumer and a producer that are online."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient, consumer

from pyromq.admin import (
    brokers,
    connections,
    exports,
    groups,
    kv,
    messages,
    name_servers,
    offsets,
    progress,
    throughput,
    topics,
    tracks,
)
from pyromq.admin.cluster import Cluster
from pyromq.admin.failures import NotFound
from pyromq.admin.tracks import TrackType
from pyromq.errors import Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.catalogue import BodyAnswer
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.inspection import ConsumerRunningInfo, GetConsumerRunningInfo, ProcessQueueInfo
from pyromq.protocol.requests.membership import MessageModel
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.remoting.routing import Caller, handles
from pyromq.standalone import Standalone, StandaloneSettings

TOPIC, GROUP, OTHER = "orders", "shop", "office"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


class PushConsumer(BrokerClient):
    async def aclose(self) -> None:
        await self.close()

    @handles(GetConsumerRunningInfo)
    def _running_info(
        self, request: GetConsumerRunningInfo, caller: Caller
    ) -> BodyAnswer[ConsumerRunningInfo]:
        properties = {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "PROP_CLIENT_VERSION": self.client_id}
        info = ConsumerRunningInfo(properties=properties, mq_table={QUEUE: ProcessQueueInfo()})
        return BodyAnswer(body=info)


class Scene:
    """A cluster with a topic of four queues, two groups, and one client that is online as `shop`."""

    def __init__(self, running: Standalone, cluster: Cluster, client: PushConsumer) -> None:
        self.running = running
        self.cluster = cluster
        self.client = client
        self.address = running.broker.advertised_address

    async def send(
        self, *bodies: str, tags: str | None = None, keys: str | None = None
    ) -> list[messages.Receipt]:
        return [
            await messages.send(
                self.cluster, TOPIC, body.encode(), tags=tags, keys=keys, broker_name="broker-a", queue_id=0
            )
            for body in bodies
        ]

    async def commit_everywhere(self, group: str, offset: int = 0) -> None:
        for queue_id in range(4):
            queue = MessageQueue(TOPIC, "broker-a", queue_id)
            await offsets.commit(self.cluster, self.address, group, queue, offset)


@pytest.fixture(params=[True, False], ids=["server-side-reset", "client-side-reset"])
async def scene(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Scene]:
    settings = StandaloneSettings(
        store=tmp_path / "store",
        namesrv_port=0,
        broker_port=0,
        broker={"server_side_reset": request.param},
        store_settings={"log_segment_bytes": 1 << 20, "index_slots": 100, "index_units": 400},
    )
    async with (
        Standalone(settings) as running,
        Cluster(running.namesrv, timeout_s=60) as cluster,
        aclosing(PushConsumer(running.broker.address, client_id="10.0.0.1@7")) as client,
    ):
        address = running.broker.advertised_address
        config = TopicConfig(topic_name=TOPIC, read_queue_nums=4, write_queue_nums=4)
        await topics.put(cluster, [address], config)
        for group in (GROUP, OTHER):
            await groups.put(cluster, [address], SubscriptionGroupConfig(group_name=group))
        await client.heartbeat(consumer(GROUP, TOPIC), producers=("tills",))
        yield Scene(running, cluster, client)


# Topics


async def test_topics_are_listed_with_their_cluster_and_readers(scene: Scene) -> None:
    found = {each.topic: each for each in await topics.with_readers(scene.cluster)}
    assert found[TOPIC].cluster == "DefaultCluster"
    assert found[TOPIC].groups == [GROUP]
    assert not any(topics.is_derived(name) for name in found)
    assert await topics.clusters_of(scene.cluster, TOPIC) == ["DefaultCluster"]


async def test_topic_stats_tell_the_ends_of_all_queues(scene: Scene) -> None:
    await scene.send("one", "two")
    table = (await topics.stats(scene.cluster, TOPIC)).offset_table
    assert len(table) == 4
    assert (table[QUEUE].min_offset, table[QUEUE].max_offset) == (0, 2)


async def test_a_permission_changes_and_nothing_else(scene: Scene) -> None:
    assert await topics.set_permission(scene.cluster, scene.address, TOPIC, 4) == 6
    config = await topics.config(scene.cluster, scene.address, TOPIC)
    assert (config.perm, config.read_queue_nums, config.write_queue_nums) == (4, 4, 4)


async def test_a_deleted_topic_is_gone_from_brokers_and_name_servers(scene: Scene) -> None:
    await topics.delete(scene.cluster, TOPIC, "DefaultCluster")
    assert TOPIC not in await topics.names(scene.cluster)
    assert TOPIC not in await topics.configs(scene.cluster, scene.address)


async def test_several_topics_are_made_at_once(scene: Scene) -> None:
    wanted = [TopicConfig(topic_name=name, read_queue_nums=2, write_queue_nums=2) for name in ("a", "b")]
    await topics.put_many(scene.cluster, [scene.address], wanted)
    found = await topics.user_configs(scene.cluster, scene.address)
    assert {"a", "b", TOPIC} <= found.keys()
    assert "TBW102" not in found
    assert "%RETRY%shop" not in found
    assert "%RETRY%shop" in await topics.user_configs(scene.cluster, scene.address, derived=True)


# Groups and their members


async def test_every_group_that_consumed_has_a_line(scene: Scene) -> None:
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 0)
    await scene.send("one", "two")
    (line,) = await groups.summaries(scene.cluster)
    assert (line.group, line.count, line.version, line.diff_total) == (GROUP, 1, 479, 2)
    assert line.message_model is MessageModel.CLUSTERING


async def test_a_group_without_a_retry_topic_has_a_line_as_soon_as_it_has_offsets(scene: Scene) -> None:
    """Consumers without retries, such as Spark's, have no such topic."""
    await scene.send("one")
    assert [line.group for line in await groups.summaries(scene.cluster)] == [GROUP]
    await offsets.commit(scene.cluster, scene.address, OTHER, QUEUE, 0)
    assert f"%RETRY%{OTHER}" not in await topics.names(scene.cluster)
    found = {line.group: line.diff_total for line in await groups.summaries(scene.cluster)}
    assert found[OTHER] == 1


async def test_settings_of_a_group_are_read_from_every_master(scene: Scene) -> None:
    ((member, config),) = await groups.configs_of(scene.cluster, GROUP)
    assert (member.broker_name, config.group_name) == ("broker-a", GROUP)
    with pytest.raises(NotFound, match="there is no group shp; did you mean shop"):
        await groups.configs_of(scene.cluster, "shp")


async def test_a_deleted_group_leaves_no_topics_behind(scene: Scene) -> None:
    await groups.delete(scene.cluster, [scene.address], OTHER, with_offsets=True)
    await groups.delete_leftovers(scene.cluster, OTHER, "DefaultCluster")
    assert OTHER not in await groups.configs(scene.cluster, scene.address)
    assert "%RETRY%office" not in await topics.names(scene.cluster)


async def test_several_groups_are_made_at_once(scene: Scene) -> None:
    wanted = [SubscriptionGroupConfig(group_name=name) for name in ("g1", "g2")]
    await groups.put_many(scene.cluster, [scene.address], wanted)
    assert {"g1", "g2"} <= (await groups.user_configs(scene.cluster, scene.address)).keys()


@pytest.mark.parametrize("ask_one", [True, False], ids=["one broker", "all brokers"])
async def test_members_of_a_group_are_described(scene: Scene, ask_one: bool) -> None:
    found = await connections.consumers(scene.cluster, GROUP, scene.address if ask_one else None)
    assert [member.client_id for member in found.connection_set] == ["10.0.0.1@7"]
    assert found.subscription_table[TOPIC].sub_string == "*"


async def test_a_group_without_members_is_not_found(scene: Scene) -> None:
    with pytest.raises(NotFound, match="no member of group office is online; `mqadmin consumerProgress`"):
        await connections.consumers(scene.cluster, OTHER)
    with pytest.raises(
        NotFound, match="no producer of group others is connected to the brokers of topic orders"
    ):
        await connections.producers(scene.cluster, "others", TOPIC)


async def test_producers_are_found_by_group_and_by_broker(scene: Scene) -> None:
    found = await connections.producers(scene.cluster, "tills", TOPIC)
    assert [member.client_id for member in found.connection_set] == ["10.0.0.1@7"]
    assert list(await connections.all_producers(scene.cluster, scene.address)) == ["tills"]


async def test_a_member_is_asked_through_its_broker(scene: Scene) -> None:
    (member,) = await connections.status(scene.cluster, GROUP)
    assert member.running is not None
    assert connections.is_push(member.running)
    with pytest.raises(NotFound, match="`mqadmin consumerConnection -g shop` lists the members"):
        await connections.running_info(scene.cluster, GROUP, "nobody")


# Offsets


async def test_lag_is_counted_queue_by_queue(scene: Scene) -> None:
    await scene.send("one", "two", "three")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    stats = await offsets.lag(scene.cluster, GROUP, TOPIC)
    assert offsets.total_diff(stats) == 2
    assert offsets.total_inflight(stats) == 0


async def test_a_group_that_never_read_has_no_lag(scene: Scene) -> None:
    with pytest.raises(NotFound, match="group office has no offsets and no member is online"):
        await offsets.lag(scene.cluster, OTHER)
    with pytest.raises(NotFound, match="group shop has no offsets yet, but its members are online"):
        await offsets.lag(scene.cluster, GROUP)


async def test_the_progress_of_a_group_names_offsets_lag_and_the_machine_that_reads(scene: Scene) -> None:
    await scene.send("one", "two", "three")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    found = await progress.of_group(scene.cluster, GROUP, TOPIC, with_clients=True)
    first = found.queues[0]
    assert (first.group, first.queue) == (GROUP, QUEUE)
    assert (first.broker_offset, first.consumer_offset, first.diff, first.inflight) == (3, 1, 2, 0)
    assert first.client_host == scene.client.client_id.partition("@")[0]
    assert (found.diff_total, found.inflight_total) == (2, 0)
    assert [each.queue for each in found.queues] == sorted(each.queue for each in found.queues)


async def test_clients_are_asked_only_on_request(scene: Scene) -> None:
    await scene.send("one")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 0)
    found = await progress.of_group(scene.cluster, GROUP, TOPIC)
    assert {each.client_host for each in found.queues} == {None}


async def test_the_progress_of_a_broker_leaves_out_queues_with_too_little_lag(scene: Scene) -> None:
    await scene.send("one", "two", "three")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    found = await progress.of_broker(scene.cluster, scene.address)
    assert [(each.group, each.queue, each.diff) for each in found.queues] == [(GROUP, QUEUE, 2)]
    less = await progress.of_broker(scene.cluster, scene.address, min_diff=3)
    assert (less.queues, less.diff_total) == ([], 2)


async def test_an_offline_group_is_sent_back_and_to_the_end(scene: Scene) -> None:
    await scene.send("one", "two")
    for timestamp, expected in ((offsets.TO_THE_END, 2), (0, 0)):
        moved = await offsets.reset(scene.cluster, OTHER, TOPIC, timestamp)
        assert (moved[0].queue, moved[0].offset) == (QUEUE, expected)
        stats = await offsets.lag(scene.cluster, OTHER, TOPIC)
        assert stats.offset_table[QUEUE].consumer_offset == expected


async def test_an_online_group_is_sent_elsewhere(scene: Scene) -> None:
    await scene.send("one", "two")
    await scene.commit_everywhere(GROUP)
    moved = await offsets.reset(scene.cluster, GROUP, TOPIC, offsets.TO_THE_END)
    assert [each.offset for each in moved] == [2, 0, 0, 0]


async def test_one_queue_is_sent_to_an_offset(scene: Scene) -> None:
    await scene.send("one", "two", "three")
    await scene.commit_everywhere(OTHER)
    await offsets.reset_queue(scene.cluster, scene.address, OTHER, QUEUE, 2)
    stats = await offsets.lag(scene.cluster, OTHER, TOPIC)
    assert stats.offset_table[QUEUE].consumer_offset == 2


async def test_offsets_are_cloned_for_one_topic(scene: Scene) -> None:
    await scene.send("one", "two")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    cloned = await offsets.clone(scene.cluster, GROUP, OTHER, TOPIC)
    assert cloned[QUEUE] == 1
    assert (await offsets.lag(scene.cluster, OTHER, TOPIC)).offset_table[QUEUE].consumer_offset == 1
    with pytest.raises(NotFound, match="group shop has no offsets in topic TBW102"):
        await offsets.clone(scene.cluster, GROUP, OTHER, "TBW102")


# Messages


async def test_a_message_is_found_by_either_id_by_key_and_by_place(scene: Scene) -> None:
    (receipt,) = await scene.send("hello", tags="A", keys="k1 k2")
    assert receipt.status == "SEND_OK"
    expected = (b"hello", 0)
    for message_id in (receipt.message_id, receipt.offset_message_id):
        found = await messages.by_id(scene.cluster, TOPIC, message_id)
        assert (found.body, found.queue_offset) == expected
    for key in ("k1", "k2"):
        (found,) = await messages.by_key(scene.cluster, TOPIC, key)
        assert (found.body, found.queue_offset) == expected
    assert await messages.by_key(scene.cluster, TOPIC, "k") == []
    found = await messages.at_queue_offset(scene.cluster, QUEUE, 0)
    assert (found.body, found.queue_offset) == expected
    assert messages.offset_id(found) == receipt.offset_message_id


async def test_messages_that_are_not_there_are_not_found(scene: Scene) -> None:
    (receipt,) = await scene.send("hello")
    for unknown in ("0" * 32, "nonsense"):
        with pytest.raises(NotFound, match=f"topic orders has no message {unknown}"):
            await messages.by_id(scene.cluster, TOPIC, unknown)
    with pytest.raises(NotFound, match=r"no message at offset 5 of orders@broker-a:0, which has 0 to 0"):
        await messages.at_queue_offset(scene.cluster, QUEUE, 5)
    place = decode_offset_message_id(receipt.offset_message_id)
    with pytest.raises(Refused):
        await messages.at(scene.cluster, type(place)(place.host, place.log_offset + 1))


async def test_a_queue_is_read_by_tag_and_up_to_an_offset(scene: Scene) -> None:
    await scene.send(*(f"a{number}" for number in range(40)), tags="A")
    await scene.send("b", tags="B")
    read = [each async for each in messages.read(scene.cluster, scene.address, QUEUE, 0, 40)]
    assert [each.body for each in read] == [b"a%d" % number for number in range(40)]
    only = [each async for each in messages.read(scene.cluster, scene.address, QUEUE, 0, 41, "B")]
    assert [each.body for each in only] == [b"b"]
    assert [each async for each in messages.read(scene.cluster, scene.address, QUEUE, 50, 60)] == []


async def test_a_message_is_sent_again_with_its_properties(scene: Scene) -> None:
    (receipt,) = await scene.send("hello", tags="A", keys="k1")
    await messages.resend(scene.cluster, await messages.by_id(scene.cluster, TOPIC, receipt.message_id))
    found = await messages.by_unique_key(scene.cluster, TOPIC, receipt.message_id)
    assert [each.body for each in found] == [b"hello", b"hello"]


async def test_a_message_that_a_transaction_committed_is_sent_again_without_a_transaction(
    scene: Scene,
) -> None:
    (receipt,) = await scene.send("hello")
    stored = await messages.by_id(scene.cluster, TOPIC, receipt.message_id)
    stored.properties += b"TRAN_MSG\x01true\x02PGROUP\x01tills\x02"
    await messages.resend(scene.cluster, stored)
    found = await messages.by_unique_key(scene.cluster, TOPIC, receipt.message_id)
    assert [each.body for each in found] == [b"hello", b"hello"]


async def test_a_message_is_handed_to_one_consumer(scene: Scene) -> None:
    (receipt,) = await scene.send("hello")
    stored = await messages.by_id(scene.cluster, TOPIC, receipt.offset_message_id)
    result = await messages.consume_directly(scene.cluster, GROUP, scene.client.client_id, stored)
    assert result.remark == scene.client.client_id


async def test_what_became_of_a_message_is_told_for_each_group(scene: Scene) -> None:
    (receipt,) = await scene.send("hello")
    stored = await messages.by_id(scene.cluster, TOPIC, receipt.message_id)
    await offsets.commit(scene.cluster, scene.address, OTHER, QUEUE, 0)
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 0)
    before = {each.consumer_group: each.track_type for each in await tracks.of_message(scene.cluster, stored)}
    assert before == {GROUP: TrackType.NOT_CONSUME_YET, OTHER: TrackType.NOT_ONLINE}
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    after = {each.consumer_group: each.track_type for each in await tracks.of_message(scene.cluster, stored)}
    assert after[GROUP] is TrackType.CONSUMED


async def test_what_a_filter_held_back_counts_as_consumed_but_filtered(scene: Scene) -> None:
    (receipt,) = await scene.send("hello", tags="A")
    await scene.client.heartbeat(consumer(GROUP, TOPIC, "B", version=2))
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 1)
    stored = await messages.by_id(scene.cluster, TOPIC, receipt.message_id)
    (track,) = await tracks.of_message(scene.cluster, stored)
    assert track.track_type is TrackType.CONSUMED_BUT_FILTERED


async def test_sends_are_timed_queue_by_queue(scene: Scene) -> None:
    trials = [trial async for trial in messages.trials(scene.cluster, TOPIC, 5, 10)]
    assert [trial.queue.queue_id for trial in trials] == [0, 1, 2, 3, 0]
    assert all(trial.is_sent for trial in trials)


async def test_a_topic_without_a_queue_to_write_to_takes_no_message(scene: Scene) -> None:
    await name_servers.wipe_write_permission(scene.cluster, "broker-a")
    with pytest.raises(NotFound, match="`mqadmin topicRoute -l -t orders` shows its queues"):
        await messages.send(scene.cluster, TOPIC, b"x")
    await name_servers.add_write_permission(scene.cluster, "broker-a")
    assert (await messages.send(scene.cluster, TOPIC, b"x")).status == "SEND_OK"


# Brokers


async def test_brokers_tell_their_figures_and_settings(scene: Scene) -> None:
    (status,) = await brokers.statuses(scene.cluster)
    assert status.text("brokerVersionDesc") == "V5_3_3"
    assert status.number("putTps") == 0.0
    assert (await brokers.config(scene.cluster, scene.address))["brokerName"] == "broker-a"
    await brokers.update_config(scene.cluster, [scene.address], "fileReservedTime", "24")
    assert (await brokers.config(scene.cluster, scene.address))["fileReservedTime"] == "24"
    with pytest.raises(Refused, match="fileReservedTime=x"):
        await brokers.update_config(scene.cluster, [scene.address], "fileReservedTime", "x")


async def test_housekeeping_is_asked_of_brokers(scene: Scene) -> None:
    for work in (brokers.clean_expired_queues, brokers.delete_expired_log, brokers.clean_unused_topics):
        assert await work(scene.cluster, [scene.address]) == [scene.address]


async def test_entries_of_a_queue_tell_whether_a_filter_lets_them_through(scene: Scene) -> None:
    await scene.send("hello")
    body = await brokers.consume_queue(scene.cluster, scene.address, TOPIC, 0, 0, 10, GROUP)
    assert [entry.eval for entry in body.queue_data] == [True]


async def test_throughput_counts_by_topic_and_group(scene: Scene) -> None:
    await scene.send("hello")
    await offsets.commit(scene.cluster, scene.address, GROUP, QUEUE, 0)
    (line,) = await throughput.of_topics(scene.cluster, [TOPIC])
    assert (line.group, line.accumulation) == (GROUP, 1)
    (line,) = await throughput.of_topics(scene.cluster, ["TBW102"])
    assert line.group is None


async def test_the_throughput_of_a_cluster_leaves_out_retry_topics_and_on_request_idle_ones(
    scene: Scene,
) -> None:
    await scene.send("hello")
    everything = {line.topic for line in await throughput.of_cluster(scene.cluster)}
    assert TOPIC in everything
    assert not any(map(topics.is_derived, everything))
    assert "TBW102" not in {
        line.topic for line in await throughput.of_cluster(scene.cluster, active_only=True)
    }
    assert {line.topic for line in await throughput.of_cluster(scene.cluster, TOPIC)} == {TOPIC}
    with pytest.raises(NotFound):
        await throughput.of_cluster(scene.cluster, "gone")


async def test_the_order_of_a_topic_is_fixed_broker_by_broker(scene: Scene) -> None:
    await kv.put_order(scene.cluster, TOPIC, "broker-b:4")
    assert await kv.add_order(scene.cluster, TOPIC, "broker-a", 8) == "broker-b:4;broker-a:8"
    assert await kv.namespace(scene.cluster, kv.ORDER_NAMESPACE) == {TOPIC: "broker-b:4;broker-a:8"}
    await kv.delete(scene.cluster, kv.ORDER_NAMESPACE, TOPIC)
    with pytest.raises(NotFound, match="there is no key orders in namespace ORDER_TOPIC_CONFIG"):
        await kv.get(scene.cluster, kv.ORDER_NAMESPACE, TOPIC)


async def test_exports_hold_what_the_cluster_has(scene: Scene) -> None:
    found = await exports.configs(scene.cluster, "DefaultCluster")
    assert found["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert found["brokerConfigs"]["broker-a"]["brokerName"] == "broker-a"
    twice = await exports.topic_table(scene.cluster, [scene.address, scene.address])
    assert twice[TOPIC].write_queue_nums == 8
    assert (await exports.group_table(scene.cluster, [scene.address]))[GROUP].retry_queue_nums == 1
    report = (await exports.metrics(scene.cluster, "DefaultCluster"))["evaluateReport"]["broker-a"]
    assert report["runtimeQuota"]["groupSize"] >= 2
    assert report["runtimeVersion"]["clientInfo"] == ["PYTHON%V5_3_3"]
