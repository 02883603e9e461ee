"""Hours of retries, delays, timers, checks and invisibility pass in a test that waits for none of them."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal

import pytest

from pyromq import (
    DeadLetters,
    GiveUp,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
    aio,
)
from pyromq.clock import SystemClock, clock_of
from pyromq.errors import ConfigError, StateError
from pyromq.testing import RunningCluster, aio_cluster, cluster

TIMEOUT_S = 60.0


@pytest.fixture
def running() -> Iterator[RunningCluster]:
    with cluster() as found:
        yield found


def bodies(consumer: PullConsumer) -> list[bytes]:
    return [message.body for message in consumer.poll(timeout_s=TIMEOUT_S)]


@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_a_message_that_always_fails_goes_through_all_its_retries(
    running: RunningCluster, mode: Literal["pull", "pop"]
) -> None:
    tried: list[int] = []
    consumer = PushConsumer("billing", namesrv=running.namesrv, start_from="first", mode=mode)

    @consumer.on("Orders")
    def fail(message: ReceivedMessage) -> None:
        tried.append(message.reconsume_times)
        raise ValueError("no such customer")

    with Producer("tills", namesrv=running.namesrv) as producer, consumer:
        producer.send(Message("Orders", b"a book", keys=["o-1"]))
        rounds = 0
        while not running.dead_letters("billing"):
            running.wait_until_consumed("billing", "Orders")
            running.advance(hours=2)
            rounds += 1
            assert rounds <= 20
    assert tried == list(range(17))
    (letter,) = running.dead_letters("billing")
    assert (letter.message.body, letter.message.keys) == (b"a book", ("o-1",))
    assert (letter.topic, letter.attempts) == ("Orders", 17)
    assert "no such customer" in (letter.error or "")
    with DeadLetters("billing", namesrv=running.namesrv) as letters:
        letters.drop(letter)
    assert running.dead_letters("billing") == []


def test_delays_and_timers_are_due_when_their_time_has_passed(running: RunningCluster) -> None:
    with (
        Producer("tills", namesrv=running.namesrv) as producer,
        PullConsumer("billing", namesrv=running.namesrv, start_from="first") as consumer,
    ):
        consumer.subscribe("Orders")
        producer.send(Message("Orders", b"level 18", delay_level=18))
        producer.send(Message("Orders", b"a day"), delay=timedelta(days=1))
        producer.send(Message("Orders", b"three days"), deliver_at=running.now() + timedelta(days=3))
        running.advance(minutes=119)
        producer.send(Message("Orders", b"now"))
        assert bodies(consumer) == [b"now"]
        running.advance(minutes=2)
        assert bodies(consumer) == [b"level 18"]
        running.advance(days=1)
        assert bodies(consumer) == [b"a day"]
        running.advance(days=2)
        assert bodies(consumer) == [b"three days"]


def test_what_is_sent_after_a_leap_waits_from_then_on(running: RunningCluster) -> None:
    with (
        Producer("tills", namesrv=running.namesrv) as producer,
        PullConsumer("billing", namesrv=running.namesrv, start_from="first") as consumer,
    ):
        consumer.subscribe("Orders")
        running.advance(days=1)
        producer.send(Message("Orders", b"later"), delay=timedelta(hours=1))
        running.advance(minutes=59)
        producer.send(Message("Orders", b"now"))
        assert bodies(consumer) == [b"now"]
        running.advance(minutes=2)
        assert bodies(consumer) == [b"later"]


def test_a_broker_asks_about_an_open_transaction(running: RunningCluster) -> None:
    def check(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    with (
        TransactionProducer("payers", namesrv=running.namesrv, check=check) as producer,
        PullConsumer("books", namesrv=running.namesrv, start_from="first") as consumer,
    ):
        producer.send_in_transaction(Message("Payments", b"9.99"), lambda message: TransactionState.UNKNOWN)
        consumer.subscribe("Payments")
        running.advance(minutes=1)
        assert bodies(consumer) == [b"9.99"]


def test_a_popped_message_comes_again_when_its_time_is_over(running: RunningCluster) -> None:
    with (
        Producer("tills", namesrv=running.namesrv) as producer,
        SimpleConsumer("billing", namesrv=running.namesrv, start_from="first") as consumer,
    ):
        consumer.subscribe("Orders")
        producer.send(Message("Orders", b"a book"))
        (first,) = consumer.receive(1, invisible_s=3600, wait_s=TIMEOUT_S)
        running.advance(minutes=61)
        (second,) = consumer.receive(1, invisible_s=3600, wait_s=TIMEOUT_S)
        assert (second.body, second.reconsume_times) == (first.body, 1)
        with pytest.raises(StateError, match=r"1 of %RETRY%billing"):
            running.wait_until_consumed("billing", timeout_s=0.05)
        consumer.ack(second)
        running.wait_until_consumed("billing")


def test_an_ordered_pop_goes_on_when_its_time_is_over(running: RunningCluster) -> None:
    seen: list[tuple[bytes, int]] = []
    consumer = PushConsumer(
        "billing", namesrv=running.namesrv, start_from="first", mode="pop", ordered=True, invisible_s=3600
    )

    @consumer.on("Orders")
    def handle(message: ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times == 0 and message.body == b"1":
            raise ValueError("not yet")

    with Producer("tills", namesrv=running.namesrv) as producer, consumer:
        for body in (b"1", b"2"):
            producer.send(Message("Orders", body), sharding_key="k")
        while len(seen) < 3:
            running.advance(hours=2)
    assert [body for body, _ in seen][-2:] == [b"1", b"2"]


def test_members_and_brokers_are_not_lost_meanwhile(running: RunningCluster) -> None:
    with PullConsumer("billing", namesrv=running.namesrv, start_from="first") as consumer:
        consumer.subscribe("Orders")
        with Producer("tills", namesrv=running.namesrv) as producer:
            for number in range(5):
                running.advance(days=1)
                producer.send(Message("Orders", b"%d" % number))
                assert bodies(consumer) == [b"%d" % number]


async def test_the_same_on_the_loop_of_a_test() -> None:
    async with aio_cluster() as running:
        consumer = aio.PushConsumer("billing", namesrv=running.namesrv, start_from="first")

        @consumer.on("Orders")
        async def handle(message: ReceivedMessage) -> None:
            if message.reconsume_times == 2:
                raise GiveUp
            raise ValueError("not yet")

        async with aio.Producer("tills", namesrv=running.namesrv) as producer, consumer:
            await producer.send(Message("Orders", b"a book"))
            for _ in range(3):
                await running.wait_until_consumed("billing", "Orders")
                await running.advance(hours=2)
        assert [letter.message.body for letter in running.dead_letters("billing")] == [b"a book"]


def test_a_group_that_is_not_done_is_named_with_what_is_left(running: RunningCluster) -> None:
    with pytest.raises(
        StateError, match=r"billing has not consumed everything after 0\.02 s: it has no topic"
    ):
        running.wait_until_consumed("billing", timeout_s=0.02)
    with Producer("tills", namesrv=running.namesrv) as producer:
        producer.send(Message("Orders", b"a book"))
        with pytest.raises(StateError, match="1 of Orders"):
            running.wait_until_consumed("billing", "Orders", timeout_s=0.02)
        consumer = PushConsumer("billing", namesrv=running.namesrv, start_from="first")
        consumer.on("Orders")(lambda message: None)
        with consumer:
            running.wait_until_consumed("billing")


def test_clusters_share_the_time_of_the_process_and_it_ends_with_them() -> None:
    with cluster() as one, cluster() as other:
        one.advance(days=1)
        assert abs(one.now() - other.now()) < timedelta(hours=1)
        assert type(clock_of(None)) is not SystemClock
    assert type(clock_of(None)) is SystemClock
    with cluster() as third:
        assert third.now() < one.now()


@pytest.mark.parametrize("wrong", [{}, {"hours": -1}])
def test_time_does_not_run_back(running: RunningCluster, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="a time above 0"):
        running.advance(**wrong)
