"""Mistakes of programs that use consumers are found when they are made, not at the first message.

The comments for the type checker are part of it: it complains of one that is not needed.
"""

from collections.abc import Callable
from typing import Any

import pytest

from pyromq.aio import PushConsumer
from pyromq.client.consumer import blocking
from pyromq.client.values import ReceivedMessage
from pyromq.errors import ConfigError, StateError


def takes_nothing() -> None: ...


def takes_two(message: ReceivedMessage, more: int) -> None: ...


def takes_text(text: str) -> None: ...


class Counting:
    def handle(self, message: ReceivedMessage) -> None: ...

    async def handle_all(self, messages: list[ReceivedMessage]) -> None: ...

    def __call__(self, message: ReceivedMessage, more: int = 0) -> None: ...


@pytest.mark.parametrize("handler", ["handle", 5, takes_nothing, takes_two, Counting.handle])
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
    consumer.subscribe("Orders", "*", Counting().handle)
    consumer.subscribe("Orders", "*", Counting().handle_all)
    consumer.on("Orders")(Counting())
    consumer.subscribe("Orders", "*", takes_text)  # type: ignore[arg-type]
    consumer.on("Orders")(takes_text)  # type: ignore[type-var]


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
