"""Handlers apart from a consumer: any number of consumers may include a router, in turn or at once."""

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from pyromq.client.codecs import Codec
from pyromq.client.consumer.handling.handlers import HandlerFunction, as_decorator, check_takes_one
from pyromq.client.consumer.handling.typed import bound
from pyromq.client.consumer.reading.server_filter import FilterCode
from pyromq.client.consumer.reading.subscriptions import (
    Expression,
    Subscription,
    check_topic,
    chosen_expression,
)

F = TypeVar("F", bound=HandlerFunction)


class HandlerRoute(NamedTuple):
    topic: str
    expression: Expression
    function: HandlerFunction


class Router:
    """`@router.on("Orders", "Paid")` over a handler; `consumer.include(router)` subscribes to all of them."""

    def __init__(self, *, codec: Codec | None = None) -> None:
        """`codec`: of typed handlers that have none; by default that of the consumer."""
        self._codec = codec
        self._routes: list[HandlerRoute] = []

    def __repr__(self) -> str:
        return f"<Router of {', '.join(sorted({route.topic for route in self._routes})) or 'nothing'}>"

    def __iter__(self) -> Iterator[HandlerRoute]:
        return iter(self._routes)

    def on(
        self, topic: str, expression: Expression = "*", *, filter: FilterCode | None = None
    ) -> Callable[[F], F]:
        """The handler of a topic, as `PushConsumer.on`."""
        check_topic(topic)
        chosen = chosen_expression(expression, filter)
        Subscription.of(topic, chosen, 0)

        def put(function: HandlerFunction) -> None:
            check_takes_one(function)
            if self._codec is not None:
                function = bound(function, self._codec)
            self._routes.append(HandlerRoute(topic, chosen, function))

        return as_decorator(put)
