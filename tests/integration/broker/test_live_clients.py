"""Clients come and go over real sockets, in both header forms, and those who share a group hear of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.broker_cluster import BROKER_NAME, GROUP, TOPIC, Bench, BrokerClient, consumer, pull
from tests.support.loop import turn_until

from pyromq.broker.services import membership
from pyromq.clock import ManualClock
from pyromq.errors import Refused
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.codes import Language, ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.requests.groups import (
    CreateOrUpdateGroup,
    GetAllGroupConfigs,
    GetGroupsOfTopic,
    GetSubscriptionOfGroup,
    GetTopicsOfGroup,
    SubscriptionGroupConfig,
)
from pyromq.protocol.requests.inspection import ConsumeMessageDirectly, GetConsumerRunningInfo
from pyromq.protocol.requests.membership import (
    CheckClientConfig,
    CheckClientRequestBody,
    GetAllProducers,
    GetConsumerConnections,
    GetConsumerIds,
    GetProducerConnections,
    MessageModel,
    SubscriptionData,
    UnregisterClient,
)
from pyromq.protocol.requests.offsets import UpdateConsumerOffset
from pyromq.protocol.requests.ordering import (
    LockBatchRequestBody,
    LockQueues,
    UnlockBatchRequestBody,
    UnlockQueues,
)
from pyromq.protocol.requests.pushes import NotifyConsumerIdsChanged
from pyromq.protocol.requests.topics import GetAllTopicConfigs, GetTopicConfig


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param) as running:
        await running.client.create_topic()
        yield running


async def told(client: BrokerClient) -> str:
    """The group whose members changed."""
    push = await client.next_push()
    assert isinstance(push, NotifyConsumerIdsChanged)
    return push.consumer_group


async def member(bench: Bench, client_id: str) -> BrokerClient:
    client = await bench.new_client(client_id)
    await client.heartbeat(consumer())
    await told(client)
    return client


async def ids(bench: Bench, group: str = GROUP) -> list[str]:
    return (await bench.client.call(GetConsumerIds(consumer_group=group))).body.consumer_id_list


# Coming and going


async def test_members_hear_of_those_who_join_and_leave(bench: Bench) -> None:
    first, second = await member(bench, "first"), await member(bench, "second")
    assert await told(first) == GROUP
    assert await ids(bench) == ["first", "second"]
    third = await member(bench, "third")
    assert [await told(each) for each in (first, second)] == [GROUP, GROUP]
    await third.call(UnregisterClient(client_id="third", consumer_group=GROUP))
    assert [await told(each) for each in (first, second)] == [GROUP, GROUP]
    assert await ids(bench) == ["first", "second"]


async def test_members_hear_of_a_connection_that_ends(bench: Bench) -> None:
    first, second = await member(bench, "first"), await member(bench, "second")
    await told(first)
    await second.close()
    assert await told(first) == GROUP
    assert await ids(bench) == ["first"]


async def test_a_heartbeat_that_says_nothing_new_is_not_told(bench: Bench) -> None:
    first = await member(bench, "first")
    await first.heartbeat(consumer())
    await first.heartbeat(consumer(expression="a", version=2))
    await first.heartbeat(consumer(topic="Another", version=3))
    assert await told(first) == GROUP, "its topics changed"
    assert first.pushed.empty()


async def test_a_broadcasting_group_is_told_nothing(bench: Bench) -> None:
    first, second = await bench.new_client("first"), await bench.new_client("second")
    for client in (first, second):
        await client.heartbeat(consumer(model=MessageModel.BROADCASTING))
    await second.heartbeat(consumer("another"))
    assert await told(second) == "another"
    assert first.pushed.empty()


async def test_a_group_may_wish_to_be_told_nothing(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name="quiet", notify_consumer_ids_changed_enable=False)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.heartbeat(consumer("quiet"), consumer("loud"))
    assert await told(bench.client) == "loud"
    assert bench.client.pushed.empty()


@pytest.mark.parametrize("form", HeaderForm)
async def test_silent_clients_are_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: HeaderForm
) -> None:
    monkeypatch.setattr(membership, "SCAN_INTERVAL_S", 0.01)
    clock = ManualClock()
    async with Bench(tmp_path, form, clock) as bench:
        alive, silent = await member(bench, "alive"), await member(bench, "silent")
        await told(alive)
        connection = await silent.connection()
        clock.advance(60)
        await alive.heartbeat(consumer())
        clock.advance(61)
        assert await told(alive) == GROUP
        await turn_until(lambda: not connection.is_open)
        assert await ids(bench) == ["alive"]


async def test_the_light_heartbeat_of_5(bench: Bench) -> None:
    client = bench.client
    first = await client.heartbeat(consumer(expression="a"), fingerprint=11)
    assert first.supports_heartbeat_v2
    light = await client.heartbeat(consumer(expression="unused"), fingerprint=11, light=True)
    assert not light.is_subscription_changed
    subscription = await client.call(GetSubscriptionOfGroup(group=GROUP, topic=TOPIC))
    assert subscription.body.subscription_data is not None
    assert subscription.body.subscription_data.sub_string == "a"
    changed = await client.heartbeat(consumer(), fingerprint=12, light=True)
    assert changed.is_subscription_changed


async def test_a_restarted_broker_asks_for_whole_heartbeats(bench: Bench) -> None:
    await bench.client.heartbeat(consumer(), fingerprint=11)
    await bench.restart()
    light = await bench.client.heartbeat(consumer(), fingerprint=11, light=True)
    assert light.is_subscription_changed
    await bench.client.heartbeat(consumer(), fingerprint=11)
    answer = await bench.client.call(pull(sys_flag=0, subscription=None, sub_version=1))
    assert answer.code == ResponseCode.PULL_NOT_FOUND


async def test_a_heartbeat_makes_the_groups_retry_topic(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, retry_queue_nums=3)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.heartbeat(consumer())
    topic = (await bench.client.call(GetTopicConfig(topic=f"%RETRY%{GROUP}"))).body
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (3, 3, 6)


async def test_many_new_groups_in_one_heartbeat_are_written_once(bench: Bench) -> None:
    async def versions() -> tuple[int, int]:
        topics = (await bench.client.call(GetAllTopicConfigs())).body.data_version
        groups = (await bench.client.call(GetAllGroupConfigs())).body.data_version
        return topics.counter, groups.counter

    topics_before, groups_before = await versions()
    await bench.client.heartbeat(*(consumer(f"group{number}") for number in range(50)))
    assert await versions() == (topics_before + 1, groups_before + 1)
    assert (await bench.client.call(GetTopicConfig(topic="%RETRY%group49"))).body.read_queue_nums == 1


# Asking who is there


async def test_the_connections_of_a_group(bench: Bench) -> None:
    client = await member(bench, "first")
    body = (await bench.client.call(GetConsumerConnections(consumer_group=GROUP))).body
    (connection,) = body.connection_set
    assert (connection.client_id, connection.client_addr) == (
        "first",
        (await client.connection()).local_address,
    )
    assert connection.language is not None
    assert connection.language.value == Language.PYTHON.name
    assert body.subscription_table[TOPIC].sub_string == "*"
    assert body.message_model is MessageModel.CLUSTERING
    refusal = await bench.client.refusal(GetConsumerConnections(consumer_group="nobody"))
    assert refusal.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert (await bench.client.refusal(GetConsumerIds(consumer_group="nobody"))).code == 1


async def test_producers_are_known_until_they_go(bench: Bench) -> None:
    producer = await bench.new_client("p")
    await producer.heartbeat(producers=("tills", "bots"))
    body = (await bench.client.call(GetProducerConnections(producer_group="tills"))).body
    assert [each.client_id for each in body.connection_set] == ["p"]
    everyone = (await bench.client.call(GetAllProducers())).body.data
    assert set(everyone) == {"tills", "bots"}
    await producer.call(UnregisterClient(client_id="p", producer_group="tills"))
    assert set((await bench.client.call(GetAllProducers())).body.data) == {"bots"}
    await producer.close()
    while (await bench.client.call(GetAllProducers())).body.data:
        pass  # each question gives the broker a turn to notice


async def test_groups_and_topics_know_each_other(bench: Bench) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.call(
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=0)
    )
    assert (await bench.client.call(GetGroupsOfTopic(topic=TOPIC))).body.group_list == [GROUP]
    assert (await bench.client.call(GetTopicsOfGroup(group=GROUP))).body.topic_list == [TOPIC]


@pytest.mark.parametrize(
    ("kind", "expression", "code"),
    [
        ("TAG", "a || b", None),
        ("SQL92", "a > 5", None),
        ("SQL92", "a >", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ("XPATH", "//a", ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_consumer_may_have_its_filter_checked(
    bench: Bench, kind: str, expression: str, code: int | None
) -> None:
    subscription = SubscriptionData(topic=TOPIC, sub_string=expression, expression_type=kind)
    request = CheckClientConfig(
        body=CheckClientRequestBody(client_id="c", group=GROUP, subscription_data=subscription)
    )
    if code is None:
        await bench.client.call(request)
    else:
        assert (await bench.client.refusal(request)).code == code


async def test_a_consumer_is_asked_what_it_is_doing(bench: Bench) -> None:
    await member(bench, "worker")
    request = GetConsumerRunningInfo(consumer_group=GROUP, client_id="worker")
    assert (await bench.client.call(request)).body.properties == {"PROP_CLIENT_VERSION": "worker"}
    absent = GetConsumerRunningInfo(consumer_group=GROUP, client_id="absent")
    assert (await bench.client.refusal(absent)).code == ResponseCode.SYSTEM_ERROR


async def test_a_consumer_is_handed_one_message_by_an_operator(bench: Bench) -> None:
    sent = await bench.client.send(b"look at this")
    worker = await member(bench, "worker")
    request = ConsumeMessageDirectly(
        consumer_group=GROUP, client_id="worker", msg_id=sent.msg_id, topic=TOPIC
    )
    assert (await bench.client.call(request)).body.remark == "worker"
    passed_on = await worker.next_push()
    assert isinstance(passed_on, ConsumeMessageDirectly)
    assert b"look at this" in passed_on.body
    assert passed_on.broker_name == BROKER_NAME
    worker.refuses_with = Refused(ResponseCode.SYSTEM_ERROR, "not now")
    assert (await bench.client.refusal(request)).remark == "not now"


# Ordered consumption

QUEUES = {MessageQueue(TOPIC, BROKER_NAME, queue_id) for queue_id in range(2)}


def lock(client_id: str) -> LockQueues:
    return LockQueues(
        body=LockBatchRequestBody(client_id=client_id, consumer_group=GROUP, mq_set=set(QUEUES))
    )


async def locked_by(bench: Bench, client_id: str) -> set[MessageQueue]:
    return (await bench.client.call(lock(client_id))).body.lock_ok_mq_set


async def test_queues_are_locked_by_one_client_at_a_time(bench: Bench) -> None:
    assert await locked_by(bench, "first") == QUEUES
    assert await locked_by(bench, "second") == set()
    assert await locked_by(bench, "first") == QUEUES
    await bench.client.call(
        UnlockQueues(
            body=UnlockBatchRequestBody(
                client_id="first", consumer_group=GROUP, mq_set={MessageQueue(TOPIC, BROKER_NAME, 1)}
            )
        )
    )
    assert await locked_by(bench, "second") == {MessageQueue(TOPIC, BROKER_NAME, 1)}


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_lock_that_is_not_renewed_runs_out(tmp_path: Path, form: HeaderForm) -> None:
    clock = ManualClock()
    async with Bench(tmp_path, form, clock) as bench:
        await locked_by(bench, "first")
        clock.advance(59)
        assert await locked_by(bench, "second") == set()
        assert await locked_by(bench, "first") == QUEUES
        clock.advance(59)
        assert await locked_by(bench, "second") == set()
        clock.advance(2)
        assert await locked_by(bench, "second") == QUEUES


async def test_after_a_restart_locks_are_taken_anew(bench: Bench) -> None:
    await locked_by(bench, "first")
    await bench.restart()
    assert await locked_by(bench, "second") == QUEUES
