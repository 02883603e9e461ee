"""Topics that are deleted and made again, over sockets, with brokers that crash or are killed in between."""

import errno
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.broker_cluster import GROUP, TOPIC, Bench, BrokerClient, consumer
from tests.support.killable_broker import start_killable_broker

from pyromq.broker.tables.offsets import OffsetTable
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.frame import HeaderForm
from pyromq.protocol.record import decode_records
from pyromq.protocol.requests.offsets import GetMaxOffset, QueryConsumerOffset, UpdateConsumerOffset
from pyromq.protocol.requests.pulling import QueryMessage
from pyromq.protocol.requests.topics import DeleteTopicFromBroker, GetTopicConfig
from pyromq.protocol.requests.upkeep import CleanUnusedTopics
from pyromq.store.offline import OfflineStore

OLD = [b"old %d" % number for number in range(5)]
NEW = [b"new %d" % number for number in range(3)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with Bench(tmp_path, HeaderForm.BINARY) as running:
        await running.client.create_topic()
        yield running


async def crash(bench: Bench) -> None:
    port = bench.broker.address[1]
    await bench.broker.abandon()
    await bench.restart(listen_port=port)
    assert not bench.broker.store.recovery.was_clean


async def send(client: BrokerClient, bodies: list[bytes], topic: str = TOPIC) -> None:
    for body in bodies:
        await client.send(body, topic, properties={"KEYS": "k"})


async def read(client: BrokerClient, topic: str = TOPIC) -> list[bytes]:
    end = (await client.call(GetMaxOffset(topic=topic, queue_id=0))).offset
    bodies: list[bytes] = []
    while len(bodies) < end:
        pulled = (await client.pull(len(bodies), topic)).bodies
        assert pulled, f"nothing at {len(bodies)} of {end}"
        bodies += pulled
    return bodies


async def found_by_key(client: BrokerClient) -> list[bytes]:
    request = QueryMessage(topic=TOPIC, key="k", max_num=64, begin_timestamp=0, end_timestamp=2**62)
    return [stored.body for stored in decode_records((await client.call(request)).body)]


async def commit(bench: Bench, offset: int) -> None:
    await bench.client.heartbeat(consumer())
    await bench.client.call(
        UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)
    )
    bench.broker._started.tables.offsets.persist()  # as the next round of saving would


def position() -> QueryConsumerOffset:
    return QueryConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, set_zero_if_not_found=False)


async def test_a_broker_killed_after_a_deletion_shows_only_what_came_after_it(tmp_path: Path) -> None:
    for round_ in range(2):
        process, address = await start_killable_broker(tmp_path, "SYNC_FLUSH")
        async with BrokerClient(address, HeaderForm.BINARY) as client:
            if not round_:
                await client.create_topic()
                await client.create_topic("Other")
                await send(client, OLD)
                await send(client, OLD, "Other")
                await client.call(DeleteTopicFromBroker(topic=TOPIC))
                await client.create_topic(queues=1)
                await send(client, NEW)
                await client.call(DeleteTopicFromBroker(topic="Other"))
            else:
                assert await read(client) == NEW
                assert await found_by_key(client) == NEW
                await client.create_topic("Other")
                assert not await read(client, "Other")
                await send(client, NEW, "Other")
                assert await read(client, "Other") == NEW
            process.kill()
            await process.wait()
    shutil.rmtree(tmp_path / "consumequeue")
    process, address = await start_killable_broker(tmp_path, "SYNC_FLUSH")
    async with BrokerClient(address, HeaderForm.BINARY) as client:
        assert await read(client) == NEW
        assert await read(client, "Other") == NEW
    process.terminate()
    await process.wait()
    with OfflineStore(tmp_path) as store:
        assert not store.verify().damage


async def test_a_group_begins_a_topic_made_again_anew(bench: Bench) -> None:
    await send(bench.client, OLD)
    await commit(bench, 5)
    await bench.client.call(DeleteTopicFromBroker(topic=TOPIC))
    await crash(bench)
    await bench.client.create_topic()
    await send(bench.client, OLD)
    assert (await bench.client.refusal(position())).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_deletion_cut_short_by_a_crash_is_finished_at_the_next_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(bench.client, OLD)
    await commit(bench, 5)

    def die(_: OffsetTable, topic: str) -> NoReturn:
        raise OSError(errno.EIO, "the machine stops here")

    with monkeypatch.context() as patch:
        patch.setattr(OffsetTable, "remove_topic", die)
        refusal = await bench.client.refusal(DeleteTopicFromBroker(topic=TOPIC))
        assert refusal.code == ResponseCode.SYSTEM_ERROR
        assert f"topic {TOPIC} cannot be deleted" in (refusal.remark or "")
    await crash(bench)
    assert (await bench.client.refusal(GetTopicConfig(topic=TOPIC))).code == ResponseCode.TOPIC_NOT_EXIST
    await bench.client.create_topic()
    await bench.client.heartbeat(consumer())
    await send(bench.client, NEW)
    assert await read(bench.client) == NEW
    assert (await bench.client.refusal(position())).code == ResponseCode.QUERY_NOT_FOUND
    await crash(bench)
    assert (await bench.client.call(GetTopicConfig(topic=TOPIC))).body.write_queue_nums == 4
    assert await read(bench.client) == NEW


async def test_queues_of_an_unknown_topic_that_were_cleaned_do_not_come_back(bench: Bench) -> None:
    await send(bench.client, OLD)
    await commit(bench, 5)
    topics = bench.broker._started.tables.topics  # one that lost a topic without its queues
    topics.delete(TOPIC)
    await bench.client.call(CleanUnusedTopics())
    await crash(bench)
    await bench.client.create_topic()
    await bench.client.heartbeat(consumer())
    assert not await read(bench.client)
    await send(bench.client, NEW)
    assert await read(bench.client) == NEW
    assert (await bench.client.refusal(position())).code == ResponseCode.QUERY_NOT_FOUND


async def test_a_deletion_that_cannot_be_noted_is_refused(bench: Bench) -> None:
    await send(bench.client, OLD)
    (bench.root / "deletions.tmp").mkdir()
    refusal = await bench.client.refusal(DeleteTopicFromBroker(topic=TOPIC))
    assert refusal.code == ResponseCode.SYSTEM_ERROR
    assert await read(bench.client) == OLD
    (bench.root / "deletions.tmp").rmdir()
    await bench.client.call(DeleteTopicFromBroker(topic=TOPIC))
    assert (await bench.client.refusal(GetTopicConfig(topic=TOPIC))).code == ResponseCode.TOPIC_NOT_EXIST
