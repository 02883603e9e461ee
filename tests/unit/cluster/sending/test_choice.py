"""How long brokers are left alone, and which queue is next."""

import pytest

from pyromq.cluster.sending.choice import (
    FAILURE_COUNTS_AS_MS,
    BrokerFaults,
    RoundRobin,
    pause_ms,
    queue_of_key,
)
from pyromq.protocol.body import MessageQueue

QUEUES = tuple(MessageQueue("t", name, queue_id) for name in ("a", "b") for queue_id in range(2))


@pytest.mark.parametrize(
    ("latency_ms", "pause"),
    [
        (0, 0),
        (49.9, 0),
        (50, 0),
        (100, 0),
        (549, 0),
        (550, 2000),
        (1799, 2000),
        (1800, 5000),
        (3000, 6000),
        (5000, 10000),
        (14999, 10000),
        (15000, 30000),
        (60000, 30000),
    ],
)
def test_the_slower_the_longer(latency_ms: float, pause: int) -> None:
    assert pause_ms(latency_ms) == pause


def test_a_failure_counts_as_ten_seconds() -> None:
    assert pause_ms(FAILURE_COUNTS_AS_MS) == 10000


def test_a_slow_broker_is_available_again_later() -> None:
    faults = BrokerFaults()
    faults.answered("a", 600, now_ms=1000)
    assert not faults.is_available("a", 2999)
    assert faults.is_available("a", 3000)
    assert faults.is_available("b", 1000)
    assert faults.is_reachable("a")


def test_a_quick_answer_does_not_end_a_pause() -> None:
    faults = BrokerFaults()
    faults.failed("a", 1000, is_reachable=False)
    assert not faults.is_reachable("a")
    faults.answered("a", 1, 2000)
    assert faults.is_reachable("a")
    assert not faults.is_available("a", 10_999)
    assert faults.is_available("a", 11_000)


def test_what_is_over_is_forgotten() -> None:
    faults = BrokerFaults()
    faults.failed("a", 1000, is_reachable=True)
    faults.answered("a", 1, 20_000)
    assert faults.is_empty


def test_a_broker_that_is_gone_is_forgotten_when_others_answer() -> None:
    faults = BrokerFaults()
    faults.failed("gone", 1000, is_reachable=False)
    faults.answered("b", 1, 10_999)
    assert not faults.is_empty
    faults.answered("b", 1, 11_000)
    assert faults.is_empty, "quick sends are possible again"


def test_quick_brokers_are_not_even_noted() -> None:
    faults = BrokerFaults()
    faults.answered("a", 49, 1000)
    faults.answered("a", 120, 1000)
    assert faults.is_empty


def chosen(choice: RoundRobin, count: int, now_ms: float = 0, avoid: str | None = None) -> list[MessageQueue]:
    return [choice.choose(QUEUES, now_ms, avoid) for _ in range(count)]


def test_queues_are_taken_in_turn_from_a_random_start() -> None:
    choice = RoundRobin(None, random_below=lambda _: 6)
    assert chosen(choice, 5) == [QUEUES[2], QUEUES[3], QUEUES[0], QUEUES[1], QUEUES[2]]


def test_every_topic_has_a_turn_of_its_own() -> None:
    choice = RoundRobin(None, random_below=lambda _: 0)
    other = (MessageQueue("u", "a", 0), MessageQueue("u", "a", 1))
    assert chosen(choice, 1) == [QUEUES[0]]
    assert choice.choose(other, 0) == other[0]
    assert chosen(choice, 1) == [QUEUES[1]]


def test_the_broker_that_failed_is_not_chosen_again() -> None:
    choice = RoundRobin(None, random_below=lambda _: 0)
    assert chosen(choice, 4, avoid="a") == [QUEUES[2], QUEUES[3], QUEUES[2], QUEUES[3]]


def test_unless_there_is_no_other() -> None:
    choice = RoundRobin(BrokerFaults(), random_below=lambda _: 0)
    assert choice.choose(QUEUES[:2], 0, "a") == QUEUES[0]


def test_brokers_in_trouble_are_passed_over() -> None:
    faults = BrokerFaults()
    choice = RoundRobin(faults, random_below=lambda _: 0)
    faults.answered("a", 600, now_ms=0)
    assert {queue.broker_name for queue in chosen(choice, 4, now_ms=1999)} == {"b"}
    assert {queue.broker_name for queue in chosen(choice, 4, now_ms=2000)} == {"a", "b"}


def test_a_slow_broker_is_better_than_a_dead_one() -> None:
    faults = BrokerFaults()
    choice = RoundRobin(faults, random_below=lambda _: 0)
    faults.answered("a", 600, now_ms=0)
    faults.failed("b", 0, is_reachable=False)
    assert {queue.broker_name for queue in chosen(choice, 4, now_ms=1)} == {"a"}
    assert {queue.broker_name for queue in chosen(choice, 4, now_ms=1, avoid="a")} == {"b"}


@pytest.mark.parametrize(
    ("key", "index"), [("", 0), ("a", 97 % 4), ("order-1", 2), ("polygenelubricants", 0), ("Orders", 3)]
)
def test_a_key_belongs_to_one_queue(key: str, index: int) -> None:
    assert queue_of_key(QUEUES, key) == QUEUES[index]


def test_a_negative_hash_counts_as_its_absolute_remainder() -> None:
    # java: "polygenelubricants" has the smallest hash there is, which has no positive counterpart
    three = QUEUES[:3]
    assert queue_of_key(three, "polygenelubricants") == three[2**31 % 3]
