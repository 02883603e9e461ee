"""The rpcs of apache.rocketmq.v2.MessagingService: which part answers which, and how it fails.

A refusal is an ordinary answer whose status says why; gRPC itself reports success. Rpcs that are not listed
are not implemented, as in Apache's proxy.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from types import CoroutineType
from typing import Any

from pyromq.errors import PyroError
from pyromq.proxy.cluster import FrontAdmission
from pyromq.proxy.codes import Code, status_of
from pyromq.proxy.grpc.call import Call, Later, Method, Quick, Shape
from pyromq.proxy.grpc.status import GrpcCode, GrpcError
from pyromq.proxy.messages import SERVICE, Rpc, rpc_types

Handler = Callable[..., Any]
"""A coroutine function; that of a unary call may return a Later instead."""


Observe = Callable[[str, int, float | None], None]
"""Takes the name of an rpc that ended, its status, and the seconds it took; None for a stream."""


def methods(
    handlers: dict[str, Handler],
    admission: FrontAdmission | None = None,
    observe: Observe | None = None,
    quick: Mapping[str, Quick] | None = None,
) -> dict[str, Method]:
    """The table of a gRPC server, by path; with an admission the sender of every call is known.

    `quick`: what takes plain calls before their handlers do; there must be none with an admission.
    """
    table: dict[str, Method] = {}
    for name, rpc in rpc_types().items():
        handler = handlers.get(name)
        if handler is None:
            continue
        if rpc.has_request_stream:
            method = Method(Shape.BOTH_STREAMS, rpc.request_type, _identified_stream(handler, admission))
        elif rpc.has_answer_stream:
            method = Method(Shape.ANSWER_STREAM, rpc.request_type, _identified(handler, rpc, admission))
        else:
            method = _unary(handler, rpc, name, admission, observe, (quick or {}).get(name))
        if observe is not None and method.shape is not Shape.UNARY:
            method = Method(method.shape, rpc.request_type, _observed_stream(method.handler, name, observe))
        table[f"/{SERVICE}/{name}"] = method
    return table


def _unary(
    handler: Handler,
    rpc: Rpc,
    name: str,
    admission: FrontAdmission | None,
    observe: Observe | None,
    quick: Quick | None,
) -> Method:
    translate = partial(_translated, answer_type=rpc.answer_type)
    handler = _answering(handler, rpc.answer_type, admission)
    if observe is None:
        return Method(Shape.UNARY, rpc.request_type, handler, quick, translate)
    observed = _Observed(handler, name, observe)
    return Method(
        Shape.UNARY,
        rpc.request_type,
        observed.answer,
        quick,
        lambda work: observed.go_on(partial(translate, work), time.perf_counter()),
        partial(observe, name),
    )


def _observed_stream(handler: Handler, name: str, observe: Observe) -> Handler:
    async def stream(*arguments: Any) -> None:
        status = int(Code.INTERNAL_SERVER_ERROR)
        try:
            await handler(*arguments)
            status = int(Code.OK)
        except asyncio.CancelledError:
            status = int(GrpcCode.CANCELLED)
            raise
        except GrpcError as error:
            status = int(error.code)
            raise
        finally:
            observe(name, status, None)

    return stream


def _identified_stream(handler: Handler, admission: FrontAdmission | None) -> Handler:
    if admission is None:
        return handler

    async def stream(call: Call) -> None:
        try:
            call.user = admission.identify(call)
        except PyroError as problem:
            raise GrpcError(GrpcCode.UNAUTHENTICATED, str(problem)) from None
        await handler(call)

    return stream


def _identified(handler: Handler, rpc: Rpc, admission: FrontAdmission | None) -> Handler:
    if admission is None:
        return handler

    async def answer(request: Any, call: Call) -> None:
        try:
            call.user = admission.identify(call)
        except PyroError as problem:
            await call.send(rpc.answer_type(status=status_of(problem)))
            return
        await handler(request, call)

    return answer


def _answering(handler: Handler, answer_type: Any, admission: FrontAdmission | None) -> Handler:
    def identified(request: Any, call: Call) -> Any:
        if admission is not None:
            call.user = admission.identify(call)
        return handler(request, call)

    return lambda request, call: _translated(partial(identified, request, call), answer_type)


def _translated(work: Callable[[], Any], answer_type: Any) -> Any:
    """The result of `work`; a refusal becomes an answer, now or later."""
    try:
        answered = work()
    except PyroError as problem:
        return answer_type(status=status_of(problem))
    if type(answered) is Later:
        return Later(answered.waiting, partial(_translated, answered.answer, answer_type))
    return _awaited(answered, answer_type) if isinstance(answered, CoroutineType) else answered


async def _awaited(answering: Coroutine[Any, Any, Any], answer_type: Any) -> Any:
    try:
        return await answering
    except PyroError as problem:
        return answer_type(status=status_of(problem))


class _Observed:
    """Times the calls of one rpc, whichever way they are answered."""

    def __init__(self, handler: Handler, name: str, observe: Observe) -> None:
        self._handler = handler
        self._name = name
        self._observe = observe

    def answer(self, request: Any, call: Call) -> Any:
        return self.go_on(partial(self._handler, request, call), time.perf_counter())

    def go_on(self, work: Callable[[], Any], began: float) -> Any:
        answered = work()
        if type(answered) is Later:
            return Later(answered.waiting, partial(self.go_on, answered.answer, began))
        if isinstance(answered, CoroutineType):
            return self._awaited(answered, began)
        self._observe(self._name, answered.status.code, time.perf_counter() - began)
        return answered

    async def _awaited(self, answering: Coroutine[Any, Any, Any], began: float) -> Any:
        status = int(Code.INTERNAL_SERVER_ERROR)
        try:
            answered = await answering
            status = answered.status.code
            return answered
        finally:
            self._observe(self._name, status, time.perf_counter() - began)
