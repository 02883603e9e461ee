"""The tables of the broker: what they remember, and what they say has changed."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.support.broker_parts import FakeChannel

from pyromq.broker.settings import BrokerSettings
from pyromq.broker.tables.clients import Client, ConsumerTable, ProducerTable
from pyromq.broker.tables.filters import FilterTable
from pyromq.broker.tables.groups import GroupTable
from pyromq.broker.tables.offsets import OffsetTable
from pyromq.broker.tables.queue_locks import QueueLocks
from pyromq.broker.tables.topics import TopicTable, system_topics
from pyromq.clock import ManualClock
from pyromq.filesystem import Files
from pyromq.protocol import names
from pyromq.protocol.body import DataVersion, MessageQueue
from pyromq.protocol.requests.membership import ConsumerData, MessageModel, SubscriptionData
from pyromq.protocol.requests.offsets import ConsumerOffsetSerializeWrapper
from pyromq.protocol.requests.topics import TopicConfig
from pyromq.store.json_table import JsonTable

NAMES: Any = {"broker_name": "broker-a", "broker_cluster_name": "Default"}


def connection(address: str = "127.0.0.1:1") -> FakeChannel:
    return FakeChannel(address)


def table_file(tmp_path: Path, name: str) -> JsonTable:
    return JsonTable(Files(), tmp_path / name)


def new_topics(tmp_path: Path) -> TopicTable:
    system = system_topics(BrokerSettings(**NAMES), has_timers=True)
    return TopicTable(table_file(tmp_path, "topics.json"), ManualClock(), system)


class TestTopics:
    @pytest.mark.parametrize(("enabled", "perm"), [(True, 7), (False, 1)])
    def test_the_topics_of_cluster_and_broker_can_be_closed(self, enabled: bool, perm: int) -> None:
        settings = BrokerSettings(**NAMES, cluster_topic=enabled, broker_topic=enabled)
        made = system_topics(settings, has_timers=True)
        perms = {config.topic_name: config.perm for config in made}
        assert (perms["Default"], perms["broker-a"], perms["SELF_TEST_TOPIC"]) == (perm, perm, 6)

    def test_an_unknown_topic_is_made_after_the_default_topic(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        told: list[str] = []
        topics.on_change(lambda configs: told.extend(config.topic_name for config in configs))
        made = topics.create_for_send("Orders", names.AUTO_CREATE_TOPIC, 4, 0, auto_create=True)
        assert made is not None
        assert (made.read_queue_nums, made.write_queue_nums, made.perm) == (4, 4, 6)
        assert told == ["Orders"]

    def test_a_client_gets_no_more_queues_than_the_default_topic_has(self, tmp_path: Path) -> None:
        made = new_topics(tmp_path).create_for_send("T", names.AUTO_CREATE_TOPIC, 100, 0, auto_create=True)
        assert made is not None
        assert made.write_queue_nums == 8

    @pytest.mark.parametrize(
        ("default_topic", "auto_create"),
        [(names.AUTO_CREATE_TOPIC, False), ("nothing", True), (names.SELF_TEST_TOPIC, True)],
        ids=["switched off", "no such default topic", "the default topic is not inheritable"],
    )
    def test_no_topic_is_made_when(self, tmp_path: Path, default_topic: str, auto_create: bool) -> None:
        topics = new_topics(tmp_path)
        assert topics.create_for_send("T", default_topic, 4, 0, auto_create=auto_create) is None
        assert "T" not in topics

    def test_topics_and_their_version_survive_a_restart(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        topics.update(TopicConfig(topic_name="Orders", read_queue_nums=3, write_queue_nums=2))
        version = topics.data_version
        again = new_topics(tmp_path)
        assert again.get("Orders") == topics.get("Orders")
        assert again.data_version == version
        assert again.delete("Orders")
        assert "Orders" not in new_topics(tmp_path)

    def test_every_change_advances_the_version(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        counters = [topics.data_version.counter]
        topics.create_if_absent("%RETRY%g", 1)
        counters.append(topics.data_version.counter)
        topics.create_if_absent("%RETRY%g", 1)
        counters.append(topics.data_version.counter)
        topics.delete("%RETRY%g")
        counters.append(topics.data_version.counter)
        assert counters == [0, 1, 1, 2]

    def test_the_name_servers_decide_which_topics_are_ordered(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        topics.update(TopicConfig(topic_name="Orders"))
        assert topics.mark_ordered(["Orders", "Unknown"])
        assert topics.get("Orders") == TopicConfig(topic_name="Orders", order=True)
        assert not topics.mark_ordered(["Orders"])
        assert topics.mark_ordered([])

    def test_system_topics_are_known_as_such(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        assert topics.is_system("broker-a")
        assert topics.is_system("rmq_sys_anything")
        assert topics.is_system("TBW102")
        assert not topics.is_system("Orders")

    def test_a_topic_of_the_brokers_own_may_be_ordered(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        topics.create_if_absent("%RETRY%g", 1, order=True)
        assert topics.is_ordered("%RETRY%g")
        assert not topics.is_ordered("TBW102")
        assert not topics.is_ordered("nothing")

    def test_a_new_version_without_a_change_is_kept_and_told_to_nobody(self, tmp_path: Path) -> None:
        topics = new_topics(tmp_path)
        told: list[object] = []
        topics.on_change(told.append)
        topics.bump_version()
        assert (topics.data_version.counter, told) == (1, [])
        assert new_topics(tmp_path).data_version == topics.data_version


class TestGroups:
    def test_a_group_makes_itself_when_it_may(self, tmp_path: Path) -> None:
        allowed = True
        groups = GroupTable(table_file(tmp_path, "groups.json"), ManualClock(), lambda: allowed)
        assert groups.find("billing") is not None
        assert groups.find("bad name!") is None
        allowed = False
        assert groups.find("shipping") is None
        assert groups.find("CID_RMQ_SYS_X") is not None

    def test_a_group_can_be_kept_from_a_topic(self, tmp_path: Path) -> None:
        file = table_file(tmp_path, "groups.json")
        groups = GroupTable(file, ManualClock(), lambda: True)
        groups.let_read("billing", "Orders", allowed=False)
        assert not groups.may_read("billing", "Orders")
        assert not GroupTable(file, ManualClock(), lambda: True).may_read("billing", "Orders")
        groups.let_read("billing", "Orders", allowed=True)
        assert groups.may_read("billing", "Orders")

    def test_a_deleted_group_is_gone_after_a_restart(self, tmp_path: Path) -> None:
        file = table_file(tmp_path, "groups.json")
        groups = GroupTable(file, ManualClock(), lambda: True)
        groups.find("billing")
        assert groups.delete("billing")
        assert not groups.delete("billing")
        assert GroupTable(file, ManualClock(), lambda: False).find("billing") is None


class TestOffsets:
    def test_commits_survive_only_once_they_are_persisted(self, tmp_path: Path) -> None:
        file = table_file(tmp_path, "offsets.json")
        offsets = OffsetTable(file, ManualClock())
        offsets.commit("g", "T", 0, 10)
        assert OffsetTable(file, ManualClock()).query("g", "T", 0) == -1
        offsets.persist()
        assert OffsetTable(file, ManualClock()).query("g", "T", 0) == 10

    def test_a_commit_says_when_it_goes_back(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        assert not offsets.commit("g", "T", 0, 10)
        assert offsets.commit("g", "T", 0, 5)
        assert offsets.query("g", "T", 0) == 5

    def test_a_walk_sees_all_pairs_that_stay_while_others_come_and_go(self, tmp_path: Path) -> None:
        file = table_file(tmp_path, "offsets.json")
        offsets = OffsetTable(file, ManualClock())
        topics = [*(f"T{number}" for number in range(50)), *(f"%LMQ%$P${number}" for number in range(600))]
        for topic in topics:
            offsets.commit("g", topic, 0, 1)
        going, seen = topics[::3], set()
        for number, pair in enumerate(offsets.pairs()):
            seen.add(pair)
            offsets.commit("g", f"%LMQ%$P$new-{number}", 0, 1)
            offsets.remove_pairs([(going[number % len(going)], "g")])
        left = set(topics).difference(going)
        assert seen >= {(topic, "g") for topic in left}
        assert offsets.ordinary_pairs() == [(topic, "g") for topic in topics[:50] if topic in left]
        assert len(offsets) == len(list(offsets.pairs())) == len(left) + number + 1
        offsets.persist()
        again = OffsetTable(file, ManualClock())
        assert set(again.pairs()) == set(offsets.pairs())
        assert again.groups_of("%LMQ%$P$0") == again.groups_of("T1") == ["g"]
        again.remove_topic("%LMQ%$P$0")
        assert not again.groups_of("%LMQ%$P$0")

    def test_a_reader_beyond_the_end_goes_back_to_what_it_has_not_finished(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.commit("g", "T", 0, 6)
        offsets.hold("g", "T", 0, 13)
        assert offsets.take_reset("g", "T", 0, 16) == 6
        assert offsets.take_reset("g", "T", 0, 6) is None
        assert offsets.take_reset("g", "T", 0, 16) is None

    def test_a_reset_holds_against_commits_until_the_group_has_seen_it(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.commit("g", "T", 0, 10)
        offsets.assign_reset("g", "T", 0, 3)
        offsets.commit("g", "T", 0, 11)
        assert offsets.query("g", "T", 0) == 3
        assert offsets.take_reset("g", "T", 0) == 3
        assert offsets.take_reset("g", "T", 0) is None
        offsets.commit("g", "T", 0, 4)
        assert offsets.query("g", "T", 0) == 4

    def test_the_version_advances_every_so_many_commits(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock(), commits_per_version=3)
        for offset in range(7):
            offsets.commit("g", "T", 0, offset)
        assert offsets.data_version.counter == 2

    @pytest.mark.parametrize(
        ("their_version", "expected"),
        [(4, {0: 10, 1: 20}), (5, {0: 10, 1: 30, 2: 1}), (6, {0: 7, 1: 30, 2: 1})],
        ids=["older", "equal", "newer"],
    )
    def test_a_master_takes_over_what_an_acting_master_has_more_of(
        self, tmp_path: Path, their_version: int, expected: dict[int, int]
    ) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.commit("g", "T", 0, 10)
        offsets.commit("g", "T", 1, 20)
        offsets.data_version = DataVersion(counter=5)
        offsets.take_over(
            ConsumerOffsetSerializeWrapper(
                data_version=DataVersion(counter=their_version), offset_table={"T@g": {0: 7, 1: 30, 2: 1}}
            )
        )
        assert offsets.queues("g", "T") == expected
        assert offsets.data_version.counter == max(5, their_version)

    def test_a_commit_at_a_replica_makes_its_table_newer_than_its_masters(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.note_own(True)
        copied = DataVersion(counter=7, state_version=2, timestamp=9)
        offsets.copy(ConsumerOffsetSerializeWrapper(data_version=copied, offset_table={"T@g": {0: 1}}))
        assert offsets.data_version == copied
        offsets.commit("g", "T", 0, 3)
        assert offsets.data_version.is_newer_than(copied)

    def test_groups_and_topics_can_be_cloned_and_forgotten(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.commit("g", "T", 0, 10)
        offsets.clone("g", "h", "T")
        offsets.commit("g", "T", 0, 20)
        assert offsets.query("h", "T", 0) == 10
        assert sorted(offsets.groups_of("T")) == ["g", "h"]
        offsets.remove_group("g")
        assert offsets.groups_of("T") == ["h"]
        offsets.remove_topic("T")
        assert offsets.topics_of("h") == []

    def test_a_group_without_members_and_without_messages_is_dead(self, tmp_path: Path) -> None:
        offsets = OffsetTable(table_file(tmp_path, "o"), ManualClock())
        offsets.commit("dead", "T", 0, 10)
        offsets.commit("behind but subscribed", "T", 0, 10)
        offsets.commit("away but with messages", "T", 0, 90)
        dead = offsets.remove_dead(lambda group, _: "subscribed" in group, lambda *_: 50)
        assert dead == [("T", "dead")]
        assert offsets.query("dead", "T", 0) == -1


def consumer(group: str, *topics: str, version: int = 1, model: str = "CLUSTERING") -> ConsumerData:
    return ConsumerData(
        group_name=group,
        message_model=MessageModel(model),
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics
        ],
    )


def client(on: FakeChannel, client_id: str, seen_ms: int = 0) -> Client:
    return Client(on, client_id, language=0, version=401, last_seen_ms=seen_ms)


class TestConsumers:
    def test_a_group_changes_when_a_member_joins_or_topics_change_and_not_otherwise(self) -> None:
        consumers = ConsumerTable()
        one = connection()
        assert consumers.register(client(one, "a"), consumer("g", "T"))
        assert not consumers.register(client(one, "a"), consumer("g", "T", version=2))
        assert consumers.register(client(one, "a"), consumer("g", "T", "U"))
        assert consumers.register(client(one, "a"), consumer("g", "U"))
        assert consumers.register(client(connection(), "b"), consumer("g", "U"))
        assert consumers.groups_of_topic("T") == []
        assert consumers.groups_of_topic("U") == ["g"]

    def test_only_a_newer_subscription_replaces_an_older_one(self) -> None:
        consumers = ConsumerTable()
        one = connection()
        consumers.register(client(one, "a"), consumer("g", "T", version=5))
        consumers.register(client(one, "a"), consumer("g", "T", version=4))
        found = consumers.subscription("g", "T")
        assert found is not None
        assert found.sub_version == 5

    def test_a_light_heartbeat_keeps_the_subscriptions(self) -> None:
        consumers = ConsumerTable()
        one = connection()
        consumers.register(client(one, "a"), consumer("g", "T"))
        assert not consumers.register(client(one, "a"), consumer("g"), keep_subscriptions=True)
        assert consumers.subscription("g", "T") is not None

    def test_a_lost_connection_leaves_all_its_groups(self) -> None:
        consumers = ConsumerTable()
        one, two = connection(), connection()
        consumers.register(client(one, "a"), consumer("g", "T"))
        consumers.register(client(one, "a"), consumer("h", "T"))
        consumers.register(client(two, "b"), consumer("g", "T"))
        lost = {group.name: group.client_ids for group in consumers.lost(one)}
        assert lost == {"g": ["b"], "h": []}
        assert consumers.group("h") is None
        assert consumers.lost(one) == []

    def test_silent_clients_are_found(self) -> None:
        consumers = ConsumerTable()
        consumers.register(client(connection(), "old", seen_ms=10), consumer("g", "T"))
        consumers.register(client(connection(), "new", seen_ms=90), consumer("g", "T"))
        assert [silent.client_id for silent in consumers.silent_since(50)] == ["old"]

    def test_a_heartbeat_leaves_its_fingerprint_with_the_group(self) -> None:
        consumers = ConsumerTable()
        consumers.register(client(connection(), "a"), consumer("g", "T"), fingerprint=5)
        group = consumers.group("g")
        assert group is not None
        assert group.fingerprint == 5


class TestProducers:
    def test_members_are_picked_in_turn_and_closed_ones_left_out(self) -> None:
        producers = ProducerTable()
        connections = [connection() for _ in range(3)]
        for number, each in enumerate(connections):
            producers.register("g", client(each, f"p{number}"))
        connections[1].is_open = False
        members = producers.members("g")
        picked = {producer.client_id for _ in range(4) if (producer := producers.pick(members)) is not None}
        assert picked == {"p0", "p2"}
        assert producers.pick(producers.members("nobody")) is None

    def test_a_lost_connection_is_forgotten_everywhere(self) -> None:
        producers = ProducerTable()
        one = connection()
        producers.register("g", client(one, "p"))
        producers.register("h", client(one, "p"))
        producers.lost(one)
        assert producers.find("p") is None
        assert producers.groups() == {}

    def test_a_client_that_came_back_on_another_connection_stays_known(self) -> None:
        producers = ProducerTable()
        old, new = connection(), connection()
        producers.register("g", client(old, "p"))
        producers.register("g", client(new, "p"))
        producers.lost(old)
        found = producers.find("p")
        assert found is not None
        assert found.channel is new

    def test_members_are_known_by_their_connection(self) -> None:
        producers = ProducerTable()
        one = connection()
        producers.register("g", client(one, "p"))
        assert producers.knows("g", one)
        assert not producers.knows("g", connection())
        assert not producers.knows("h", one)


class TestQueueLocks:
    QUEUES: ClassVar = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]

    def test_a_queue_belongs_to_one_client_until_released(self) -> None:
        locks = QueueLocks()
        assert locks.acquire("g", "a", self.QUEUES, 0) == self.QUEUES
        assert locks.acquire("g", "b", self.QUEUES, 1) == []
        locks.release("g", "b", self.QUEUES)
        assert locks.acquire("g", "b", self.QUEUES, 1) == []
        locks.release("g", "a", self.QUEUES[:1])
        assert locks.acquire("g", "b", self.QUEUES, 1) == self.QUEUES[:1]

    def test_groups_do_not_see_each_others_locks(self) -> None:
        locks = QueueLocks()
        locks.acquire("g", "a", self.QUEUES, 0)
        assert locks.acquire("h", "b", self.QUEUES, 0) == self.QUEUES

    def test_a_lock_that_is_not_renewed_expires(self) -> None:
        locks = QueueLocks(max_live_ms=60_000)
        locks.acquire("g", "a", self.QUEUES, 0)
        locks.acquire("g", "a", self.QUEUES[:1], 30_000)
        assert locks.holds_any("g", 60_001)
        assert locks.acquire("g", "b", self.QUEUES, 60_001) == self.QUEUES[1:]
        locks.remove_expired(200_000)
        assert not locks.holds_any("g", 200_000)


def sql(topic: str, expression: str, version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic=topic, sub_string=expression, expression_type="SQL92", sub_version=version)


class TestFilters:
    DAY_MS: ClassVar = 24 * 3_600_000

    def new(self, tmp_path: Path, clock: ManualClock) -> FilterTable:
        return FilterTable(table_file(tmp_path, "consumerFilter.json"), clock, lambda: self.DAY_MS)

    def test_a_newer_version_replaces_an_older_one_and_never_the_other_way(self, tmp_path: Path) -> None:
        filters = self.new(tmp_path, ManualClock())
        filters.register("g", [sql("T", "a = 1", version=5)])
        filters.register("g", [sql("T", "a = 2", version=4)])
        filters.register("g", [sql("T", "a = 3", version=5)])
        found = filters.get("T", "g")
        assert found is not None
        assert (found.expression, found.version) == ("a = 1", 5)
        filters.register("g", [sql("T", "a = 4", version=6)])
        found = filters.get("T", "g")
        assert found is not None
        assert (found.expression, found.version) == ("a = 4", 6)

    def test_the_same_expression_keeps_its_birth_and_takes_the_version(self, tmp_path: Path) -> None:
        clock = ManualClock()
        filters = self.new(tmp_path, clock)
        born_ms = clock.now_ms()
        filters.register("g", [sql("T", "a = 1", version=1)])
        clock.advance(10)
        filters.register("g", [sql("T", "a = 1", version=2)])
        found = filters.get("T", "g")
        assert found is not None
        assert (found.born_ms, found.version) == (born_ms, 2)

    @pytest.mark.parametrize(
        "subscription",
        [
            SubscriptionData(topic="T", sub_string="*"),
            SubscriptionData(topic="T", sub_string="", expression_type="SQL92"),
            SubscriptionData(topic="T", sub_string="//a", expression_type="XPATH"),
        ],
    )
    def test_nothing_but_sql_is_kept(self, tmp_path: Path, subscription: SubscriptionData) -> None:
        filters = self.new(tmp_path, ManualClock())
        assert filters.register("g", [subscription]) == {}
        assert len(filters) == 0

    def test_an_expression_that_cannot_be_compiled_removes_the_old_one(self, tmp_path: Path) -> None:
        filters = self.new(tmp_path, ManualClock())
        filters.register("g", [sql("T", "a = 1")])
        assert list(filters.register("g", [sql("T", "a =", version=2)])) == ["T"]
        assert filters.get("T", "g") is None

    def test_a_topic_that_is_no_longer_subscribed_to_dies_and_can_come_back(self, tmp_path: Path) -> None:
        filters = self.new(tmp_path, ManualClock())
        filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1")])
        filters.register("h", [sql("T", "c = 1")])
        filters.register("g", [sql("U", "b = 1")])
        dead = {
            key: found.is_dead for key in (("T", "g"), ("U", "g"), ("T", "h")) if (found := filters.get(*key))
        }
        assert dead == {("T", "g"): True, ("U", "g"): False, ("T", "h"): False}
        filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1")])
        found = filters.get("T", "g")
        assert found is not None
        assert not found.is_dead

    def test_the_long_dead_are_forgotten_after_a_day(self, tmp_path: Path) -> None:
        clock = ManualClock()
        filters = self.new(tmp_path, clock)
        filters.register("g", [sql("T", "a = 1")])
        filters.register("h", [sql("T", "a = 1")])
        filters.bury("g")
        clock.advance(24 * 3600 - 1)
        filters.persist()
        assert len(filters) == 2
        clock.advance(1)
        filters.persist()
        assert filters.get("T", "g") is None
        assert filters.get("T", "h") is not None

    def test_filters_survive_a_restart_as_if_their_groups_had_left(self, tmp_path: Path) -> None:
        clock = ManualClock()
        filters = self.new(tmp_path, clock)
        filters.register("g", [sql("T", "a = 1", version=3)])
        filters.persist()
        clock.advance(100)
        again = self.new(tmp_path, clock)
        found = again.get("T", "g")
        assert found is not None
        assert (found.expression, found.version, found.is_dead) == ("a = 1", 3, True)
        assert found.dead_ms == clock.now_ms() - 30_000
        assert found.filter.matches({"a": "1"})
        again.register("g", [sql("T", "a = 1", version=3)])
        assert not found.is_dead

    def test_a_file_with_an_expression_nobody_can_compile_loads_without_it(self, tmp_path: Path) -> None:
        filters = self.new(tmp_path, ManualClock())
        filters.register("g", [sql("T", "a = 1"), sql("U", "b = 1")])
        filters.persist()
        path = tmp_path / "consumerFilter.json"
        path.write_text(path.read_text().replace("a = 1", "a ="))
        again = self.new(tmp_path, ManualClock())
        assert again.get("T", "g") is None
        assert again.get("U", "g") is not None

    def test_nothing_is_written_while_nothing_changes(self, tmp_path: Path) -> None:
        filters = self.new(tmp_path, ManualClock())
        filters.register("g", [sql("T", "a = 1")])
        filters.persist()
        path = tmp_path / "consumerFilter.json"
        path.unlink()
        filters.register("g", [sql("T", "a = 1")])
        filters.persist()
        assert not path.exists()
