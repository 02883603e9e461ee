"""What operators ask of a broker over real sockets, in both forms: topics, groups, figures, settings."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import (
    BROKER_NAME,
    CLUSTER,
    GROUP,
    TOPIC,
    Bench,
    consumer,
    message,
    topic_creation,
)

from pyromq.broker.services import upkeep
from pyromq.broker.settings import BrokerSettings
from pyromq.clock import ManualClock
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.groups import (
    CreateOrUpdateGroup,
    CreateOrUpdateGroups,
    DeleteGroup,
    GetAllGroupConfigs,
    GetGroupConfig,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    UpdateGroupForbidden,
)
from pyromq.protocol.requests.inspection import (
    GetBrokerConsumeStats,
    GetBrokerRuntimeInfo,
    GetBrokerStatistics,
    GetConsumeStats,
    GetConsumeTimeSpans,
    GetTopicStats,
    QueryConsumeQueue,
)
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.replication import GetEpochs
from pyromq.protocol.requests.settings import GetBrokerConfig, UpdateBrokerConfig
from pyromq.protocol.requests.topics import (
    CreateOrUpdateTopics,
    CreateTopicListRequestBody,
    DeleteTopicFromBroker,
    GetAllTopicConfigs,
    GetSystemTopicsFromBroker,
    GetTopicConfig,
    TopicConfig,
)
from pyromq.protocol.requests.upkeep import (
    CleanExpiredConsumeQueues,
    CleanUnusedTopics,
    DeleteExpiredCommitLog,
    SetCommitLogReadMode,
)
from pyromq.store.settings import StoreSettings

QUEUE = MessageQueue(TOPIC, BROKER_NAME, 0)


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param) as running:
        yield running


# Topics


async def test_a_topic_is_created_changed_and_deleted(bench: Bench) -> None:
    client = bench.client
    await client.create_topic(queues=3, attributes="+message.type=FIFO")
    config = (await client.call(GetTopicConfig(topic=TOPIC))).body
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 3, 6)
    assert config.attributes == {"message.type": "FIFO"}
    await client.create_topic(queues=5, perm=4)
    config = (await client.call(GetTopicConfig(topic=TOPIC))).body
    assert (config.read_queue_nums, config.perm) == (5, 4)
    await client.send(b"x")
    await client.call(DeleteTopicFromBroker(topic=TOPIC))
    assert (await client.refusal(GetTopicConfig(topic=TOPIC))).code == ResponseCode.TOPIC_NOT_EXIST
    await client.create_topic()
    assert (await client.send(b"y")).queue_offset == 0, "its queues are new"
    assert (await client.pull()).bodies == [b"y"]


async def test_several_topics_at_once_all_or_none(bench: Bench) -> None:
    def creation(*names: str) -> CreateOrUpdateTopics:
        configs = [TopicConfig(topic_name=name) for name in names]
        return CreateOrUpdateTopics(body=CreateTopicListRequestBody(topic_config_list=configs))

    await bench.client.call(creation("One", "Two"))
    refusal = await bench.client.refusal(creation("Three", "bad name"))
    assert refusal.code == ResponseCode.INVALID_PARAMETER
    table = (await bench.client.call(GetAllTopicConfigs())).body.topic_config_table
    assert {"One", "Two", "TBW102", BROKER_NAME, CLUSTER} <= set(table)
    assert "Three" not in table


async def test_topics_are_listed_page_by_page(bench: Bench) -> None:
    for number in range(5):
        await bench.client.create_topic(f"T{number}")
    total = len((await bench.client.call(GetAllTopicConfigs())).body.topic_config_table)
    seen: set[str] = set()
    while len(seen) < total:
        page = await bench.client.call(GetAllTopicConfigs(topic_seq=len(seen), max_topic_num=3))
        assert page.total_topic_num == total
        assert 0 < len(page.body.topic_config_table) <= 3
        seen |= set(page.body.topic_config_table)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(topic_creation("bad name"), id="a bad name"),
        pytest.param(topic_creation("TBW102"), id="a system topic"),
        pytest.param(topic_creation(queues=-1), id="a negative number of queues"),
        pytest.param(topic_creation(perm=9), id="an unknown permission"),
        pytest.param(topic_creation(topic_filter_type="NONE"), id="an unknown filter"),
        pytest.param(DeleteTopicFromBroker(topic="TBW102"), id="deleting a system topic"),
        pytest.param(DeleteTopicFromBroker(topic=" "), id="deleting nothing"),
    ],
)
async def test_a_topic_that_cannot_be_is_refused(bench: Bench, request_: DeleteTopicFromBroker) -> None:
    assert (await bench.client.refusal(request_)).code == ResponseCode.INVALID_PARAMETER


async def test_system_topics_are_known(bench: Bench) -> None:
    topics = (await bench.client.call(GetSystemTopicsFromBroker())).body.topic_list
    assert {"TBW102", "SCHEDULE_TOPIC_XXXX", BROKER_NAME} <= set(topics)


async def test_a_broker_without_a_controller_has_no_epochs(bench: Bench) -> None:
    refusal = await bench.client.refusal(GetEpochs())
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert "enableControllerMode" in str(refusal)


async def test_housekeeping_can_be_asked_for(bench: Bench) -> None:
    await bench.client.send(b"x")
    for request in (DeleteExpiredCommitLog(), CleanExpiredConsumeQueues(), CleanUnusedTopics()):
        await bench.client.call(request)
    assert (await bench.client.pull()).bodies == [b"x"]


async def test_a_read_mode_that_there_is_not_changes_nothing(bench: Bench) -> None:
    await bench.client.call(SetCommitLogReadMode(mode=1))
    refusal = await bench.client.refusal(SetCommitLogReadMode(mode=2))
    assert (refusal.code, refusal.remark) == (
        ResponseCode.INVALID_PARAMETER,
        "READ_AHEAD_MODE 2 is neither 0 nor 1",
    )
    assert "dataReadAheadEnable=false\n" in (await bench.client.call(GetBrokerConfig())).body


# Groups


async def test_a_group_is_created_changed_and_deleted(bench: Bench) -> None:
    client = bench.client
    await client.call(CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3)))
    assert (await client.call(GetGroupConfig(group=GROUP))).body.retry_max_times == 3
    more = [SubscriptionGroupConfig(group_name=name) for name in ("a", "b")]
    await client.call(CreateOrUpdateGroups(body=SubscriptionGroupList(group_config_list=more)))
    table = (await client.call(GetAllGroupConfigs())).body.subscription_group_table
    assert {GROUP, "a", "b", "TOOLS_CONSUMER"} <= set(table)
    await client.call(DeleteGroup(group_name=GROUP))
    refusal = await client.refusal(GetGroupConfig(group=GROUP))
    assert refusal.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    bad = CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name="bad name"))
    assert (await client.refusal(bad)).code == ResponseCode.INVALID_PARAMETER


async def test_attributes_of_a_group_are_those_that_have_an_effect(bench: Bench) -> None:
    def change(**attributes: str) -> CreateOrUpdateGroup:
        named = {name.replace("_", "."): value for name, value in attributes.items()}
        return CreateOrUpdateGroup(body=SubscriptionGroupConfig(group_name=GROUP, attributes=named))

    await bench.client.call(change(**{"+priority_factor": "80"}))
    for bad in ({"+colour": "red"}, {"+priority_factor": "101"}, {"+lite_sub_model": "None"}):
        refusal = await bench.client.refusal(change(**bad))
        assert refusal.code == ResponseCode.SYSTEM_ERROR
        assert next(iter(bad)).removeprefix("+").replace("_", ".") in str(refusal)
    assert (await bench.client.call(GetGroupConfig(group=GROUP))).body.attributes == {"priority.factor": "80"}
    await bench.client.call(change(**{"-priority_factor": ""}))
    assert (await bench.client.call(GetGroupConfig(group=GROUP))).body.attributes == {}


async def test_groups_are_kept_over_a_restart(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=3, consume_enable=False)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.call(UpdateGroupForbidden(group=GROUP, topic=TOPIC, readable=False))
    await bench.restart()
    assert (await bench.client.call(GetGroupConfig(group=GROUP))).body == config
    kept = (await bench.client.call(UpdateGroupForbidden(group=GROUP, topic=TOPIC))).body
    assert kept.readable is False


# Figures


async def consumed(bench: Bench) -> None:
    """Three messages, of which one is consumed and two are pulled."""
    await bench.client.create_topic(queues=2)
    for number in range(3):
        await bench.client.send(b"%d" % number)
    await bench.client.heartbeat(consumer())
    await bench.client.pull(0, max_msg_nums=2)
    await bench.client.call(
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=1)
    )


async def test_how_far_queues_reach(bench: Bench) -> None:
    await consumed(bench)
    table = (await bench.client.call(GetTopicStats(topic=TOPIC))).body.offset_table
    assert len(table) == 2
    assert (table[QUEUE].min_offset, table[QUEUE].max_offset) == (0, 3)
    assert table[QUEUE].last_update_timestamp > 0
    refusal = await bench.client.refusal(GetTopicStats(topic="Nowhere"))
    assert refusal.code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_topic_of_many_queues_keeps_nobody_waiting(bench: Bench) -> None:
    await bench.client.create_topic("Wide", queues=1000)
    answered: list[str] = []

    async def ask(name: str, request: GetTopicStats) -> int:
        rows = len((await bench.client.call(request)).body.offset_table)
        answered.append(name)
        return rows

    await bench.client.create_topic(queues=2)
    rows = await asyncio.gather(
        ask("many", GetTopicStats(topic="Wide")), ask("few", GetTopicStats(topic=TOPIC))
    )
    assert list(rows) == [1000, 2]
    assert answered == ["few", "many"]


async def test_how_far_a_group_is_behind(bench: Bench) -> None:
    await consumed(bench)
    lag = (await bench.client.call(GetConsumeStats(consumer_group=GROUP))).body.offset_table[QUEUE]
    assert (lag.broker_offset, lag.consumer_offset, lag.pull_offset) == (3, 1, 2)
    everyone = (await bench.client.call(GetBrokerConsumeStats(is_order=False))).body
    assert (everyone.total_diff, everyone.total_inflight_diff) == (2, 1)
    assert everyone.broker_addr == bench.broker.advertised_address
    request = GetConsumeTimeSpans(topic=TOPIC, group=GROUP)
    spans = (await bench.client.call(request)).body.consume_time_span_set
    span = next(each for each in spans if each.message_queue == QUEUE)
    assert 0 < span.min_time_stamp <= span.consume_time_stamp <= span.max_time_stamp


async def test_entries_of_a_queue_can_be_looked_at(bench: Bench) -> None:
    await consumed(bench)
    request = QueryConsumeQueue(topic=TOPIC, queue_id=0, index=1, count=10, consumer_group=GROUP)
    body = (await bench.client.call(request)).body
    assert (body.min_queue_index, body.max_queue_index) == (0, 3)
    assert len(body.queue_data) == 2
    assert all(entry.eval and entry.physic_size > 0 for entry in body.queue_data)


async def test_runtime_figures(bench: Bench) -> None:
    await consumed(bench)
    figures = (await bench.client.call(GetBrokerRuntimeInfo())).body.table
    assert figures["brokerVersionDesc"] == "V5_3_3"
    assert int(figures["commitLogMaxOffset"]) == bench.broker.statistics().store.log_end_offset
    assert figures["msgPutTotalTodayNow"] == "3"
    for key in (
        "putTps",
        "getTotalTps",
        "runtime",
        "bootTimestamp",
        "commitLogDiskRatio",
        "sendThreadPoolQueueSize",
    ):
        assert key in figures, key


async def test_counters_over_the_last_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SAMPLE_INTERVAL_S", 0.001)
    clock = ManualClock()
    async with Bench(tmp_path, HeaderForm.JSON, clock) as bench:
        for _ in range(3):
            await bench.client.send(b"x")
        request = GetBrokerStatistics(stats_name="TOPIC_PUT_NUMS", stats_key=TOPIC)
        total = 0
        while not total:  # until a sample is taken of it
            clock.advance(10)
            minute = (await bench.client.call(request)).body.stats_minute
            total = 0 if minute is None else minute.sum
        assert total == 3
    # What was never counted is not there.
    async with Bench(tmp_path, HeaderForm.BINARY, clock) as bench:
        request = GetBrokerStatistics(stats_name="TOPIC_PUT_NUMS", stats_key="Nowhere")
        assert (await bench.client.refusal(request)).code == ResponseCode.SYSTEM_ERROR


# Settings


async def setting(bench: Bench, key: str) -> str:
    text = (await bench.client.call(GetBrokerConfig())).body
    return dict(line.split("=", 1) for line in text.splitlines())[key]


async def test_a_setting_is_applied_at_once_and_written_down(bench: Bench, tmp_path: Path) -> None:
    await bench.client.call(UpdateBrokerConfig(body="maxMessageSize=100\nautoCreateTopicEnable=false\n"))
    assert await setting(bench, "maxMessageSize") == "100"
    assert (await bench.client.refusal(message(b"x", "New"))).code == ResponseCode.TOPIC_NOT_EXIST
    await bench.client.create_topic()
    assert (await bench.client.refusal(message(b"x" * 101))).code == ResponseCode.MESSAGE_ILLEGAL
    await bench.client.send(b"x" * 100)
    written = (tmp_path / "config" / "broker.properties").read_text()
    assert written == "autoCreateTopicEnable=false\nmaxMessageSize=100\n"


async def test_the_answer_names_settings_that_wait_for_a_restart(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "config" / "broker.properties"
    path.parent.mkdir(exist_ok=True)
    path.write_text("# ours\nmaxMessageSize = 7\n")
    answer = await bench.client.call(UpdateBrokerConfig(body="maxHashSlotNum=100\nmaxMesageSize=1\n"))
    assert answer.remark is not None
    assert "maxHashSlotNum takes effect after a restart" in answer.remark
    assert "unknown setting maxMesageSize; did you mean maxMessageSize?" in answer.remark
    assert path.read_text() == "# ours\nmaxMessageSize = 7\nmaxHashSlotNum=100\n"
    assert (await bench.client.call(UpdateBrokerConfig(body="maxMessageSize=100\n"))).remark is None


async def test_no_local_setting_is_changed_over_the_network(bench: Bench) -> None:
    """Of the broker and its store, every one, whatever the black list says."""
    before = (await bench.client.call(GetBrokerConfig())).body
    every = [*BrokerSettings.all_settings(), *StoreSettings.all_settings()]
    keys = [each.key for each in every if each.is_local]
    assert len(keys) > 40
    for key in keys:
        refusal = await bench.client.refusal(UpdateBrokerConfig(body=f"maxMessageSize=1000\n{key}=1\n"))
        assert refusal.code == ResponseCode.NO_PERMISSION
        assert key in (refusal.remark or "")
    assert (await bench.client.call(GetBrokerConfig())).body == before


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("maxMessageSize=many\n", ResponseCode.SYSTEM_ERROR),
        ("brokerPermission=99\n", ResponseCode.SYSTEM_ERROR),
        ("brokerConfigPath=elsewhere\n", ResponseCode.NO_PERMISSION),
        ("brokerRole=SLAVE\n", ResponseCode.SYSTEM_ERROR),
        ("".join(f"unknown{number}=1\n" for number in range(17)), ResponseCode.SYSTEM_ERROR),
    ],
)
async def test_a_bad_setting_changes_nothing(bench: Bench, body: str, code: int) -> None:
    before = (await bench.client.call(GetBrokerConfig())).body
    refusal = await bench.client.refusal(UpdateBrokerConfig(body=f"maxMessageSize=1000\n{body}"))
    assert refusal.code == code
    assert (await bench.client.call(GetBrokerConfig())).body == before
