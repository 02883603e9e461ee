"""Values as bodies, and bodies as values; handlers of typed bodies."""

import asyncio
import inspect
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.held_messages import a_message

from pyromq import JSON, MSGPACK, BadBody, BadMessage, Codec, Message, ReceivedMessage, Router, typed
from pyromq.aio import GiveUp, Producer, PushConsumer, RetryLater
from pyromq.errors import ConfigError


class Order(msgspec.Struct):
    id: int
    price: float = 0.0


@dataclass
class Payment:
    id: int
    at: datetime


class Customer(pydantic.BaseModel):
    name: str
    age: int = 0


def received(body: bytes) -> ReceivedMessage:
    return a_message(7, body)


@pytest.mark.parametrize(
    "value",
    [
        Order(1, 2.5),
        Payment(1, datetime(2030, 1, 2, tzinfo=UTC)),
        Customer(name="Ada"),
        {"a": [1, None, "ü"]},
        "text",
        0,
    ],
)
@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_a_value_becomes_a_body_and_the_same_value_again(value: Any, codec: Codec) -> None:
    fields: Any = {"tags": "New", "keys": ["o-1"], "properties": {"p": "q"}, "delay_level": 3}
    message = Message.of("Orders", value, codec=codec, **fields)
    assert message == Producer("tills", "a:1", codec=codec).message("Orders", value, **fields)
    assert type(message.body) is bytes
    assert message == Message("Orders", message.body, "New", ["o-1"], {"p": "q"}, 3)
    assert received(message.body).decode(type(value), codec=codec) == value


def test_the_body_is_plain_json() -> None:
    assert Message.of("Orders", Order(1, 2.5)).body == b'{"id":1,"price":2.5}'
    assert received(b'{"id":1}').decode() == {"id": 1}
    assert received(b"[1]").decode(list[int]) == [1]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"x", r"the value is bytes already: send Message\(topic, body\)"),
        (object(), "a object cannot be encoded as JSON: use a msgspec.Struct, a dataclass"),
        ({1: object()}, "a dict cannot be encoded"),
    ],
)
def test_a_value_that_is_no_json_is_refused_when_the_message_is_made(value: object, complaint: str) -> None:
    with pytest.raises(BadMessage, match=complaint):
        Message.of("Orders", value)


@pytest.mark.parametrize(
    ("body", "type_", "complaint"),
    [
        (
            b"not json",
            Order,
            r"the body of Orders \w+ does not fit Order: JSON is malformed.*; it is b'not json'",
        ),
        (b"{}", Order, "missing required field `id`"),
        (b'{"id":"x"}', Order, r"Expected `int`, got `str` - at `\$.id`"),
        (b"\xff\xfe", str, "does not fit str"),
        (b'{"name":5}', Customer, "does not fit Customer.*valid string"),
        (b"[" * 10_000, Order, "does not fit Order"),
        (b"x" * 100, Order, r"b'x{64}'…"),
    ],
)
def test_a_body_of_another_kind_is_an_error_that_shows_it(body: bytes, type_: Any, complaint: str) -> None:
    with pytest.raises(BadBody, match=f"(?s){complaint}"):
        received(body).decode(type_)


@settings(max_examples=examples(100))
@given(st.binary())
def test_any_bytes_are_a_value_or_a_bad_body(body: bytes) -> None:
    for type_ in (Order, Payment, dict):
        with suppress(BadBody):
            assert isinstance(received(body).decode(type_), type_)


@pytest.mark.parametrize("codec", [JSON, MSGPACK])
def test_a_protobuf_message_has_its_own_form(codec: Codec) -> None:
    value = StringValue(value="ü")
    message = Message.of("Orders", value, codec=codec)
    assert message.body == value.SerializeToString()
    assert received(message.body).decode(StringValue, codec=codec) == value
    with pytest.raises(BadBody, match="does not fit StringValue"):
        received(b"\xff").decode(StringValue, codec=codec)


class Lines:
    """A codec of an application: lines of text."""

    def encode(self, value: object) -> bytes:
        if not isinstance(value, list):
            raise TypeError("lines are a list")
        return "\n".join(value).encode()

    def decode(self, body: bytes, type_: Any) -> Any:
        if body == b"the registry is away":
            raise ConnectionError(body.decode())
        return body.decode().split("\n")


def test_a_codec_can_be_the_applications_own() -> None:
    assert Message.of("Orders", ["a", "b"], codec=Lines()).body == b"a\nb"
    assert received(b"a\nb").decode(list, codec=Lines()) == ["a", "b"]
    with pytest.raises(BadMessage, match="lines are a list"):
        Message.of("Orders", 5, codec=Lines())
    with pytest.raises(BadBody, match="utf-8"):
        received(b"\xff").decode(list, codec=Lines())
    with pytest.raises(ConnectionError):  # a retry may help
        received(b"the registry is away").decode(list, codec=Lines())
    with pytest.raises(ConfigError, match="an object with `encode` and `decode`"):
        Producer("tills", "a:1", codec="json")  # type: ignore[arg-type]


# Handlers


def handler_at(consumer: PushConsumer) -> Any:
    """What the consumer calls for the topic Orders."""
    handler: Any = consumer._handlers.find(received(b""))
    return handler.function


async def test_the_codec_of_a_handler_goes_before_that_of_its_router_and_that_before_the_consumers() -> None:
    orders: list[Order] = []

    def take(order: Order) -> None:
        orders.append(order)

    as_json, as_msgpack = (received(Message.of("T", Order(7), codec=codec).body) for codec in (JSON, MSGPACK))

    def consumer(codec: Codec = JSON) -> PushConsumer:
        return PushConsumer("billing", "a:1", codec=codec)

    plain = consumer()
    plain.subscribe("Orders", "*", typed(Order)(take))
    handler_at(plain)(as_json)
    by_consumer = consumer(MSGPACK)
    by_consumer.subscribe("Orders", "*", typed(Order)(take))
    handler_at(by_consumer)(as_msgpack)
    router = Router(codec=MSGPACK)
    router.on("Orders")(typed(Order)(take))
    by_router = consumer(JSON)
    by_router.include(router)
    handler_at(by_router)(as_msgpack)
    by_handler = consumer(JSON)
    by_handler.subscribe("Orders", "*", typed(Order, codec=MSGPACK)(take))
    handler_at(by_handler)(as_msgpack)
    assert orders == [Order(7)] * 4
    with pytest.raises(BadBody):
        handler_at(by_consumer)(as_json)


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_typed_batch_has_a_value_for_each_message_and_gives_up_those_without(is_async: bool) -> None:
    calls: list[Any] = []
    problem: BaseException | None = None

    def take(orders: list[Order], messages: list[ReceivedMessage]) -> None:
        calls.append(([order.id for order in orders], [message.body for message in messages]))
        if problem is not None:
            raise problem

    async def take_async(orders: list[Order], messages: list[ReceivedMessage]) -> None:
        await asyncio.sleep(0)
        take(orders, messages)

    handler = typed(list[Order])(take_async if is_async else take)

    async def handle(*batch: ReceivedMessage) -> None:
        outcome: Any = handler(list(batch))
        if is_async:
            await outcome

    one, bad, two = received(b'{"id":1}'), received(b"?"), received(b'{"id":2}')
    await handle(one, two)
    with pytest.raises(GiveUp, match="does not fit Order") as given_up:
        await handle(one, bad, two)
    assert given_up.value.only == [bad]
    with pytest.raises(GiveUp):
        await handle(bad)
    assert calls == [([1, 2], [one.body, two.body])] * 2
    problem = RetryLater(only=[two])
    with pytest.raises(RetryLater) as later:
        await handle(one, bad, two)
    assert later.value.only == [two, bad], "it is not handled, and comes again"
    problem = ValueError("all of them")
    with pytest.raises(ValueError, match="all of them"):
        await handle(one, bad)
    with pytest.raises(TypeError, match=r"typed must take a list, as in list\[Order\]"):
        typed(Order)(calls.append)([one])  # type: ignore[arg-type]


async def test_a_typed_handler_gets_the_value_and_the_message_if_it_wants_it() -> None:
    calls: list[object] = []

    @typed(Order)
    def plain(order: Order, message: ReceivedMessage) -> None:
        calls.append((order.id, message.body))

    @typed(Order)
    async def asynchronous(order: Order) -> None:
        await asyncio.sleep(0)
        calls.append(order.id)

    message = received(b'{"id":7}')
    plain(message)
    await asynchronous(message)
    assert calls == [(7, message.body), 7]
    assert inspect.iscoroutinefunction(asynchronous)
    assert (plain.__name__, list(inspect.signature(plain).parameters)) == ("plain", ["message"])
    consumer = PushConsumer("billing", "a:1")
    consumer.subscribe("Orders", "*", plain)
    consumer.on("Payments")(asynchronous)


async def test_a_typed_handler_fails_for_a_body_that_it_cannot_take() -> None:
    called: list[Order] = []
    with pytest.raises(BadBody, match="does not fit Order"):
        typed(Order)(called.append)(received(b"?"))
    assert called == []


def test_what_cannot_be_typed_is_told_at_once() -> None:
    with pytest.raises(TypeError, match="typed takes a function of a body, and perhaps a message, not"):
        typed(Order)(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="typed takes a function"):
        typed(Order)("handler")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        typed(list[Order, int])  # type: ignore[misc]


def test_type_checkers_know_what_a_typed_handler_takes() -> None:
    def takes_payment(payment: Payment) -> None: ...

    typed(Payment)(takes_payment)
    typed(Order)(takes_payment)  # type: ignore[arg-type]
    value: Order = received(b'{"id":1}').decode(Order)
    wrong: Payment = received(b'{"id":1}').decode(Order)  # type: ignore[assignment]
    assert value.id == wrong.id
