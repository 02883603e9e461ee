"""Compacted topics on whole brokers: refusals, consumers of all kinds, restarts, and late replicas."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.support.broker_cluster import (
    GROUP,
    TIMEOUT_S,
    TOPIC,
    BrokerClient,
    consumer,
    message,
    running_broker,
    topic_creation,
)
from tests.support.replicas import broker_group, caught_up, until
from tests.support.small_stores import read_queue

from pyromq.aio import Message, Producer, PullConsumer, PushConsumer, Reader, ReceivedMessage
from pyromq.broker.broker import Broker
from pyromq.protocol.batch import BatchEntry, encode_batch
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.offsets import GetMinOffset, SearchOffset
from pyromq.protocol.requests.topics import CreateOrUpdateTopic, DeleteTopicFromBroker, PurgeQueue
from pyromq.store.message_store import MessageStore

KEYS = 5
SMALL: dict[str, Any] = {
    "log_segment_bytes": 1 << 14,
    "compaction_interval_ms": 50,
    "file_reserved_hours": 0,
    "flush_interval_ms": 10,
    "clean_interval_ms": 3_600_000,
}


def compacted(**fields: Any) -> CreateOrUpdateTopic:
    return topic_creation(attributes="+cleanup.policy=COMPACTION", queues=1, **fields)


async def put(client: BrokerClient, key: str, body: bytes) -> None:
    await client.send(body, properties={"KEYS": key, "UNIQ_KEY": f"{key}-{body[:9]!r}"})


async def fill(client: BrokerClient, first: int, count: int) -> dict[str, bytes]:
    """The newest value of each key, after some messages."""
    newest: dict[str, bytes] = {}
    for number in range(first, first + count):
        body = b"%06d" % number + bytes(1000)
        newest[f"key-{number % KEYS}"] = body
        await put(client, f"key-{number % KEYS}", body)
    return newest


async def only_in_the_snapshot(broker: Broker, offset: int) -> None:
    """Until all messages before an offset are compacted, and no more in the log."""
    store = broker.store

    def is_gone() -> bool:
        for path in (Path(store.paths.commit_log)).iterdir():
            os.utime(path, (1, 1))
        store.clean(on_demand=True)
        queue = store.queues.find(TOPIC, 0)
        return queue is not None and queue.min_offset(store.log.start) >= offset

    await until(is_gone)


def table(store: MessageStore) -> dict[str, bytes]:
    return {each.get("KEYS") or "": each.body for each in read_queue(store)}


async def test_a_message_without_a_key_is_refused_and_one_without_a_body_removes_its_key(
    tmp_path: Path,
) -> None:
    async with running_broker(tmp_path, store=SMALL) as broker, BrokerClient(broker.address) as client:
        await client.call(compacted())
        for refused in (
            message(b"1", TOPIC, 0, properties={"UNIQ_KEY": "A"}),
            message(b"1", TOPIC, 0, properties={"UNIQ_KEY": "A", "KEYS": " "}),
            message(
                encode_batch([BatchEntry(b"1", b"KEYS\x01a\x02"), BatchEntry(b"2")]), TOPIC, 0, batch=True
            ),
        ):
            refusal = await client.refusal(refused)
            assert (refusal.code, refusal.remark) == (
                ResponseCode.MESSAGE_ILLEGAL,
                f"a message of the compacted topic {TOPIC} needs a key",
            )
        await put(client, "gone", b"value")
        await put(client, "kept", b"value")
        await put(client, "gone", b"")
        await until(lambda: broker.store.compacting.rounds)
        assert table(broker.store) == {"kept": b"value", "gone": b""}
        purge = await client.refusal(PurgeQueue(topic=TOPIC, queue_id=0, offset=1))
        assert "is compacted: to remove a key, send a message with it and without a body" in str(purge.remark)


@pytest.mark.parametrize("attribute", ["reserve.time=1", "reserve.bytes=1000", "message.ttl=60"])
async def test_a_compacted_topic_has_no_other_limit(tmp_path: Path, attribute: str) -> None:
    async with running_broker(tmp_path) as broker, BrokerClient(broker.address) as client:
        await client.call(compacted())
        for change in (f"+{attribute}", f"+cleanup.policy=COMPACTION,+{attribute}"):
            refusal = await client.refusal(
                topic_creation("New" if "COMP" in change else TOPIC, attributes=change)
            )
            assert f"attribute {attribute}: expected none for a compacted topic" in str(refusal.remark)


async def test_compaction_that_is_off_is_not_promised(tmp_path: Path) -> None:
    off = {"compaction_enabled": False}
    async with running_broker(tmp_path, store=off) as broker, BrokerClient(broker.address) as client:
        refusal = await client.refusal(compacted())
        assert refusal.remark == "cleanup.policy=COMPACTION is not allowed: enableCompaction is off"


async def test_readers_from_the_start_find_what_the_log_has_lost_also_after_a_restart(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=SMALL) as broker, BrokerClient(broker.address) as client:
        await client.call(compacted())
        newest = await fill(client, 0, 60)
        await only_in_the_snapshot(broker, 40)
        assert table(broker.store) == newest
        assert broker.store.log.start > 0
    async with running_broker(tmp_path, store=SMALL) as broker, BrokerClient(broker.address) as client:
        await client.heartbeat(consumer())
        assert table(broker.store) == newest
        newest |= await fill(client, 60, 3)
        found: dict[str, bytes] = {}
        offset = 0
        while offset < 63:
            pulled = await client.pull(offset)
            assert pulled.answer.next_begin_offset > offset
            offset = pulled.answer.next_begin_offset
            found |= {str(each.get("KEYS")): each.body for each in pulled.messages}
        assert found == newest
        first = (await client.call(GetMinOffset(topic=TOPIC, queue_id=0))).offset
        assert 0 < first <= 55
        search = SearchOffset(topic=TOPIC, queue_id=0, timestamp=0)
        assert (await client.call(search)).offset == first
        # From within a gap a reader goes on with the next message that is there.
        assert (await client.pull(1)).messages[0].queue_offset == first


async def test_push_and_pull_consumers_and_readers_see_each_keys_newest_value(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group, group.master(store=SMALL) as broker:
        async with BrokerClient(broker.address) as client:
            await client.call(compacted())
            await fill(client, 0, 60)
        await only_in_the_snapshot(broker, 40)
        async with Producer("tills", group.names) as producer:
            await producer.send(Message(TOPIC, b"last", keys="key-1"))
            await producer.send(Message(TOPIC, b"", keys="key-2"))
        newest = table(broker.store)
        assert newest["key-1"] == b"last"
        assert newest["key-2"] == b""
        async with (
            Reader(TOPIC, namesrv=group.names, start_from="first") as reader,
            asyncio.timeout(TIMEOUT_S),
        ):
            read: dict[str, bytes] = {}
            while read != newest:
                read |= {each.keys[0]: each.body for each in await reader.receive()}
        pushed: dict[str, bytes] = {}
        push = PushConsumer(GROUP, group.names, start_from="first", concurrency=1)

        async def take(received: ReceivedMessage) -> None:
            pushed[received.keys[0]] = received.body

        push.subscribe(TOPIC, "*", take)
        async with push:
            await until(lambda: pushed == newest)
        async with PullConsumer("pullers", group.names, start_from="first") as pull:
            pull.subscribe(TOPIC)
            polled: dict[str, bytes] = {}
            async with asyncio.timeout(TIMEOUT_S):
                while polled != newest:
                    polled |= {each.keys[0]: each.body for each in await pull.poll(1)}


async def test_a_replica_that_comes_late_gets_what_the_log_has_lost_and_may_lead(tmp_path: Path) -> None:
    async with broker_group(tmp_path) as group:
        async with group.master(store=SMALL) as master, BrokerClient(master.address) as client:
            await client.call(compacted())
            newest = await fill(client, 0, 60)
            await only_in_the_snapshot(master, 40)
            async with group.replica(store=SMALL) as replica:
                await caught_up(replica, master)
                assert replica.store.log.start > 0
                await until(lambda: table(replica.store) == newest)
                newest |= await fill(client, 60, 3)
                await until(lambda: table(replica.store) == newest)
        async with group.master("replica1", store=SMALL) as led:
            assert table(led.store) == newest
            async with BrokerClient(led.address) as client:
                newest |= await fill(client, 63, 2)
            assert table(led.store) == newest


async def test_a_deleted_compacted_topic_does_not_come_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path, store=SMALL) as broker, BrokerClient(broker.address) as client:
        await client.call(compacted())
        await fill(client, 0, 60)
        await only_in_the_snapshot(broker, 40)
        await client.call(DeleteTopicFromBroker(topic=TOPIC))
        await client.call(compacted())
        newest = await fill(client, 100, 3)
        assert table(broker.store) == newest
    async with running_broker(tmp_path, store=SMALL) as broker:
        assert table(broker.store) == newest
        assert [each.queue_offset for each in read_queue(broker.store)] == [0, 1, 2]
