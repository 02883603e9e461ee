"""A reader follows a topic without a group: from its end or its beginning, with tags that may change."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster

import pyromq
from pyromq import aio
from pyromq.aio import Message, NoRoute, Reader, StateError


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        await running.create_topic("Prices")
        yield running


async def send(cluster: ConsumerCluster, *messages: tuple[str, bytes]) -> None:
    producer = await cluster.producer()
    for tags, body in messages:
        await producer.send(Message("Prices", body, tags=tags))


async def read(reader: Reader, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(found) < count:
            found += [message.body for message in await reader.receive()]
    return sorted(found)


async def test_each_reader_sees_what_was_sent_since_its_start(cluster: ConsumerCluster) -> None:
    await send(cluster, ("EUR", b"before"))
    one, other = (Reader("Prices", namesrv=cluster.namesrv) for _ in range(2))
    async with one, other:
        await send(cluster, ("EUR", b"1"), ("USD", b"2"))
        assert await read(one, 2) == [b"1", b"2"]
        assert await read(other, 2) == [b"1", b"2"]


async def test_a_reader_may_begin_at_the_first_message(cluster: ConsumerCluster) -> None:
    await send(cluster, ("EUR", b"1"), ("USD", b"2"))
    async with Reader("Prices", namesrv=cluster.namesrv, start_from="first") as reader:
        assert await read(reader, 2) == [b"1", b"2"]


async def test_a_reader_gets_the_tags_that_it_asks_for_and_may_ask_for_others(
    cluster: ConsumerCluster,
) -> None:
    async with Reader("Prices", "EUR", namesrv=cluster.namesrv) as reader:
        await send(cluster, ("USD", b"1"), ("EUR", b"2"))
        assert await read(reader, 1) == [b"2"]
    async with Reader("Prices", "EUR", namesrv=cluster.namesrv) as reader:
        reader.filter("EUR || USD")
        await send(cluster, ("USD", b"3"), ("EUR", b"4"))
        assert await read(reader, 2) == [b"3", b"4"]


async def test_the_newest_messages_with_a_key_are_found_first(cluster: ConsumerCluster) -> None:
    producer = await cluster.producer()
    for body in (b"1", b"2", b"3"):
        await producer.send(Message("Prices", body, keys="EUR-USD"))
    await producer.send(Message("Prices", b"other", keys="EUR-GBP"))
    async with Reader("Prices", namesrv=cluster.namesrv) as reader:
        assert [message.body for message in await reader.find("EUR-USD")] == [b"3", b"2", b"1"]
        assert await reader.find("nothing") == []


async def test_a_reader_leaves_nothing_at_the_broker(cluster: ConsumerCluster) -> None:
    async with Reader("Prices", namesrv=cluster.namesrv) as reader:
        await send(cluster, ("EUR", b"1"))
        await read(reader, 1)
    async with aio.Admin(cluster.namesrv) as admin:
        assert await admin.groups() == []


async def test_a_reader_of_a_topic_that_no_broker_has_does_not_start(cluster: ConsumerCluster) -> None:
    with pytest.raises(NoRoute):
        await Reader("Nothing", namesrv=cluster.namesrv).start()


async def test_a_receive_ends_when_the_reader_is_closed_or_its_time_is_over(cluster: ConsumerCluster) -> None:
    reader = Reader("Prices", namesrv=cluster.namesrv)
    await reader.start()
    assert await reader.receive(wait_s=0.01) == []
    waiting = asyncio.create_task(reader.receive())
    await asyncio.sleep(0)
    await reader.close()
    assert await waiting == []
    with pytest.raises(StateError):
        await reader.receive()


async def test_a_program_without_a_loop_reads_by_for(cluster: ConsumerCluster) -> None:
    def first() -> bytes:
        with pyromq.Reader("Prices", namesrv=cluster.namesrv, start_from="first") as reader:
            return next(iter(reader)).body

    await send(cluster, ("EUR", b"1"))
    assert await asyncio.to_thread(first) == b"1"
