"""What a broker tells Prometheus: Apache's names and labels, read from its tables when asked."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.broker_parts import (
    BROKER_NAME,
    CLUSTER,
    BrokerParts,
    FakeChannel,
    broker_parts,
)
from tests.support.small_stores import append

import pyromq.protocol.requests  # noqa: F401  (fills the catalogue)
from pyromq.broker.consumer_lag import MAX_OFFLINE, ConsumerLag, lags
from pyromq.broker.message_sizes import MessageSizes
from pyromq.broker.metering.metering import BrokerMetering
from pyromq.broker.tables.clients import Client
from pyromq.broker.tables.statistics import SENT_TO_DEAD_LETTERS
from pyromq.errors import ConfigError
from pyromq.metrics import Metrics, text_of
from pyromq.protocol import names
from pyromq.protocol.catalogue import CATALOGUE
from pyromq.protocol.codes import V4_9_4, Language, ResponseCode
from pyromq.protocol.requests.groups import SubscriptionGroupConfig
from pyromq.protocol.requests.membership import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from pyromq.remoting.connection import Connection
from pyromq.remoting.server import ServerStatistics

TOPIC, GROUP = "Orders", "shop"
COMMON = {"cluster": CLUSTER, "node_type": "broker", "node_id": BROKER_NAME}


class World:
    def __init__(self, parts: BrokerParts) -> None:
        self.parts = parts
        self.statistics = parts.statistics
        self.traffic: list[ServerStatistics] = []
        parts.add_topic(TOPIC, queues=2)
        self.metering = BrokerMetering(
            *(
                parts.live,
                parts.store,
                parts.tables,
                lambda: 7,
                lambda: self.traffic,
                parts.clock,
                parts.quotas,
            )
        )

    def figures(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """The samples of one name, by the labels that not all metrics have."""
        text = b"".join(text_of(self.metering.families()))
        found = {}
        for family in text_string_to_metric_families(text.decode()):
            for sample in family.samples:
                if sample.name == name:
                    assert COMMON.items() <= sample.labels.items()
                    own = sample.labels.items() - COMMON.items()
                    found[frozenset(own)] = sample.value
        return found

    def figure(self, name: str, **labels: str) -> float:
        found = self.figures(name)
        return found[frozenset(labels.items())]

    def append(self, size: int, queue_id: int = 0, topic: str = TOPIC) -> None:
        assert append(self.parts.store, b"x" * size, topic=topic, queue_id=queue_id).is_ok
        while self.parts.store.dispatch():
            pass

    def consume(self, group: str = GROUP, topic: str = TOPIC) -> None:
        data = ConsumerData(
            group_name=group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=MessageModel.CLUSTERING,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            subscription_data_set=[
                SubscriptionData(topic=topic),
                SubscriptionData(topic=names.retry_topic(group)),
            ],
        )
        self.parts.consumers.register(_client(), data)


def _client() -> Client:
    return Client(FakeChannel(), "c@1", Language.GO, V4_9_4, 0)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with broker_parts(tmp_path) as parts:
        yield World(parts)


# What Prometheus reads from a broker of Apache's 5.3.3 that has served a producer and a consumer.
APACHE_NAMES = {
    "rocketmq_broker_permission",
    "rocketmq_commit_messages_total",
    "rocketmq_consumer_connections",
    "rocketmq_consumer_group_number",
    "rocketmq_consumer_inflight_messages",
    "rocketmq_consumer_lag_latency_milliseconds",
    "rocketmq_consumer_lag_messages",
    "rocketmq_consumer_queueing_latency_milliseconds",
    "rocketmq_consumer_ready_messages",
    "rocketmq_finish_message_latency_milliseconds_bucket",
    "rocketmq_finish_message_latency_milliseconds_count",
    "rocketmq_finish_message_latency_milliseconds_sum",
    "rocketmq_half_messages",
    "rocketmq_message_size_bucket",
    "rocketmq_message_size_count",
    "rocketmq_message_size_sum",
    "rocketmq_messages_in_total",
    "rocketmq_messages_out_total",
    "rocketmq_pop_checkpoint_buffer_size",
    "rocketmq_pop_offset_buffer_size",
    "rocketmq_pop_revive_in_message_total",
    "rocketmq_pop_revive_lag_milliseconds",
    "rocketmq_pop_revive_latency_milliseconds",
    "rocketmq_pop_revive_out_message_total",
    "rocketmq_pop_revive_retry_messages_total",
    "rocketmq_processor_watermark",
    "rocketmq_producer_connections",
    "rocketmq_rollback_messages_total",
    "rocketmq_rpc_latency_milliseconds_bucket",
    "rocketmq_rpc_latency_milliseconds_count",
    "rocketmq_rpc_latency_milliseconds_sum",
    "rocketmq_storage_dispatch_behind_bytes",
    "rocketmq_storage_flush_behind_bytes",
    "rocketmq_storage_message_reserve_time_milliseconds",
    "rocketmq_storage_size_bytes",
    "rocketmq_throughput_in_total",
    "rocketmq_timer_dequeue_lag",
    "rocketmq_timer_dequeue_latency_milliseconds",
    "rocketmq_timer_enqueue_lag",
    "rocketmq_timer_enqueue_latency_milliseconds",
    "rocketmq_timer_message_snapshot",
    "rocketmq_throughput_out_total",
    "rocketmq_topic_number",
}


def test_the_names_are_those_that_apaches_broker_exports(world: World) -> None:
    world.append(10)
    world.statistics.put(TOPIC, 0, 1, 10)
    world.statistics.got(GROUP, TOPIC, 0, 1, 10)
    world.consume()
    world.parts.producers.register("tills", _client())
    world.metering.requests.request_handled(CATALOGUE[310], 310, ResponseCode.SUCCESS, 0.1, False)
    transactions = world.parts.tables.transaction_counts
    transactions.count(TOPIC, 1)
    born_ms = world.parts.clock.now_ms() - 7_000
    transactions.ended(TOPIC, born_ms, is_commit=True)
    transactions.ended(TOPIC, born_ms, is_commit=False)
    pops = world.parts.tables.pop_counts
    pops.written[GROUP, TOPIC, "CK", "PUT_OK"] += 1
    pops.read[GROUP, TOPIC, "ACK", "3"] += 1
    pops.revived[GROUP, TOPIC, "PUT_OK"] += 1
    world.metering.watch_pops(lambda: {0: (2, 150)}, lambda: 1)
    text = b"".join(text_of(world.metering.families()))
    assert set(re.findall(r"^(rocketmq_\w+)\{", text.decode(), re.MULTILINE)) == APACHE_NAMES


def test_transactions_are_counted_by_topic(world: World) -> None:
    transactions = world.parts.tables.transaction_counts
    transactions.count(TOPIC, 3)
    transactions.count(TOPIC, -1)
    born_ms = world.parts.clock.now_ms() - 30_000
    for _ in range(2):
        transactions.ended(TOPIC, born_ms, is_commit=True)
    transactions.ended(TOPIC, born_ms, is_commit=False)
    assert world.figure("rocketmq_half_messages", topic=TOPIC) == 2
    assert world.figure("rocketmq_commit_messages_total", topic=TOPIC) == 2
    assert world.figure("rocketmq_rollback_messages_total", topic=TOPIC) == 1
    name = "rocketmq_finish_message_latency_milliseconds"
    assert world.figure(f"{name}_bucket", topic=TOPIC, le="5.0") == 0
    assert world.figure(f"{name}_bucket", topic=TOPIC, le="60.0") == 2


def test_timed_messages_are_counted_by_topic_and_distance(world: World) -> None:
    counts, timers = world.parts.tables.timer_counts, world.parts.store.timers
    counts.add(TOPIC, 3)
    counts.taken[TOPIC] += 4
    counts.delivered[TOPIC] += 1
    counts.delays.observe(300, (TOPIC, "local", "disk"))
    now = world.parts.store.time.now_ms() // 1000
    for distance_s in (4, 6, 200):
        timers.counts.add(now + distance_s, 1)
    disk = {"storage_type": "local", "storage_medium": "disk"}
    assert world.figure("rocketmq_timing_messages", topic=TOPIC, **disk) == 3
    assert world.figure("rocketmq_timer_enqueue_total", topic=TOPIC, **disk) == 4
    assert world.figure("rocketmq_timer_dequeue_total", topic=TOPIC, **disk) == 1
    assert world.figure("rocketmq_timer_dequeue_lag", **disk) == 3
    assert world.figure("rocketmq_timer_message_snapshot", timer_bound_s="900", **disk) == 0
    assert world.figure("rocketmq_timer_message_snapshot", timer_bound_s="300", **disk) == 1
    assert world.figure("rocketmq_delay_message_latency_seconds_bucket", topic=TOPIC, le="600.0", **disk) == 1


def test_sizes_of_tables_and_the_permission_are_told(world: World) -> None:
    assert world.figure("rocketmq_topic_number") == len(world.parts.topics)
    assert world.figure("rocketmq_consumer_group_number") == len(world.parts.groups)
    assert world.figure("rocketmq_broker_permission") == 6
    world.parts.change(brokerPermission="4")
    assert world.figure("rocketmq_broker_permission") == 4


def test_messages_are_counted_by_topic_over_all_queues(world: World) -> None:
    world.statistics.put(TOPIC, 0, 3, 300)
    world.statistics.put(TOPIC, 1, 1, 50)
    world.statistics.put(names.SCHEDULE_TOPIC, 2, 1, 90)
    world.parts.add_topic("Sorted", attributes={"message.type": "FIFO"})
    world.statistics.put("Sorted", 0, 2, 20)
    for name, figures in (
        ("rocketmq_messages_in_total", (4, 1, 2)),
        ("rocketmq_throughput_in_total", (350, 90, 20)),
    ):
        assert world.figures(name) == {
            frozenset({("topic", topic), ("message_type", kind), ("is_system", is_system)}): figure
            for (topic, kind, is_system), figure in zip(
                (
                    (TOPIC, "normal", "false"),
                    (names.SCHEDULE_TOPIC, "delay", "true"),
                    ("Sorted", "fifo", "false"),
                ),
                figures,
                strict=True,
            )
        }


def test_what_is_handed_out_is_counted_by_group_and_topic(world: World) -> None:
    world.statistics.got(GROUP, TOPIC, 0, 3, 300)
    world.statistics.got(GROUP, TOPIC, 1, 1, 100)
    world.statistics.got(GROUP, names.retry_topic(GROUP), 0, 2, 20)
    labels = {"consumer_group": GROUP, "is_system": "false"}
    assert world.figure("rocketmq_messages_out_total", topic=TOPIC, is_retry="false", **labels) == 4
    assert world.figure("rocketmq_throughput_out_total", topic=TOPIC, is_retry="false", **labels) == 400
    retry = names.retry_topic(GROUP)
    assert world.figure("rocketmq_messages_out_total", topic=retry, is_retry="true", **labels) == 2


def test_dead_letters_are_counted(world: World) -> None:
    world.statistics.add(SENT_TO_DEAD_LETTERS, f"{TOPIC}@{GROUP}")
    labels = {"consumer_group": GROUP, "topic": TOPIC, "is_system": "false"}
    assert world.figure("rocketmq_send_to_dlq_messages_total", **labels) == 1


def test_clients_are_counted_by_language_and_version(world: World) -> None:
    world.parts.producers.register("tills", _client())
    world.parts.producers.register("tills", _client())
    world.consume()
    client = {"language": "go", "version": "v4_9_4", "protocol_type": "remoting"}
    assert world.figure("rocketmq_producer_connections", **client) == 2
    consumer = {"consumer_group": GROUP, "consume_mode": "push", "is_system": "false"}
    assert world.figure("rocketmq_consumer_connections", **client, **consumer) == 1


def test_the_lag_of_a_group_is_told_in_messages_and_time(world: World) -> None:
    for queue_id in (0, 0, 0, 1):
        world.append(10, queue_id)
        world.parts.clock.advance(1)
    world.consume()
    world.parts.offsets.commit(GROUP, TOPIC, 0, 1)
    world.parts.offsets.pulled(GROUP, TOPIC, 0, 2)
    labels = {"consumer_group": GROUP, "topic": TOPIC, "is_retry": "false", "is_system": "false"}
    labels["online"] = "true"
    assert {
        name: world.figure(f"rocketmq_consumer_{name}", **labels)
        for name in (
            "lag_messages",
            "lag_latency_milliseconds",
            "inflight_messages",
            "queueing_latency_milliseconds",
            "ready_messages",
        )
    } == {
        "lag_messages": 2,
        "lag_latency_milliseconds": 3000,
        "inflight_messages": 1,
        "queueing_latency_milliseconds": 2000,
        "ready_messages": 1,
    }


def test_a_group_that_is_up_to_date_has_no_lag(world: World) -> None:
    world.append(10)
    world.consume()
    world.parts.offsets.commit(GROUP, TOPIC, 0, 1)
    parts = world.parts
    assert list(lags(parts.store, parts.topics, parts.offsets, parts.consumers, parts.groups)) == [
        ConsumerLag(GROUP, TOPIC)
    ]


def test_topics_that_are_gone_have_no_lag(world: World) -> None:
    world.consume(topic="Nowhere")
    world.parts.offsets.commit("away", "Nowhere", 0, 1)
    assert world.figures("rocketmq_consumer_lag_messages") == {}


def test_the_lag_of_a_group_without_members_grows_and_is_marked_as_offline(world: World) -> None:
    world.parts.offsets.commit("away", TOPIC, 0, 0)
    world.append(10)
    world.append(10)
    labels = {"consumer_group": "away", "topic": TOPIC, "is_retry": "false", "is_system": "false"}
    assert world.figure("rocketmq_consumer_lag_messages", **labels, online="false") == 2


def test_very_many_groups_without_members_have_their_lag_told_up_to_a_limit(world: World) -> None:
    for number in range(MAX_OFFLINE + 1):
        world.parts.offsets.commit(f"g{number}", TOPIC, 0, 0)
    parts = world.parts
    told = [
        lag.group for lag in lags(parts.store, parts.topics, parts.offsets, parts.consumers, parts.groups)
    ]
    assert told == [f"g{number}" for number in range(1, MAX_OFFLINE + 1)]


def test_lite_topics_take_no_place_of_groups_without_members(world: World) -> None:
    world.parts.offsets.commit("away", TOPIC, 0, 0)
    for number in range(MAX_OFFLINE):
        world.parts.offsets.commit("agents", names.lite_queue("Sessions", f"s-{number}"), 0, 1)
    parts = world.parts
    told = lags(parts.store, parts.topics, parts.offsets, parts.consumers, parts.groups)
    assert [lag.group for lag in told] == ["away"]


def test_a_group_of_lite_topics_is_not_told_as_up_to_date_in_their_parent(world: World) -> None:
    attributes = {"lite.bind.topic": TOPIC}
    world.parts.groups.update(SubscriptionGroupConfig(group_name="agents", attributes=attributes))
    world.append(10)
    world.consume("agents")
    world.consume("audit")
    told = world.figures("rocketmq_consumer_lag_messages")
    assert {dict(labels)["consumer_group"] for labels in told} == {"audit"}


def test_the_lag_of_groups_of_lite_topics_is_told_where_it_is_switched_on(tmp_path: Path) -> None:
    with broker_parts(tmp_path, store={"light_queues": True, "multi_dispatch": True}) as parts:
        world, light = World(parts), parts.store.light
        assert light is not None
        a, b, c = (names.lite_queue(TOPIC, each) for each in "abc")
        for queue in (a, b, a, a, c, b):
            properties = light.numbered(f"INNER_MULTI_DISPATCH\x01{queue}\x02".encode(), [queue])
            append(parts.store, b"x", topic=TOPIC, properties=properties)
            light.appended([queue])
            parts.clock.advance(1)
        while parts.store.dispatch():
            pass
        for group in ("agents", "late"):
            attributes = {"lite.bind.topic": TOPIC}
            parts.groups.update(SubscriptionGroupConfig(group_name=group, attributes=attributes))
        world.consume("agents")
        for queue, offset in ((a, 1), (b, 2), (c, 7)):  # the last one has begun again since
            parts.offsets.commit("agents", queue, 0, offset)
        parts.offsets.commit("stranger", b, 0, 0)

        def told(name: str) -> dict[tuple[str, str], float]:
            found = world.figures(f"rocketmq_consumer_{name}")
            return {
                (dict(labels)["consumer_group"], dict(labels)["online"]): value
                for labels, value in found.items()
                if dict(labels)["topic"] == TOPIC
            }

        lag, ready, latency = "lag_messages", "ready_messages", "lag_latency_milliseconds"
        assert [told(each) for each in (lag, ready, latency)] == [{}] * 3
        parts.change(liteLagCountMetricsEnable="true")
        expected = {("agents", "true"): 3, ("late", "false"): 0}
        assert [told(each) for each in (lag, ready, latency)] == [expected, expected, {}]
        parts.change(liteLagCountMetricsEnable="false", liteLagLatencyMetricsEnable="true")
        assert told(lag) == told("inflight_messages") == told("queueing_latency_milliseconds") == {}
        assert told(latency) == {("agents", "true"): 4000, ("late", "false"): 0}


def test_the_store_tells_how_far_behind_it_is(world: World) -> None:
    labels = {"storage_type": "local", "storage_medium": "disk"}
    assert world.figure("rocketmq_storage_message_reserve_time_milliseconds", **labels) == 0
    world.append(10)
    world.parts.clock.advance(5)
    assert world.figure("rocketmq_storage_message_reserve_time_milliseconds", **labels) == 5000
    assert world.figure("rocketmq_storage_flush_behind_bytes", **labels) > 0
    assert world.figure("rocketmq_storage_dispatch_behind_bytes", **labels) == 0
    assert world.figure("pyromq_broker_disk_used_ratio") == world.parts.store.disk_used_ratio
    assert world.figure("rocketmq_storage_size_bytes", **labels) > 0
    assert world.figure("rocketmq_processor_watermark", processor="async_put") == 0


def test_requests_are_timed_under_apaches_names(world: World) -> None:
    handled = world.metering.requests.request_handled
    for seconds in (0.0005, 0.0005, 0.004, 9.0):
        handled(CATALOGUE[310], 310, ResponseCode.SUCCESS, seconds, False)
    handled(CATALOGUE[34], 34, ResponseCode.SYSTEM_ERROR, 0.001, False)
    labels = {"protocol_type": "remoting", "is_long_polling": "false", "result": "success"}
    send = labels | {"request_code": "send_message_v2", "response_code": "success"}
    buckets = {
        le: world.figure("rocketmq_rpc_latency_milliseconds_bucket", le=le, **send)
        for le in ("1.0", "3.0", "5.0", "3000.0", "+Inf")
    }
    assert buckets == {"1.0": 2, "3.0": 2, "5.0": 3, "3000.0": 3, "+Inf": 4}
    assert world.figure("rocketmq_rpc_latency_milliseconds_sum", **send) == pytest.approx(9005)
    failed = labels | {"request_code": "heart_beat", "response_code": "system_error"}
    assert world.figure("rocketmq_rpc_latency_milliseconds_count", **failed) == 1
    held = "pyromq_broker_stall_seconds_sum"
    assert world.figure(held, cause="request", request="send_message_v2") == pytest.approx(9.004)
    assert world.figure(held, cause="request", request="heart_beat") == pytest.approx(0.001)


def test_a_pull_that_was_held_is_told_from_one_that_was_not(world: World) -> None:
    for waited in (False, True):
        world.metering.requests.request_handled(CATALOGUE[11], 11, ResponseCode.SUCCESS, 0.1, waited)
        world.metering.requests.request_handled(CATALOGUE[310], 310, ResponseCode.SUCCESS, 0.1, waited)
    counts = world.figures("rocketmq_rpc_latency_milliseconds_count")
    assert {
        (dict(key)["request_code"], dict(key)["is_long_polling"]): count for key, count in counts.items()
    } == {
        ("pull_message", "false"): 1,
        ("pull_message", "true"): 1,
        ("send_message_v2", "false"): 2,
    }


def test_only_requests_that_held_the_loop_are_stalls(world: World) -> None:
    for waited in (True, False):
        world.metering.requests.request_handled(CATALOGUE[11], 11, ResponseCode.SUCCESS, 0.1, waited)
    assert world.figure("pyromq_broker_stall_seconds_count", cause="request", request="pull_message") == 1


def test_sends_on_the_fast_path_are_timed_together(world: World) -> None:
    peer = cast(Connection, FakeChannel())

    class FastPath:
        pulls_taken = ends_taken = acks_taken = 0

        def __call__(self, data: bytes, connection: Connection) -> tuple[int, int]:
            world.parts.clock.advance(0.002)
            self.pulls_taken = data.count(b"p")
            self.ends_taken = data.count(b"e")
            return len(data) // 10, len(data)

    timed = world.metering.requests.timed(FastPath())
    assert timed(b"", peer) == (0, 0)
    assert timed(b"x" * 30, peer) == (3, 30)
    (count,) = world.figures("rocketmq_rpc_latency_milliseconds_count").values()
    (total_ms,) = world.figures("rocketmq_rpc_latency_milliseconds_sum").values()
    assert count == 3
    assert total_ms == pytest.approx(6)
    assert world.figure(
        "pyromq_broker_stall_seconds_sum", cause="request", request="several"
    ) == pytest.approx(0.002)
    timed(b"x" * 28 + b"pe", peer)
    counts = world.figures("rocketmq_rpc_latency_milliseconds_count")
    assert {dict(key)["request_code"]: count for key, count in counts.items()} == {
        "send_message_v2": 4,
        "pull_message": 1,
        "end_transaction": 1,
    }


def test_requests_that_nobody_serves_count_as_one(world: World) -> None:
    for code in range(40_000, 40_100):
        world.metering.requests.request_handled(
            None, code, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 0.1, False
        )
    world.metering.requests.request_handled(CATALOGUE[310], 310, 77, 0.1, False)
    counts = world.figures("rocketmq_rpc_latency_milliseconds_count")
    by_request = {
        (dict(key)["request_code"], dict(key)["response_code"]): count for key, count in counts.items()
    }
    assert by_request == {
        ("unknown", "request_code_not_supported"): 100,
        ("send_message_v2", "77"): 1,
    }


def test_sizes_of_messages_are_told_by_the_queues(world: World) -> None:
    for _ in range(3):
        world.append(100)
    world.append(2000, queue_id=1)
    labels = {"topic": TOPIC, "message_type": "normal", "is_system": "false"}
    for _ in range(2):  # what was counted is not counted again
        assert world.figure("rocketmq_message_size_bucket", le="1024.0", **labels) == 3
        assert world.figure("rocketmq_message_size_count", **labels) == 4
    world.append(2000)
    assert world.figure("rocketmq_message_size_bucket", le="4096.0", **labels) == 5


def test_a_few_sizes_stand_for_many(world: World) -> None:
    parts = world.parts
    sizes = Metrics().histogram("sizes", "Sizes.", bounds=(1024,))
    world.append(10)
    counting = MessageSizes(parts.store, sizes, lambda _: ())
    for _ in range(1000):
        append(parts.store, b"x", topic=TOPIC)
    while parts.store.dispatch():
        pass
    counting.sample()
    assert sizes.count() == pytest.approx(1000)
    parts.store.topics.delete(TOPIC)
    world.append(10)
    counting.sample()
    assert sizes.count() == pytest.approx(1001)


def test_labels_of_the_settings_are_on_every_metric(tmp_path: Path) -> None:
    with broker_parts(tmp_path, broker={"metrics_labels": "zone:a, rack : b,cluster:mine"}) as parts:
        world = World(parts)
        assert world.figure("rocketmq_topic_number", zone="a", rack="b") > 0


@pytest.mark.parametrize("text", ["zone", "zo-ne:a", ":a", "zöne:a"])
def test_bad_labels_stop_the_start(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught, broker_parts(tmp_path, broker={"metrics_labels": text}):
        pass
    assert caught.value.key == "metricsLabel"


def test_traffic_of_all_ports_adds_up(world: World) -> None:
    zero = dict.fromkeys(ServerStatistics.__dataclass_fields__, 0)
    world.traffic = [ServerStatistics(**zero | {"connections": 2, "busy_answers": count}) for count in (3, 4)]
    assert world.figure("pyromq_broker_connections") == 4
    assert world.figure("pyromq_broker_busy_answers_total") == 7
    assert world.figure("pyromq_broker_held_pulls") == 7
