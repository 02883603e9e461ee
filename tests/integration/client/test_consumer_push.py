"""The push consumer and a real cluster: every message comes, and what failed comes again."""

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec import structs
from tests.conftest import ErrorLogs
from tests.support.consumer_cluster import TIMEOUT_S, ConsumerCluster, Received, consumer_cluster

from pyromq.client.consumer import blocking
from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
from pyromq.client.consumer.handling.retries import HandlerRetries
from pyromq.client.consumer.push import PushConsumer
from pyromq.client.consumer.reading.subscriptions import Sql
from pyromq.client.producer import Producer
from pyromq.client.values import Message, MessageQueue, ReceivedMessage
from pyromq.errors import Refused
from pyromq.protocol.codes import ResponseCode
from pyromq.protocol.requests.inspection import (
    CMResult,
    ConsumeMessageDirectly,
    GetConsumerRunningInfo,
    GetConsumerStatus,
)
from pyromq.protocol.requests.offsets import QueryConsumerOffset, ResetOffset, UpdateConsumerOffset


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ConsumerCluster]:
    async with consumer_cluster(tmp_path) as running:
        yield running


async def test_an_async_handler_gets_every_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    sent = await cluster.send("Orders", 100)
    async with consumer:
        await received.wait_for_all(sent)
    assert sorted(received.bodies) == sorted(sent)


async def test_a_plain_handler_runs_on_threads(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.on("Orders")(received.take_on_thread)
    sent = await cluster.send("Orders", 50)
    async with consumer:
        await received.wait_for_all(sent)
    assert sorted(received.bodies) == sorted(sent)


@pytest.mark.parametrize("ordered", [False, True])
async def test_handlers_of_one_topic_get_the_messages_of_their_tags(
    cluster: ConsumerCluster, ordered: bool
) -> None:
    await cluster.create_topic("Orders")
    created, paid, everything = Received(), Received(), Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=ordered, suspend_s=0.01)

    @consumer.on("Orders", "Created")
    async def handle_created(message: ReceivedMessage) -> None:
        await created.take(message)
        await everything.take(message)

    @consumer.on("Orders", "Paid || Refunded")
    def handle_paid(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise RetryLater(delay_level=1)
        paid.take_on_thread(message)
        everything.take_on_thread(message)

    tags = ["Created", "Paid", "Refunded", "Sent"] * 10
    async with Producer("orders", cluster.namesrv) as producer:
        for number, tag in enumerate(tags):
            await producer.send(Message("Orders", f"{tag} {number}".encode(), tags=tag))
    wanted = [f"{tag} {number}" for number, tag in enumerate(tags) if tag != "Sent"]
    async with consumer:
        await everything.wait_for_all(wanted)
    assert {body.split()[0] for body in created.bodies} == {"Created"}
    assert {body.split()[0] for body in paid.bodies} == {"Paid", "Refunded"}


async def test_a_loop_over_a_stream_gets_every_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    sent = await cluster.send("Orders", 50)
    bodies = []
    async with (
        asyncio.timeout(TIMEOUT_S),
        PushConsumer("billing", cluster.namesrv, start_from="first") as consumer,
    ):
        async for message in consumer.subscribe("Orders"):
            bodies.append(message.body.decode())
            if len(bodies) == len(sent):
                break
    assert sorted(bodies) == sorted(sent)


async def test_what_was_consumed_is_not_consumed_again_by_the_next_member(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    first = await cluster.send("Orders", 20)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    async with consumer:
        await received.wait_for_all(first)
    again = Received()
    second = await cluster.send("Orders", 20, first=100)
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", again.take)
    async with consumer:
        await again.wait_for_all(second)
    assert sorted(again.bodies) == sorted(second)


# Failures


async def test_a_handler_that_raises_gets_the_message_again(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")

    @consumer.on("Orders")
    async def fail_once(message: ReceivedMessage) -> None:
        await received.take(message)
        if message.reconsume_times == 0:
            raise RuntimeError("not yet")

    await cluster.send("Orders", 3)
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 6)
    assert sorted(received.bodies) == ["0", "0", "1", "1", "2", "2"]
    assert [message.reconsume_times for message in received.messages].count(1) == 3
    assert {message.topic for message in received.messages} == {"Orders"}
    retried = [message for message in received.messages if message.reconsume_times]
    assert {message.queue.topic for message in retried} == {"%RETRY%billing"}


@pytest.mark.parametrize("ordered", [False, True])
async def test_a_consumer_whose_handlers_hang_goes_on(cluster: ConsumerCluster, ordered: bool) -> None:
    await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer(
        "billing",
        cluster.namesrv,
        start_from="first",
        ordered=ordered,
        concurrency=2,
        handler_timeout_s=0.05,
        suspend_s=0.01,
    )

    @consumer.on("Orders")
    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            await asyncio.Event().wait()
        await received.take(message)

    sent = await cluster.send("Orders", 6)
    async with consumer:
        await received.wait_for_all(sent)
    assert sorted(received.bodies) == sent


async def test_a_handler_that_returns_none_or_false_is_done(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> bool:
        await received.take(message)
        return False

    sent = await cluster.send("Orders", 3)
    async with consumer:
        await received.wait_for_all(sent)
    assert consumer.statistics().counts.succeeded == 3
    assert consumer.statistics().counts.failed == 0


async def test_a_message_that_fails_too_often_becomes_a_dead_letter(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("Orders", queues=1)
    attempts, dead = Received(), Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", max_retries=2)

    @consumer.on("Orders")
    def always_fail(message: ReceivedMessage) -> None:
        attempts.take_on_thread(message)
        raise RuntimeError("never")

    undertaker = PushConsumer("undertaker", cluster.namesrv, start_from="first")
    undertaker.subscribe("%DLQ%billing", "*", dead.take)
    await cluster.send("Orders", 1)
    async with undertaker, consumer:
        await dead.wait_for_all(["0"])
    assert [message.reconsume_times for message in attempts.messages] == [0, 1, 2]
    assert dead.messages[0].get("DLQ_ORIGIN_TOPIC") == "Orders"
    (told,) = [line for line in caplog.messages if "became a dead letter" in line]
    assert "topic=Orders" in told
    assert told.endswith("group=billing times=3: RuntimeError('never')")


@pytest.mark.parametrize("mode", ["pull", "pop"])
async def test_a_message_can_be_retried_after_a_time(cluster: ConsumerCluster, mode: Any) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", mode=mode)

    @consumer.on("Orders")
    async def handle(message: ReceivedMessage) -> None:
        if not message.reconsume_times:
            raise RetryLater(delay=timedelta(milliseconds=200))
        await received.take(message)

    sent = await cluster.send("Orders", 3)
    async with consumer:
        await received.wait_for_all(sent)
    assert {message.reconsume_times for message in received.messages} == {1}


@pytest.mark.parametrize("options", [{}, {"mode": "pop"}, {"ordered": True, "max_retries": 0}])
async def test_a_dead_letter_says_why(cluster: ConsumerCluster, options: Any) -> None:
    await cluster.create_topic("Orders")
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", **options)

    @consumer.on("Orders")
    def handle(message: ReceivedMessage) -> None:
        raise GiveUp("no such account\x02")

    async with consumer:
        member = consumer.client_id
        await cluster.send("Orders", 1)
        async with PushConsumer("undertakers", cluster.namesrv, start_from="first") as undertakers:
            async for message in undertakers.subscribe("%DLQ%billing"):
                letter = message
                break
    assert letter.body == b"0"
    assert letter.get("PYROMQ_ERROR") == "no such account "
    assert letter.get("PYROMQ_MEMBER") == member
    assert letter.get("PYROMQ_ATTEMPTS") == "1"
    assert letter.get("PYROMQ_FAILED_AT")


async def test_a_handler_can_give_a_message_up_at_once(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders", queues=1)
    attempts, dead = Received(), Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")

    @consumer.on("Orders")
    async def give_up(message: ReceivedMessage) -> None:
        await attempts.take(message)
        raise GiveUp("cannot be read")

    undertaker = PushConsumer("undertaker", cluster.namesrv, start_from="first")
    undertaker.subscribe("%DLQ%billing", "*", dead.take)
    await cluster.send("Orders", 1)
    async with undertaker, consumer:
        await dead.wait_for_all(["0"])
    assert len(attempts.messages) == 1


async def test_a_batch_can_fail_in_part(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    sizes = []
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", batch_size=4)

    @consumer.on("Orders")
    async def take(messages: list[ReceivedMessage]) -> None:
        sizes.append(len(messages))
        for message in messages:
            await received.take(message)
        odd = [message for message in messages if int(message.body) % 2 and not message.reconsume_times]
        if odd:
            raise RetryLater(only=odd)

    await cluster.send_to(queue, [str(number) for number in range(8)])
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 12)
    counts = {body: received.bodies.count(body) for body in set(received.bodies)}
    assert counts == {str(number): 1 + number % 2 for number in range(8)}
    assert max(sizes) == 4


async def test_what_the_broker_does_not_take_back_is_sent_to_the_retry_topic(
    cluster: ConsumerCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")

    async def refuse(*_: object) -> None:
        raise Refused(ResponseCode.SYSTEM_ERROR, "not today")

    monkeypatch.setattr(HandlerRetries, "_send_back", refuse)

    @consumer.on("Orders")
    async def fail_once(message: ReceivedMessage) -> None:
        await received.take(message)
        if message.reconsume_times == 0:
            raise RuntimeError("not yet")

    await cluster.send("Orders", 1)
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 2)
    again = received.messages[1]
    assert again.reconsume_times == 1
    assert again.topic == "Orders"
    assert again.get("ORIGIN_MESSAGE_ID") == received.messages[0].message_id


async def test_a_stream_can_retry_its_message(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders", queues=1)
    await cluster.send("Orders", 1)
    times = []
    async with (
        asyncio.timeout(TIMEOUT_S),
        PushConsumer("billing", cluster.namesrv, start_from="first") as consumer,
    ):
        stream = consumer.subscribe("Orders")
        async for message in stream:
            times.append(message.reconsume_times)
            if len(times) == 2:
                break
            stream.retry(message)
    assert times == [0, 1]


async def test_a_loop_left_by_an_exception_has_its_last_message_again(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b", "c"])

    async def consume(fail_at: str | None) -> list[str]:
        bodies = []
        async with (
            asyncio.timeout(TIMEOUT_S),
            PushConsumer("billing", cluster.namesrv, start_from="first") as consumer,
        ):
            async for message in consumer.subscribe("Orders"):
                bodies.append(message.body.decode())
                if bodies[-1] == fail_at:
                    raise ZeroDivisionError
                if bodies[-1] == "c":
                    break
        return bodies

    with pytest.raises(ZeroDivisionError):
        await consume("b")
    assert await consume(None) == ["b", "c"]


# Filters and starting points


@pytest.mark.parametrize("expression", ["Paid || Created", Sql("price > 10 AND region = 'north'")])
async def test_only_what_is_wanted_comes(cluster: ConsumerCluster, expression: str | Sql) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", expression, received.take)
    await cluster.send_to(queue, ["no"], tags="Cancelled", properties={"price": "30", "region": "south"})
    await cluster.send_to(queue, ["yes"], tags="Paid", properties={"price": "30", "region": "north"})
    async with consumer:
        await received.wait_for_all(["yes"])
        await cluster.send_to(queue, ["no", "no"], tags="Cancelled")
        await cluster.send_to(queue, ["later"], tags="Created", properties={"price": "11", "region": "north"})
        await received.wait_for_all(["later"])
    assert received.bodies == ["yes", "later"]


@pytest.mark.parametrize("mode", ["pull", "pop"])
async def test_only_messages_with_the_wanted_bodies_come(
    tmp_path: Path, mode: Literal["pull", "pop"]
) -> None:
    async with consumer_cluster(tmp_path, body_filters=True) as cluster:
        (queue,) = await cluster.create_topic("Orders", queues=1)
        received = Received()
        consumer = PushConsumer("billing", cluster.namesrv, start_from="first", mode=mode)
        consumer.subscribe("Orders", Sql("body.amount > 100 AND body.region = 'eu'"), received.take)
        wanted = '{"amount": 101, "region": "eu"}'
        async with consumer:
            await cluster.send_to(queue, ['{"amount": 9, "region": "eu"}', "none", wanted])
            await received.wait_for_all([wanted])
        assert received.bodies == [wanted]


async def test_a_broker_that_does_not_read_bodies_stops_the_start(tmp_path: Path) -> None:
    async with consumer_cluster(tmp_path, body_filters=False) as cluster:
        await cluster.create_topic("Orders")
        consumer = PushConsumer("billing", cluster.namesrv)
        consumer.subscribe("Orders", Sql("body.amount > 1"), print)
        with pytest.raises(Refused, match="filterSupportBody"):
            await consumer.start()


async def test_tags_whose_hashes_collide_are_told_apart(cluster: ConsumerCluster) -> None:
    """`Aa` and `BB` have the same hash in Java, by which the broker filters."""
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "Aa", received.take)
    await cluster.send_to(queue, ["wrong"], tags="BB")
    await cluster.send_to(queue, ["right"], tags="Aa")
    async with consumer:
        await received.wait_for_all(["right"])
    assert received.bodies == ["right"]


async def test_an_expression_that_the_broker_cannot_serve_stops_the_start(tmp_path: Path) -> None:
    async with consumer_cluster(tmp_path, sql_filters=False) as cluster:
        await cluster.create_topic("Orders")
        consumer = PushConsumer("billing", cluster.namesrv)
        consumer.subscribe("Orders", Sql("a > 1"), print)
        with pytest.raises(Refused, match="enablePropertyFilter"):
            await consumer.start()


async def test_a_new_group_starts_behind_the_last_message(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    # A young and small queue is read from its start by any new group, so this one must not be read that way.
    await cluster.send_to(queue, ["old"])
    async with PushConsumer("billing", cluster.namesrv) as consumer:
        received = Received()
        consumer.subscribe("Orders", "*", received.take)
        async with asyncio.timeout(TIMEOUT_S):
            await consumer.wait_assigned()
        await cluster.send_to(queue, ["new"])
        await received.wait_for_all(["new"])


async def test_a_group_can_start_at_a_moment(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received, timed = Received(), Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    await cluster.send_to(queue, ["a", "b", "c"])
    async with consumer:
        await received.wait_for_all(["c"])
    moment = datetime.fromtimestamp(received.messages[2].stored_ms / 1000, UTC)
    consumer = PushConsumer("audit", cluster.namesrv, start_from=moment)
    consumer.subscribe("Orders", "*", timed.take)
    async with consumer:
        await timed.wait_for_all(["c"])


# Members


async def test_two_members_share_the_queues_and_nothing_is_lost(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders", queues=8)
    received = Received()
    first, second = (PushConsumer("billing", cluster.namesrv, start_from="first") for _ in range(2))
    for consumer in (first, second):
        consumer.subscribe("Orders", "*", received.take)
    is_shared, is_alone = asyncio.Event(), asyncio.Event()

    @first.on_rebalance
    def changed(assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        orders = {queue for queue in first.assigned if queue.topic == "Orders"}
        if orders:
            (is_alone if len(orders) == 8 else is_shared).set()

    async with asyncio.timeout(TIMEOUT_S), first:
        sent = await cluster.send("Orders", 50)
        async with second:
            await is_shared.wait()
            sent += await cluster.send("Orders", 50, first=50)
            mine = {queue for queue in first.assigned if queue.topic == "Orders"}
            others = {queue for queue in second.assigned if queue.topic == "Orders"}
            assert len(mine) == len(others) == 4
            assert mine | others == set(queues)
            await received.wait_for_all(sent)
            is_alone.clear()
        await is_alone.wait()
        sent += await cluster.send("Orders", 50, first=100)
        await received.wait_for_all(sent)


async def test_members_that_subscribe_differently_are_warned(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("Orders")
    first = PushConsumer("billing", cluster.namesrv)
    first.subscribe("Orders", "Created", print)
    second = PushConsumer("billing", cluster.namesrv)
    second.subscribe("Orders", "Paid", print)
    async with first, second:
        warning = (
            "members of the group billing subscribe differently, and lose messages:"
            f" {second.client_id} to Orders (Paid), {first.client_id} to Orders (Created)"
        )
        logged = [record.name for record in caplog.records if record.getMessage() == warning]
    assert sorted(logged) == ["pyromq.application", "pyromq.broker.services.membership"]


async def test_a_member_that_subscribes_differently_can_be_refused(tmp_path: Path) -> None:
    async with consumer_cluster(tmp_path, reject_different_subscriptions=True) as cluster:
        await cluster.create_topic("Orders")
        first = PushConsumer("billing", cluster.namesrv)
        first.subscribe("Orders", "Created", print)
        second = PushConsumer("billing", cluster.namesrv)
        second.subscribe("Orders", "Paid", print)
        async with first:
            with pytest.raises(Refused, match="subscribe differently"):
                await second.start()
            assert len(first.assigned) == 5


async def test_broadcasting_members_each_get_everything_and_remember_where_they_were(
    cluster: ConsumerCluster, tmp_path: Path
) -> None:
    await cluster.create_topic("Orders")
    sent = await cluster.send("Orders", 20)

    async def consume(name: str, wanted: list[str]) -> list[str]:
        received = Received()
        consumer = PushConsumer(
            "screens",
            cluster.namesrv,
            broadcast=True,
            start_from="first",
            instance_name=name,
            offset_directory=tmp_path / "offsets",
        )
        consumer.subscribe("Orders", "*", received.take)
        async with consumer:
            await received.wait_for_all(wanted)
        return sorted(received.bodies)

    left, right = await asyncio.gather(consume("left", sent), consume("right", sent))
    assert left == right == sorted(sent)
    more = await cluster.send("Orders", 5, first=20)
    assert await consume("left", more) == sorted(more)
    (kept,) = (tmp_path / "offsets").glob("*@left/screens/offsets.json")
    assert kept.read_text().startswith('{\n\t"offsetTable":{\n\t\t{"brokerName":')


async def test_a_failure_while_broadcasting_is_not_retried(cluster: ConsumerCluster, tmp_path: Path) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer(
        "screens", cluster.namesrv, broadcast=True, start_from="first", offset_directory=tmp_path
    )

    @consumer.on("Orders")
    async def fail(message: ReceivedMessage) -> None:
        await received.take(message)
        raise RuntimeError("lost")

    await cluster.send_to(queue, ["a", "b"])
    async with consumer:
        await received.wait_for_all(["a", "b"])
    assert received.bodies == ["a", "b"]


# Order


async def test_ordered_queues_stay_ordered_through_failures(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders", queues=3)
    received = Received()
    consumer = PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered=True, suspend_s=0.01, concurrency=2
    )

    @consumer.on("Orders")
    async def fail_sometimes(message: ReceivedMessage) -> None:
        if int(message.body) % 5 == 0 and message.reconsume_times < 2:
            raise RuntimeError("not yet")
        await received.take(message)

    bodies = [str(number) for number in range(30)]
    for queue in queues:
        await cluster.send_to(queue, bodies)
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 90)
    for queue in queues:
        assert [m.body.decode() for m in received.messages if m.queue == queue] == bodies


async def test_plain_ordered_handlers_stay_ordered_too(cluster: ConsumerCluster) -> None:
    queues = await cluster.create_topic("Orders", queues=3)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=True, suspend_s=0.01)
    failed: set[str] = set()

    @consumer.on("Orders")
    def fail_once(message: ReceivedMessage) -> None:
        if message.message_id not in failed and int(message.body) % 7 == 0:
            failed.add(message.message_id)
            raise RuntimeError("not yet")
        received.take_on_thread(message)

    bodies = [str(number) for number in range(20)]
    for queue in queues:
        await cluster.send_to(queue, bodies)
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 60)
    for queue in queues:
        assert [m.body.decode() for m in received.messages if m.queue == queue] == bodies


async def test_ordered_queues_stay_ordered_while_members_come_and_go(cluster: ConsumerCluster) -> None:
    """Each queue is handled by one member at a time: what comes twice is a repeated run, never mixed."""
    queues = await cluster.create_topic("Orders", queues=4)
    received = Received()
    at_work: dict[MessageQueue, int] = dict.fromkeys(queues, 0)

    async def take(message: ReceivedMessage) -> None:
        at_work[message.queue] += 1
        assert at_work[message.queue] == 1, "two handlers of one queue"
        await received.take(message)
        await asyncio.sleep(0)
        at_work[message.queue] -= 1

    def member() -> PushConsumer:
        consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=True)
        consumer.subscribe("Orders", "*", take)
        return consumer

    async def send_all(first: int) -> list[str]:
        bodies = [str(number) for number in range(first, first + 20)]
        for queue in queues:
            await cluster.send_to(queue, bodies)
        return bodies

    async with member():
        bodies = await send_all(0)
        async with member():
            bodies += await send_all(20)
            await received.wait(lambda received: len(received.messages) >= 120)
        bodies += await send_all(40)
        wanted = {(queue, body) for queue in queues for body in bodies}
        await received.wait(
            lambda received: wanted <= {(each.queue, each.body.decode()) for each in received.messages}
        )
    for queue in queues:
        order = [int(each.body) for each in received.messages if each.queue == queue]
        first_seen = list(dict.fromkeys(order))
        assert first_seen == sorted(first_seen)


async def test_an_ordered_message_that_fails_too_often_is_put_aside(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received, dead = Received(), Received()
    consumer = PushConsumer(
        "billing", cluster.namesrv, start_from="first", ordered=True, max_retries=2, suspend_s=0.01
    )

    @consumer.on("Orders")
    async def fail(message: ReceivedMessage) -> None:
        if message.body == b"b":
            raise RuntimeError("never")
        await received.take(message)

    undertaker = PushConsumer("undertaker", cluster.namesrv, start_from="first")
    undertaker.subscribe("%DLQ%billing", "*", dead.take)
    await cluster.send_to(queue, ["a", "b", "c"])
    async with undertaker, consumer:
        await received.wait_for_all(["a", "c"])
        await dead.wait_for_all(["b"])
    assert received.bodies == ["a", "c"]


# What operators and applications can do


async def test_pause_resume_and_seek(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    await cluster.send_to(queue, ["a", "b"])
    async with consumer:
        await received.wait_for_all(["a", "b"])
        consumer.pause(queue)
        await cluster.send_to(queue, ["c"])
        await consumer.seek(queue, 1)
        consumer.resume(queue)
        await received.wait(lambda received: len(received.messages) == 4)
    assert received.bodies == ["a", "b", "b", "c"]


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_a_handler_may_seek_in_its_own_queue(cluster: ConsumerCluster, ordered: bool) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", ordered=ordered, concurrency=1)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        await received.take(message)
        if received.bodies == ["a", "b"]:
            await consumer.seek(message.queue, 0)

    await cluster.send_to(queue, ["a", "b"])
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 4)
    assert received.bodies == ["a", "b"] * 2


async def test_a_handler_on_a_thread_may_seek_in_its_own_queue(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a", "b"])
    bodies: list[str] = []

    def script() -> None:
        is_done = threading.Event()
        consumer = blocking.PushConsumer("billing", cluster.namesrv, start_from="first", ordered=True)

        @consumer.on("Orders")
        def take(message: ReceivedMessage) -> None:
            bodies.append(message.body.decode())
            if bodies == ["a", "b"]:
                consumer.seek(message.queue, 0)
            if len(bodies) == 4:
                is_done.set()

        with consumer:
            assert is_done.wait(TIMEOUT_S)

    await asyncio.to_thread(script)
    assert bodies == ["a", "b"] * 2


async def test_a_reset_by_an_operator_sends_a_running_consumer_back(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    await cluster.send_to(queue, ["a", "b", "c"])
    async with consumer:
        await received.wait_for_all(["a", "b", "c"])
        await consumer.commit()
        await cluster.call(ResetOffset(group="billing", topic="Orders", timestamp=0, is_force=True))
        await received.wait(lambda received: len(received.messages) == 6)
    assert received.bodies == ["a", "b", "c"] * 2


async def test_drain_handles_what_was_pulled_and_takes_nothing_more(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    bodies = []
    started, may_go_on = asyncio.Event(), asyncio.Event()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", concurrency=1)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        started.set()
        await may_go_on.wait()
        bodies.append(message.body.decode())

    await cluster.send_to(queue, ["a", "b", "c"])
    async with asyncio.timeout(TIMEOUT_S), consumer:
        await started.wait()
        draining = asyncio.create_task(consumer.drain())
        may_go_on.set()
        await draining
        assert bodies == ["a", "b", "c"]
        offset = await cluster.call(QueryConsumerOffset(consumer_group="billing", topic="Orders", queue_id=0))
        assert offset.offset == 3


async def test_close_waits_for_handlers_at_work_and_leaves_the_rest_for_others(
    cluster: ConsumerCluster,
) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    bodies: list[str] = []
    started, may_go_on = asyncio.Event(), asyncio.Event()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", concurrency=1)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        started.set()
        await may_go_on.wait()
        bodies.append(message.body.decode())

    await cluster.send_to(queue, ["a", "b", "c"])
    async with asyncio.timeout(TIMEOUT_S):
        await consumer.start()
        await started.wait()
        closing = asyncio.create_task(consumer.close())
        asyncio.get_running_loop().call_soon(may_go_on.set)
        await closing
    assert bodies == ["a"]
    offset = await cluster.call(QueryConsumerOffset(consumer_group="billing", topic="Orders", queue_id=0))
    assert offset.offset == 1


async def test_operators_see_what_a_consumer_does(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "Paid", received.take)
    await cluster.send_to(queue, ["a", "b"], tags="Paid")
    async with consumer:
        await received.wait_for_all(["a", "b"])
        question = GetConsumerRunningInfo(consumer_group="billing", client_id=consumer.client_id)
        info = (await cluster.call(question)).body
        with_stacks = (await cluster.call(structs.replace(question, jstack_enable=True))).body
        status = (await cluster.call(GetConsumerStatus(topic="Orders", group="billing"))).body
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert info.properties["PROP_NAMESERVER_ADDR"] == f"{cluster.namesrv};"
    assert info.mq_table[queue].commit_offset == 2
    assert {each.topic for each in info.subscription_set} == {"Orders", "%RETRY%billing"}
    assert info.status_table["Orders"].pull_tps > 0
    assert info.jstack is None
    assert "_stacks" in (with_stacks.jstack or "")
    assert status.consumer_table[consumer_id(status.consumer_table)] == {queue: 2}


def consumer_id(table: dict[str, dict[MessageQueue, int]]) -> str:
    (client_id,) = table
    return client_id


@pytest.mark.parametrize("is_failing", [False, True])
async def test_an_operator_has_one_message_consumed_now(cluster: ConsumerCluster, is_failing: bool) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv)

    @consumer.on("Orders")
    async def take(message: ReceivedMessage) -> None:
        await received.take(message)
        if is_failing:
            raise ValueError("wrong")

    (sent,) = await cluster.send_to(queue, ["a"])
    async with consumer:
        consumer.pause()
        answer = await cluster.call(
            ConsumeMessageDirectly(
                consumer_group="billing",
                client_id=consumer.client_id,
                msg_id=sent.offset_message_id,
                broker_name=queue.broker_name,
                topic="Orders",
            )
        )
    assert received.bodies[-1:] == ["a"]
    expected = CMResult.CR_THROW_EXCEPTION if is_failing else CMResult.CR_SUCCESS
    assert answer.body.consume_result is expected
    assert answer.body.remark == ("ValueError: wrong" if is_failing else None)


async def test_a_topic_that_appears_later_is_consumed_then(cluster: ConsumerCluster) -> None:
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Later", "*", received.take)
    async with consumer:
        await cluster.create_topic("Later")
        sent = await cluster.send("Later", 3)
        await received.wait_for_all(sent)


async def test_names_within_a_namespace_are_the_applications_own(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("shop%Orders", queues=1)
    received, dead = Received(), Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", namespace="shop", max_retries=1)

    @consumer.on("Orders")
    async def fail(message: ReceivedMessage) -> None:
        await received.take(message)
        raise RuntimeError("never")

    undertaker = PushConsumer("undertaker", cluster.namesrv, start_from="first")
    undertaker.subscribe("%DLQ%shop%billing", "*", dead.take)
    async with undertaker, consumer, Producer("tills", cluster.namesrv, namespace="shop") as producer:
        await producer.send(Message("Orders", b"a"))
        await dead.wait_for_all(["a"])
    assert [message.topic for message in received.messages] == ["Orders", "Orders"]
    assert {message.queue.topic for message in received.messages} == {"shop%Orders", "%RETRY%shop%billing"}


async def test_a_listener_that_fails_stops_neither_the_consumer_nor_other_listeners(
    cluster: ConsumerCluster, error_logs: ErrorLogs
) -> None:
    await cluster.create_topic("Orders", queues=1)
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first", broadcast=False)
    consumer.subscribe("Orders", "*", received.take)

    @consumer.on_rebalance
    def fail(assigned: set[MessageQueue], revoked: set[MessageQueue]) -> None:
        if any(queue.topic == "Orders" for queue in assigned):
            raise ZeroDivisionError

    heard: set[MessageQueue] = set()
    consumer.on_rebalance(lambda assigned, revoked: heard.update(assigned))
    sent = await cluster.send("Orders", 2)
    async with consumer:
        await received.wait_for_all(sent)
    assert "Orders" in {queue.topic for queue in heard}
    error_logs.expect("a rebalance listener failed")


async def test_unsubscribing_gives_the_queues_up(cluster: ConsumerCluster) -> None:
    await cluster.create_topic("Orders")
    await cluster.create_topic("Payments")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    consumer.subscribe("Payments", "*", received.take)
    async with consumer:
        await consumer.unsubscribe("Orders")
        assert "Orders" not in {queue.topic for queue in consumer.assigned}
        sent = await cluster.send("Payments", 3)
        await received.wait_for_all(sent)


async def test_a_topic_unsubscribed_from_while_brokers_are_asked_about_it_does_not_disturb_the_others(
    cluster: ConsumerCluster,
) -> None:
    await cluster.create_topic("Orders")
    await cluster.create_topic("Payments")
    received = Received()
    async with PushConsumer("billing", cluster.namesrv, start_from="first") as consumer:
        consumer.subscribe("Payments", "*", received.take)
        consumer.subscribe("Orders", "*", received.take)
        await asyncio.sleep(0)
        await consumer.unsubscribe("Orders")
        sent = await cluster.send("Payments", 3)
        await received.wait_for_all(sent)
        assert "Orders" not in {queue.topic for queue in consumer.assigned}


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
async def test_consumption_is_traced(cluster: ConsumerCluster, ordered: bool) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    received, reports = Received(), Received()
    consumer = PushConsumer(
        "billing", cluster.namesrv, start_from="first", trace=True, ordered=ordered, suspend_s=0.01
    )

    @consumer.on("Orders")
    async def fail_once(message: ReceivedMessage) -> None:
        await received.take(message)
        if message.reconsume_times == 0:
            raise RuntimeError("not yet")

    await cluster.send_to(queue, ["a"], keys=["o-1"])
    async with consumer:
        await received.wait(lambda received: len(received.messages) == 2)
    auditor = PushConsumer("audit", cluster.namesrv, start_from="first")
    auditor.subscribe("RMQ_SYS_TRACE_TOPIC", "*", reports.take)
    async with auditor:
        await reports.wait(lambda reports: "".join(reports.bodies).count("\x02") == 4)
    records = [record.split("\x01") for body in reports.bodies for record in body.split("\x02")[:-1]]
    before = {record[4]: record[6] for record in records if record[0] == "SubBefore"}
    after = {record[1]: (record[4], record[6]) for record in records if record[0] == "SubAfter"}
    assert sorted(before.values()) == ["0", "1"]
    assert {before[request_id]: outcome for request_id, outcome in after.items()} == {
        "0": ("false", "2"),
        "1": ("true", "0"),
    }
    assert all("o-1" in message.keys for message in reports.messages)


# Brokers that go away


async def test_consuming_goes_on_after_a_broker_was_restarted_and_the_log_says_so(
    cluster: ConsumerCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("Orders")
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv, start_from="first")
    consumer.subscribe("Orders", "*", received.take)
    async with consumer:
        sent = await cluster.send("Orders", 20)
        await received.wait_for_all(sent)
        await cluster.standalone.stop_broker()
        await cluster.standalone.start_broker()
        sent += await cluster.send("Orders", 20, first=20)
        await received.wait_for_all(sent)
    said = [line.partition(" broker=")[0] for line in caplog.messages if " broker=" in line]
    assert said[:2] == ["broker lost", "broker back"]
    assert len(said) <= 4  # it may be reached, and lost again, while it starts


async def test_an_offset_beyond_the_queue_is_corrected(cluster: ConsumerCluster) -> None:
    (queue,) = await cluster.create_topic("Orders", queues=1)
    await cluster.send_to(queue, ["a"])
    newcomer = PushConsumer("billing", cluster.namesrv)
    newcomer.subscribe("Orders", "*", print)
    async with newcomer:
        pass  # now the group exists
    await cluster.call(
        UpdateConsumerOffset(consumer_group="billing", topic="Orders", queue_id=0, commit_offset=1000)
    )
    received = Received()
    consumer = PushConsumer("billing", cluster.namesrv)
    consumer.subscribe("Orders", "*", received.take)
    async with consumer:
        await cluster.send_to(queue, ["b"])
        await received.wait_for_all(["b"])
