"""Code around sends and handlers: a function of the message that returns a context manager.

One form for asyncio and for plain programs. The first one that was added is the outermost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeAlias

from pyromq.client.values import Message

Middleware: TypeAlias = Callable[[Any], AbstractContextManager[object]]
"""Called with what is sent or handled: a message, or a list of messages."""


@contextmanager
def entered(middlewares: Sequence[Middleware], given: Any) -> Iterator[Any]:
    """All of them around a block, which gets what is to be sent: a Message, or a list, that one of them
    yields takes the place of the other."""
    with ExitStack() as stack:
        for middleware in middlewares:
            changed = stack.enter_context(middleware(given))
            if isinstance(changed, Message | list):
                given = changed
        yield given


def surrounded(function: Callable[..., Any], middlewares: Sequence[Middleware]) -> Callable[..., Any]:
    """The function, async or plain, with all of them around it."""

    def call(message: Any, *args: Any, **options: Any) -> Any:
        with entered(middlewares, message) as changed:
            return function(changed, *args, **options)

    async def call_async(message: Any, *args: Any, **options: Any) -> Any:
        with entered(middlewares, message) as changed:
            return await function(changed, *args, **options)

    is_async = iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    return wraps(function)(call_async if is_async else call)
