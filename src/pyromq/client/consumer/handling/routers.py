"""Handlers apart from a consumer, and code around them.

A router remembers handlers; any number of consumers may include it, one after the other or at once. A
middleware is a function of the message (or the list of messages) that returns a context manager: one form for
async and plain handlers. The first one that was added is the outermost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, NamedTuple, TypeAlias, TypeVar

from pyromq.client.consumer.handling.handlers import HandlerFunction, as_decorator, check_takes_one
from pyromq.client.consumer.reading.subscriptions import Expression, Subscription, check_topic

F = TypeVar("F", bound=HandlerFunction)

Middleware: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""Called with what the handler gets: a message, or a list of them if `batch_size` is set."""


class Route(NamedTuple):
    topic: str
    expression: Expression
    function: HandlerFunction


class Router:
    """`@router.on("Orders", "Paid")` over a handler; `consumer.include(router)` subscribes to all of them."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def __repr__(self) -> str:
        return f"<Router of {', '.join(sorted({route.topic for route in self._routes})) or 'nothing'}>"

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def on(self, topic: str, expression: Expression = "*") -> Callable[[F], F]:
        """The handler of a topic, as `PushConsumer.on`."""
        check_topic(topic)
        Subscription.of(topic, expression, 0)

        def put(function: HandlerFunction) -> None:
            check_takes_one(function)
            self._routes.append(Route(topic, expression, function))

        return as_decorator(put)


def surrounded(function: Callable[[Any], Any], middlewares: Sequence[Middleware]) -> Callable[[Any], Any]:
    """The function with all of them around it."""

    def handle(given: Any) -> Any:
        with ExitStack() as stack:
            for middleware in middlewares:
                stack.enter_context(middleware(given))
            return function(given)

    async def handle_async(given: Any) -> Any:
        with ExitStack() as stack:
            for middleware in middlewares:
                stack.enter_context(middleware(given))
            return await function(given)

    is_async = iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    return wraps(function)(handle_async if is_async else handle)
