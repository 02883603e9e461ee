"""The simple consumer and a real cluster: what it receives, acknowledges and hides, and what comes again."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, consumer_cluster
from tests.support.loop import turn_until

import pyromq
from pyromq import aio
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.consumer.simple import SimpleConsumer
from pyromq.client.values import Message
from pyromq.errors import ConfigError, Refused, StateError
from pyromq.testing import aio_cluster

SHORT_S = 1.5


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        await running.create_topic("Orders")
        yield running


def simple(cluster: ConsumerCluster, group: str = "billing") -> SimpleConsumer:
    consumer = SimpleConsumer(group, cluster.namesrv, start_from="first")
    consumer.subscribe("Orders")
    return consumer


async def received(consumer: SimpleConsumer, count: int, invisible_s: float = 60.0) -> list[PoppedMessage]:
    messages: list[PoppedMessage] = []
    async with asyncio.timeout(TIMEOUT_S):
        while len(messages) < count:
            messages += await consumer.receive(32, invisible_s=invisible_s)
    return messages


async def test_two_members_share_all_messages(cluster: ConsumerCluster) -> None:
    sent = await cluster.send("Orders", 60)
    async with simple(cluster) as one, simple(cluster) as other:
        found: list[PoppedMessage] = []
        while len(found) < 60:
            for consumer in (one, other):
                for message in await consumer.receive(8, wait_s=0.1):
                    await consumer.ack(message)
                    found.append(message)
    assert sorted(message.body.decode() for message in found) == sorted(sent)


async def test_a_member_joins_its_group_with_its_subscriptions(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyromq.client.consumer import simple as module
    from pyromq.client.session import Session

    async def declare(session: Session, group: str, max_retries: int) -> None:
        assert not session._heartbeat().body.consumer_data_set

    monkeypatch.setattr(module, "declare_group", declare)
    async with SimpleConsumer("billing", cluster.namesrv, max_retries=3):
        pass


async def test_what_is_not_acknowledged_comes_again(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 2)
    async with simple(cluster) as consumer:
        done, kept = await received(consumer, 2, SHORT_S)
        await consumer.ack(done)
        (again,) = await received(consumer, 1)
        assert (again.body, again.reconsume_times, again.topic) == (kept.body, 1, "Orders")
        await consumer.ack(again)
        assert await consumer.receive(wait_s=0.05) == []


async def test_a_message_may_be_hidden_for_longer_or_shorter(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 1)
    async with simple(cluster) as consumer:
        (message,) = await received(consumer, 1, 60)
        await consumer.change_invisible_time(message, 30)
        await consumer.change_invisible_time(message, SHORT_S)
        (again,) = await received(consumer, 1)
        assert again.body == message.body


async def test_a_receive_waits_for_the_first_message(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        assert await consumer.receive(wait_s=0.01) == []
        waiting = asyncio.create_task(consumer.receive(wait_s=TIMEOUT_S))
        await cluster.send("Orders", 1)
        (message,) = await waiting
        assert message.queue.topic == "Orders"


async def test_calls_at_the_same_time_each_wait_for_messages_of_their_own(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        calls = [asyncio.create_task(consumer.receive(1, wait_s=TIMEOUT_S)) for _ in range(3)]
        await asyncio.sleep(0)
        for number in range(3):
            await cluster.send("Orders", 1)
            await asyncio.wait([call for call in calls if not call.done()], return_when="FIRST_COMPLETED")
            assert sum(call.done() for call in calls) == number + 1
        found = [message for call in calls for message in await call]
        assert len({message.message_id for message in found}) == 3


async def test_a_call_that_wants_fewer_leaves_the_rest_of_an_older_pop_to_the_next(
    cluster: ConsumerCluster,
) -> None:
    async with simple(cluster) as consumer:
        await cluster.create_topic("Others")
        consumer.subscribe("Others")
        await cluster.send("Orders", 1)
        await received(consumer, 1)  # a pop of 32 messages of Others still waits
        producer = await cluster.producer()
        await producer.send([Message("Others", b"one of eight")] * 8)
        sizes: list[int] = []
        while sum(sizes) < 8:
            sizes.append(len(await consumer.receive(3, wait_s=TIMEOUT_S)))
        assert max(sizes) <= 3


async def test_a_message_that_lay_in_the_client_is_hidden_anew(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        await cluster.create_topic("Others")
        consumer.subscribe("Others")
        await cluster.send("Orders", 1)
        await received(consumer, 1, 2.0)  # a pop of Others, for two seconds, still waits
        await cluster.send("Others", 1)
        (message,) = await consumer.receive(wait_s=TIMEOUT_S, invisible_s=300)
        assert message.topic == "Others"
        assert message.invisible_until_ms - cluster.clock.now_ms() > 200_000
        await consumer.ack(message)


async def test_a_call_that_is_cancelled_leaves_what_it_found_to_the_next(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.send("Orders", 1)
    is_taken = asyncio.Event()

    async def keep(*_: object) -> bool:
        is_taken.set()
        await asyncio.Event().wait()
        return True

    async with simple(cluster) as consumer:
        with monkeypatch.context() as patched:
            patched.setattr(consumer, "_keep", keep)
            call = asyncio.create_task(consumer.receive())
            await is_taken.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        (message,) = await received(consumer, 1)
        assert message.reconsume_times == 0


async def test_a_call_does_not_wait_for_the_pops_of_one_that_had_more_time(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        await cluster.create_topic("Others")
        consumer.subscribe("Others")
        await cluster.send("Orders", 1)
        assert len(await consumer.receive(wait_s=60)) == 1  # a pop of Others still waits for a minute
        async with asyncio.timeout(5):
            assert await consumer.receive(wait_s=0.05) == []


async def test_a_topic_that_was_unsubscribed_brings_nothing_more(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer, simple(cluster) as other:
        await cluster.create_topic("Others")
        consumer.subscribe("Others")
        await cluster.send("Orders", 1)
        await received(consumer, 1)  # a pop of Others still waits
        consumer.unsubscribe("Others")
        await cluster.send("Others", 1)
        assert await consumer.receive(wait_s=0.5) == []
        other.subscribe("Others")
        assert [message.topic for message in await received(other, 1)] == ["Others"]


async def test_a_pop_for_the_former_tags_brings_nothing_more(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        assert await consumer.receive(wait_s=0) == []
        consumer.subscribe("Orders", "Created")
        calling = asyncio.create_task(consumer.receive(wait_s=TIMEOUT_S))
        await asyncio.sleep(0)
        consumer.subscribe("Orders", "Paid")
        producer = await cluster.producer()
        await producer.send(Message("Orders", b"created", tags="Created"))
        await producer.send(Message("Orders", b"paid", tags="Paid"))
        calling.cancel()
        assert [message.body for message in await received(consumer, 1)] == [b"paid"]


async def test_a_topic_that_no_broker_has_yet_is_waited_for(cluster: ConsumerCluster) -> None:
    consumer = SimpleConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Later")
    async with consumer:
        assert await consumer.receive(wait_s=0.05) == []
        waiting = asyncio.create_task(consumer.receive(wait_s=TIMEOUT_S))
        await cluster.create_topic("Later")
        await cluster.send("Later", 1)
        assert [message.topic for message in await waiting] == ["Later"]


async def test_a_call_that_waits_ends_with_the_consumer(cluster: ConsumerCluster) -> None:
    async with simple(cluster) as consumer:
        waiting = asyncio.create_task(consumer.receive(wait_s=TIMEOUT_S))
        await asyncio.wait([waiting], timeout=0.2)
    assert await waiting == []


async def test_tags_are_filtered(cluster: ConsumerCluster) -> None:
    consumer = SimpleConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "none-has-this-tag")
    await cluster.send("Orders", 3)
    async with consumer:
        assert await consumer.receive(wait_s=0.05) == []


async def test_messages_that_no_call_received_come_again_at_once_after_a_close(
    cluster: ConsumerCluster,
) -> None:
    await cluster.create_topic("Others", 1)
    sent = [*await cluster.send("Orders", 1), *await cluster.send("Others", 1, first=1)]
    async with simple(cluster) as consumer:
        consumer.subscribe("Others")
        (first,) = await consumer.receive(1)
        await turn_until(lambda: all(pop.task.done() for pop in consumer._pops.values()))
    async with simple(cluster) as consumer:
        consumer.subscribe("Others")
        (other,) = await received(consumer, 1)
    assert sorted([first.body.decode(), other.body.decode()]) == sent


async def test_what_a_pop_brings_after_a_close_comes_again_at_once(cluster: ConsumerCluster) -> None:
    async with simple(cluster, "others") as other:  # keeps the connection open
        async with simple(cluster) as consumer:
            receiving = asyncio.create_task(consumer.receive())
            await turn_until(lambda: consumer._pops)
            (pop,) = consumer._pops.values()
        assert await receiving == []
        await cluster.send("Orders", 1)
        await asyncio.wait([pop.task])
        async with simple(cluster) as consumer:
            (message,) = await received(consumer, 1)
        assert message.body == b"0"
        assert [each.body for each in await received(other, 1)] == [b"0"]


async def test_mistakes_are_told(cluster: ConsumerCluster) -> None:
    consumer = SimpleConsumer("billing", cluster.namesrv)
    with pytest.raises(StateError):
        await consumer.receive()
    async with consumer:
        with pytest.raises(StateError, match="no subscription"):
            await consumer.receive()
        consumer.subscribe("Orders")
        with pytest.raises(ConfigError):
            await consumer.receive(33)
        await cluster.send("Orders", 1)
        (message,) = await received(consumer, 1, 0.05)
        await asyncio.sleep(0.06)
        with pytest.raises(Refused, match="ended"):
            await consumer.change_invisible_time(message, 5)
    with pytest.raises(StateError):
        await consumer.start()


async def test_programs_without_a_loop_have_it_too(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 3)

    def consume() -> list[bytes]:
        with pyromq.SimpleConsumer("billing", cluster.namesrv, start_from="first") as consumer:
            consumer.subscribe("Orders")
            bodies: list[bytes] = []
            while len(bodies) < 3:
                for message in consumer.receive(2):
                    consumer.ack(message)
                    bodies.append(message.body)
            return bodies

    assert len(await asyncio.to_thread(consume)) == 3


async def test_messages_are_acknowledged_together(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 20)
    async with simple(cluster) as consumer:
        messages = await received(consumer, 20, SHORT_S)
        await consumer.ack_many(messages)
        assert await consumer.receive(wait_s=SHORT_S * 2) == []


async def test_an_acknowledgement_that_does_not_wait_arrives_before_the_consumer_is_closed(
    cluster: ConsumerCluster,
) -> None:
    await cluster.send("Orders", 20)
    async with simple(cluster) as consumer:
        for message in await received(consumer, 20, SHORT_S):
            consumer.ack_soon(message)
    async with simple(cluster) as consumer:
        assert await consumer.receive(wait_s=SHORT_S * 2) == []


async def test_a_renewed_message_stays_hidden_and_is_acknowledged_after_that(
    cluster: ConsumerCluster,
) -> None:
    await cluster.send("Orders", 3)
    async with simple(cluster) as consumer:
        messages = await received(consumer, 3, SHORT_S)
        assert await consumer.renew(messages, invisible_s=60) == []
        renewal = asyncio.create_task(consumer.renew(messages, invisible_s=SHORT_S))
        await asyncio.sleep(0)
        for message in messages:
            consumer.ack_soon(message)  # waits for the receipts that the renewal brings
        assert await renewal == []
        assert await consumer.receive(wait_s=SHORT_S * 2) == []


async def test_a_message_is_acknowledged_by_its_newest_receipt_after_many_renewals() -> None:
    async with (
        aio_cluster() as running,
        SimpleConsumer("billing", running.namesrv, start_from="first") as consumer,
    ):
        async with aio.Producer("tills", running.namesrv) as producer:
            await producer.declare_topic("Orders", queues=1)
            await producer.send(Message("Orders", b"long work"))
        consumer.subscribe("Orders")
        (message,) = await received(consumer, 1, invisible_s=30)
        for _ in range(100):
            await running.advance(seconds=10)
            assert await consumer.renew([message], invisible_s=30) == []
        consumer.ack_soon(message)
        await running.wait_until_consumed("billing")
        await running.advance(hours=1)
        assert await consumer.receive(wait_s=0) == []


async def test_a_rejected_message_is_a_dead_letter_that_says_why(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 1)
    async with simple(cluster) as consumer:
        (message,) = await received(consumer, 1)
        await consumer.reject(message, "unreadable")
        async with aio.DeadLetters("billing", cluster.namesrv) as letters:
            (letter,) = await letters.list()
    assert (letter.error, letter.topic, letter.message.body) == ("unreadable", "Orders", message.body)


async def test_the_messages_of_a_queue_come_in_order_if_asked_for(cluster: ConsumerCluster) -> None:
    producer = await cluster.producer()
    for number in range(6):
        await producer.send(Message("Orders", b"%d" % number), sharding_key="one")
    consumer = SimpleConsumer("billing", cluster.namesrv, start_from="first", ordered=True)
    consumer.subscribe("Orders")
    async with consumer:
        first = await consumer.receive(2)
        assert await consumer.receive(2, wait_s=0.05) == []  # until the first are done
        await consumer.ack_many(first)
        bodies = [message.body for message in first]
        while len(bodies) < 6:
            messages = await consumer.receive(2)
            bodies += [message.body for message in messages]
            await consumer.ack_many(messages)
    assert bodies == [b"%d" % number for number in range(6)]


async def test_a_group_is_declared_with_its_number_of_retries(cluster: ConsumerCluster) -> None:
    await cluster.send("Orders", 1)
    consumer = SimpleConsumer("billing", cluster.namesrv, start_from="first", max_retries=1)
    consumer.subscribe("Orders")
    async with consumer:
        for _ in range(2):
            (message,) = await received(consumer, 1)
            await consumer.change_invisible_time(message, 0.01)
        async with aio.DeadLetters("billing", cluster.namesrv) as letters:
            async with asyncio.timeout(TIMEOUT_S):
                while not await letters.list():
                    assert await consumer.receive(wait_s=0.1) == []
