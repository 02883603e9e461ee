"""Light queues of a broker: messages that enter them, and readers that pull them by name."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest
from tests.support.broker_cluster import (
    GROUP,
    SUBSCRIPTION,
    SUSPEND,
    TOPIC,
    BrokerClient,
    message,
    running_broker,
    topic_creation,
)

from pyromq.broker.broker import Broker
from pyromq.clock import ManualClock, SystemClock
from pyromq.errors import Refused
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.names import retry_topic
from pyromq.protocol.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    UNIQ_KEY,
    encode_properties,
)
from pyromq.protocol.requests.offsets import (
    GetMaxOffset,
    GetMinOffset,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, PurgeQueue

LIGHT, OTHER = "%LMQ%one", "%LMQ%two"
ON = {"light_queues": True, "multi_dispatch": True}


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def client(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[BrokerClient]:
    async with running_broker(tmp_path, store=ON) as broker, _client(broker, request.param) as client:
        await client.create_topic()
        yield client


def _client(broker: Broker, form: int = HeaderForm.JSON) -> BrokerClient:
    return BrokerClient(broker.address, form)


def _named(*names: str, **more: str) -> dict[str, str]:
    return {UNIQ_KEY: "7F0000010000000000000000000000FF", INNER_MULTI_DISPATCH: ",".join(names)} | more


async def _bodies(client: BrokerClient, name: str, offset: int = 0) -> list[bytes]:
    return (await client.pull(offset, name, sys_flag=SUBSCRIPTION, subscription="*")).bodies


async def test_a_message_is_pulled_from_each_light_queue_that_it_names(client: BrokerClient) -> None:
    began_ms = SystemClock().now_ms()
    await client.send(b"0", properties=_named(LIGHT, OTHER))
    answer = await client.send(b"1", properties=_named(LIGHT))
    await client.send(b"2")
    assert (answer.queue_id, answer.queue_offset) == (0, 1)  # in the queue of its topic
    pulled = await client.pull(0, LIGHT, sys_flag=SUBSCRIPTION, subscription="*")
    assert pulled.bodies == [b"0", b"1"]
    assert (pulled.answer.next_begin_offset, pulled.answer.max_offset) == (2, 2)
    assert [each.get(INNER_MULTI_QUEUE_OFFSET) for each in pulled.messages] == ["0,0", "1"]
    assert await _bodies(client, OTHER) == [b"0"]
    assert (await client.call(GetMaxOffset(topic=LIGHT, queue_id=0))).offset == 2
    assert (await client.call(GetMinOffset(topic=LIGHT, queue_id=0))).offset == 0
    for timestamp, offset in ((began_ms - 1, 0), (began_ms + 3_600_000, 2)):
        found = await client.call(SearchOffset(topic=LIGHT, queue_id=0, timestamp=timestamp))
        assert found.offset == offset
    await client.call(UpdateConsumerOffset(consumer_group=GROUP, topic=LIGHT, queue_id=0, commit_offset=1))
    asked = QueryConsumerOffset(consumer_group=GROUP, topic=LIGHT, queue_id=0)
    assert (await client.call(asked)).offset == 1


async def test_a_pull_of_a_light_queue_waits_for_its_first_message(client: BrokerClient) -> None:
    waiting = asyncio.create_task(
        client.pull(
            0, LIGHT, sys_flag=SUBSCRIPTION | SUSPEND, subscription="*", suspend_timeout_millis=60_000
        )
    )
    await client.send(b"other", properties=_named(OTHER))
    await client.send(b"first", properties=_named(LIGHT))
    assert (await waiting).bodies == [b"first"]


async def test_offsets_that_a_client_brings_along_do_not_count(client: BrokerClient) -> None:
    for number in range(2):
        await client.send(b"%d" % number, properties=_named(LIGHT, **{INNER_MULTI_QUEUE_OFFSET: "7"}))
    assert await _bodies(client, LIGHT) == [b"0", b"1"]


async def test_a_batch_cannot_bring_its_place_in_a_light_queue_along(client: BrokerClient) -> None:
    for number in range(2):
        await client.send(b"%d" % number, properties=_named(LIGHT))
    forged = encode_properties({INNER_MULTI_DISPATCH: LIGHT, INNER_MULTI_QUEUE_OFFSET: "0"}).encode()
    batch = encode_batch([BatchEntry(b"plain"), BatchEntry(b"forged", forged)])
    with pytest.raises(
        Refused, match="a message of a batch cannot have the property INNER_MULTI_QUEUE_OFFSET"
    ):
        await client.call(message(batch, batch=True))
    told = encode_batch([BatchEntry(b"INNER_MULTI_QUEUE_OFFSET\x010")])  # as a body it is nothing special
    assert (await client.call(message(told, batch=True))).queue_offset == 2
    await client.send(b"2", properties=_named(LIGHT))
    assert await _bodies(client, LIGHT) == [b"0", b"1", b"2"]


async def test_a_message_cannot_enter_a_lite_topic_of_another_topic(client: BrokerClient) -> None:
    for more in ({}, {"DELAY": "1"}):
        with pytest.raises(Refused, match=r"%LMQ%\$Other\$x is a lite topic of Other: messages of") as caught:
            await client.send(b"0", properties=_named(LIGHT, "%LMQ%$Other$x", **more))
        assert caught.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert await _bodies(client, LIGHT) == []


@pytest.mark.parametrize(
    ("topic", "names", "code"),
    [
        ("Orders", "Orders", ResponseCode.MESSAGE_ILLEGAL),
        ("Orders", f"{LIGHT},x", ResponseCode.MESSAGE_ILLEGAL),
        (LIGHT, "", ResponseCode.NO_PERMISSION),
    ],
)
async def test_what_cannot_be_a_light_queue_is_refused(
    client: BrokerClient, topic: str, names: str, code: int
) -> None:
    properties = _named(names) if names else {}
    with pytest.raises(Refused) as caught:
        await client.send(topic=topic, properties=properties)
    assert caught.value.code == code


async def test_a_deleted_light_queue_begins_again(client: BrokerClient) -> None:
    await client.send(b"old", properties=_named(LIGHT))
    await client.call(DeleteTopicFromBroker(topic=LIGHT))
    assert (await client.call(GetMaxOffset(topic=LIGHT, queue_id=0))).offset == 0
    await client.send(b"new", properties=_named(LIGHT))
    assert await _bodies(client, LIGHT) == [b"new"]


async def test_a_message_that_waits_enters_its_light_queues_when_its_time_has_come(
    client: BrokerClient,
) -> None:
    await client.send(b"later", properties=_named(LIGHT, TIMER_DELAY_MS="1200"))
    await client.send(b"level", properties=_named(LIGHT, DELAY="1"))
    await client.send(b"now", properties=_named(LIGHT))
    found: set[bytes] = set()
    async with asyncio.timeout(60):
        while len(found) < 3:
            fields: dict[str, Any] = {"sys_flag": SUBSCRIPTION | SUSPEND, "suspend_timeout_millis": 30_000}
            pulled = await client.pull(len(found), LIGHT, subscription="*", **fields)
            found.update(pulled.bodies)
    assert found == {b"later", b"level", b"now"}


async def test_a_message_that_is_consumed_again_enters_no_light_queue(client: BrokerClient) -> None:
    await client.send(b"once", properties=_named(LIGHT))
    await client.create_topic(retry_topic(GROUP), 1)
    await client.send(b"once", topic=retry_topic(GROUP), properties=_named(LIGHT))
    assert await _bodies(client, LIGHT) == [b"once"]


async def test_light_queues_and_offsets_survive_a_restart(tmp_path: Path) -> None:
    for number in range(3):
        async with running_broker(tmp_path, store=ON) as broker, _client(broker) as client:
            await client.create_topic()
            await client.send(b"%d" % number, properties=_named(LIGHT))
            assert await _bodies(client, LIGHT) == [b"%d" % each for each in range(number + 1)]
            asked = QueryConsumerOffset(consumer_group=GROUP, topic=LIGHT, queue_id=0)
            if number:
                assert (await client.call(asked)).offset == number
            commit = UpdateConsumerOffset(
                consumer_group=GROUP, topic=LIGHT, queue_id=0, commit_offset=number + 1
            )
            await client.call(commit)


async def test_a_group_skips_nothing_of_a_light_queue_that_begins_again_because_its_files_are_gone(
    tmp_path: Path,
) -> None:
    small = ON | {"log_segment_bytes": 8192}
    async with running_broker(tmp_path, store=small) as broker, _client(broker) as client:
        await client.create_topic()
        for _ in range(3):
            await client.send(b"old", properties=_named(LIGHT))
        await client.pull(topic=LIGHT)  # makes the group
        await client.call(
            UpdateConsumerOffset(consumer_group=GROUP, topic=LIGHT, queue_id=0, commit_offset=3)
        )
        for _ in range(9):
            await client.send(b"x" * 2000)
        paths = broker.store.paths
    rmtree(paths.light_queues)
    min(paths.commit_log.iterdir()).unlink()  # it has expired
    async with running_broker(tmp_path, store=small) as broker, _client(broker) as client:
        assert broker.store.recovery.was_clean
        for number in range(4):
            await client.send(b"%d" % number, properties=_named(LIGHT))
        asked = QueryConsumerOffset(consumer_group=GROUP, topic=LIGHT, queue_id=0)
        assert (await client.call(asked)).offset == 0
        assert await _bodies(client, LIGHT) == [b"0", b"1", b"2", b"3"]


async def test_a_light_queue_keeps_what_its_topic_has_let_go(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running_broker(tmp_path, clock=clock, store=ON) as broker, _client(broker) as client:
        wanted = topic_creation()
        wanted.attributes = "+message.ttl=60"
        await client.call(wanted)
        await client.send(b"old", properties=_named(LIGHT))
        clock.advance(61)
        await client.send(b"new", properties=_named(LIGHT))
        assert (await client.pull(0)).answer.next_begin_offset == 1
        assert (await client.pull(1)).bodies == [b"new"]
        assert await _bodies(client, LIGHT) == [b"old", b"new"]
        await client.call(PurgeQueue(topic=TOPIC, queue_id=0))
        assert (await client.pull(0)).answer.next_begin_offset == 2
        assert await _bodies(client, LIGHT) == [b"old", b"new"]
        await client.send(b"next", properties=_named(LIGHT))
        assert await _bodies(client, LIGHT) == [b"old", b"new", b"next"]
    async with running_broker(tmp_path, clock=clock, store=ON) as broker, _client(broker) as client:
        assert (await client.pull(0)).answer.next_begin_offset == 2
        assert await _bodies(client, LIGHT) == [b"old", b"new", b"next"]


async def test_more_light_queues_than_the_quota_are_refused(tmp_path: Path) -> None:
    quota = ON | {"light_queue_quota": True, "max_light_queues": 1}
    async with running_broker(tmp_path, store=quota) as broker, _client(broker) as client:
        await client.create_topic()
        await client.send(properties=_named(LIGHT))
        with pytest.raises(Refused, match="maxLmqConsumeQueueNum is 1") as caught:
            await client.send(properties=_named(OTHER))
        assert caught.value.code == ResponseCode.LMQ_QUOTA_EXCEEDED
        await client.send(properties=_named(LIGHT))


async def test_without_the_switch_the_names_mean_nothing(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store={"light_queues": True}) as broker, _client(broker) as client:
        await client.create_topic()
        await client.send(b"plain", properties=_named(LIGHT, "anything"))
        with pytest.raises(Refused) as caught:
            await _bodies(client, LIGHT)
        assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
