"""Mistakes of programs that use consumers are found when they are made, not at the first message.

The comments for the type checker are part of it: it complains of one that is not needed.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from pyromq.aio import PullConsumer, PushConsumer, SimpleConsumer
from pyromq.client.consumer import blocking
from pyromq.client.consumer.handling.outcomes import RetryLater
from pyromq.client.consumer.reading.subscriptions import Sql
from pyromq.client.values import ReceivedMessage
from pyromq.errors import BadExpression, ConfigError, StateError


def takes_nothing() -> None: ...


def takes_two(message: ReceivedMessage, more: int) -> None: ...


def takes_text(text: str) -> None: ...


def yields(message: ReceivedMessage) -> Iterator[None]:
    yield


async def yields_later(message: ReceivedMessage) -> AsyncIterator[None]:
    yield


class Counting:
    def handle(self, message: ReceivedMessage) -> None: ...

    async def handle_all(self, messages: list[ReceivedMessage]) -> None: ...

    def __call__(self, message: ReceivedMessage, more: int = 0) -> None: ...


@pytest.mark.parametrize(
    "handler", ["handle", 5, takes_nothing, takes_two, Counting.handle, yields, yields_later]
)
def test_a_handler_that_cannot_take_a_message_is_refused_at_once(handler: Any) -> None:
    consumer = PushConsumer("billing", "a:1")
    with pytest.raises(TypeError, match="a handler must be a function that takes a message, not"):
        consumer.subscribe("Orders", "*", handler)
    with pytest.raises(TypeError, match="a handler must be"):
        consumer.on("Orders")(handler)


@pytest.mark.parametrize("handler", [print, Counting().handle, Counting(), lambda *messages: None])
def test_whatever_can_take_a_message_is_a_handler(handler: Callable[[Any], Any]) -> None:
    PushConsumer("billing", "a:1").subscribe("Orders", "*", handler)


def test_type_checkers_know_what_a_handler_takes() -> None:
    consumer = PushConsumer("billing", "a:1")
    consumer.subscribe("Orders1", "*", Counting().handle)
    consumer.subscribe("Orders2", "*", Counting().handle_all)
    consumer.on("Orders3")(Counting())
    consumer.subscribe("Orders4", "*", takes_text)  # type: ignore[arg-type]
    consumer.on("Orders5")(takes_text)  # type: ignore[type-var]
    waiting = blocking.PushConsumer("billing", "a:1")
    waiting.subscribe("Orders6", "*", Counting().handle)
    waiting.subscribe("Orders7", "*", takes_text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("*", "*"),
        ("Created", "*"),
        ("*", "Paid"),
        ("A || B", "B || C"),
        ("Paid", Sql("a > 1")),
    ],
)
def test_a_second_handler_that_would_share_messages_is_refused(first: str | Sql, second: str | Sql) -> None:
    consumer = PushConsumer("billing", "a:1")
    consumer.subscribe("Orders", first, print)
    with pytest.raises(StateError, match=r"the topic Orders has a handler for .* already"):
        consumer.subscribe("Orders", second, print)
    with pytest.raises(StateError, match="would share messages with it"):
        consumer.subscribe("Orders", second)


async def test_a_handler_can_be_replaced_after_unsubscribing() -> None:
    consumer = PushConsumer("billing", "a:1")
    consumer.subscribe("Orders", "Created", print)
    consumer.subscribe("Orders", "Paid")
    await consumer.unsubscribe("Orders")
    consumer.subscribe("Orders", "*", print)


def test_a_decorator_without_a_topic_is_refused_at_once() -> None:
    for consumer in (PushConsumer("billing", "a:1"), blocking.PushConsumer("billing", "a:1")):
        with pytest.raises(ConfigError, match="the topic must be str"):
            consumer.on(takes_text)  # type: ignore[arg-type]


async def test_a_closed_consumer_takes_no_subscription() -> None:
    pulling, popping = PullConsumer("billing", "127.0.0.1:9"), SimpleConsumer("billing", "127.0.0.1:9")
    for consumer in (pulling, popping):
        await consumer.start()
        await consumer.close()
        with pytest.raises(StateError, match="the consumer is closed"):
            consumer.subscribe("Orders")


def test_a_consumer_without_a_subscription_does_not_run() -> None:
    for consumer in (PushConsumer("billing", "a:1"), blocking.PushConsumer("billing", "a:1")):
        with pytest.raises(StateError, match="the consumer has no subscription"):
            consumer.run()


@pytest.mark.parametrize("group", [None, 5])
def test_a_group_that_is_no_text_is_a_bad_setting(group: Any) -> None:
    with pytest.raises(ConfigError, match="the group must be str"):
        PushConsumer(group, "a:1")
    with pytest.raises(ConfigError, match="the topic must be str"):
        PushConsumer("billing", "a:1").subscribe(group)


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        (None, "expression must be tags"),
        (takes_text, "expression must be tags"),
        (["Created", "Paid"], "expression must be tags"),
        ("||", "has no tag"),
        (Sql("price >"), "incomplete"),
        (Sql(None), "Sql takes an expression"),  # type: ignore[arg-type]
        ("price > 10", r"looks like SQL, but is one tag: write Sql\('price > 10'\)"),
        ("region = 'eu'", "looks like SQL"),
        ("price IS NULL", "looks like SQL"),
        ("Created | Paid", r"one tag: for several write \"Created \|\| Paid\""),
        ("Created && Paid", "one tag: for several"),
        ("Created, Paid", "one tag: for several"),
    ],
)
def test_an_expression_that_is_none_is_refused_when_it_is_given(expression: Any, complaint: str) -> None:
    for consumer in (PushConsumer("billing", "a:1"), PullConsumer("billing", "a:1")):
        with pytest.raises(BadExpression, match=complaint):
            consumer.subscribe("Orders", expression)


@pytest.mark.parametrize("expression", ["", "*", "R&D", "k=v", "two words", "a,b", "Island in", Sql("a > 1")])
def test_odd_tags_are_tags(expression: str | Sql) -> None:
    PushConsumer("billing", "a:1").subscribe("Orders", expression)


def test_a_delay_level_that_is_no_number_is_refused_where_it_is_asked_for() -> None:
    with pytest.raises(TypeError, match="delay_level must be an int, not '3'"):
        RetryLater(delay_level="3")  # type: ignore[arg-type]
