"""Values as JSON bodies, and bodies as values; handlers of typed bodies."""

import asyncio
import inspect
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.chance import examples
from tests.support.held_messages import a_message

from pyromq import BadBody, BadMessage, Message, ReceivedMessage, typed
from pyromq.aio import PushConsumer


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
def test_a_value_becomes_a_body_and_the_same_value_again(value: Any) -> None:
    message = Message.of("Orders", value, tags="New", keys=["o-1"], properties={"p": "q"}, delay_level=3)
    assert type(message.body) is bytes
    assert message == Message("Orders", message.body, "New", ["o-1"], {"p": "q"}, 3)
    assert received(message.body).decode(type(value)) == value


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


# Handlers


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
