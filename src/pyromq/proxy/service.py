"""The rpcs of apache.rocketmq.v2.MessagingService: which part answers which, and how it fails.

A refusal is an ordinary answer whose status says why; gRPC itself reports success. Rpcs that are not listed
are not implemented, as in Apache's proxy.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from pyromq.errors import PyroError
from pyromq.proxy.codes import status_of
from pyromq.proxy.grpc.call import Call, Method, Shape
from pyromq.proxy.messages import SERVICE, rpc_types

Handler = Callable[..., Awaitable[Any]]


def methods(handlers: dict[str, Handler]) -> dict[str, Method]:
    """The table of a gRPC server, by path."""
    table: dict[str, Method] = {}
    for name, rpc in rpc_types().items():
        handler = handlers.get(name)
        if handler is None:
            continue
        if rpc.has_request_stream:
            method = Method(Shape.BOTH_STREAMS, rpc.request_type, handler)
        elif rpc.has_answer_stream:
            method = Method(Shape.ANSWER_STREAM, rpc.request_type, handler)
        else:
            method = Method(Shape.UNARY, rpc.request_type, _answering(handler, rpc.answer_type))
        table[f"/{SERVICE}/{name}"] = method
    return table


def _answering(handler: Handler, answer_type: Any) -> Handler:
    async def answer(request: Any, call: Call) -> Any:
        try:
            return await handler(request, call)
        except PyroError as problem:
            return answer_type(status=status_of(problem))

    return answer
