"""The values of the public face, and names with and without their namespace."""

import pickle

import pytest

from pyromq.client.blocking import Producer
from pyromq.client.consumer.blocking import PullConsumer, PushConsumer
from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
from pyromq.client.consumer.reading.popping import PoppedMessage
from pyromq.client.namespaces import unwrap, wrap
from pyromq.client.values import Message, MessageQueue, ReceivedMessage, SendResult, SendStatus
from pyromq.errors import CallTimeout, ConfigError, NoRoute, PyroError, Refused, SendFailed, StateError
from pyromq.protocol.pop_receipt import PopReceipt
from pyromq.protocol.record import Host, StoredMessage

QUEUE = MessageQueue("Orders", "broker-a", 3)


def stored(**fields: object) -> StoredMessage:
    values: dict[str, object] = {
        "topic": "blue%Orders",
        "body": b"hello",
        "properties": b"TAGS\x01Created\x02KEYS\x01o-1 o-2\x02UNIQ_KEY\x01ABC\x02colour\x01red\x02",
        "queue_offset": 7,
        "log_offset": 255,
        "store_host": Host.of("127.0.0.1", 10911),
        "born_host": Host.of("10.0.0.1", 5),
        "born_timestamp": 1,
        "store_timestamp": 2,
        "reconsume_times": 4,
        "flag": 9,
    }
    return StoredMessage(**values | fields)  # type: ignore[arg-type]


def test_a_message_shows_what_it_is() -> None:
    message = Message("Orders", b"hello", tags="Created", keys=["o-1"], properties={"a": "b"})
    assert repr(message) == "Message('Orders', b'hello', tags='Created', keys=['o-1'], properties={'a': 'b'})"
    assert repr(Message("Orders", b"x" * 100)) == f"Message('Orders', {b'x' * 32!r}… 100 bytes)"


@pytest.mark.parametrize(
    ("options", "is_delayed"),
    [({}, False), ({"delay_level": 1}, True), ({"delay_ms": 0}, True), ({"deliver_at_ms": 5}, True)],
)
def test_a_message_knows_whether_it_waits(options: dict[str, int], is_delayed: bool) -> None:
    assert Message("Orders", b"x", **options).is_delayed is is_delayed  # type: ignore[arg-type]


def test_a_received_message_is_a_view_of_the_stored_one() -> None:
    message = ReceivedMessage(stored(), QUEUE, "Orders")
    assert (message.topic, message.body, message.tags, message.keys) == (
        "Orders",
        b"hello",
        "Created",
        ("o-1", "o-2"),
    )
    assert message.properties["colour"] == message.get("colour") == "red"
    assert message.message_id == "ABC"
    assert message.offset_message_id == "7F00000100002A9F00000000000000FF"
    assert (message.queue, message.queue_offset, message.reconsume_times) == (QUEUE, 7, 4)
    assert (message.born_ms, message.stored_ms, message.flag) == (1, 2, 9)
    assert (str(message.born_host), str(message.store_host)) == ("10.0.0.1:5", "127.0.0.1:10911")
    assert repr(message) == (
        "<ReceivedMessage Orders ABC Orders@broker-a:3 offset=7 tags='Created' body=b'hello'>"
    )


def test_a_received_message_without_properties() -> None:
    message = ReceivedMessage(stored(properties=b""), QUEUE)
    assert (message.topic, message.tags, message.keys, message.properties) == ("blue%Orders", None, (), {})
    assert message.message_id == message.offset_message_id


def test_a_result_says_where_the_message_is() -> None:
    result = SendResult(SendStatus.SEND_OK, "ABC", "DEF", QUEUE, 12)
    assert result.is_ok
    assert repr(result) == "SendResult(SEND_OK, ABC, queue=Orders@broker-a:3, offset=12)"
    assert not SendResult(SendStatus.FLUSH_DISK_TIMEOUT, "ABC", "DEF", QUEUE, 12).is_ok


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        ("Orders", "blue%Orders"),
        ("%RETRY%billing", "%RETRY%blue%billing"),
        ("%DLQ%billing", "%DLQ%blue%billing"),
        ("blue%Orders", "blue%Orders"),
        ("%RETRY%blue%billing", "%RETRY%blue%billing"),
    ],
)
def test_a_namespace_stands_in_front_but_behind_prefixes(name: str, wrapped: str) -> None:
    assert wrap(name, "blue") == wrapped
    assert unwrap(wrapped, "blue") == unwrap(name, "blue")
    assert unwrap(wrapped, "green") == wrapped
    assert wrap(name, None) == name
    assert unwrap(wrapped, None) == wrapped


@pytest.mark.parametrize(
    "name",
    ["TBW102", "rmq_sys_x", "RMQ_SYS_TRACE_TOPIC", "CID_RMQ_SYS_x", "TOOLS_CONSUMER", "c_REPLY_TOPIC", ""],
)
def test_what_belongs_to_the_system_has_no_namespace(name: str) -> None:
    assert wrap(name, "blue") == name


@pytest.mark.parametrize(
    "error",
    [
        CallTimeout("no answer"),
        ConfigError("retries", -1, "a number from 0 up"),
        NoRoute("Orders", "127.0.0.1:9876"),
        Refused(29, "no such queue"),
        SendFailed("a message to Orders", ["broker-a: no answer"]),
        StateError("not now"),
    ],
)
def test_errors_travel_between_processes(error: PyroError) -> None:
    error.add_note("2 of 3 messages of the batch were stored before")
    arrived = pickle.loads(pickle.dumps(error))
    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))


def test_a_popped_message_travels_with_its_receipt() -> None:
    receipt = PopReceipt(0, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 1, 7)
    queue = MessageQueue("Orders", "broker-a", 1)
    message = PoppedMessage(StoredMessage("Orders", b"...", b""), queue, None, receipt)
    arrived = pickle.loads(pickle.dumps(message))
    assert (arrived.body, arrived.queue, arrived.receipt) == (b"...", queue, receipt)


@pytest.mark.parametrize("wish", [RetryLater("soon", delay_level=3), GiveUp("never")])
def test_wishes_of_handlers_travel_between_processes(wish: RetryLater) -> None:
    arrived = pickle.loads(pickle.dumps(wish))
    assert (type(arrived), str(arrived), arrived.delay_level) == (type(wish), str(wish), wish.delay_level)


@pytest.mark.parametrize("kind", [Producer, PushConsumer, PullConsumer])
def test_clients_say_that_they_do_not_travel(kind: type[Producer | PushConsumer | PullConsumer]) -> None:
    with pytest.raises(TypeError, match="create a new one in the other process"):
        pickle.dumps(kind("orders", "127.0.0.1:9876"))
