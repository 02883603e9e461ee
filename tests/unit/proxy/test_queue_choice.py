"""Which queue a message goes to."""

import pytest

from pyromq.cluster.routes import Route
from pyromq.cluster.sending.choice import jump_hash
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.java_hash import java_string_hash
from pyromq.proxy.codes import Code, Rejected
from pyromq.proxy.queue_choice import QueueChoice

QUEUES = tuple(MessageQueue("T", "broker-a", number) for number in range(8))
ROUTE = Route("T", QUEUES, QUEUES, {"broker-a": {0: "127.0.0.1:10911"}})


def test_messages_take_turns_over_the_queues() -> None:
    choice = QueueChoice()
    assert [choice.choose(ROUTE, "").queue_id for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]


def test_a_second_attempt_goes_to_another_broker() -> None:
    queues = (*QUEUES[:3], MessageQueue("T", "broker-b", 0))
    choice = QueueChoice()
    route = Route("T", queues, queues, {"broker-a": {0: "a:1"}, "broker-b": {0: "b:1"}})
    chosen = [choice.choose(route, "") for _ in range(5)]
    assert [each.broker_name[-1] + str(each.queue_id) for each in chosen] == ["a0", "b0", "a1", "a2", "a0"]
    assert choice.choose(Route("T", QUEUES[:1], QUEUES[:1], route.brokers), "").queue_id == 0


def test_a_message_group_always_has_the_same_queue() -> None:
    chosen = {QueueChoice().choose(ROUTE, "orders").queue_id for _ in range(10)}
    assert len(chosen) == 1


def test_groups_are_spread_and_a_new_queue_moves_only_its_share() -> None:
    keys = [java_string_hash(f"group-{number}") for number in range(2000)]
    before = [jump_hash(key, 8) for key in keys]
    after = [jump_hash(key, 9) for key in keys]
    assert min(before.count(queue) for queue in range(8)) > 150
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {8}
    assert all(0 <= jump_hash(key, 1) < 1 for key in keys)


def test_a_topic_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(Rejected) as caught:
        QueueChoice().choose(Route("T"), "")
    assert caught.value.code == Code.FORBIDDEN
