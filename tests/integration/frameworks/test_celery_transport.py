"""kombu on RocketMQ: queues, exchanges, acknowledgements and times, without a worker."""

import os
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from pyromq import Admin, Message, Producer
from pyromq.errors import ConnectFailed, TransportError
from pyromq.testing import RunningCluster, cluster

kombu = pytest.importorskip("kombu")
pytestmark = pytest.mark.filterwarnings("ignore")

TIMEOUT_S = 20.0


@pytest.fixture
def connect(rocketmq: RunningCluster) -> Iterator[Callable[..., Any]]:
    import kombu.serialization

    opened: list[Any] = []

    def new(**options: Any) -> Any:
        opened.append(kombu.Connection(f"rocketmq://{rocketmq.namesrv}/shop", transport_options=options))
        return opened[-1]

    yield new
    for each in opened:
        each.release()


def drained(connection: Any, wanted: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not wanted():
        assert time.monotonic() < until, "nothing has come"
        try:
            connection.drain_events(timeout=0.5)
        except TimeoutError:
            continue


def has_more(found: list[Any], count: int) -> bool:
    return len(found) > count


def consumer(connection: Any, queue: Any, found: list[Any], **options: Any) -> Any:
    made = kombu.Consumer(connection, [queue], accept=["json", "text/plain"], **options)
    made.register_callback(lambda body, message: found.append((body, message)))
    return made


def test_a_task_goes_to_the_topic_of_its_queue_in_the_namespace(
    connect: Callable[..., Any], rocketmq: RunningCluster
) -> None:
    found: list[Any] = []
    connection = connect()
    queue = kombu.Queue("mail.out", routing_key="mail.out")
    connection.Producer().publish({"a": 1}, routing_key="mail.out", declare=[queue], headers={"k": "v"})
    with consumer(connection, queue, found):
        drained(connection, lambda: bool(found))
    (body, message), *_ = found
    message.ack()
    assert (body, message.headers) == ({"a": 1}, {"k": "v"})
    assert message.delivery_info["routing_key"] == "mail.out"
    assert message.delivery_info["redelivered"] is False
    with Admin(rocketmq.namesrv, namespace="shop") as admin:
        assert "mail%2Eout" in admin.topics()


def test_what_is_requeued_comes_again_and_says_so(connect: Callable[..., Any]) -> None:
    connection = connect()
    with connection.SimpleQueue("again") as queue:
        queue.put({"a": 1})
        first = queue.get(timeout=TIMEOUT_S)
        first.requeue()
        second = queue.get(timeout=TIMEOUT_S)
        assert second.delivery_tag != first.delivery_tag
        assert second.delivery_info["redelivered"] is True
        second.ack()


def test_what_is_rejected_is_a_dead_letter_of_the_queue(
    connect: Callable[..., Any], rocketmq: RunningCluster
) -> None:
    connection = connect()
    with connection.SimpleQueue("orders") as queue:
        queue.put({"a": 1})
        queue.get(timeout=TIMEOUT_S).reject()
    connection.release()
    (letter,) = rocketmq.dead_letters("shop%CELERY_orders")
    assert letter.message.body == b'{"a": 1}'


def test_a_connection_that_closes_gives_back_what_it_holds(connect: Callable[..., Any]) -> None:
    found: list[Any] = []
    one, other = connect(), connect()
    queue = kombu.Queue("shared", routing_key="shared")
    producer = one.Producer()
    for number in range(6):
        producer.publish({"number": number}, routing_key="shared", declare=[queue])
    held: list[Any] = []
    taking = consumer(one, queue, held, prefetch_count=4)
    taking.consume()
    drained(one, lambda: bool(held))
    one.release()
    with consumer(other, queue, found):
        drained(other, lambda: len({each["number"] for each, _ in found}) == 6)


def test_no_more_messages_are_delivered_than_the_prefetch_count_allows(connect: Callable[..., Any]) -> None:
    found: list[Any] = []
    connection = connect()
    queue = kombu.Queue("few", routing_key="few")
    for number in range(5):
        connection.Producer().publish({"number": number}, routing_key="few", declare=[queue])
    with consumer(connection, queue, found, prefetch_count=2):
        drained(connection, lambda: len(found) == 2)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.3)
        assert len(found) == 2
        found[0][1].ack()
        drained(connection, lambda: len(found) == 3)


def test_a_message_that_is_held_for_long_stays_with_its_consumer(
    connect: Callable[..., Any], rocketmq: RunningCluster
) -> None:
    one, other = connect(invisible_s=1.0), connect()
    found: list[Any] = []
    others: list[Any] = []
    queue = kombu.Queue("long", routing_key="long")
    one.Producer().publish({}, routing_key="long", declare=[queue])
    with consumer(one, queue, found), consumer(other, queue, others):
        until = time.monotonic() + 3
        while time.monotonic() < until:
            for connection in (one, other):
                try:
                    connection.drain_events(timeout=0.2)
                except TimeoutError:
                    continue
    assert len(found) + len(others) == 1
    (found or others)[0][1].ack()
    one.release()
    other.release()
    rocketmq.advance(hours=1)
    assert queue(connect().default_channel).get() is None, "the newest receipt acknowledges it"


def test_a_signal_handler_may_close_a_connection_that_waits(connect: Callable[..., Any]) -> None:
    connection, found = connect(), list[Any]()
    queue = kombu.Queue("stopped", routing_key="stopped")
    connection.Producer().publish({}, routing_key="stopped", declare=[queue])
    consumer(connection, queue, found).consume()
    drained(connection, lambda: bool(found))

    def stop(*_: object) -> None:
        connection.release()
        raise SystemExit

    link = connection.connection.link
    wait = link.wait

    def stopped_meanwhile(left_s: float | None) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        wait(left_s)

    link.wait = stopped_meanwhile
    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(SystemExit):
            connection.drain_events()
    finally:
        signal.signal(signal.SIGUSR1, before)
    bound = queue(connect().default_channel)
    until = time.monotonic() + TIMEOUT_S
    while (again := bound.get()) is None:
        assert time.monotonic() < until, "it was not given back"
    again.ack()


def test_a_message_that_the_prefetch_count_leaves_out_is_waited_for_and_not_looked_at_again_and_again(
    connect: Callable[..., Any],
) -> None:
    connection, found = connect(), list[Any]()
    first, second = kombu.Queue("first", routing_key="first"), kombu.Queue("second", routing_key="second")
    with connection.Consumer([first, second], prefetch_count=2) as both:
        both.register_callback(lambda body, message: found.append(message))
        for number in range(2):
            connection.Producer().publish(number, routing_key="first")
        drained(connection, lambda: len(found) == 2)
        connection.Producer().publish(2, routing_key="second")  # for a pop that waited before
        link, looks = connection.connection.link, list[float]()
        drained(connection, lambda: bool(link.inflow.arrived))
        wait = link.wait

        def counted(left_s: float) -> None:
            looks.append(left_s)
            wait(left_s)

        link.wait = counted
        with pytest.raises(TimeoutError):
            connection.drain_events(timeout=0.3)
        assert len(looks) < 20
        found[0].ack()
        drained(connection, lambda: len(found) == 3)
        for each in found[1:]:
            each.ack()


def test_a_property_that_amqp_does_not_know_is_not_sent(connect: Callable[..., Any]) -> None:
    found: list[Any] = []
    connection = connect()
    queue = kombu.Queue("signed", routing_key="signed")
    connection.Producer().publish(
        {}, routing_key="signed", declare=[queue], correlation_id="c-1", signal=object()
    )
    with consumer(connection, queue, found):
        drained(connection, lambda: bool(found))
    properties = found[0][1].properties
    assert properties["correlation_id"] == "c-1"
    assert "signal" not in properties


def test_higher_priorities_come_first(connect: Callable[..., Any]) -> None:
    connection = connect()
    with connection.SimpleQueue("ranked", queue_opts={"max_priority": 9}) as queue:
        for priority in (1, 9, 5):
            queue.put(priority, priority=priority)
        bodies = []
        for _ in range(3):
            message = queue.get(timeout=TIMEOUT_S)
            bodies.append(message.payload)
            message.ack()
    assert bodies == [9, 5, 1]


def test_every_process_that_is_bound_to_a_fanout_exchange_gets_a_copy(connect: Callable[..., Any]) -> None:
    exchange = kombu.Exchange("news", type="fanout")
    found: list[Any] = []
    sender = connect()
    sender.Producer(exchange=exchange).publish("before", declare=[exchange])
    readers = [connect() for _ in range(2)]
    consumers = [
        consumer(each, kombu.Queue(f"reader{number}", exchange, auto_delete=True), found, no_ack=True)
        for number, each in enumerate(readers)
    ]
    for each in consumers:
        each.consume()
    sender.Producer(exchange=exchange).publish("news", declare=[exchange])
    drained(readers[0], lambda: len(found) == 1)
    drained(readers[1], lambda: len(found) == 2)
    assert [body for body, _ in found] == ["news", "news"]


def test_a_reply_reaches_the_private_queue_of_another_connection(connect: Callable[..., Any]) -> None:
    found: list[Any] = []
    asker, worker = connect(), connect()
    name = str(uuid4())
    queue = kombu.Queue(name, kombu.Exchange(""), routing_key=name, durable=False, auto_delete=True)
    queue(asker.default_channel).declare()
    worker.Producer().publish("early", routing_key=name)
    with consumer(asker, queue, found, no_ack=True):
        worker.Producer().publish("late", routing_key=name)
        worker.Producer().publish("not ours", routing_key=str(uuid4()))
        drained(asker, lambda: len(found) == 2)
    assert [body for body, _ in found] == ["early", "late"]


def test_a_reply_between_a_second_declaration_and_its_consumer_is_not_lost(
    connect: Callable[..., Any],
) -> None:
    found: list[Any] = []
    asker, worker = connect(), connect()
    names = [str(uuid4()), str(uuid4())]
    asking, other = [kombu.Queue(name, kombu.Exchange(""), routing_key=name) for name in names]
    with consumer(asker, asking, found, no_ack=True):
        worker.Producer().publish("first", routing_key=names[0])
        drained(asker, lambda: len(found) == 1)
    worker.Producer().publish("between", routing_key=names[0])
    with consumer(asker, other, found, no_ack=True):
        worker.Producer().publish("other", routing_key=names[1])
        drained(asker, lambda: len(found) == 2)
        asking(asker.default_channel).declare()
        worker.Producer().publish("second", routing_key=names[0])
        worker.Producer().publish("other", routing_key=names[1])
        drained(asker, lambda: len(found) == 3)
        with consumer(asker, asking, found, no_ack=True):
            drained(asker, lambda: len(found) == 4)
    assert [body for body, _ in found] == ["first", "other", "other", "second"]


def test_a_reply_can_be_asked_for_also_while_another_connection_consumes_the_queue(
    connect: Callable[..., Any],
) -> None:
    asker, consuming, worker = connect(), connect(), connect()
    name = str(uuid4())
    queue = kombu.Queue(name, kombu.Exchange(""), routing_key=name, durable=False, auto_delete=True)
    asked = queue(asker.default_channel)
    asked.declare()
    assert asked.get() is None
    worker.Producer().publish("one", routing_key=name)
    worker.Producer().publish("two", routing_key=name)
    first = awaited(asked)
    first.requeue()
    assert awaited(asked).payload == "one"
    second = awaited(asked)
    assert second.payload == "two"
    second.requeue()
    found: list[Any] = []
    with consumer(consuming, queue, found, no_ack=True):
        drained(consuming, lambda: len(found) == 1)
        worker.Producer().publish("three", routing_key=name)
        assert awaited(asked).payload == "three"
    assert [body for body, _ in found] == ["two"]


def awaited(queue: Any) -> Any:
    until = time.monotonic() + TIMEOUT_S
    while (message := queue.get()) is None:
        assert time.monotonic() < until, "nothing has come"
        time.sleep(0.01)
    return message


def test_a_topic_exchange_without_queues_here_is_read_by_patterns_elsewhere(
    connect: Callable[..., Any],
) -> None:
    exchange = kombu.Exchange("celeryev", type="topic")
    found: list[Any] = []
    monitor, worker = connect(), connect()
    queue = kombu.Queue(f"celeryev.{uuid4()}", exchange, routing_key="task.#", auto_delete=True)
    with consumer(monitor, queue, found, no_ack=True):
        producer = worker.Producer(exchange=exchange)
        producer.publish("beat", routing_key="worker.heartbeat", declare=[exchange])
        producer.publish("sent", routing_key="task.sent", declare=[exchange])
        drained(monitor, lambda: bool(found))
    assert [body for body, _ in found] == ["sent"]


@pytest.mark.parametrize("max_delay_s", [60.0, 1.0])
def test_a_task_with_an_eta_waits_at_the_broker_if_need_be_in_several_steps(
    connect: Callable[..., Any], max_delay_s: float
) -> None:
    found: list[Any] = []
    connection = connect(max_delay_s=max_delay_s)
    queue = kombu.Queue("later", routing_key="later")
    eta = datetime.now(UTC) + timedelta(seconds=2.5)
    producer = connection.Producer()
    producer.publish("late", routing_key="later", declare=[queue], headers={"eta": eta.isoformat()})
    producer.publish("early", routing_key="later", declare=[queue])
    with consumer(connection, queue, found, no_ack=True):
        drained(connection, lambda: bool(found))
        assert found[0][0] == "early"
        drained(connection, lambda: len(found) == 2)
        assert datetime.now(UTC) >= eta - timedelta(seconds=1)


def test_a_worker_is_woken_again_although_a_message_came_while_it_woke_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyromq.celery.transport import Transport

    reading, writing = socket.socketpair()
    wakes: list[Callable[[], None]] = []
    delivers: list[Callable[[], None]] = []

    class ReadingMeanwhile:
        """A message comes just before the socket is read."""

        setblocking = reading.setblocking

        def recv(self, size: int) -> bytes:
            wakes[0]()
            return reading.recv(size)

    monkeypatch.setattr(socket, "socketpair", lambda: (ReadingMeanwhile(), writing))
    transport = Transport(kombu.Connection("rocketmq://127.0.0.1:1"))
    link: Any = SimpleNamespace(on_arrival=wakes.append, inflow=SimpleNamespace(arrived=deque()))
    transport.link = link
    hub = SimpleNamespace(add_reader=lambda _, deliver: delivers.append(deliver), on_tick=set())
    transport.register_with_event_loop(None, hub)
    delivers[0]()
    wakes[0]()
    with reading, writing:
        assert select.select([reading], [], [], 0)[0]


def test_a_purge_says_how_many_messages_it_has_removed(connect: Callable[..., Any]) -> None:
    connection = connect()
    queue = kombu.Queue("full", routing_key="full")
    for number in range(40):
        connection.Producer().publish(number, routing_key="full", declare=[queue])
    bound = queue(connection.default_channel)
    assert bound.queue_declare(passive=True).message_count == 40
    assert bound.purge() == 40
    assert bound.get() is None


def test_a_purge_counts_what_has_arrived_and_was_not_delivered(connect: Callable[..., Any]) -> None:
    connection = connect()
    queue = connection.SimpleQueue("cleared")
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.1)  # it consumes from now on
    for number in range(7):
        queue.put(number)
    arrived = connection.default_channel.link.inflow.arrived
    until = time.monotonic() + TIMEOUT_S
    while len(arrived) < 7:
        assert time.monotonic() < until, "nothing has come"
        time.sleep(0.01)
    assert queue.clear() == 7
    with pytest.raises(queue.Empty):
        queue.get(timeout=0.1)


def test_a_queue_that_was_never_declared_is_not_found(connect: Callable[..., Any]) -> None:
    queue = kombu.Queue("unknown")(connect().default_channel)
    with pytest.raises(kombu.exceptions.ChannelError, match="no queue 'unknown'"):
        queue.queue_declare(passive=True)
    queue.declare()
    assert queue.queue_declare(passive=True).message_count == 0


@pytest.mark.parametrize("name", ["a.b:c@host/d", "with space", "ümläut 漢字", "Upper", "upper", "x" * 200])
def test_a_queue_may_have_any_name(connect: Callable[..., Any], name: str) -> None:
    queue = connect().SimpleQueue(name)
    queue.put(name)
    message = queue.get(timeout=TIMEOUT_S)
    assert message.payload == name
    message.ack()


def test_what_is_not_a_message_of_kombu_is_a_dead_letter_and_stops_nothing(
    connect: Callable[..., Any], rocketmq: RunningCluster, error_logs: Any
) -> None:
    connection = connect()
    queue = connection.SimpleQueue("strangers")
    queue.put("ours")
    queue.get(timeout=TIMEOUT_S).ack()
    with Producer("strangers", rocketmq.namesrv, namespace="shop") as producer:
        for properties in (
            {"kombu": "{no json"},
            {"kombu": "[]"},
            {"kombu-head": "x"},
            {"kombu": '{"x": 1}'},
        ):
            producer.send(Message("strangers", b"{}", properties=properties))
    queue.put("ours again")
    message = queue.get(timeout=TIMEOUT_S)
    assert message.payload == "ours again"
    message.ack()
    until = time.monotonic() + TIMEOUT_S
    while len(rocketmq.dead_letters("shop%CELERY_strangers")) < 4:
        assert time.monotonic() < until, "they are not dead letters"
        time.sleep(0.05)
    error_logs.expect_repeatedly("not a message of kombu")


def test_a_message_without_a_body_arrives(connect: Callable[..., Any]) -> None:
    queue = connect().SimpleQueue("empty")
    queue.put("", headers={"kind": "nothing"})
    message = queue.get(timeout=TIMEOUT_S)
    assert (message.body, message.headers["kind"]) == (b"", "nothing")
    message.ack()


@pytest.mark.parametrize(
    ("url", "namesrv", "namespace"),
    [
        ("rocketmq://ns1:1234,ns2:9876/shop", ("ns1:1234", "ns2:9876"), "shop"),
        ("rocketmq://key:a%2Fb@ns1,ns2:1234/shop/?invisible_s=5", ("ns1:9876", "ns2:1234"), "shop"),
        ("rocketmq://ns1//", ("ns1:9876",), None),
        ("rocketmq://", ("127.0.0.1:9876",), None),
    ],
)
def test_a_url_may_leave_out_ports_and_the_namespace(
    url: str, namesrv: tuple[str, ...], namespace: str | None
) -> None:
    from pyromq.celery.options import target_of

    settings = target_of(kombu.Connection(url)).settings
    assert (settings.namesrv, settings.namespace) == (namesrv, namespace)


def test_a_cluster_that_is_away_fails_to_connect(connect: Callable[..., Any]) -> None:
    import kombu.serialization

    with pytest.raises(TransportError):
        kombu.Connection("rocketmq://127.0.0.1:1").connect()


def test_no_one_sees_the_secret_of_a_url() -> None:
    import kombu.serialization

    connection = kombu.Connection("rocketmq://key:hidden@ns1:9876,ns2:9876/shop?invisible_s=5")
    assert connection.as_uri() == "rocketmq://key:**@ns1:9876,ns2:9876/shop?invisible_s=5"
    assert "hidden" not in str({k: v for k, v in connection.info().items() if k != "password"})
    assert connection.clone().as_uri(include_password=True).startswith("rocketmq://key:hidden@ns1:9876,ns2")


def test_a_value_that_an_option_cannot_have_is_named() -> None:
    import kombu.serialization

    from pyromq.errors import ConfigError

    with pytest.raises(ConfigError, match="invisible_s"):
        kombu.Connection("rocketmq://ns:9876", transport_options={"invisible_s": "soon"}).connect()


def test_a_misspelt_option_of_a_url_is_refused_with_the_right_one() -> None:
    import kombu.serialization

    from pyromq.errors import ConfigError

    with pytest.raises(ConfigError, match="did you mean 'invisible_s'"):
        kombu.Connection("rocketmq://ns:9876/shop?invisble_s=5").connect()


def test_options_of_another_broker_are_told_once_and_those_of_kombu_are_its_own(
    connect: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    foreign = {"visibility_timeout": 3600, "max_retries": 3, "interval_start": 0}
    links = [connect(**foreign).default_channel.link for _ in range(2)]
    assert caplog.text.count("visibility_timeout") == 1
    assert "max_retries" not in caplog.text
    assert links[0].target.options.max_redeliveries == 100


def test_tasks_with_one_order_key_come_one_after_the_other(connect: Callable[..., Any]) -> None:
    connection = connect()
    queue = kombu.Queue("ordered", routing_key="ordered", queue_arguments={"x-ordered": True})
    producer = connection.Producer()
    for number in range(9):
        headers = {"order_key": f"customer-{number % 3}"}
        producer.publish(number, routing_key="ordered", declare=[queue], headers=headers)
    found: list[Any] = []
    held: dict[int, Any] = {}
    made = kombu.Consumer(connection, [queue], accept=["json"], prefetch_count=4)

    def take(body: int, message: Any) -> None:
        assert body % 3 not in held, "a task of this customer is not done"
        found.append(body)
        held[body % 3] = message

    made.register_callback(take)
    with made:
        while len(found) < 9:
            count = len(found)
            drained(connection, partial(has_more, found, count))
            held.pop(next(iter(held))).ack()
    for customer in range(3):
        assert [each for each in found if each % 3 == customer] == [customer, customer + 3, customer + 6]


def test_a_revoked_task_that_waits_at_the_broker_is_taken_back(tmp_path: Path) -> None:
    celery = pytest.importorskip("celery")
    found: list[Any] = []
    with cluster(tmp_path, recalls=True) as running:
        url = f"rocketmq://{running.namesrv}/shop"
        app = celery.Celery("asks", broker=url, broker_transport_options={"recall": True})
        revoked, kept = [
            app.send_task("send", (number,), queue="mail", countdown=4 + number) for number in range(2)
        ]
        app.control.revoke([revoked.id, str(uuid4())])
        with kombu.Connection(url) as connection:
            queue = kombu.Queue("mail", routing_key="mail")
            with consumer(connection, queue, found, no_ack=True):
                drained(connection, lambda: any(message.headers["id"] == kept.id for _, message in found))
        app.close()
    expired, on_time = [message.headers for _, message in found]
    assert (expired["id"], expired["eta"]) == (revoked.id, None)
    assert datetime.fromisoformat(expired["expires"]) <= datetime.now(UTC)
    assert (on_time["id"], on_time["expires"]) == (kept.id, None)


def test_a_task_goes_with_the_transaction_of_django_that_sends_it(connect: Callable[..., Any]) -> None:
    pytest.importorskip("django_tasks")
    from tests.support.django_project import set_up

    set_up()
    from django.db import transaction

    found: list[Any] = []
    connection = connect(transactional=True)
    queue = kombu.Queue("bills", routing_key="bills")
    producer = connection.Producer()

    def publish(body: str, **headers: str) -> None:
        producer.publish(body, routing_key="bills", declare=[queue], headers=headers)

    def fails() -> None:
        publish("rolled back")
        raise KeyError

    with suppress(KeyError), transaction.atomic():
        fails()
    eta = datetime.now(UTC) + timedelta(seconds=2)
    with consumer(connection, queue, found, no_ack=True):
        with transaction.atomic():
            publish("timed", eta=eta.isoformat())
            publish("committed")
            publish_again = connect().Producer()
            publish_again.publish("without", routing_key="bills")
            drained(connection, lambda: bool(found))
            assert [body for body, _ in found] == ["without"]
        drained(connection, lambda: len(found) == 3)
        assert datetime.now(UTC) >= eta - timedelta(seconds=1)
    # On a busy machine the time may come before the commit.
    assert sorted(body for body, _ in found[1:]) == ["committed", "timed"]


def test_a_large_task_is_given_back_and_delayed_again_like_any_other(tmp_path: Path) -> None:
    import kombu.serialization

    size = 6 * 1024 * 1024
    options = {"max_message_bytes": size, "max_delay_s": 1.0}
    with cluster(tmp_path, max_message_bytes=size) as running:
        connection = kombu.Connection(f"rocketmq://{running.namesrv}", transport_options=options)
        queue = kombu.Queue("large", routing_key="large", max_priority=3)
        eta = (datetime.now(UTC) + timedelta(seconds=2.5)).isoformat()
        body = "x" * (5 * 1024 * 1024)
        producer = connection.Producer()
        producer.publish(body, routing_key="large", declare=[queue], headers={"eta": eta})
        found: list[Any] = []
        with consumer(connection, queue, found):
            drained(connection, lambda: len(found) == 1)
            found[0][1].requeue()
            drained(connection, lambda: len(found) == 2)
            found[1][1].ack()
        connection.release()
    assert [len(each) for each, _ in found] == [len(body)] * 2


def test_a_result_is_stored_although_the_cluster_was_away(
    rocketmq: RunningCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from celery import Celery

    backend = Celery("results", backend=f"rocketmq://{rocketmq.namesrv}/results").backend
    connected = backend._connected
    refused: list[ConnectFailed] = []

    def connecting() -> Any:
        if not refused:
            refused.append(ConnectFailed("the broker restarts"))
            raise refused[0]
        return connected()

    monkeypatch.setattr(backend, "_connected", connecting)
    backend.store_result("task-1", 42, "SUCCESS")
    assert backend.get_task_meta("task-1")["result"] == 42
    assert caplog.text.count("it is tried again") == 1
    assert backend.exception_safe_to_retry(refused[0])
    assert not backend.exception_safe_to_retry(ValueError("not JSON"))


def test_a_result_that_expired_is_not_there(
    rocketmq: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery import Celery

    # Options of the transport may be in the URL: a broker's URL serves results, too.
    app = Celery(backend=f"rocketmq://{rocketmq.namesrv}/shop?invisible_s=5")
    for expires, state in ((60, "PENDING"), (None, "SUCCESS")):
        app.conf.result_expires = app.backend.expires = expires
        app.backend.store_result("short", 1, "SUCCESS")
        assert app.AsyncResult("short").state == "SUCCESS"
        with monkeypatch.context() as later:
            now = time.time()
            later.setattr("pyromq.celery.results.time", SimpleNamespace(time=lambda now=now: now + 120))
            assert app.AsyncResult("short").state == state
    for client in app.backend._connected():
        client.close()
    app.close()


def test_a_task_for_an_exchange_goes_to_the_queues_that_the_application_binds_to_it(
    connect: Callable[..., Any], rocketmq: RunningCluster
) -> None:
    from celery import Celery

    exchange = kombu.Exchange("news", "topic")
    app = Celery(broker=f"rocketmq://{rocketmq.namesrv}/shop")
    app.conf.task_queues = [
        kombu.Queue("all-news", exchange, routing_key="#"),
        kombu.Queue("sport-news", exchange, routing_key="sport.*"),
        kombu.Queue("home-news", exchange, routing_key="home.*"),
    ]
    app.send_task("shop.print", exchange="news", routing_key="sport.golf")
    app.pool.force_close_all()
    app.close()
    for name, expected in (("all-news", 1), ("sport-news", 1), ("home-news", 0)):
        queue = connect().SimpleQueue(name)
        found: list[Any] = []
        with suppress(queue.Empty):
            found.append(queue.get(timeout=TIMEOUT_S if expected else 0.2))
        assert [each.headers["task"] for each in found] == ["shop.print"] * expected
