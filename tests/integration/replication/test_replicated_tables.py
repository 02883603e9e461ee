"""Topics, groups, offsets, delays and deletions of a master reach its replica, and survive its restart."""

from pathlib import Path
from typing import Any

from tests.conftest import ErrorLogs
from tests.support.broker_cluster import GROUP, TOPIC, BrokerClient, topic_creation
from tests.support.replicas import broker_group, caught_up, until
from tests.support.small_stores import bodies_of

from pyromq.broker.broker import Broker
from pyromq.broker.tables.all_tables import Tables
from pyromq.protocol.catalogue import declaration_of
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.names import lite_queue
from pyromq.protocol.properties import LITE_TOPIC
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, DeleteGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.replication import WatchTables
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, TopicConfig
from pyromq.protocol.requests.upkeep import CleanUnusedTopics


def tables(broker: Broker) -> Tables:
    return broker._started.tables


def commit(offset: int, group: str = GROUP, queue_id: int = 0) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=group, topic=TOPIC, queue_id=queue_id, commit_offset=offset)


async def create(client: BrokerClient, *groups: str) -> None:
    await client.create_topic()
    for group in groups or (GROUP,):
        await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=group)))


async def test_changes_of_the_masters_tables_reach_the_replica(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(queues=3)
        await until(lambda: tables(replica).topics.get(TOPIC) is not None)
        assert tables(replica).topics.get(TOPIC) == tables(master).topics.get(TOPIC)
        await client.create_topic("Second")
        await until(lambda: "Second" in tables(replica).topics)
        await client.call(
            CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3))
        )
        await until(lambda: tables(replica).groups.get(GROUP) is not None)
        assert tables(replica).groups.get(GROUP) == tables(master).groups.get(GROUP)
        await client.call(commit(7))
        await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 7)
        await client.call(commit(2))  # also backwards: an operator may have reset the group
        await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 2)
        await client.call(DeleteGroup(group_name=GROUP, clean_offset=True))
        await until(lambda: tables(replica).groups.get(GROUP) is None)
        await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == -1)


async def test_a_replica_tells_once_that_it_cannot_take_over_queues_of_batches(
    tmp_path: Path, error_logs: ErrorLogs
) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
    ):
        tables(master).topics.update(TopicConfig(topic_name="B", attributes={"queue.type": "BatchCQ"}))
        await until(lambda: "B" in tables(replica).topics)
        await client.create_topic("Second")
        await until(lambda: "Second" in tables(replica).topics)
        error_logs.expect("not supported, and its master has them topics=B")


async def test_a_restarted_replica_has_its_tables_without_a_master(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with (
            group.master() as master,
            group.replica() as replica,
            BrokerClient(master.address) as client,
        ):
            await create(client)
            await client.call(commit(5))
            await client.send(b"later", properties={"DELAY": "1"})
            await until(lambda: tables(master).delay_offsets.get(1) == 1)
            await caught_up(replica, master)
            await until(lambda: tables(replica).delay_offsets.get(1) == 1)
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 5)
        async with group.replica() as replica, BrokerClient(replica.address) as client:
            assert TOPIC in tables(replica).topics
            assert tables(replica).offsets.query(GROUP, TOPIC, 0) == 5
            assert tables(replica).delay_offsets.get(1) == 1
            assert (await client.pull()).bodies == [b"later"]


async def test_a_replica_delivers_no_delayed_messages_itself(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic()
        await client.send(b"later", properties={"DELAY": "1"})
        await until(lambda: master.store.queues.max_offset(TOPIC, 0) == 1)
        await caught_up(replica, master)
        assert replica.store.queues.max_offset(TOPIC, 0) == 1


async def test_a_topic_deleted_on_the_master_is_deleted_on_the_replica(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
        BrokerClient(replica.address) as reader,
    ):
        await create(client)
        for _ in range(5):
            await client.send(b"old")
        await client.call(commit(4))
        await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 4)
        await caught_up(replica, master)
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await until(lambda: TOPIC not in tables(replica).topics)
        assert TOPIC not in replica.store.topics.names()
        assert tables(replica).offsets.query(GROUP, TOPIC, 0) == -1
        await client.create_topic()
        await client.send(b"new")
        await caught_up(replica, master)
        await until(lambda: TOPIC in tables(replica).topics)
        assert (await reader.pull()).bodies == [b"new"]
        assert replica.store.topics.deletions() == master.store.topics.deletions()


async def test_lite_topics_that_have_expired_leave_master_and_replica(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "store": {"light_queues": True, "multi_dispatch": True},
        "min_lite_ttl_ms": 1,
        "lite_ttl_check_ms": 50,
    }
    async with (
        broker_group(tmp_path) as group,
        group.master(**settings) as master,
        group.replica(**settings) as replica,
        BrokerClient(master.address) as client,
    ):
        await client.create_topic(attributes="+message.type=LITE")
        await client.send(b"one", properties={LITE_TOPIC: "a"})
        await caught_up(replica, master)
        light = replica.store.light
        assert light is not None
        assert list(light.names("")) == [lite_queue(TOPIC, "a")]
        await client.create_topic(attributes="+lite.topic.expiration=0")
        await until(lambda: master.store.light is not None and not len(master.store.light))
        await client.call(topic_creation("Other"))
        await client.send(b"later", "Other")  # a replica knows of the time that passes by its log only
        await until(lambda: not len(light))
        await client.create_topic(attributes="+lite.topic.expiration=-1")
        await client.send(b"two", properties={LITE_TOPIC: "a"})
        await caught_up(replica, master)
        assert replica.store.queues.max_offset(lite_queue(TOPIC, "a"), 0) == 1


async def test_the_lite_topics_of_a_deleted_topic_leave_the_replica_too(tmp_path: Path) -> None:
    on: dict[str, Any] = {"store": {"light_queues": True, "multi_dispatch": True}}
    old, kept = lite_queue(TOPIC, "old"), lite_queue("Other", "old")
    async with broker_group(tmp_path) as group, group.master(**on) as master:
        async with group.replica(**on) as replica, BrokerClient(master.address) as client:
            await create(client)
            for topic in (TOPIC, "Other"):
                await client.call(topic_creation(topic, attributes="+message.type=LITE"))
            await client.send(b"old", properties={LITE_TOPIC: "old"})
            await client.send(b"other", "Other", properties={LITE_TOPIC: "old"})
            tables(master).offsets.commit(GROUP, old, 0, 1)
            await until(lambda: tables(replica).offsets.query(GROUP, old, 0) == 1)
            await caught_up(replica, master)
            light = replica.store.light
            assert light is not None
            assert set(light.names("")) == {old, kept}
            await client.call(DeleteTopicFromBroker(topic=TOPIC))
            await until(lambda: list(light.names("")) == [kept])
            await until(lambda: tables(replica).offsets.query(GROUP, old, 0) == -1)
            await client.create_topic(attributes="+message.type=LITE")
            for body in (b"new", b"newer"):
                await client.send(body, properties={LITE_TOPIC: "old"})
            await caught_up(replica, master)
            assert bodies_of(replica.store, old) == [b"new", b"newer"]
        # Away while its master deletes the topic, it learns so when it is back.
        async with BrokerClient(master.address) as client:
            await client.call(DeleteTopicFromBroker(topic=TOPIC))
        async with group.replica(**on) as replica:
            back = replica.store.light
            assert back is not None
            await until(lambda: list(back.names("")) == [kept])


async def test_offsets_committed_at_a_replica_while_its_master_is_away_are_handed_back(
    tmp_path: Path,
) -> None:
    async with broker_group(tmp_path) as group, group.replica() as replica:
        async with group.master() as master, BrokerClient(master.address) as client:
            await create(client, GROUP, "newcomers")
            for _ in range(9):
                await client.send()
            await client.call(commit(3))
            await client.call(commit(6, queue_id=1))
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 1) == 6)
        async with BrokerClient(replica.address) as client:
            await client.call(commit(8))
            await client.call(commit(1, "newcomers"))
            await client.call(commit(2, queue_id=1))  # behind the master's: the master knows better
        async with group.master() as master:
            await until(lambda: tables(master).offsets.query(GROUP, TOPIC, 0) == 8)
            await until(lambda: tables(master).offsets.query("newcomers", TOPIC, 0) == 1)
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 1) == 6)
            assert tables(replica).offsets.query(GROUP, TOPIC, 0) == 8


async def test_a_master_that_cannot_push_is_polled(tmp_path: Path) -> None:
    """As Apache's masters are: they answer the extension with REQUEST_CODE_NOT_SUPPORTED."""
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        BrokerClient(master.address) as client,
    ):
        del master.routes.by_code[declaration_of(WatchTables).code]
        await create(client)
        await client.create_topic("Doomed")
        await client.send(b"doomed", topic="Doomed")
        await client.call(commit(5))
        async with group.replica() as replica:
            sync = replica.replication.table_sync
            await until(lambda: sync.copies >= 1)
            assert tables(replica).topics.all().keys() == tables(master).topics.all().keys()
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 5)
            await caught_up(replica, master)
            await client.call(DeleteTopicFromBroker(topic="Doomed"))
            sync._woken.set()
            await until(lambda: "Doomed" not in tables(replica).topics)
            # It may be missing by mistake, as after the loss of the master's topics.json: its messages stay.
            assert replica.store.queues.max_offset("Doomed", 0) == 1


async def test_topics_and_groups_are_changed_on_the_master_only(tmp_path: Path) -> None:
    async with (
        broker_group(tmp_path) as group,
        group.master() as master,
        group.replica() as replica,
        BrokerClient(master.address) as client,
        BrokerClient(replica.address) as reader,
    ):
        await create(client)
        await client.send(b"kept")
        await until(lambda: tables(replica).groups.get(GROUP) is not None)
        await caught_up(replica, master)
        for change in (
            topic_creation("Second", 4),
            CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="second")),
        ):
            refused = await reader.refusal(change)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert "are copies of its master's: change them there" in (refused.remark or "")
        for deletion in (
            DeleteTopicFromBroker(topic=TOPIC),
            DeleteGroup(group_name=GROUP),
            CleanUnusedTopics(),
        ):
            await reader.call(deletion)  # Apache's tools ask all brokers of a cluster
        assert (await reader.pull()).bodies == [b"kept"]
        assert tables(replica).groups.get(GROUP) is not None


async def test_the_directory_of_a_replica_starts_as_a_master(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with (
            group.master() as master,
            group.replica() as replica,
            BrokerClient(master.address) as client,
        ):
            await create(client)
            for number in range(3):
                await client.send(b"%d" % number)
            await client.send(b"later", properties={"DELAY": "1"})
            await until(lambda: tables(replica).delay_offsets.get(1) == 1)
            await client.call(commit(2))
            await until(lambda: tables(replica).offsets.query(GROUP, TOPIC, 0) == 2)
            await caught_up(replica, master)
        async with group.master("replica1") as promoted, BrokerClient(promoted.address) as client:
            assert (await client.send(b"own")).queue_offset == 4
            assert (await client.pull()).bodies == [b"0", b"1", b"2", b"later", b"own"]
            assert tables(promoted).offsets.query(GROUP, TOPIC, 0) == 2
