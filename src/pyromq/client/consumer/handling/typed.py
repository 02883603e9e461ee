"""Handlers of decoded bodies: `@typed(Order)` over `def handle(order: Order, message: ReceivedMessage)`.

A body that cannot be decoded becomes a dead letter at once: a retry would not help. Of a batch, as in
`@typed(list[Order])`, only that body does; the function gets the others.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast, get_args, get_origin, overload
from weakref import WeakKeyDictionary

from pyromq.client.codecs import JSON, Codec, check_type
from pyromq.client.consumer.handling.outcomes import GiveUp, RetryLater
from pyromq.client.values import ReceivedMessage
from pyromq.errors import BadBody

E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

TypedFunction = Callable[[T], R] | Callable[[T, ReceivedMessage], R]
"""Takes the decoded body and, if it wants, the message with its bytes, id and keys."""


@overload
def typed(
    body: type[list[E]], *, codec: Codec | None = None
) -> Callable[
    [TypedFunction[list[E], R] | Callable[[list[E], list[ReceivedMessage]], R]], Callable[[Any], R]
]: ...


@overload
def typed(
    body: type[T], *, codec: Codec | None = None
) -> Callable[[TypedFunction[T, R]], Callable[[ReceivedMessage], R]]: ...


def typed(body: Any, *, codec: Codec | None = None) -> Any:
    """Make a handler of a function, plain or async, that takes a decoded body: `@typed(Order)`.

    The function may take the message as its second argument. With `batch_size` the type is a list, as in
    `list[Order]`, for which each body is an Order. `codec`: by default that of the router or consumer.
    Raises BadBody, like `ReceivedMessage.decode`.
    """
    check_type(codec or JSON, body)

    def decorate(function: Callable[..., Any]) -> Callable[[Any], Any]:
        takes_message = _takes_two(function)

        def bind(codec: Codec) -> Callable[[Any], Any]:
            def call(values: Any, messages: Any) -> Any:
                return function(values, messages) if takes_message else function(values)

            def handle(message: Any) -> Any:
                if type(message) is not list:
                    return call(message.decode(body, codec=codec), message)
                with _good_ones(message, body, codec) as (values, messages):
                    return call(values, messages) if values else None

            async def handle_async(message: Any) -> Any:
                if type(message) is not list:
                    return await call(message.decode(body, codec=codec), message)
                with _good_ones(message, body, codec) as (values, messages):
                    return await call(values, messages) if values else None

            handler = handle_async if inspect.iscoroutinefunction(function) else handle
            handler = wraps(function)(handler)
            del handler.__wrapped__  # its signature is another one
            return handler

        handler = bind(codec or JSON)
        if codec is None:
            _BINDS[handler] = bind
        return handler

    return decorate


_BINDS: WeakKeyDictionary[Callable[..., Any], Callable[[Codec], Callable[[Any], Any]]] = WeakKeyDictionary()
"""Handlers that were given no codec, and how to give them one."""


def bound(function: F, codec: Codec) -> F:
    """A typed handler without a codec with this one; any other function as it is."""
    try:
        bind = _BINDS.get(function)
    except TypeError:  # some callables cannot be referred to weakly
        return function
    return function if bind is None else cast(F, bind(codec))


@contextmanager
def _good_ones(
    batch: list[ReceivedMessage], body: Any, codec: Codec
) -> Iterator[tuple[list[Any], list[ReceivedMessage]]]:
    """The values of the messages that can be decoded; the others are given up after the block."""
    if get_origin(body) is not list:
        raise TypeError(f"the handler gets batches: typed must take a list, as in list[Order], not {body!r}")
    (type_,) = get_args(body)
    values, good, bad, reason = list[Any](), list[ReceivedMessage](), list[ReceivedMessage](), ""
    for message in batch:
        try:
            values.append(message.decode(type_, codec=codec))
            good.append(message)
        except BadBody as problem:
            bad.append(message)
            reason = reason or repr(problem)
    try:
        yield values, good
    except RetryLater as problem:
        if problem.only is not None:
            problem.only = [*problem.only, *bad]  # else they would count as handled
        raise
    if bad:
        raise GiveUp(reason, only=bad)


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
