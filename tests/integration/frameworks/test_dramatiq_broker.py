"""Dramatiq on RocketMQ: its own workers in this process, with one queue or several."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyromq import Message as RocketMessage
from pyromq import Producer
from pyromq.errors import ConfigError
from pyromq.testing import RunningCluster

dramatiq = pytest.importorskip("dramatiq")
pytestmark = pytest.mark.filterwarnings("ignore")

from dramatiq import Message, Worker  # noqa: E402
from dramatiq.errors import ConnectionClosed, QueueJoinTimeout, QueueNotFound  # noqa: E402

from pyromq.dramatiq import DramatiqBroker  # noqa: E402

TIMEOUT_S = 60.0

New = Callable[..., DramatiqBroker]


@pytest.fixture
def new(rocketmq: RunningCluster) -> Iterator[New]:
    made: list[DramatiqBroker] = []

    def broker(**options: Any) -> DramatiqBroker:
        made.append(DramatiqBroker(rocketmq.namesrv, namespace="shop", **options))
        return made[-1]

    yield broker
    for each in made:
        each.close()


@pytest.fixture
def work() -> Iterator[Callable[..., Any]]:
    started: list[Any] = []

    def start(broker: DramatiqBroker, **options: Any) -> Any:
        started.append(Worker(broker, worker_timeout=100, **{"worker_threads": 4, **options}))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


class Notes:
    """What actors have noted, from any thread."""

    def __init__(self) -> None:
        self.texts: list[Any] = []
        self._changed = threading.Condition()

    def add(self, text: Any) -> None:
        with self._changed:
            self.texts.append(text)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.texts) >= count, TIMEOUT_S), self.texts
            return list(self.texts)


def message(queue: str, actor: str = "bill", **options: Any) -> Any:
    return Message(queue_name=queue, actor_name=actor, args=(), kwargs={}, options=options)


def received(consumer: Any, count: int) -> list[Any]:
    until = time.monotonic() + TIMEOUT_S
    found: list[Any] = []
    while len(found) < count:
        assert time.monotonic() < until, found
        if (each := next(consumer)) is not None:
            found.append(each)
    return found


def test_each_message_is_processed_once(new: New, work: Callable[..., Any]) -> None:
    broker, notes = new(), Notes()
    actor = dramatiq.actor(notes.add, broker=broker, actor_name="add")
    for number in range(50):
        actor.send(number)
    work(broker)
    broker.join("default", timeout=round(TIMEOUT_S * 1000))
    assert sorted(notes.texts) == list(range(50))


def test_a_delayed_message_waits_at_the_broker_and_holds_up_no_other(
    new: New, work: Callable[..., Any]
) -> None:
    broker, notes = new(), Notes()
    actor = dramatiq.actor(lambda text: notes.add((text, time.time())), broker=broker, actor_name="add")
    before = time.time()
    actor.send_with_options(args=("later",), delay=2000)
    actor.send("now")
    work(broker)
    (first, _), (second, at) = notes.wait(2)
    assert (first, second) == ("now", "later")
    assert at >= before + 2
    assert broker.get_declared_delay_queues() == set()


def test_a_message_that_fails_is_tried_again_and_in_the_end_a_dead_letter(
    new: New, work: Callable[..., Any], rocketmq: RunningCluster, error_logs: Any
) -> None:
    broker, notes = new(), Notes()

    def fail() -> None:
        notes.add("tried")
        raise ValueError("on purpose")

    actor = dramatiq.actor(
        fail, broker=broker, actor_name="fail", max_retries=2, min_backoff=100, max_backoff=200
    )
    actor.send()
    worker = work(broker)
    notes.wait(3)
    worker.join()
    worker.stop()
    (letter,) = rocketmq.dead_letters("shop%DRAMATIQ_default")
    assert "ValueError: on purpose" in (letter.error or "")
    assert len(notes.texts) == 3
    error_logs.allow("Failed to process message")
    error_logs.allow("Retries exceeded")


def test_an_unknown_actor_and_a_strange_message_are_dead_letters(
    new: New, work: Callable[..., Any], rocketmq: RunningCluster, error_logs: Any
) -> None:
    broker, notes = new(), Notes()
    dramatiq.actor(notes.add, broker=broker, actor_name="add")
    broker.enqueue(message("default", "nobody"))
    with Producer("strangers", rocketmq.namesrv, namespace="shop") as producer:
        producer.send(RocketMessage("DRAMATIQ_default", b"not JSON"))
    broker.enqueue(Message(queue_name="default", actor_name="add", args=(1,), kwargs={}, options={}))
    worker = work(broker)
    notes.wait(1)
    broker.join("default", timeout=round(TIMEOUT_S * 1000))
    worker.stop()
    reasons = sorted(each.error or "" for each in rocketmq.dead_letters("shop%DRAMATIQ_default"))
    assert len(reasons) == 2
    assert reasons[0].startswith("ActorNotFound")
    assert reasons[1].startswith("not a message of Dramatiq")
    error_logs.allow("undefined actor")


def test_a_consumer_has_no_more_messages_than_its_prefetch_and_gives_back_the_rest(new: New) -> None:
    broker = new()
    broker.declare_queue("few")
    for _ in range(6):
        broker.enqueue(message("few"))
    one = broker.consume("few", prefetch=2, timeout=200)
    first, second = received(one, 2)
    assert next(one) is None
    one.ack(first)
    (third,) = received(one, 1)
    one.requeue([second])
    one.close()
    other = broker.consume("few", prefetch=10, timeout=200)
    rest = received(other, 5)
    assert {each.message_id for each in rest} >= {second.message_id, third.message_id}
    for each in rest:
        other.ack(each)
    broker.join("few", timeout=round(TIMEOUT_S * 1000))
    other.close()


def test_a_message_that_is_worked_on_for_long_stays_with_its_worker(new: New) -> None:
    broker = new(invisible_s=1.0)
    broker.declare_queue("long")
    broker.enqueue(message("long"))
    one, other = (broker.consume("long", timeout=200) for _ in range(2))
    until = time.monotonic() + 4
    found: list[Any] = []
    while time.monotonic() < until:
        found += [(each, taken) for each in (one, other) if (taken := next(each)) is not None]
    ((consumer, taken),) = found
    consumer.ack(taken)
    one.close()
    other.close()


def test_higher_broker_priorities_come_first(new: New) -> None:
    broker = new(max_priority=9)
    actor = dramatiq.actor(lambda: None, broker=broker, actor_name="bill", broker_priority=5)
    actor.send_with_options(broker_priority=1)
    actor.send_with_options(broker_priority=9)
    actor.send()
    consumer = broker.consume("default", prefetch=1, timeout=200)
    found = []
    for _ in range(3):
        (taken,) = received(consumer, 1)
        found.append(taken.options.get("broker_priority"))
        consumer.ack(taken)
    consumer.close()
    assert found == [9, None, 1]


def test_flush_throws_away_what_waits(new: New) -> None:
    broker = new()
    broker.declare_queue("full")
    for _ in range(40):
        broker.enqueue(message("full"))
    with pytest.raises(QueueJoinTimeout):
        broker.join("full", timeout=200)
    broker.flush_all()
    broker.join("full", timeout=round(TIMEOUT_S * 1000))
    consumer = broker.consume("full", timeout=200)
    assert next(consumer) is None
    consumer.close()


def test_a_queue_that_was_not_declared_is_not_found(new: New) -> None:
    broker = new()
    for use in (
        lambda: broker.enqueue(message("none")),
        lambda: broker.consume("none"),
        lambda: broker.flush("none"),
        lambda: broker.join("none"),
    ):
        with pytest.raises(QueueNotFound):
            use()


def test_a_cluster_that_is_away_and_a_bad_option_are_told() -> None:
    broker = DramatiqBroker("127.0.0.1:1", call_timeout_s=0.5)
    broker.declare_queue("default")
    with pytest.raises(ConnectionClosed):
        broker.enqueue(message("default"))
    broker.close()
    with pytest.raises(ConfigError, match="max_redeliveries"):
        DramatiqBroker("127.0.0.1:9876", max_redeliveries=0)
