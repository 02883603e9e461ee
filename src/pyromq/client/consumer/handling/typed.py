"""Handlers of decoded bodies: `@typed(Order)` over `def handle(order: Order, message: ReceivedMessage)`.

A body that cannot be decoded becomes a dead letter at once: a retry would not help.
"""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from pyromq.client.json_bodies import check_type
from pyromq.client.values import ReceivedMessage

T = TypeVar("T")
R = TypeVar("R")

TypedFunction = Callable[[T], R] | Callable[[T, ReceivedMessage], R]
"""Takes the decoded body and, if it wants, the message with its bytes, id and keys."""


def typed(body: type[T]) -> Callable[[TypedFunction[T, R]], Callable[[ReceivedMessage], R]]:
    """Make a handler of a function, plain or async, that takes a decoded JSON body: `@typed(Order)`.

    The function may take the message as its second argument. Raises BadBody, like `ReceivedMessage.decode`.
    """
    check_type(body)

    def decorate(function: TypedFunction[T, R]) -> Callable[[ReceivedMessage], R]:
        takes_message = _takes_two(function)
        call: Callable[..., Any] = function

        def handle(message: ReceivedMessage) -> Any:
            value = message.decode(body)
            return call(value, message) if takes_message else call(value)

        async def handle_async(message: ReceivedMessage) -> Any:
            return await handle(message)

        handler = handle_async if inspect.iscoroutinefunction(function) else handle
        handler = wraps(function)(handler)
        del handler.__wrapped__  # its signature is another one
        return handler

    return decorate


def _takes_two(function: Callable[..., object]) -> bool:
    wanted = "typed takes a function of a body, and perhaps a message, not"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        raise TypeError(f"{wanted} {function!r}") from None
    for count in (2, 1):
        try:
            signature.bind(*[None] * count)
        except TypeError:
            continue
        return count == 2
    raise TypeError(f"{wanted} one that takes {signature}")
