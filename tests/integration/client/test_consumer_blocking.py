"""The consumers of programs without an event loop, against a cluster on a thread of its own."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from pyromq.client.blocking import Producer
from pyromq.client.consumer.blocking import PullConsumer, PushConsumer
from pyromq.client.values import Message, ReceivedMessage
from pyromq.testing import RunningCluster, cluster

TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with cluster(tmp_path_factory.mktemp("rocketmq")) as running:
        yield running


def send(rocketmq: RunningCluster, topic: str, count: int) -> list[str]:
    bodies = [str(number) for number in range(count)]
    with Producer("tills", rocketmq.namesrv, send_timeout_s=TIMEOUT_S) as producer:
        for body in bodies:
            producer.send(Message(topic, body.encode()))
    return bodies


def test_a_handler_is_called_on_threads_of_its_own(rocketmq: RunningCluster) -> None:
    sent = send(rocketmq, "Handled", 20)
    received: SimpleQueue[tuple[str, str]] = SimpleQueue()

    def handle(message: ReceivedMessage) -> None:
        received.put((message.body.decode(), threading.current_thread().name))

    with PushConsumer("handlers", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Handled", "*", handle)
        got = [received.get(timeout=TIMEOUT_S) for _ in sent]
        assert "Handled" in repr(consumer)
    assert sorted(body for body, _ in got) == sorted(sent)
    assert all(name.startswith("consume-handlers") for _, name in got)


def test_an_async_handler_runs_on_the_clients_loop(rocketmq: RunningCluster) -> None:
    sent = send(rocketmq, "HandledAsync", 5)
    received: SimpleQueue[str] = SimpleQueue()
    consumer = PushConsumer("handlers", rocketmq.namesrv, start_from="first")

    @consumer.on("HandledAsync")
    async def handle(message: ReceivedMessage) -> None:
        received.put(message.body.decode())

    with consumer:
        assert sorted(received.get(timeout=TIMEOUT_S) for _ in sent) == sent


def test_run_in_a_with_block_leaves_the_closing_to_the_block(
    rocketmq: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(rocketmq, "Ran", 1)
    install = signal.signal
    # Other tests of this process may have left theirs.
    left = signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def install_and_terminate(number: int, handler: signal.Handlers) -> object:
        former = install(number, handler)
        if number == signal.SIGTERM and handler is not signal.SIG_DFL:
            signal.raise_signal(number)
        return former

    with PushConsumer("runners", rocketmq.namesrv) as consumer:
        consumer.subscribe("Ran", "*", lambda message: None)
        with monkeypatch.context() as patch:
            patch.setattr(signal, "signal", install_and_terminate)
            consumer.run()
        consumer.wait_assigned()
    assert signal.signal(signal.SIGTERM, left) is signal.SIG_DFL


def test_run_ends_though_the_signal_woke_nobody(rocketmq: RunningCluster) -> None:
    send(rocketmq, "Signalled", 1)
    consumer = PushConsumer("signalled", rocketmq.namesrv, start_from="first")

    @consumer.on("Signalled")
    def handle(message: ReceivedMessage) -> None:
        # Like a signal that comes just before the main thread begins to wait: that is not woken by it.
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    consumer.run()
    assert not consumer._aio.is_running


def test_a_topic_is_divided_once_brokers_know_the_member(
    rocketmq: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    (body,) = send(rocketmq, "Divided", 1)
    with PullConsumer("dividers", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Divided")
        assert [message.body.decode() for message in consumer.poll(timeout_s=TIMEOUT_S)] == [body]
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [each.getMessage() for each in warnings if each.name.startswith("pyromq.client")] == []


def test_a_for_loop_gets_every_message_and_the_last_one_is_done_when_it_ends(
    rocketmq: RunningCluster,
) -> None:
    sent = send(rocketmq, "Looped", 10)
    with PushConsumer("loops", rocketmq.namesrv, start_from="first") as consumer:
        bodies = []
        for message in consumer.subscribe("Looped"):
            bodies.append(message.body.decode())
            if len(bodies) == len(sent):
                break
    assert sorted(bodies) == sent
    more = send(rocketmq, "Looped", 1)
    with PushConsumer("loops", rocketmq.namesrv, start_from="first") as consumer:
        messages = consumer.subscribe("Looped")
        assert next(messages).body.decode() == more[0]


def test_a_for_loop_left_by_an_exception_has_its_last_message_again(rocketmq: RunningCluster) -> None:
    send(rocketmq, "Broken", 1)

    def consume(*, is_failing: bool) -> bytes:
        with PushConsumer("breaking", rocketmq.namesrv, start_from="first") as consumer:
            for message in consumer.subscribe("Broken"):
                if is_failing:
                    raise ZeroDivisionError
                return message.body
        raise AssertionError

    with pytest.raises(ZeroDivisionError):
        consume(is_failing=True)
    assert consume(is_failing=False) == b"0"


def test_a_message_of_a_for_loop_can_be_retried(rocketmq: RunningCluster) -> None:
    send(rocketmq, "Retried", 1)
    with PushConsumer("retrying", rocketmq.namesrv, start_from="first") as consumer:
        messages = consumer.subscribe("Retried")
        message = next(messages)
        messages.retry(message, delay_level=1)
        assert next(messages).reconsume_times == 1


def test_polling_seeking_and_committing(rocketmq: RunningCluster) -> None:
    send(rocketmq, "Polled", 12)
    with PullConsumer("polls", rocketmq.namesrv, start_from="first", auto_commit=False) as consumer:
        consumer.assign(consumer.queues("Polled"))
        bodies: list[str] = []
        while len(bodies) < 12:
            bodies += [message.body.decode() for message in consumer.poll(TIMEOUT_S)]
        consumer.commit()
        queue = min(consumer.assigned)
        assert consumer.committed(queue) == consumer.position(queue)
        consumer.seek_to_begin(queue)
        assert consumer.position(queue) == 0
        consumer.seek_to_end(queue)
        consumer.seek(queue, 1)
        assert consumer.position(queue) == 1
        assert consumer.offsets_for_times({queue: 0}) == {queue: 0}
        consumer.pause()
        consumer.resume(queue)
        assert consumer.poll(timeout_s=TIMEOUT_S, max_messages=1)[0].queue == queue
    assert sorted(bodies) == sorted(str(number) for number in range(12))


def test_a_subscribed_pull_consumer_shares_its_topic(rocketmq: RunningCluster, tmp_path: Path) -> None:
    send(rocketmq, "Shared", 3)
    with PullConsumer("sharers", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Shared")
        assert consumer.poll(TIMEOUT_S)
        consumer.unsubscribe("Shared")
        assert not consumer.assigned


def test_pause_seek_and_drain(rocketmq: RunningCluster) -> None:
    sent = send(rocketmq, "Drained", 4)
    received: SimpleQueue[ReceivedMessage] = SimpleQueue()
    with PushConsumer("drains", rocketmq.namesrv, start_from="first") as consumer:
        consumer.subscribe("Drained", "*", received.put)
        messages = [received.get(timeout=TIMEOUT_S) for _ in sent]
        consumer.wait_assigned()
        queue = messages[0].queue
        consumer.pause(queue)
        consumer.seek(queue, 0)
        consumer.resume(queue)
        assert received.get(timeout=TIMEOUT_S).queue == queue
        consumer.commit()
        consumer.drain()
        assert consumer.statistics().held_messages == 0
