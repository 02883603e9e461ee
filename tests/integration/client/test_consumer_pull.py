"""The pull consumer and a real cluster: what is polled, what is committed, and where it goes on."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path

import pytest
from tests.support.broker_cluster import BrokerClient
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster

from pyromq.client.consumer.pull import PullConsumer
from pyromq.client.consumer.reading.subscriptions import Sql
from pyromq.client.producer import Producer
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.errors import ConfigError, ConnectFailed, PyroError, StateError
from pyromq.protocol.record import SysFlag
from pyromq.protocol.requests.offsets import QueryConsumerOffset, ResetOffset


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def polled(consumer: PullConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(bodies) < count:
            bodies += [message.body.decode() for message in await consumer.poll()]
    return bodies


async def test_a_subscriber_polls_every_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    sent = await cluster.send("Orders", 60)
    consumer = PullConsumer("reports", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders")
    async with consumer:
        assert sorted(await polled(consumer, 60)) == sorted(sent)


async def test_a_body_that_is_not_what_its_flag_says_stops_nobody(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Everyone who may send can call anything compressed."""
    await cluster.create_topic("Orders", queues=1)
    async with BrokerClient(cluster.standalone.broker.address) as sender:
        await sender.send(b"first", "Orders")
        await sender.send(b"not compressed", "Orders", sys_flag=SysFlag.COMPRESSED)
        await sender.send(b"last", "Orders")
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        assert await polled(consumer, 3) == ["first", "not compressed", "last"]
    assert "as it is stored" in caplog.text


async def test_queues_of_a_namespace_go_by_the_names_of_the_application(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("shop%Orders", queues=1)
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 3)
    consumer = PullConsumer("reports", cluster.namesrv, start_from="first", namespace="shop")
    async with consumer, Producer("tills", cluster.namesrv, namespace="shop") as producer:
        queue = (await producer.send(Message("Orders", b"ours"))).queue
        await consumer.assign([queue])
        assert await polled(consumer, 1) == ["ours"]
        assert consumer.position(queue) == 1
        await consumer.commit({queue: 1})
        assert await consumer.committed(queue) == 1
        assert await consumer.offsets_for_times({queue: 0}) == {queue: 0}
        await consumer.seek(queue, 0)
        assert await polled(consumer, 1) == ["ours"]
        await consumer.seek_to_begin(queue)
        await consumer.seek_to_end(queue)
        consumer.pause(queue)
        consumer.resume(queue)


async def test_a_poll_without_messages_returns_none_of_them(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    consumer = PullConsumer("reports", cluster.namesrv)
    consumer.subscribe("Orders")
    async with consumer:
        assert await consumer.poll(timeout_s=0) == []
        assert await consumer.poll(timeout_s=0.01) == []


async def test_assigned_queues_are_read_and_no_others(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders")
    await cluster.send_to(queues[0], ["a", "b"])
    await cluster.send_to(queues[1], ["c"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        assert set(await consumer.queues("Orders")) == set(queues)
        await consumer.assign(queues[:1])
        assert consumer.assigned == {queues[0]}
        assert await polled(consumer, 2) == ["a", "b"]
        await consumer.assign(queues[1:2])
        assert consumer.assigned == {queues[1]}
        assert await polled(consumer, 1) == ["c"]


async def test_who_subscribes_cannot_be_assigned_queues(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders")
    async with PullConsumer("reports", cluster.namesrv) as consumer:
        await consumer.assign(queues)
        with pytest.raises(StateError, match="queues are assigned to this consumer"):
            consumer.subscribe("Orders")
    subscriber = PullConsumer("reports", cluster.namesrv)
    subscriber.subscribe("Orders")
    async with subscriber:
        with pytest.raises(StateError, match="this consumer has subscriptions"):
            await subscriber.assign(queues)


async def test_only_what_was_committed_stays_done(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, [str(number) for number in range(30)])
    async with PullConsumer(
        "reports", cluster.namesrv, start_from="first", auto_commit=False, pull_batch_size=10
    ) as consumer:
        await consumer.assign([queue])
        await polled(consumer, 10)
        assert consumer.position(queue) == 10
        await consumer.commit()
        assert await consumer.committed(queue) == 10
        await polled(consumer, 10)
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        assert await polled(consumer, 20) == [str(number) for number in range(10, 30)]


async def test_with_auto_commit_a_close_commits_what_was_polled(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        assert await polled(consumer, 3) == ["a", "b", "c"]
    async with PullConsumer("reports", cluster.namesrv) as consumer:
        await consumer.assign([queue])
        assert await consumer.committed(queue) == 3


async def test_a_block_left_by_an_exception_does_not_commit_its_last_poll(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])

    async def poll_and_fail() -> None:
        async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
            await consumer.assign([queue])
            assert [message.body for message in await consumer.poll(TIMEOUT_S, max_messages=1)] == [b"a"]
            assert [message.body for message in await consumer.poll(TIMEOUT_S, max_messages=1)] == [b"b"]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await poll_and_fail()
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        assert await polled(consumer, 2) == ["b", "c"]


async def test_seeking_goes_back_and_forth(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, [str(number) for number in range(5)])
    async with PullConsumer("reports", cluster.namesrv) as consumer:
        await consumer.assign([queue])
        await consumer.seek_to_begin()
        assert await polled(consumer, 5) == ["0", "1", "2", "3", "4"]
        await consumer.seek(queue, 3)
        assert await polled(consumer, 2) == ["3", "4"]
        await consumer.seek_to_end(queue)
        assert consumer.position(queue) == 5
        with pytest.raises(StateError, match="it has 0 to 5"):
            await consumer.seek(queue, 6)
        await cluster.send_to(queue, ["5"])
        assert await polled(consumer, 1) == ["5"]


async def test_offsets_are_found_by_time(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        messages: list[ReceivedMessage] = []
        while len(messages) < 3:
            messages += await consumer.poll()
        found = await consumer.offsets_for_times({queue: messages[1].stored_ms})
        assert messages[found[queue]].stored_ms == messages[1].stored_ms


async def test_paused_queues_bring_nothing_until_they_are_resumed(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        consumer.pause(queue)
        await cluster.send_to(queue, ["a"])
        assert await consumer.poll(timeout_s=0.2) == []
        consumer.resume(queue)
        assert await polled(consumer, 1) == ["a"]


@pytest.mark.parametrize("expression", ["Paid || Created", Sql("price > 10")])
async def test_only_what_is_wanted_is_polled(cluster: ConsumerCluster, expression: str | Sql) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["no"], tags="Cancelled", properties={"price": "3"})
    await cluster.send_to(queue, ["yes"], tags="Paid", properties={"price": "30"})
    consumer = PullConsumer("reports", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", expression)
    async with consumer:
        assert await polled(consumer, 1) == ["yes"]


async def test_members_share_the_queues_and_hear_what_they_get(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders")
    first = PullConsumer("reports", cluster.namesrv)
    second = PullConsumer("reports", cluster.namesrv)
    revoked: set[MessageQueue] = set()
    is_shared = asyncio.Event()

    @first.on_rebalance
    def changed(assigned: Collection[MessageQueue], lost: Collection[MessageQueue]) -> None:
        revoked.update(lost)
        if len(revoked) == 2:
            is_shared.set()

    first.subscribe("Orders")
    second.subscribe("Orders")
    async with first:
        assert first.assigned == set(queues)
        async with second, asyncio.timeout(TIMEOUT_S):
            await is_shared.wait()
            assert second.assigned == revoked
            assert first.assigned == set(queues) - revoked


async def test_a_seek_that_nobody_waits_for_is_done_whole(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([queue])
        assert await polled(consumer, 2) == ["a", "b"]
        parts = consumer._running()
        for turns in range(10):
            seeking = asyncio.create_task(parts.membership.assigned.begin_at(queue, 0, for_all=False))
            for _ in range(turns):
                await asyncio.sleep(0)
            seeking.cancel()
            await asyncio.gather(seeking, return_exceptions=True)
            if turns:
                assert await polled(consumer, 2) == ["a", "b"]
        await cluster.send_to(queue, ["c"])
        assert await polled(consumer, 1) == ["c"]


async def test_a_commit_that_is_not_safe_raises_and_is_done_by_the_next(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first", auto_commit=False) as consumer:
        await consumer.assign([queue])
        await polled(consumer, 1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(consumer._running().membership.offsets, "store", failing_store)
            with pytest.raises(ConnectFailed, match="the cable is out"):
                await consumer.commit()
        assert await consumer.committed(queue) != 1
        await consumer.commit()
        assert await consumer.committed(queue) == 1


async def failing_store(
    offsets: Mapping[MessageQueue, int], *, confirmed: bool = False
) -> dict[MessageQueue, PyroError]:
    return dict.fromkeys(offsets, ConnectFailed("the cable is out"))


async def test_what_an_operator_reset_stays_reset(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b"])
    consumer = PullConsumer("reports", cluster.namesrv, start_from="first", auto_commit=False)
    consumer.subscribe("Orders")
    async with consumer:
        assert await polled(consumer, 2) == ["a", "b"]
        await consumer.commit()
        await cluster.call(ResetOffset(group="reports", topic="Orders", timestamp=0, is_force=True))
        assert await polled(consumer, 2) == ["a", "b"]
    query = QueryConsumerOffset(consumer_group="reports", topic="Orders", queue_id=0)
    assert (await cluster.call(query)).offset == 0


async def test_a_pause_of_everything_holds_for_queues_that_come_later(cluster: ConsumerCluster) -> None:
    first, second = await cluster.create_topic("Orders", queues=2)
    await cluster.send_to(first, ["a"])
    await cluster.send_to(second, ["b"])
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        await consumer.assign([first])
        assert await polled(consumer, 1) == ["a"]
        consumer.pause()
        await consumer.assign([first, second])
        assert await consumer.poll(timeout_s=0.1) == []
        consumer.resume()
        assert await polled(consumer, 1) == ["b"]


async def test_a_pause_that_was_refused_before_the_start_pauses_nothing(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a"])
    consumer = PullConsumer("reports", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders")
    with pytest.raises(StateError, match="not running"):
        consumer.pause()
    async with consumer:
        assert await polled(consumer, 1) == ["a"]


@pytest.mark.parametrize("count", [0, -1])
async def test_a_poll_for_no_messages_is_a_mistake(cluster: ConsumerCluster, count: int) -> None:
    async with PullConsumer("reports", cluster.namesrv) as consumer:
        with pytest.raises(ConfigError, match="above 0"):
            await consumer.poll(max_messages=count)


async def test_what_is_done_is_committed_though_nobody_polls_again(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a"])
    async with PullConsumer(
        "reports", cluster.namesrv, start_from="first", auto_commit_interval_s=1
    ) as consumer:
        await consumer.assign([queue])
        assert await polled(consumer, 1) == ["a"]
        assert await consumer.poll(timeout_s=0) == []
        async with asyncio.timeout(TIMEOUT_S):
            while await consumer.committed(queue) != 1:
                continue


async def test_a_poll_can_wait_for_several_messages_of_all_queues(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    sent = await cluster.send("Orders", 20)
    async with PullConsumer("reports", cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        first = await consumer.poll(60, 15, min_messages=15)
        assert len(first) == 15
        assert len({message.queue for message in first}) > 1
        rest = await consumer.poll(0.05, min_messages=1000)
        rest += await consumer.poll(60, min_messages=5 - len(rest)) if len(rest) < 5 else []
        with pytest.raises(ConfigError, match="at most max_messages"):
            await consumer.poll(1, 5, min_messages=6)
    assert sorted(message.body.decode() for message in first + rest) == sorted(sent)
