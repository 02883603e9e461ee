"""Messages sent over real sockets, in both header forms: where they end up, and what senders are told."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import (
    BROKER_NAME,
    CLUSTER,
    GROUP,
    PRODUCERS,
    TOPIC,
    Bench,
    BrokerClient,
    consumer,
    message,
    running_broker,
)
from tests.support.held_files import HeldFiles
from tests.support.loop import turn_until

from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.message_id import decode_offset_message_id
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.groups import CreateOrUpdateGroup, SubscriptionGroupConfig
from pyromq.protocol.requests.offsets import GetMaxOffset
from pyromq.protocol.requests.sending import SendMessage, SendMessageBatch, SendMessageV2
from pyromq.protocol.requests.settings import UpdateBrokerConfig
from pyromq.protocol.requests.topics import GetTopicConfig, TopicConfig


@pytest.fixture(params=HeaderForm, ids=lambda form: form.name)
async def bench(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, request.param) as running:
        yield running


def long_form(sent: SendMessageV2) -> SendMessage:
    fields = {name: getattr(sent, name) for name in SendMessage.__struct_fields__ if hasattr(sent, name)}
    return SendMessage(**fields)


async def test_a_message_arrives_as_it_was_sent(bench: Bench) -> None:
    before_ms = time.time_ns() // 1_000_000
    properties = {"TAGS": "paid", "KEYS": "k1 k2", "colour": "grün", "UNIQ_KEY": "0A0B"}
    sent = await bench.client.send(
        b"\x00\xffbody", queue_id=2, properties=properties, flag=7, born_timestamp=1_600_000_000_123
    )
    (stored,) = (await bench.client.pull(0, queue_id=2)).messages
    assert (stored.body, stored.flag, stored.born_timestamp) == (b"\x00\xffbody", 7, 1_600_000_000_123)
    assert properties.items() <= stored.property_map().items()
    assert stored.get("CLUSTER") == CLUSTER
    assert (stored.topic, stored.queue_id, stored.queue_offset) == (TOPIC, 2, 0)
    assert stored.store_timestamp >= before_ms
    connection = await bench.client.connection()
    assert str(stored.born_host) == connection.local_address
    assert str(stored.store_host) == bench.broker.advertised_address
    # The answer says all of it that Java's producers read.
    assert (sent.code, sent.queue_id, sent.queue_offset) == (0, 2, 0)
    assert sent.transaction_id == "0A0B"
    assert (sent.msg_region, sent.trace_on) == ("DefaultRegion", True)
    place = decode_offset_message_id(sent.msg_id)
    assert (place.log_offset, place.host) == (stored.log_offset, stored.store_host)


@pytest.mark.parametrize("make", [long_form, lambda sent: sent], ids=["code 10", "code 310"])
async def test_both_forms_of_sending_store_the_same(bench: Bench, make: Any) -> None:
    sent = message(b"same", queue_id=1, properties={"UNIQ_KEY": "K"}, reconsume_times=0, unit_mode=False)
    answer = await bench.client.call(make(sent))
    assert (answer.queue_id, answer.queue_offset, answer.transaction_id) == (1, 0, "K")
    (stored,) = (await bench.client.pull(0, queue_id=1)).messages
    assert stored.body == b"same"


async def test_offsets_of_a_queue_leave_no_gap(bench: Bench) -> None:
    answers = await asyncio.gather(*(bench.client.send(str(n).encode(), queue_id=n % 2) for n in range(100)))
    for queue_id in (0, 1):
        assert [a.queue_offset for a in answers if a.queue_id == queue_id] == list(range(50))


async def test_a_batch_is_one_message_after_the_other(bench: Bench) -> None:
    await bench.client.send(b"before", queue_id=3)
    sent = await bench.client.send_batch(b"a", b"b", b"c", queue_id=3)
    assert (sent.queue_id, sent.queue_offset) == (3, 1)
    pulled = await bench.client.pull(0, queue_id=3)
    assert pulled.bodies == [b"before", b"a", b"b", b"c"]
    ids = sent.msg_id.split(",")
    assert [decode_offset_message_id(each).log_offset for each in ids] == [
        stored.log_offset for stored in pulled.messages[1:]
    ]


async def test_a_batch_may_come_as_an_ordinary_send(bench: Bench) -> None:
    packed = encode_batch([BatchEntry(b"a", b"TAGS\x01x\x02"), BatchEntry(b"b")])
    await bench.client.call(message(packed, batch=True))
    pulled = await bench.client.pull(0, subscription="x")
    assert pulled.bodies == [b"a"]


async def test_sends_that_want_no_answer_are_stored(bench: Bench) -> None:
    await bench.client.create_topic()
    for number in range(10):
        await bench.client.send_oneway(message(str(number).encode()))
    await turn_until(lambda: bench.broker.store.queues.max_offset(TOPIC, 0) == 10)
    assert (await bench.client.pull()).bodies == [str(number).encode() for number in range(10)]


async def test_a_oneway_that_is_refused_harms_nothing(bench: Bench) -> None:
    await bench.client.send_oneway(message(b"", "bad topic!"))
    await bench.client.send(b"good")


async def test_a_message_without_a_unique_key_gets_one(bench: Bench) -> None:
    first, second = await bench.client.send(b"1"), await bench.client.send(b"2")
    keys = [stored.get("UNIQ_KEY") for stored in (await bench.client.pull()).messages]
    assert keys == [first.transaction_id, second.transaction_id]
    assert len(set(keys)) == 2
    assert all(key is not None and len(key) == 32 for key in keys)


async def test_a_compressed_body_stays_as_it_is(bench: Bench) -> None:
    body = b"\x78\x9c-any-bytes"
    flags = SysFlag.COMPRESSED | SysFlag.COMPRESSION_ZLIB
    await bench.client.send(body, sys_flag=flags)
    (stored,) = (await bench.client.pull()).messages
    assert stored.body == body
    assert stored.sys_flag & flags == flags


async def test_a_negative_queue_id_lets_the_broker_choose(bench: Bench) -> None:
    await bench.client.create_topic(queues=4)
    queues = [(await bench.client.send(b"x", queue_id=-1)).queue_id for _ in range(60)]
    assert set(queues) == {0, 1, 2, 3}


# What is refused


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        pytest.param({"topic": "no spaces"}, ResponseCode.INVALID_PARAMETER, id="an illegal topic"),
        pytest.param({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, id="a long topic"),
        pytest.param({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION, id="the broker's topic"),
        pytest.param(
            {"topic": "New", "default_topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, id="no pattern"
        ),
        pytest.param({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, id="no such queue"),
        pytest.param({"body": b""}, ResponseCode.MESSAGE_ILLEGAL, id="an empty body"),
        pytest.param({"body": b"x" * 5_000_000}, ResponseCode.MESSAGE_ILLEGAL, id="a large body"),
        pytest.param(
            {"properties": f"a\x01{'x' * 33_000}\x02"}, ResponseCode.MESSAGE_ILLEGAL, id="properties"
        ),
        pytest.param({"batch": True, "body": b"no batch"}, ResponseCode.MESSAGE_ILLEGAL, id="a broken batch"),
        pytest.param(
            {"batch": True, "body": encode_batch([BatchEntry(b"x")]), "properties": "DELAY\x013\x02"},
            ResponseCode.MESSAGE_ILLEGAL,
            id="a delayed batch",
        ),
        pytest.param(
            {"batch": True, "body": encode_batch([BatchEntry(b"x")]), "topic": f"%RETRY%{GROUP}"},
            ResponseCode.MESSAGE_ILLEGAL,
            id="a retried batch",
        ),
        pytest.param({"topic": "%RETRY%bad group"}, ResponseCode.INVALID_PARAMETER, id="a bad retry topic"),
    ],
)
async def test_what_is_wrong_is_refused_with_the_code_that_clients_know(
    bench: Bench, wrong: dict[str, Any], code: int
) -> None:
    await bench.client.create_topic(queues=4)
    fields: dict[str, Any] = {"body": b"x", "topic": TOPIC, "queue_id": 0} | wrong
    body, topic, queue_id = fields.pop("body"), fields.pop("topic"), fields.pop("queue_id")
    sent = message(body, topic, queue_id)
    for name, value in fields.items():
        setattr(sent, name, value)
    refusal = await bench.client.refusal(sent)
    assert refusal.code == code
    assert refusal.remark
    assert (await bench.client.call(GetMaxOffset(topic=TOPIC, queue_id=0))).offset == 0


async def test_a_broker_without_the_right_to_write_refuses_ordered_topics_only(bench: Bench) -> None:
    await bench.client.create_topic("Ordered", order=True)
    await bench.client.create_topic("Other")
    await bench.client.call(UpdateBrokerConfig(body="brokerPermission=4\n"))
    assert (await bench.client.refusal(message(b"x", "Ordered"))).code == ResponseCode.NO_PERMISSION
    await bench.client.send(b"x", "Other")


async def test_no_sends_before_the_time_at_which_they_begin(bench: Bench) -> None:
    later_ms = time.time_ns() // 1_000_000 + 3_600_000
    await bench.client.call(UpdateBrokerConfig(body=f"startAcceptSendRequestTimeStamp={later_ms}\n"))
    assert (await bench.client.refusal(message(b"x"))).code == ResponseCode.SYSTEM_ERROR


# Topics that make themselves


async def topic_config(bench: Bench, topic: str) -> TopicConfig:
    config = (await bench.client.call(GetTopicConfig(topic=topic))).body
    return TopicConfig(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
    )


@pytest.mark.parametrize(("wanted", "given"), [(3, 3), (100, 8)])
async def test_a_topic_is_created_by_sending_to_it(bench: Bench, wanted: int, given: int) -> None:
    await bench.client.send(b"x", "Fresh", default_topic_queue_nums=wanted)
    config = await topic_config(bench, "Fresh")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (given, given, 6)


async def test_no_topic_is_created_where_that_is_switched_off(bench: Bench) -> None:
    await bench.client.call(UpdateBrokerConfig(body="autoCreateTopicEnable=false\n"))
    refusal = await bench.client.refusal(message(b"x", "Fresh"))
    assert refusal.code == ResponseCode.TOPIC_NOT_EXIST
    await bench.client.create_topic("Fresh")
    await bench.client.send(b"x", "Fresh")


# Retries that consumers send themselves


async def test_a_consumers_own_retry_goes_to_the_retry_topic_until_it_failed_too_often(bench: Bench) -> None:
    config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=2)
    await bench.client.call(CreateOrUpdateGroup(body=config))
    await bench.client.heartbeat(consumer())
    retry, dead = f"%RETRY%{GROUP}", f"%DLQ%{GROUP}"
    await bench.client.send(b"again", retry, reconsume_times=2)
    await bench.client.send(b"given up", retry, reconsume_times=3)
    await bench.client.send(b"given up early", retry, reconsume_times=2, max_reconsume_times=1)
    assert (await bench.client.pull(0, retry)).bodies == [b"again"]
    assert (await bench.client.pull(0, dead)).bodies == [b"given up", b"given up early"]


# How safe a message is when its sender is told


@pytest.mark.parametrize("kind", [SendMessageV2, SendMessageBatch])
@pytest.mark.parametrize("form", HeaderForm)
async def test_a_synchronous_flush_is_waited_for(tmp_path: Path, form: HeaderForm, kind: type) -> None:
    async with Bench(
        tmp_path, form, store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 60_000}
    ) as bench:
        store = bench.broker.store

        async def send_and_look() -> None:
            if kind is SendMessageBatch:
                await bench.client.send_batch(b"a", b"b")
            else:
                await bench.client.send(b"x" * 100)
            ends.append(store.flushes.offset)

        ends: list[int] = []
        for _ in range(5):
            await asyncio.gather(*(send_and_look() for _ in range(4)))
            assert ends[-1] == store.statistics().log_end_offset
        assert store.statistics().sync_count >= 5


@pytest.mark.parametrize("form", HeaderForm)
async def test_a_sender_may_decline_to_wait_for_the_flush(tmp_path: Path, form: HeaderForm) -> None:
    async with Bench(
        tmp_path, form, store={"flush_disk_type": "SYNC_FLUSH", "sync_flush_timeout_ms": 60_000}
    ) as bench:
        sent = await bench.client.send(b"quick", properties={"WAIT": "false"})
        assert sent.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("form", HeaderForm)
async def test_an_asynchronous_flush_is_not_waited_for(tmp_path: Path, form: HeaderForm) -> None:
    files = HeldFiles()
    async with running_broker(tmp_path, files=files) as broker, BrokerClient(broker.address, form) as client:
        await client.send(b"first")  # it makes the log's first file
        files.let.clear()
        await client.send(b"answered at once")
        assert broker.store.flushes.offset < broker.store.statistics().log_end_offset
        assert (await client.pull()).bodies == [b"first", b"answered at once"]
        files.let.set()


async def test_producers_that_say_nothing_else_are_served(bench: Bench) -> None:
    """Whatever a producer's group and broker fields say, the message is stored here."""
    await bench.client.send(b"x", producer_group="-", target_broker_name=BROKER_NAME)
    await bench.client.send(b"y", producer_group=PRODUCERS, target_broker_name="another")
    assert (await bench.client.pull()).bodies == [b"x", b"y"]
