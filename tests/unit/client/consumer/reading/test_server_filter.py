"""The source of a filter is the whole filter, or the function is refused."""

import functools
import json
import math
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from pyromq.client.consumer.reading.server_filter import ServerFilter
from pyromq.client.consumer.reading.subscriptions import Sql, Subscription, chosen_expression
from pyromq.client.values import ReceivedMessage
from pyromq.errors import BadExpression, ConfigError
from pyromq.protocol.body import MessageQueue
from pyromq.protocol.record import StoredMessage

LIMIT, REGIONS, PATTERN = 100, ("eu", "us"), re.compile("x")
NOT_A_NUMBER = math.nan


def received(body: bytes) -> ReceivedMessage:
    stored = StoredMessage(topic="Orders", body=body, queue_id=0, queue_offset=0)
    return ReceivedMessage(stored, MessageQueue("Orders", "broker-a", 0))


def is_large(message: ReceivedMessage, context: Any) -> bool:
    order = json.loads(message.body)
    return order["region"] in REGIONS and any(Decimal(each) > LIMIT for each in order["amounts"])


def match(message: ReceivedMessage) -> bool:
    return len(message.body) > 3


def loaded(function: Callable[..., bool]) -> Callable[..., bool]:
    """The function as a filter server has it: made from the source alone."""
    names: dict[str, Any] = {}
    exec(compile(ServerFilter.of(function).source, "<filter>", "exec"), names)
    found: Callable[..., bool] = names["match"]
    return found


def test_a_function_works_from_its_source_alone() -> None:
    again = loaded(is_large)
    assert again(received(b'{"region": "eu", "amounts": ["1", "100.5"]}'), None)
    assert not again(received(b'{"region": "asia", "amounts": ["200"]}'), None)
    assert loaded(match)(received(b"four"))


def test_a_function_inside_another_one_works_too() -> None:
    def is_short(message: ReceivedMessage) -> bool:
        return len(message.body) < 3

    assert loaded(is_short)(received(b"12"))


def uses_a_pattern(message: ReceivedMessage) -> bool:
    return PATTERN.search(message.body.decode()) is not None


def uses_another_function(message: ReceivedMessage) -> bool:
    return match(message)


def uses_what_has_no_text(message: ReceivedMessage) -> bool:
    return len(message.body) > NOT_A_NUMBER


def uses_a_missing_name(message: ReceivedMessage) -> bool:
    return message.body == absent  # type: ignore[name-defined,no-any-return]  # noqa: F821


@functools.cache
def is_decorated(message: ReceivedMessage) -> bool:
    return True


async def is_async(message: ReceivedMessage) -> bool:
    return True


def takes_three(message: ReceivedMessage, context: Any, more: int) -> bool:
    return True


def takes_any(*messages: ReceivedMessage) -> bool:
    return True


def closure() -> Callable[..., bool]:
    limit = 7
    return lambda message: len(message.body) > limit


def inner_closure() -> Callable[..., bool]:
    limit = 7

    def is_long(message: ReceivedMessage) -> bool:
        return len(message.body) > limit

    return is_long


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (uses_a_pattern, "define PATTERN in it"),
        (uses_another_function, "define match in it"),
        (uses_what_has_no_text, "define NOT_A_NUMBER in it"),
        (uses_a_missing_name, "absent to be defined"),
        (is_decorated, "made with `def`"),
        (is_async, "not async"),
        (takes_three, r"a function of \(message, context\)"),
        (takes_any, r"a function of \(message, context\)"),
        (closure(), "made with `def`"),
        (inner_closure(), "nothing of the functions around it: limit"),
        (len, "made with `def`"),
    ],
)
def test_a_function_that_is_not_the_whole_filter_is_refused(
    function: Callable[..., bool], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        ServerFilter.of(function)


def test_a_function_without_a_file_is_refused() -> None:
    names: dict[str, Any] = {}
    exec("def match(message): return True", names)
    with pytest.raises(ConfigError, match="cannot be read"):
        ServerFilter.of(names["match"])


def test_a_subscription_has_an_expression_or_a_filter() -> None:
    assert chosen_expression("Paid", None) == "Paid"
    assert chosen_expression("*", is_large) == ServerFilter.of(is_large)
    for expression in ("Paid", Sql("a > 1")):
        with pytest.raises(BadExpression, match="either the expression"):
            chosen_expression(expression, is_large)


def test_brokers_learn_that_a_filter_server_filters() -> None:
    subscription = Subscription.of("Orders", ServerFilter.of(is_large), 5)
    data = subscription.data()
    assert (data.class_filter_mode, data.sub_string, data.sub_version) == (True, "is_large", 5)
    assert subscription.wants("any tag")
    assert not Subscription.of("Orders", "*", 5).data().class_filter_mode


def test_a_file_must_be_a_module(tmp_path: Path) -> None:
    file = tmp_path / "large.wasm"
    with pytest.raises(ConfigError, match="No such file"):
        ServerFilter.of(file)
    file.write_bytes(b"def match(message): ...")
    with pytest.raises(ConfigError, match="00 61 73 6d"):
        ServerFilter.of(file)
    file.write_bytes(b"\0asm\1\0\0\0")
    assert chosen_expression("*", file) == ServerFilter("large", b"\0asm\1\0\0\0")
